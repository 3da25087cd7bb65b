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
# `av.report` writes one HTML file and, beside it, every number of it as JSON. Each section opens
# with a computed sentence; this notebook walks through these sentences, and says what each rests on
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
# Three approximations, each with its own way to deal with the precisions, and two references: one
# at the same precisions as Laplace (independent exact draws), one that integrates them out (a
# Markov chain with EP's Gaussian as its proposal, exact all the same).

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
# For each method: *is the approximation right, given the hyperparameters?* (against a reference at
# the same ones) and *what does it cost to hold them at one value?* (against one that integrates
# them out). A method that is perfect in the first can be far off in the second.

# %%
both = ["compares", "worst_mean_error", "worst_mean_error_at", "worst_sd_ratio", "khat"]
av.compare(trees, reference=["exact", "full"], detail=True)[both]

# %% [markdown]
# An error is in units of the reference's posterior sd: 0.1 is invisible in a plot, 0.25 is a
# failure. The largest of many errors is large by chance too, which is why the Monte Carlo error is
# beside it.
#
# ## Can the reference be trusted?
#
# R-hat at most 1.01, at least 100 effective draws a chain in bulk and tails, no divergence. If that
# fails, a red band covers everything that rests on it. Here it is made to fail: a chain that is far
# too short.

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
# The same question to every method, aligned by the name of the input. Evidence switches inputs off
# altogether; a posterior that integrates the precisions never does. Look at the groups of
# correlated inputs before you believe in the one that was kept.

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
# - Two questions, two references, two columns: error and price.
# - A reference that fails its own checks makes every difference below it meaningless.
# - Read groups of correlated inputs before single ones.
