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
# # The relevance vector machine
#
# **What makes a relevance vector machine sparse, how is its kernel chosen, and can its error bars
# be believed?**
#
# These are the pictures of Tipping's lecture on sparse Bayesian models, and one that it leaves out:
# what the predictive error bars do far from the data, and whether averaging over the precisions
# helps.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import ardvark as av

fast = os.environ.get("ARDVARK_FAST") == "1"

# %% [markdown]
# ## Three priors of two weights
#
# The first prior is a Gaussian. In the second one common precision is integrated out, which gives a
# spherical Student-t. In the third each weight has its own precision, which gives a product of
# Student-t's. Only the last has its mass along the axes, and so favours sparse weights. The density
# drawn is a Student-t with one degree of freedom.

# %%
w = np.linspace(-4, 4, 161)
w1, w2 = np.meshgrid(w, w)
priors = {
    "Gaussian": stats.norm.logpdf(w1) + stats.norm.logpdf(w2),
    "one precision for both": stats.multivariate_t(np.zeros(2), np.eye(2), df=1).logpdf(
        np.dstack([w1, w2])
    ),
    "a precision each": stats.t.logpdf(w1, 1) + stats.t.logpdf(w2, 1),
}
figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), sharex=True, sharey=True)
for axis, (name, density) in zip(axes, priors.items(), strict=True):
    axis.contour(w1, w2, density, levels=density.max() - np.arange(0.5, 8, 1.0)[::-1])
    axis.set_title(name)
    axis.set_aspect("equal")

# %% [markdown]
# All three are one argument of the builder: `prior="shared"` has one precision, `"student"` has the
# precisions integrated out, and `"ard"`, the default, has one for each weight.
#
# ## Sinc, its relevance vectors circled

# %%
sinc = av.load("sinc", n=100, n_test=0, seed=0)
x, t = np.asarray(sinc.X), np.asarray(sinc.t)
model = av.models.rvm_regression(x, t, kernel=av.RBF(width=3.0))
tree = av.fit(model, "laplace", draws=100, random_seed=1)
vectors = np.isfinite(tree["theta"].alpha.values)
grid = np.linspace(-10, 10, 400)[:, None]
curve = av.predict(model, tree, grid)
mean, sd = curve.sel(statistic="mean").values, curve.sel(statistic="sd").values
figure, axis = plt.subplots(figsize=(7, 4))
axis.plot(x, t, ".", color="0.5")
axis.plot(x[vectors], t[vectors], "o", markersize=11, markerfacecolor="none", color="C3")
axis.plot(grid, mean, color="C0")
axis.fill_between(grid[:, 0], mean - 2 * sd, mean + 2 * sd, alpha=0.15)
axis.plot(grid, np.sinc(grid / np.pi), "--", color="k", linewidth=0.8)
axis.set_title(f"{vectors.sum()} relevance vectors of 100 rows (the slide: 6.7 on average)")

# %% [markdown]
# ## Ripley's data: support vectors and relevance vectors
#
# The SVM (C by cross-validation) keeps the rows near the boundary; the RVM keeps a few rows that
# are typical of their class. The Bayes error is 8.9 %.

# %%
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

ripley = av.load("ripley", n=100, n_test=1000, seed=3)
train, test = ripley.splits[0].train, ripley.splits[0].test
X, labels = np.asarray(ripley.X), np.asarray(ripley.t)
search = GridSearchCV(SVC(gamma=1 / (2 * 0.5**2)), {"C": [0.1, 1, 10, 100]}, cv=5)
svm = search.fit(X[train], labels[train]).best_estimator_
rvm = av.models.rvm_classification(X[train], labels[train], kernel=av.RBF(width=0.5))
sparse = av.fit(rvm, "laplace", draws=100, random_seed=1)
kept = np.flatnonzero(np.isfinite(sparse["theta"].alpha.values))

side = np.linspace(-1.4, 1.2, 80), np.linspace(-0.4, 1.3, 80)
square = np.column_stack([axis.ravel() for axis in np.meshgrid(*side)])
surfaces = {
    "SVM": (svm.support_, svm.decision_function(square), svm.predict(X[test])),
    "RVM": (
        kept,
        av.predict(rvm, sparse, square).values[:, 1] - 0.5,
        av.predict(rvm, sparse, X[test]).values.argmax(axis=1),
    ),
}
figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharex=True, sharey=True)
for axis, (name, (chosen, surface, predicted)) in zip(axes, surfaces.items(), strict=True):
    axis.scatter(*X[train].T, c=labels[train], cmap="coolwarm", s=14)
    axis.scatter(*X[train][chosen].T, s=90, facecolors="none", edgecolors="k")
    axis.contour(*side, surface.reshape(80, 80), levels=[0], colors="k")
    error = 100 * np.mean(predicted != labels[test])
    axis.set_title(f"{name}: error={error:.1f}% vectors={len(chosen)}")

# %% [markdown]
# ## Ockham and the kernel width
#
# The same sinc rows are fitted with many widths. A wide kernel cannot follow the data. A narrow one
# could follow any data, so the evidence of these data under it is small. But each α is set to its
# optimum here, and the evidence does not account for that: note how slowly it falls on the narrow
# side, and compare it with the true error beside it.

