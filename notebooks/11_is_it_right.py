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
# If parameters are drawn from the prior, data from the parameters, and the posterior is right, the
# parameters are draws of that posterior too: their places in it are uniform on (0, 1). It holds
# for every prior, model and method, and it fails visibly when a method is too sure.

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
# EP's weights and predictors are calibrated: 90 % intervals cover 90 %. Its log prior and log
# likelihood are not, with enough replications: these look at all weights jointly, and see
# that the posterior is no Gaussian. Laplace's intervals are a little short, around the mode. Those
# of mean-field VB are far too short: places pile up at 0 and 1, and 90 % means half.

# %%
figure, axes = plt.subplots(1, 3, figsize=(11, 2.8), sharey=True)
for axis, (name, run) in zip(axes, runs.items(), strict=True):
    places = run["prior_sbc"].w.values
    axis.hist(places.ravel(), bins=20, range=(0, 1), density=True)
    axis.axhline(1, color="k", linewidth=0.8)
    axis.set_title(f"{name}: places of the weights")

# %% [markdown]
# The same as a difference of distribution functions, each with a test of uniformity, by ArviZ:

# %%
az.plot_ecdf_pit(runs["ep"], group="prior_sbc", var_names=["w"])

# %% [markdown]
# ## A planted fault
#
# A test that cannot fail says nothing. Take EP's own places and make its sds 20 % too small: the
# place Phi(z) becomes Phi(z / 0.8).

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
# With 1000 replications a fault of 20 % is found for certain, one of 5 % once in five times. And
# what it *cannot* see: errors that cancel over the prior, and everything about data that the prior
# would never produce.
#
# ## A Markov chain's own test
#
# For samplers ranks take the part of exact places. Precisions sampled too:

# %%
few = 40 if fast else 150
full = av.models.ard_classification(X, start, a=2.0, b=2.0)
chains = av.sbc(full, av.EP(hyper=av.Sampled()), few, random_seed=2)
av.diagnostics.sbc_summary(chains).round(3)

# %% [markdown]
# ## To remember
#
# - Places of the truth in its posterior are uniform if the method is right, on average over the
#   prior.
# - EP's weights pass; mean-field VB covers half of what it claims.
# - A check that has never failed has shown nothing: plant a fault.
# - Calibration over the prior says nothing about data that the prior would never produce.
