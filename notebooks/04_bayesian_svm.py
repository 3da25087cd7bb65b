# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A support vector machine with a likelihood
#
# **What does a support vector machine gain from a likelihood, and which of its answers can be
# trusted?**
#
# The trigonometric SVM of Chu, Keerthi, Ong and Ghahramani is a Gaussian process classifier whose
# likelihood is constant beyond a margin. Its mode is therefore sparse, like that of an SVM. Unlike
# an SVM it has predictive probabilities and an evidence. One parameter for each feature ranks the
# features.

# %%
import os
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import ardvark as av

fast = os.environ.get("ARDVARK_FAST") == "1"
draws = 250 if fast else 1000

# %% [markdown]
# ## Support vectors, and probabilities that can be believed
#
# Ripley's two mixtures, with 100 rows for training and 1000 for testing. Rows inside the margin are
# the support vectors (rings). The decision values of an SVM are not probabilities. Here a
# probability is the mean of the likelihood under a Gaussian, and the calibration curve on the right
# should follow the diagonal.

# %%
ripley = av.load("ripley", n=100, n_test=1000, seed=3)
train, test = ripley.splits[0].train, ripley.splits[0].test
X, t = np.asarray(ripley.X), np.asarray(ripley.t)
svm = av.models.trigonometric_svm(X[train], t[train])
starts = 2 if fast else 10
tree = av.fit(svm, av.Laplace(hyper=av.Evidence(start=("random", starts))), random_seed=1)
support = tree["fit"].support.values

side = np.linspace(-1.4, 1.2, 60), np.linspace(-0.4, 1.3, 60)
square = np.column_stack([axis.ravel() for axis in np.meshgrid(*side)])
surface = av.predict(svm, tree, square).values[:, 1].reshape(60, 60)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
left.scatter(*X[train].T, c=t[train], cmap="coolwarm", s=14)
left.scatter(*X[train][support].T, s=70, facecolors="none", edgecolors="k")
left.contour(*side, surface, levels=[0.1, 0.5, 0.9], colors="k", linestyles=["--", "-", "--"])
left.set_title(f"{support.sum()} support vectors; lines: 10, 50, 90 %", fontsize=10)

probability = av.predict(svm, tree, X[test]).values[:, 1]
bins = np.digitize(probability, [0.05, 0.2, 0.4, 0.6, 0.8, 0.95])
table = pd.DataFrame({"bin": bins, "said": probability, "seen": t[test]}).groupby("bin")
said, seen, count = table.said.mean(), table.seen.mean(), table.size()
right.errorbar(said, seen, 2 * np.sqrt(seen * (1 - seen) / count), fmt="o")
right.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
right.set_xlabel("probability of the second class")
right.set_ylabel("share of it in the test rows (2 se)")
error = 100 * np.mean((probability > 0.5) != t[test])
print(f"test error {error:.1f} % (no rule can do better than 8.9 %)")

# %% [markdown]
# ## Which features?
#
# This is a small version of Madelon: the class is the side of a curved surface in three inputs, two
# of which only matter together. Fisher's score and a linear ARD model look at features one by one
# and find the third. RELIEF and the relevances of the SVM (averaged over all optima, with their sd)
# find more.

# %%
rng = np.random.default_rng(6)
X = rng.normal(size=(150, 10))
t = (2 * X[:, 2] * X[:, 5] + X[:, 8] + 0.3 * rng.normal(size=150) > 0).astype(int)
chosen, machines = {}, {}
for ranking in ("relevance", "fisher", "relief"):
    chosen[ranking] = av.select_features(
        X, t, ranking=ranking, learner="loo", beyond=True, most=8, starts=starts, random_seed=1,
        progressbar=False,
    )  # fmt: skip
linear = av.models.ard_classification(X, t)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", av.errors.AccuracyWarning)
    by_ard = av.relevance(av.fit(linear, "ep", draws=100, random_seed=1))
ranks = pd.DataFrame({name: selection["rank"].to_series() for name, selection in chosen.items()})
ranks["linear ARD"] = by_ard.loc[ranks.index, "rank"]
ranks.T

# %% [markdown]
# As in figures 2 and 3 of the paper, features are ranked, and a classifier is fitted to the first
# 1, 2, ... of them. Here the classifier is the SVM itself, scored by leave-one-out from EP's
# cavities, which needs neither folds nor a grid.

# %%
av.plot.selection(chosen["relevance"])

# %%
av.plot.selection(chosen["fisher"])