# %%
widths = np.geomspace(0.2, 12, 9 if fast else 25)
fits = av.fit(
    model, "laplace", draws=500, random_seed=1, data=[{"width": width} for width in widths]
)
evidence = np.array([float(fit["fit"].log_evidence) for fit in fits])
counts = [int(np.isfinite(fit["theta"].alpha).sum()) for fit in fits]
truth = np.sinc(x[:, 0] / np.pi)
means = [fit["posterior"].dataset.mean(("chain", "draw")) for fit in fits]
curves = [
    at.bias.values + av.RBF(width)(x, x) @ at.w.values
    for width, at in zip(widths, means, strict=True)
]
misfit = np.sqrt(np.mean((np.array(curves) - truth) ** 2, axis=1))
titles = ("log evidence", "RMS error to the curve", "vectors")
figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharex=True)
for axis, values, name in zip(axes, (evidence, misfit, counts), titles, strict=True):
    axis.semilogx(widths, values, "o-", markersize=4)
    axis.set_xlabel("kernel width")
    axis.set_title(name)
print(f"width of the largest evidence: {widths[evidence.argmax()]:.2f}")

# %% [markdown]
# Any function of two rows can be a kernel, positive definite or not, and the evidence compares
# kernels on the same rows:

# %%
kernels = {
    "Gaussian": av.RBF(width=3.0),
    "Laplacian": av.kernels.Laplacian(width=3.0),
    "thin plate": av.kernels.ThinPlate(),
    "spline": av.kernels.Spline(),
}
by_kernel = {
    name: av.fit(av.models.rvm_regression(x, t, kernel=kernel), "laplace", draws=4, random_seed=1)
    for name, kernel in kernels.items()
}
av.diagnostics.compare_evidence(by_kernel)

# %% [markdown]
# ## Scales of the inputs: Friedman #1
#
# There are ten inputs, of which the first five matter. One scale η for each input, found by the
# gradient of the evidence together with the precisions, makes the fit sparse in the *inputs*.

# %%
rows = 100 if fast else 240
friedman = av.load("friedman1", n=rows, n_test=1000, seed=0)
train, test = friedman.splits[0].train, friedman.splits[0].test
X = np.asarray(av.standardise(friedman.X, rows=train))
target = np.asarray(friedman.t)
centre, unit = target[train].mean(), target[train].std()
target, signal = (target - centre) / unit, (friedman.truth["signal"] - centre) / unit
machines = {"one width": av.RBF(width="median"), "η per input": av.RBF(None, per_input=True)}
found = {}
for name, kernel in machines.items():
    graph = av.models.rvm_regression(X[train], target[train], kernel=kernel)
    method = av.Laplace(hyper=av.Evidence(tolerance=1e-3))
    found[name] = av.fit(graph, method, draws=4, random_seed=1)
    predicted = av.predict(graph, found[name], X[test]).sel(statistic="mean").values
    error = unit**2 * np.mean((predicted - signal[test]) ** 2)
    count = int(np.isfinite(found[name]["theta"].alpha).sum())
    print(f"{name:12} mean square error {error:.2f}, {count} kernels")
inputs = av.relevance(found["η per input"])
figure, axis = plt.subplots(figsize=(6, 3))
axis.bar(np.arange(1, 11), inputs["scale"], color=["C0"] * 5 + ["C3"] * 5)
axis.set_yscale("log")
axis.set_xlabel("input")
axis.set_ylabel("η")
inputs

# %% [markdown]
# The order of the bars is not the order of importance. η says how quickly the function changes
# along an input; x3 and x4 enter linearly and need only a small one.
#
# ## Far from the data
#
# Every kernel function goes to zero far from the rows, and with it the model's own uncertainty. At
# x = 30 type-II maximum likelihood is certain of the bias (or of zero, where the bias was pruned),
# up to the noise. Is that because the precisions are not integrated out? NUTS on the same graph
# keeps all weights and averages over all precisions. VB (the variational relevance vector machine
# of Bishop and Tipping) does so under an assumption of independence.

# %%
few = slice(0, 100, 4)
model = av.models.rvm_regression(x[few], t[few], kernel=av.RBF(width=3.0))
nuts = av.NUTS(tune=300 if fast else 1000)
trees = {
    "type-II ML": av.fit(model, "laplace", draws=200, random_seed=1),
    "VB": av.fit(model, "vb", draws=200, random_seed=1),
    "NUTS": av.fit(model, nuts, draws=200 if fast else 1000, random_seed=1, progressbar=False),
}
wide = np.linspace(-30, 30, 241)[:, None]
figure, axes = plt.subplots(1, 2, figsize=(11, 3.6))
for name, tree in trees.items():
    said = av.predict(model, tree, wide)
    mean, sd = said.sel(statistic="mean").values, said.sel(statistic="sd").values
    axes[0].plot(wide, mean, label=name)
    axes[0].fill_between(wide[:, 0], mean - 2 * sd, mean + 2 * sd, alpha=0.15)
    axes[1].plot(wide, sd, label=name)
    places = {"0": sd[120], "12": sd[168], "30": sd[-1]}
    print(name, *(f"sd at {place}: {value:.3f}" for place, value in places.items()), sep="   ")
axes[0].plot(x[few], t[few], "k.")
axes[0].set_title("prediction ± 2 sd")
axes[1].set_title("predictive sd, the noise included")
axes[1].legend()

# %% [markdown]
# Type-II maximum likelihood has its narrowest error bars where there are no data: little more than
# the noise. Mean-field VB averages over precisions too, but takes them as independent of the
# weights. With NUTS the error bar is a third wider, and as wide far away as among the rows. But it
# does not grow: beyond a few kernel widths the weights of the rows have no influence, and only the
# bias and the noise are left. That is a property of the model, not of the method.

# %% [markdown]
# ## To remember
#
# - One precision for each weight puts the prior's mass along the axes. This is the source of
#   sparsity.
# - The evidence can choose a kernel width, and can overfit it; compare it with the error on new
#   data.
# - One scale for each input makes the fit sparse in inputs, not only in rows.
# - Type-II error bars are too narrow far from the data. Integrating over precisions widens them,
#   but no method makes them grow.
