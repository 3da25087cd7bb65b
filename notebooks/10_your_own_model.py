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
# # Your own PyMC model
#
# **Can a model that I wrote in PyMC or bambi be fitted as it stands, and how good is the answer?**
#
# Nothing needs to be rewritten for Ardvark. It finds in a `pm.Model`, or in a bambi model, which
# variables are jointly Gaussian, which expression is the linear predictor, and what the likelihood
# of each row is. All other variables are hyperparameters θ, and are integrated out under the priors
# that you wrote. Here are five models, each fitted by EP and by Laplace with θ integrated out, and
# by NUTS.

# %%
import os
import warnings

import bambi as bmb
import numpy as np
import pandas as pd
import pymc as pm

import ardvark as av

fast = os.environ.get("ARDVARK_FAST") == "1"
settings = {"draws": 250 if fast else 1000, "random_seed": 1, "progressbar": False}
corrected = av.Laplace(corrected=True)
columns = ["worst_mean_error", "worst_sd_ratio", "khat", "log_evidence", "seconds"]
warnings.simplefilter("ignore", av.errors.ConvergenceWarning)  # of short chains
warnings.simplefilter("ignore", av.errors.AccuracyWarning)  # read below, as `caution`

# %% [markdown]
# ## Eight schools
#
# The model is centred, which NUTS does not like. Here it makes no difference.

# %%
effect = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
error = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
with pm.Model(coords={"school": list("ABCDEFGH")}) as schools:
    mu = pm.Normal("mu", 0, 5)
    tau = pm.HalfCauchy("tau", 5)
    theta = pm.Normal("theta", mu, tau, dims="school")
    pm.Normal("y", theta, error, observed=effect, dims="school")

av.read_model(schools)

# %%
trees = {
    "ep": av.fit(schools, "ep", **settings),
    "laplace": av.fit(schools, "laplace", **settings),
    "nuts": av.fit(schools, av.NUTS(), **settings),
}
av.compare(trees, reference="nuts", detail=True)[columns]

# %% [markdown]
# The plot shows p(τ | t): the weighted nodes, and the draws of NUTS. Quadrature gives mu 4.40 ±
# 3.32, tau 3.59.

# %%
axes = av.plot.hyperparameters({"ep": trees["ep"], "nuts": trees["nuts"]}, names=["tau"])

# %% [markdown]
# ## Radon: houses in counties
#
# The intercepts of the counties have a mean, which is a weight, and an sd, which is a
# hyperparameter like the noise.

# %%
rng = np.random.default_rng(7)
county = np.sort(rng.integers(0, 20, 160))
floor = rng.binomial(1, 0.3, 160)
level = 1.4 + 0.3 * rng.normal(size=20)
radon = level[county] - 0.7 * floor + 0.7 * rng.normal(size=160)
with pm.Model(coords={"county": range(20)}) as houses:
    mu_a = pm.Normal("mu_a", 0, 2)
    sigma_a = pm.HalfNormal("sigma_a", 1)
    a = pm.Normal("a", mu_a, sigma_a, dims="county")
    b = pm.Normal("b", 0, 2)
    sigma = pm.HalfNormal("sigma", 1)
    pm.Normal("log_radon", a[county] + b * floor, sigma, observed=radon)
trees = {
    "ep": av.fit(houses, "ep", **settings),
    "laplace": av.fit(houses, "laplace", **settings),
    "nuts": av.fit(houses, av.NUTS(), **settings),
}
av.compare(trees, reference="nuts", detail=True)[columns]

# %% [markdown]
# ## A generalised linear mixed model of bambi
#
# `av.fit` takes the bambi model itself, and bambi's `predict` takes the tree.

# %%
group = np.repeat([f"g{k}" for k in range(12)], 8)
x = rng.normal(size=96)
shift = np.repeat(0.8 * rng.normal(size=12), 8)
table = pd.DataFrame({"x": x, "g": group, "y": rng.binomial(1, 1 / (1 + np.exp(-x - shift)))})
glmm = bmb.Model("y ~ x + (1|g)", table, family="bernoulli")
trees = {
    "ep": av.fit(glmm, "ep", **settings),
    "laplace": av.fit(glmm, "laplace", **settings),
    "corrected": av.fit(glmm, corrected, **settings),
    "nuts": av.fit(glmm, av.NUTS(), **settings),
}
av.compare(trees, reference="nuts", detail=True)[columns]