# %% [markdown]
# ## The evidence and its jumps
#
# There is one input and one free parameter. Laplace's evidence, which the paper uses, is
# discontinuous: it jumps whenever a row enters the margin, because the curvature of that row counts
# from there on. The jump is half the log of 1 + π²q/8, with q the variance of the row. EP's
# evidence is continuous, and `log_evidence_correction` estimates its error.

# %%
rng = np.random.default_rng(5)
x = np.sort(rng.uniform(-3, 3, 24))[:, None]
label = ((x[:, 0] > 0) ^ (np.sin(5 * x[:, 0]) > 0.6)).astype(int)
line = av.models.trigonometric_svm(x, label, kernel=av.ARDGaussian(kappa_0=6.0, kappa_b=1.0))
grid = np.linspace(-4, 5, 30 if fast else 120)
landscape = {"Laplace, (15)": [], "EP": [], "EP, corrected": []}
for log_kappa in grid:
    hyper = av.Fixed({"kappa_a": [np.exp(log_kappa)]})
    by_laplace = av.fit(line, av.Laplace(hyper=hyper), draws=4, random_seed=1, progressbar=False)
    by_ep = av.fit(line, av.EP(hyper=hyper), draws=4, random_seed=1, progressbar=False)
    evidence = float(by_ep["fit"].log_evidence)
    landscape["Laplace, (15)"].append(float(by_laplace["fit"].log_evidence))
    landscape["EP"].append(evidence)
    landscape["EP, corrected"].append(evidence + float(by_ep["fit"].log_evidence_correction))
figure, axis = plt.subplots(figsize=(7, 4))
for (name, values), style in zip(landscape.items(), (".-", "-", "--"), strict=True):
    axis.plot(grid, values, style, label=name)
axis.set_xlabel("log kappa_a")
axis.set_ylabel("log evidence")
axis.legend()

# %% [markdown]
# As in figure 1 of the paper: the evidence above has two maxima, and a search from each side finds
# both. The posterior of the hyperparameter is approximated by one Gaussian for each, (17), weighted
# by their heights (18). The widths are an assumption; the grey curve is EP's evidence itself.

# %%
both = [{"kappa_a": [0.3]}, {"kappa_a": [10.0]}]
tops = av.fit(line, av.EP(hyper=av.Evidence(start=both)), draws=4, random_seed=1)
figure, axis = plt.subplots(figsize=(7, 4))
av.plot.optima(tops, "kappa_a", "x0", sd=0.7, axis=axis)
density = np.exp(np.array(landscape["EP"]) - max(landscape["EP"]))
axis.plot(grid, density / np.trapezoid(density, grid), color="0.7", label="EP's evidence")
axis.legend()
tops["optima"].to_dataset()[["log_evidence", "weight", "kappa_a"]].to_dataframe()

# %% [markdown]
# ## Four answers at the same hyperparameters
#
# Elliptical slice sampling is the reference: an exact chain that never leaves the support of the
# likelihood. NUTS is exact too, but its trajectories cross the boundary where the likelihood
# becomes zero, and it reports divergences. Laplace sits at the mode, which is not the mean.

# %%
best = av.Fixed(tops)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", av.errors.ConvergenceWarning)  # it is printed below
    answers = {
        "laplace": av.fit(line, av.Laplace(hyper=best), draws=draws, random_seed=1),
        "ep": av.fit(line, av.EP(hyper=best), draws=draws, random_seed=2),
        "slices": av.fit(line, av.EllipticalSlice(hyper=best), draws=draws, random_seed=3),
        "nuts": av.fit(line, av.NUTS(hyper=best), draws=draws, random_seed=4, progressbar=False),
    }
print("NUTS says:", answers["nuts"].attrs["problems"])
columns = ["worst_mean_error", "worst_sd_ratio", "log_evidence", "seconds"]
av.compare(answers, reference="slices", detail=True)[columns]

# %%
new = np.linspace(-4, 4, 200)[:, None]
figure, axis = plt.subplots(figsize=(7, 4))
axis.plot(x[:, 0], label, "k|", markersize=12)
for name, style in zip(answers, ("--", "-", "-", ":"), strict=True):
    axis.plot(new, av.predict(line, answers[name], new).values[:, 1], style, label=name)
axis.set_xlabel("x")
axis.set_ylabel("probability of the second class")
axis.legend()

# %% [markdown]
# ## To remember
#
# - The likelihood is constant beyond the margin, so the mode is sparse; it is normalised, so there
#   is an evidence.
# - Relevances averaged over all optima find inputs that only matter together; scores of single
#   features do not.
# - Laplace's evidence jumps where a row enters the margin. EP's does not.
# - Use elliptical slice sampling as the reference: NUTS has divergences at the boundary of the
#   likelihood.
