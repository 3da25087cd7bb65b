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
# # Reading the report, line by line
#
# **What does each sentence of a report rest on, and what does it not say?**
#
# `av.report` writes one HTML file, and every number of it as JSON. Each section begins with a
# computed sentence. This notebook goes through these sentences, and explains what each is based on
# and what it does not say.

# %%
import json
import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import ardvark as av

fast = os.environ.get("ARDVARK_FAST") == "1"
settings = {"draws": 250 if fast else 1000, "random_seed": 1, "progressbar": False}

wdbc = av.standardise(av.load("wdbc"))
names = list(wdbc.feature_names[:8])
data = av.load(
    pd.DataFrame(np.asarray(wdbc.X)[::4, :8], columns=names).assign(malignant=wdbc.t[::4]),
    target="malignant",
)
model = av.models.ard_classification(data.X, data.t)

# %% [markdown]
# We fit three approximations, each with its own treatment of the precisions, and two references:
# one at the same precisions as Laplace (independent exact draws), and one that integrates them out
# (a Markov chain with proposals from EP and the exact posterior as its target).

# %%
laplace = av.fit(model, "laplace", **settings)
trees = {
    "laplace": laplace,
    "ep": av.fit(model, av.EP(hyper=av.Fixed(laplace)), **settings),
    "vb": av.fit(model, "vb", **settings),
    "exact": av.fit(model, av.Exact(hyper=av.Fixed(laplace)), **settings),
    "full": av.fit(model, av.EP(hyper=av.Sampled()), **{**settings, "draws": 1000}),
}
path = av.report(trees, "reading.html", model=model, data=data, reference="full")
numbers = json.loads(Path(path).with_suffix(".json").read_text())
for section, part in numbers.items():
    if "sentence" in part:
        print(f"{section.upper():16} [{part['level'] or '-'}] {part['sentence']}\n")

# %% [markdown]
# ## The verdict: two questions that are never mixed
#
# For each method there are two questions. *Is the approximation right, given the hyperparameters?*
# (Compare with a reference at the same ones.) *What does it cost to hold them at one value?*
# (Compare with a reference that integrates them out.) A method that is perfect in the first can be
# far off in the second.

# %%
both = ["compares", "worst_mean_error", "worst_mean_error_at", "worst_sd_ratio", "khat"]
av.compare(trees, reference=["exact", "full"], detail=True)[both]

# %% [markdown]
# Errors are in units of the reference's posterior sd: 0.1 can hardly be seen in a plot, 0.25 is a
# failure. The largest of many errors is large by chance too, so the Monte Carlo error is given
# beside it.
#
# ## Can the reference be trusted?
#
# The reference must have an R-hat of at most 1.01, at least 100 effective draws for each chain in
# bulk and tails, and no divergence. If it fails, a red band covers everything that depends on it.
# Here we make it fail with a chain that is far too short.

# %%
with warnings.catch_warnings():
    warnings.simplefilter("ignore", av.errors.ConvergenceWarning)  # it is the point
    short = av.fit(
        model, av.EP(hyper=av.Sampled(tune=0)), draws=20, random_seed=1, progressbar=False
    )
bad = av.report({"laplace": laplace, "short": short}, "band.html", model=model, data=data)
told = json.loads(Path(bad).with_suffix(".json").read_text())
print(told["reference"]["level"], "-", told["reference"]["sentence"])
print("a red band on the page:", "Not trustworthy as a reference" in Path(bad).read_text())

# %% [markdown]
# ## Which inputs matter?
#
# Every method answers the same question, aligned by the name of the input. `Evidence` prunes
# inputs; a posterior that integrates the precisions never does. Look at the groups of correlated
# inputs before you rely on the one that was kept.

# %%
av.diagnostics.compare_relevance(trees)

# %%
av.plot.relevance(trees)

# %% [markdown]
# ## What a report cannot say
#
# - That the *model* is right. Calibration of predictions comes nearest.
# - That no mode was missed by all methods together.
# - That the next data set will behave like this one: the calibration record averages over data
#   sets, the agreement with a reference is about this one.

# %% [markdown]
# ## To remember
#
# - There are two questions, with two references and two columns: the error of the approximation,
#   and the cost of fixed hyperparameters.
# - If a reference fails its own checks, differences from it mean nothing.
# - Look at groups of correlated inputs before single ones.
