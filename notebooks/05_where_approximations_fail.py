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
# # Where approximations fail, and what says so
#
# **Where do approximations fail, and does anything say so before a sampler has run?**
#
# Four posteriors that are not Gaussian are fitted by the methods that one would use in practice,
# and compared with exact draws. The question is not whether an approximation fails, but whether one
# can see it *without* knowing the answer. k-hat needs no reference.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import ardvark as av

fast = os.environ.get("ARDVARK_FAST") == "1"
settings = {"draws": 250 if fast else 1000, "random_seed": 1, "progressbar": False}
columns = ["worst_mean_error", "worst_sd_ratio", "wasserstein", "wasserstein_null", "khat"]

# %% [markdown]
# ## 1. Separable classes
#
# A plane separates the classes, so the likelihood keeps rising along one direction and only the
# prior limits it. The posterior is skewed, and its mode lies at the edge of its mass.

# %%
rng = np.random.default_rng(1)
X = rng.normal(size=(30, 3))
t = (X @ [2.0, -1.0, 0.5] > 0).astype(int)
separable = av.models.ard_classification(X, t, alpha=np.full(4, 0.05))
trees = {name: av.fit(separable, name, **settings) for name in ("laplace", "ep", "vb", "exact")}
av.compare(trees, reference="exact", detail=True)[columns]

# %%
figure, axis = plt.subplots(figsize=(6, 2.8))
for name, tree in trees.items():
    drawn = tree["posterior"].w.values[:, :, 0].ravel()
    axis.hist(drawn, bins=60, density=True, histtype="step", label=name)
axis.set_ylim(0, 0.4)  # the peak of VB goes on, five times as high
axis.set_title("weight of x0")
axis.legend()

# %% [markdown]
# Laplace sits on the mode, a whole sd from the mean. EP has the right means; its worst sd is 15 %
# too small, since the posterior is not Gaussian. Mean-field VB has the smallest sds and the largest
# errors. k-hat puts the three in this order before any sampler has run.
#
# ## 2. Many more inputs than rows
#
# There are twelve rows, 200 inputs and one precision for all weights. Each weight alone is hardly
# determined, but the predictors of the rows are.

# %%
X = rng.normal(size=(12, 200)) / np.sqrt(200)
t = (X[:, :20].sum(axis=1) > 0).astype(int)
wide = av.models.ard_classification(X, t, alpha=np.full(201, 0.2))
trees = {name: av.fit(wide, name, **settings) for name in ("laplace", "ep", "vb", "exact")}
av.compare(trees, reference="exact", detail=True)[columns]

# %% [markdown]
# Each weight alone is nearly right under every method (the worst of 201 is off by a quarter of an
# sd): where the data say little, every method returns the prior. Jointly the weights are wrong all
# the same. The likelihood depends on the N predictors only, and that is where k-hat looks.


# %%
figure, axis = plt.subplots(figsize=(6, 2.8))
for name, tree in trees.items():
    drawn = tree["posterior"].bias.values + tree["posterior"].w.values @ X[0]
    axis.hist(drawn.ravel(), bins=60, density=True, histtype="step", label=name)
axis.set_title("predictor of row 0")
axis.legend()

# %% [markdown]
# ## 3. Two modes
#
# A regression with heavy tails passes through two groups of rows that contradict each other. Either
# group may be the outliers, so there are two modes. A Gaussian at one of them does not know the
# other.

# %%
x = np.repeat([-1.0, 1.0], 8)[:, None] + 0.05 * rng.normal(size=(16, 1))
height = 4.0 * np.tile([1.0, -1.0], 8) * x[:, 0] + 0.1 * rng.normal(size=16)
with pm.Model() as contradiction:
    slope = pm.Normal("slope", 0, 5, shape=1)
    line = pm.Deterministic("line", pm.math.dot(x, slope))
    pm.StudentT("height", nu=2, mu=line, sigma=0.5, observed=height)

grid = np.linspace(-8, 8, 4001)
log_density = contradiction.compile_logp(vars=None)
at_grid = np.array([float(log_density({"slope": np.array([s])})) for s in grid])
truth = np.exp(at_grid - at_grid.max())
truth /= truth.sum() * (grid[1] - grid[0])
laplace = av.fit(contradiction, av.Laplace(predictor="line"), **settings)
figure, axis = plt.subplots(figsize=(6, 2.8))
axis.plot(grid, truth, "k", label="truth, on a grid")
draws = laplace["posterior"].slope.values.ravel()
axis.hist(draws, bins=40, density=True, histtype="step", label="Laplace")
axis.legend()
inside = truth[np.abs(grid - draws.mean()) < 2].sum() * (grid[1] - grid[0])
print(f"Laplace sits where {inside:.0%} of the mass is")
print({key: laplace.attrs.get(key) for key in ("converged", "problems", "caution")})

# %% [markdown]
# k-hat is computed from draws of the approximation, so it hardly sees a mode that the approximation
# never visits. What it says here is that the tails are heavy, not that half of the mass is
# elsewhere. Only a reference that visits both modes, or a second start, shows that:

# %%
av.compare({"laplace": laplace}, reference="laplace")[["khat"]]

# %% [markdown]
# ## 4. Hyperparameters held at one value
#
# The last failure does not come from the Gaussian. At given precisions Laplace may be exact, and
# still be far from the posterior that integrates the precisions out. Two columns of the report keep
# these apart: the error of the approximation, and the cost of fixing the hyperparameters.

# %%
X = rng.normal(size=(25, 4))
target = X @ [1.0, 0.3, 0.0, 0.0] + 0.7 * rng.normal(size=25)
model = av.models.ard_regression(X, target)
trees = {"evidence": av.fit(model, "laplace", **settings)}
trees["same"] = av.fit(model, av.Exact(hyper=av.Fixed(trees["evidence"])), **settings)
sampled = av.Laplace(hyper=av.Sampled())
trees["full"] = av.fit(model, sampled, **{**settings, "draws": 1000})
av.compare(trees, reference=["same", "full"], detail=True).loc[
    [("evidence", "same"), ("evidence", "full")], ["compares", *columns]
]

# %% [markdown]
# At the same hyperparameters the Gaussian is exact. In the full posterior, the weights that were
# pruned do have a spread, and the approximation has none. This is not an error of the
# approximation, but the cost of fixing the hyperparameters.

# %% [markdown]
# ## To remember
#
# - k-hat ranks the approximations correctly without any reference, and looks at all weights
#   jointly.
# - It does not see a mode that the approximation never visits: use a second start, or a sampler.
# - An approximation can be exact given the hyperparameters and still far from the posterior that
#   integrates them out.
