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
# # Is it right? Calibration by simulation, with a planted fault
#
# **How do I know that a method is calibrated, and would I notice if it were not?**
#
# Draw parameters from the prior and data from the parameters. If the posterior is right, the
# parameters are a draw from it, and their ranks in it are uniform on (0, 1). This holds for every
# prior, model and method, and fails visibly when a method is overconfident.

# %%
import os

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr

import ardvark as av

fast = os.environ.get("ARDVARK_FAST") == "1"
replications = 150 if fast else 1000
rng = np.random.default_rng(11)
X = rng.normal(size=(30, 3))

# %%
start = (X[:, 0] > 0).astype(int)  # replaced by simulated labels
probit = av.models.ard_classification(X, start, alpha=np.full(4, 0.5))
runs = {name: av.sbc(probit, name, replications, random_seed=1) for name in ("ep", "laplace", "vb")}
for name, run in runs.items():
    print(f"\n{name}: {int(run.attrs['failed'])} fits failed")
    print(av.diagnostics.sbc_summary(run).round(3).to_string())

# %% [markdown]
# EP's weights and predictors are calibrated: 90 % intervals cover 90 %. With enough replications
# its log prior and log likelihood are not: these depend on all weights jointly, and show that the
# posterior is not Gaussian. Laplace's intervals are a little too short. Those of mean-field VB are
# far too short: the ranks pile up at 0 and 1, and a 90 % interval covers half.

# %%
figure, axes = plt.subplots(1, 3, figsize=(11, 2.8), sharey=True)
for axis, (name, run) in zip(axes, runs.items(), strict=True):
    places = run["prior_sbc"].w.values
    axis.hist(places.ravel(), bins=20, range=(0, 1), density=True)
    axis.axhline(1, color="k", linewidth=0.8)
    axis.set_title(f"{name}: places of the weights")

# %% [markdown]
# ArviZ shows the same as a difference of distribution functions, each with a test of uniformity:

# %%
az.plot_ecdf_pit(runs["ep"], group="prior_sbc", var_names=["w"])

# %% [markdown]
# ## A planted fault
#
# A check must be able to fail. Take EP's own ranks and make its sds 20 % too small: the rank Phi(z)
# becomes Phi(z / 0.8).

# %%
from scipy.stats import norm

faulty = runs["ep"].copy()
places = faulty["prior_sbc"].to_dataset()
too_sure = places.w.copy(data=norm.cdf(norm.ppf(places.w) / 0.8))
faulty["prior_sbc"] = xr.DataTree(places.assign(w=too_sure))
first = f"w[{places.w.feature.values[0]}]"
columns = ["uniformity_p", "coverage_90", "coverage_90_se", "calibrated"]
pd.DataFrame(
    {
        name: av.diagnostics.sbc_summary(run).loc[first, columns]
        for name, run in {"EP": runs["ep"], "sds x 0.8": faulty}.items()
    }
).T

# %% [markdown]
# With 1000 replications an error of 20 % is found with certainty, one of 5 % in one of five cases.
# What it *cannot* find are errors that cancel over the prior, and anything about data that the
# prior would never produce.
#
# ## A Markov chain's own test
#
# For samplers the ranks among draws take the place of exact distribution functions. Here the
# precisions are sampled too:

# %%
few = 40 if fast else 150
full = av.models.ard_classification(X, start, a=2.0, b=2.0)
chains = av.sbc(full, av.EP(hyper=av.Sampled()), few, random_seed=2)
av.diagnostics.sbc_summary(chains).round(3)

# %% [markdown]
# ## To remember
#
# - The ranks of the true values in their posteriors are uniform if the method is right, on average
#   over the prior.
# - EP's weights pass; intervals of mean-field VB cover half of what they claim.
# - Plant a fault to see whether a check can find it.
# - Calibration over the prior says nothing about data that the prior would never produce.
