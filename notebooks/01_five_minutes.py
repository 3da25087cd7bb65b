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
# # Five minutes: fit, verdict, report
#
# **How do I fit a model, see what matters in it, and learn whether the fast answer is right?**
#
# We fit a sparse model to a data set by a fast approximation, and then by a sampler that shows
# whether the approximation can be trusted. Set `ARDVARK_FAST=1` for a quick run with few draws.

# %%
import os

import numpy as np
import pymc as pm

import ardvark as av

fast = os.environ.get("ARDVARK_FAST") == "1"
draws = 200 if fast else 1000
chains = 2 if fast else 4
settings = {"draws": draws, "chains": chains, "random_seed": 1, "progressbar": False}

# %% [markdown]
# ## The data
#
# Wisconsin breast cancer has 569 biopsies with 30 measurements each. The model's prior is meant for
# inputs of unit scale. Nothing is rescaled automatically, so we standardise the inputs.

# %%
data = av.standardise(av.load("wdbc"))
data.X.shape, data.feature_names[:4]

# %% [markdown]
# ## The model
#
# Automatic relevance determination: each weight has its own precision `alpha`. A large precision
# means that the measurement is not needed. What comes back is an ordinary `pm.Model`.

# %%
model = av.models.ard_classification(data.X, data.t)
model

# %% [markdown]
# ## Laplace: a second or two
#
# The precisions are set by maximising the evidence, and the weights get a Gaussian at their mode.

# %%
laplace = av.fit(model, av.Laplace(hyper=av.Evidence()), **settings)
laplace.attrs["caption"], laplace["fit"]["log_evidence"].item()

# %% [markdown]
# Which measurements matter?

# %%
av.relevance(laplace).sort_values("rank").head(8)

# %% [markdown]
# ## NUTS at the same precisions: is the Gaussian right?
#
# An approximation at given precisions is compared with the sampler at the *same* precisions. What
# is lost by not integrating them out is another question, and has another column.

# %%
nuts = av.fit(model, av.NUTS(hyper=av.Fixed(laplace)), **settings)
results = {"laplace": laplace, "nuts": nuts}
av.compare(results, reference="nuts").T

# %%
av.plot.relevance(results, most=12)

# %% [markdown]
# ## Prediction
#
# New rows are scaled as the training rows were.

# %%
raw = av.load("wdbc")
av.predict(model, laplace, raw.X[:5])

# %% [markdown]
# ## The report: one file, no network

# %%
av.report(results, "five_minutes.html", model=model, data=data)

# %% [markdown]
# ## Your own model
#
# Any `pm.Model` with Gaussian weights, a predictor that is affine in them and a likelihood that is
# independent between rows can be fitted, whatever its variables are called. Here the outcomes are
# counts.

# %%
rng = np.random.default_rng(1)
dose = rng.normal(size=(120, 3))
counts = rng.poisson(np.exp(0.5 + dose @ [0.8, 0.0, -0.4]))

with pm.Model(coords={"drug": ["a", "b", "c"]}) as my_model:
    base = pm.Normal("base", 0, 2)
    effect = pm.Normal("effect", 0, 1, dims="drug")
    log_rate = pm.Deterministic("log_rate", base + pm.math.dot(dose, effect))
    pm.Poisson("counts", mu=pm.math.exp(log_rate), observed=counts)

# %%
mine = {
    "laplace": av.fit(my_model, av.Laplace(predictor="log_rate"), **settings),
    "nuts": av.fit(my_model, av.NUTS(predictor="log_rate"), **settings),
}
av.compare(mine, reference="nuts").T

# %% [markdown]
# `av.read_model` shows what was found in the graph:

# %%
av.read_model(my_model, predictor="log_rate")

# %% [markdown]
# ## To remember
#
# - `av.fit` returns an ArviZ tree, whatever the method; `av.relevance` ranks the inputs.
# - Compare an approximation with a reference *at the same hyperparameters*; then ask what it costs
#   to hold them fixed.
# - Errors are in posterior sds: 0.1 can hardly be seen in a plot, 0.25 is a failure. `av.report`
#   writes all of this down.
# - Your own `pm.Model` can be fitted as it stands; `av.read_model` shows what was found.
