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
# # Priors: what they say before the data, and what the answer owes to them
#
# **What does a sparse prior say before the data, and how much of the answer is its doing?**
#
# Sparse models depend on their priors. Three questions should be asked of each: what does it say
# about predictions, how much of the posterior is due to it, and which inputs are *selected* when it
# changes?

# %%
import os

import arviz_stats
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
from scipy.special import ndtr

import ardvark as av

fast = os.environ.get("ARDVARK_FAST") == "1"
settings = {"draws": 250 if fast else 1000, "random_seed": 1, "progressbar": False}

data = av.standardise(av.load("wine"))
two = data.t != 2  # two of the three cultivars
names = list(data.feature_names[:6])
X = pd.DataFrame(np.asarray(data.X)[two][:, :6], columns=names)
t = data.t[two]

# %% [markdown]
# ## Before the data
#
# Each weight has a precision α ~ Gamma(a, b). Small values of a and b look harmless
# ("uninformative"). Draws from the prior show that they are not: in nearly every draw, every row
# has a probability close to 0 or 1.

# %%
rng = np.random.default_rng(1)
figure, axes = plt.subplots(1, 3, figsize=(11, 2.8), sharey=True)
for axis, (a, b) in zip(axes, ((2.0, 20.0), (2.0, 2.0), (0.01, 0.01)), strict=True):
    model = av.models.ard_classification(X, t, a=a, b=b)
    drawn = pm.draw(model["eta"], 400, random_seed=1)
    probability = ndtr(drawn)
    axis.hist(probability.ravel(), bins=25, density=True)
    axis.set_title(f"a = {a:g}, b = {b:g}")
    axis.set_xlabel("p(t = 1 | x), prior")
    sure = np.mean(np.abs(probability - 0.5) > 0.49)
    print(f"a = {a:g}, b = {b:g}: {sure:.0%} of prior probabilities beyond 1 % or 99 %")

# %% [markdown]
# The default is a = 2 and b = 2/d for d inputs: E[1/α] = 2/d, so the predictor has a prior sd of
# about 1.4 for inputs of unit scale, however many there are. In a regression the predictor has the
# units of the target, and the default follows them: b = 2 var(t)/d gives a prior sd of about 1.4
# sd(t), and the noise has a half-normal prior with the sd of t. The fit is the same in euros and in
# cents.

# %%
noise = np.random.default_rng(2).normal(size=len(X))
price = X.to_numpy() @ [0.9, 0.0, 0.25, 0.0, 0.1, 0.0] + 0.8 * noise
rows = {}
for unit in (0.001, 1.0, 1000.0):
    model = av.models.ard_regression(X, unit * price)
    prior = pm.draw(model["eta"], 400, random_seed=1)
    weights = av.fit(model, "vb", draws=100, random_seed=1)["fit"]["mean_vector"].values
    middle = np.ptp(np.quantile(prior, [0.25, 0.75])) / np.std(unit * price)
    rows[unit] = {"prior, middle half / sd(t)": middle}
    rows[unit] |= dict(zip(["bias", *names], weights / unit, strict=True))
pd.DataFrame(rows).T.round(3)

# %% [markdown]
# ## How much is the prior's doing?
#
# Power-scaling raises the prior, and then the likelihood, to a power near one, and looks whether
# the posterior moves. No second fit is needed; ArviZ reweights the draws.

# %%
model = av.models.ard_classification(X, t, a=2.0, b=2.0)
full = av.fit(model, av.EP(hyper=av.Sampled()), **settings)
with model:
    pm.stats.compute_log_prior(full, progressbar=False)
arviz_stats.psense_summary(full, var_names=["w", "bias"])

# %% [markdown]
# The two cultivars can be separated without an error, so the likelihood alone would make the
# weights arbitrarily large, and the prior decides how large they are.
#
# ## Does the choice of inputs depend on it?
#
# For a posterior over subsets the width of the slab matters more than any other prior. A wide slab
# says that the weight of an included input is *large*, so that inputs with small weights are
# excluded. This is Lindley's paradox, and more sampling does not help.

# %%
target = X.to_numpy() @ [0.9, 0.0, 0.25, 0.0, 0.1, 0.0] + 0.8 * rng.normal(size=len(X))
widths = np.geomspace(0.05, 50, 7 if fast else 13)
table = []
for width in widths:
    subset = av.models.subset_regression(X, target, slab=float(width), expected_inputs=2.0)
    tree = av.fit(subset, "exact", draws=250, random_seed=1)
    table.append(av.inclusion(tree)["counted"].to_numpy())
figure, axis = plt.subplots(figsize=(6, 3))
for name, curve in zip(names, np.array(table).T, strict=True):
    axis.semilogx(widths, curve, "o-", markersize=3, label=name)
axis.set_xlabel("sd of the slab")
axis.set_ylabel("probability of inclusion")
axis.legend(fontsize=7)

# %% [markdown]
# The large weight is included whatever the slab. The weight of 0.25 is included for a slab of its
# own size and excluded for a wide one. A very narrow slab includes everything, since a weight close
# to zero costs nothing. With `slab="ard"` the width is inferred:

# %%
inferred = av.models.subset_regression(X, target, slab="ard", expected_inputs=2.0)
tree = av.fit(inferred, "reversible_jump", random_seed=1, draws=1000)
av.inclusion(tree)

# %% [markdown]
# ## To remember
#
# - Small values of a and b are not uninformative: draw from the prior and look.
# - Defaults follow the scale of inputs and targets, so units do not matter.
# - Where a plane separates the classes, the prior decides how large the weights are.
# - The width of the slab decides which inputs are included. Report it, or infer it.
