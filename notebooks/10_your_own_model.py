# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your own PyMC model
#
# Nothing needs to be rewritten for Ardvark. A `pm.Model` is read as it stands: which variables are
# jointly Gaussian, which expression of them is the predictor, and what the likelihood of each row
# is, as a function of one number. If it is of that form, every method takes it; if it is not, you
# are told which part is in the way.

# %%
import os

import numpy as np
import pymc as pm

import ardvark as av

fast = os.environ.get("ARDVARK_FAST") == "1"
settings = {"draws": 250 if fast else 1000, "random_seed": 1, "progressbar": False}
columns = ["worst_mean_error", "worst_sd_ratio", "khat", "log_evidence", "seconds"]

# %% [markdown]
# ## A hierarchical count model
#
# Seizures of patients in clinics: an effect per clinic with an unknown spread, a treatment,
# an exposure. Names, dimensions and the order of the variables are yours.

# %%
rng = np.random.default_rng(7)
clinics = [f"clinic {k}" for k in range(6)]
clinic = rng.integers(0, 6, 90)
treated = rng.integers(0, 2, 90)
weeks = rng.integers(2, 9, 90)
rate = np.exp(0.3 + 0.5 * rng.normal(size=6)[clinic] - 0.6 * treated)
seizures = rng.poisson(weeks * rate)

with pm.Model(coords={"clinic": clinics, "patient": range(90)}) as counts:
    spread = pm.HalfNormal("spread", 1)
    base = pm.Normal("base", 0, 2)
    effect = pm.Normal("effect", 0, 2)
    by_clinic = pm.Normal("by_clinic", 0, spread, dims="clinic")
    log_rate = pm.Deterministic("log_rate", base + by_clinic[clinic] + effect * treated)
    pm.Poisson("seizures", weeks * pm.math.exp(log_rate), observed=seizures, dims="patient")

reading = av.read_model(counts, predictor="log_rate")
reading

# %% [markdown]
# `spread` is a hyperparameter: it is no part of the Gaussian but decides its shape. So the
# methods can set it by evidence, hold it, or sample it; NUTS samples all of it, and judges.

# %%
trees = {
    "laplace": av.fit(counts, av.Laplace(predictor="log_rate"), **settings),
    "ep": av.fit(counts, av.EP(predictor="log_rate"), **settings),
    "laplace, sampled": av.fit(
        counts, av.Laplace(predictor="log_rate", hyper=av.Sampled()), **settings
    ),
    "nuts": av.fit(counts, av.NUTS(predictor="log_rate"), **settings),
}
av.compare(trees, reference="nuts", detail=True)[["compares", *columns]]

# %% [markdown]
# `laplace, sampled` is exact: Laplace's Gaussian only proposes. What the others differ in is the
# price of one value for `spread`:

# %%
for name, tree in trees.items():
    spread = tree["posterior"].spread if "spread" in tree["posterior"] else tree["fit"].spread
    print(f"{name:18} spread {float(spread.mean()):.2f} (sd {float(spread.std()):.2f})")

# %% [markdown]
# ## What cannot be read, and what is said then
#
# A predictor that is not affine in the weights:

# %%
with pm.Model() as product:
    a = pm.Normal("a", 0, 1)
    b = pm.Normal("b", 0, 1)
    eta = pm.Deterministic("eta", a * b * treated)
    pm.Normal("y", eta, 1, observed=rng.normal(size=90))
try:
    av.read_model(product)
except av.UnreadableModel as error:
    print(error)

# %% [markdown]
# Rows that depend on each other given the weights:

# %%
with pm.Model() as chain:
    level = pm.Normal("level", 0, 1)
    eta = pm.Deterministic("eta", level * np.ones(50))
    near = np.exp(-0.5 * np.subtract.outer(np.arange(50), np.arange(50)) ** 2) + 0.1 * np.eye(50)
    pm.MvNormal("y", eta, cov=near, observed=rng.normal(size=50))
try:
    av.read_model(chain)
except av.UnreadableModel as error:
    print(error)

# %% [markdown]
# NUTS needs no such form and takes both; so does a report in which NUTS is alone. Where only a
# *part* of a model is Gaussian, use a step for that part and NUTS for the rest: see
# `08_steps`.
#
# ## The same report
#
# One call, whatever the model.

# %%
av.report(trees, "my_model.html", model=counts)