# %% [markdown]
# The mode of Laplace is not the mean. The fit estimates by how much:

# %%
print(trees["laplace"].attrs["caution"])

# %%
glmm.predict(trees["ep"], data=table.head(3))
trees["ep"]["posterior"]["p"].mean(("chain", "draw")).values

# %% [markdown]
# ## A Gaussian process classifier

# %%
waiting = np.linspace(-2, 2, 40)
long = rng.binomial(1, 1 / (1 + np.exp(-3 * np.sin(1.5 * waiting))))
with pm.Model() as process:
    scale = pm.InverseGamma("scale", 5, 5)
    height = pm.HalfNormal("height", 2)
    gp = pm.gp.Latent(cov_func=height**2 * pm.gp.cov.ExpQuad(1, scale))
    f = gp.prior("f", waiting[:, None])
    pm.Bernoulli("long", logit_p=f, observed=long)
trees = {
    "ep": av.fit(process, "ep", **settings),
    "laplace": av.fit(process, "laplace", **settings),
    "corrected": av.fit(process, corrected, **settings),
    "nuts": av.fit(process, av.NUTS(), **settings),
}
av.compare(trees, reference="nuts", detail=True)[columns]

# %% [markdown]
# ## The Bayesian lasso
#
# A coefficient with a double exponential prior belongs to the Gaussian block too: its prior is
# treated as a site. It is not differentiable at zero, so Laplace refuses it with that reason.

# %%
X = rng.normal(size=(50, 8))
t = X @ np.array([2.0, -1.0, 0, 0, 0, 0, 0, 0]) + rng.normal(size=50)
with pm.Model() as lasso:
    lam = pm.HalfCauchy("lam", 1)
    noise = pm.HalfNormal("noise", 2)
    b = pm.Laplace("b", 0, lam, shape=8)
    pm.Normal("t", X @ b, noise, observed=t)
try:
    av.fit(lasso, "laplace", **settings)
except av.errors.UnsupportedPair as refusal:
    print(refusal)
trees = {"ep": av.fit(lasso, "ep", **settings), "nuts": av.fit(lasso, av.NUTS(), **settings)}
av.compare(trees, reference="nuts", detail=True)[columns]

# %% [markdown]
# ## What cannot be read, and what is said then
#
# A predictor that is not affine in the weights:

# %%
with pm.Model() as square:
    c = pm.Normal("c", 0, 1)
    pm.Normal("y", c**2, 1, observed=effect)
try:
    av.read_model(square)
except av.errors.UnreadableModel as error:
    print(error)

# %% [markdown]
# Rows that depend on each other given the weights:

# %%
with pm.Model() as chain:
    level = pm.Normal("level", 0, 1)
    near = np.exp(-0.5 * np.subtract.outer(np.arange(50), np.arange(50)) ** 2) + 0.1 * np.eye(50)
    pm.MvNormal("y", level * np.ones(50), cov=near, observed=rng.normal(size=50))
try:
    av.read_model(chain)
except av.errors.UnreadableModel as error:
    print(error)

# %% [markdown]
# NUTS needs no such form and takes both. Where only a *part* of a model is Gaussian, use a step for
# that part and NUTS for the rest: see `08_steps`.
#
# ## The same report
#
# The call is the same for every model.

# %%
av.report(trees, "my_model.html", model=lasso)

# %% [markdown]
# ## To remember
#
# - No particular names are needed: `av.read_model` shows the Gaussian block, the predictor and the
#   hyperparameters θ.
# - θ is integrated out under your priors. Centred and non-centred forms give the same answer.
# - Laplace warns when its means are off, with an estimate; `corrected=True` corrects them. EP
#   hardly needs it.
# - A model that is not of this form is refused with the reason. NUTS takes any graph.
