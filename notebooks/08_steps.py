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
# # Approximations as step methods
#
# **How does an approximation become an exact sampler, and when is that better than NUTS?**
#
# EP is an approximation. Used as the *proposal* of a Markov chain it is exact: the chain has the
# posterior of the model as its target, and a better approximation only makes it mix faster. Here
# one hierarchical model is sampled in five ways; then the number of weights grows; and at the end
# the prior of the precisions becomes nearly flat.

# %%
import logging
import os
import time
import warnings

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import ardvark as av

warnings.simplefilter(
    "ignore", av.errors.ConvergenceWarning
)  # short chains: their ESS is shown instead
logging.getLogger("pymc").setLevel(logging.ERROR)  # pm.sample names its steps each time
fast = os.environ.get("ARDVARK_FAST") == "1"
draws = 300 if fast else 2000
settings = {"draws": draws, "chains": 2, "random_seed": 1, "progressbar": False}

rng = np.random.default_rng(1)
X = rng.normal(size=(60, 5))
t = (X @ [2.0, -1.0, 0.5, 0.0, 0.0] + rng.normal(size=60) > 0).astype(int)
model = av.models.ard_classification(X, t)

# %% [markdown]
# ## One model, five samplers
#
# The same posterior of weights and precisions is sampled in `pm.sample` by several of our steps, in
# `av.fit`, where whole sweeps run in machine code, and by NUTS with the precisions integrated out.

# %%
with model:
    weights = [model["bias"], model["w"]]
    precisions = av.steps.GammaGibbs([model["alpha"], model["alpha_bias"]])
    scale = av.steps.ScaleStep([model["w"], model["alpha"]])
    by_steps = {
        "EP step": [av.steps.EPStep(weights), scale, precisions],
        "Laplace step": [av.steps.LaplaceStep(weights), scale, precisions],
        "exact step": [av.steps.ExactProbitStep(weights), scale, precisions],
    }
    trees, seconds = {}, {}
    for name, steps in by_steps.items():
        start = time.process_time()
        trees[name] = pm.sample(
            draws, tune=100, chains=2, cores=1, step=steps, random_seed=1, progressbar=False
        )
        seconds[name] = time.process_time() - start

start = time.process_time()
trees["sweeps"] = av.fit(model, av.EP(hyper=av.Sampled()), **settings)
seconds["sweeps"] = time.process_time() - start
start = time.process_time()
trees["nuts"] = av.fit(model, "nuts", **settings)
seconds["nuts"] = time.process_time() - start

# %%
for name, tree in trees.items():
    w = tree["posterior"]["w"]
    size = (
        float(az.ess(w)["w"].min()) if hasattr(az.ess(w), "data_vars") else float(az.ess(w).min())
    )
    means = " ".join(f"{m:6.2f}" for m in w.mean(("chain", "draw")).values)
    print(f"{name:13} w: {means}   ESS {size:6.0f} in {seconds[name]:5.1f} CPU s")

# %% [markdown]
# The likelihood and the priors of this model are known in machine code, so NUTS compiles nothing.
# On a graph that has to be compiled, a short chain of steps is finished before NUTS begins.
#
# ## What the dimension does
#
# An independence proposal must match the whole posterior at once, and its acceptance rate falls as
# the number of weights grows. Elliptical slice sampling with EP's covariance never rejects; it only
# needs more evaluations.

# %%
sizes = [2, 10, 50] if fast else [2, 5, 10, 20, 50, 100, 200]
rows = []
for d in sizes:
    inputs = rng.normal(size=(60, d))
    label = (inputs[:, 0] + rng.normal(size=60) > 0).astype(int)
    graph = av.models.ard_classification(inputs, label, bias=False)
    found = []
    for kernel in ("independence", "elliptical"):
        hyper = av.Sampled(kernel=kernel, tune=100)
        tree = av.fit(graph, av.EP(hyper=hyper), **settings)
        found.append(float(tree["sample_stats"]["block_trials"].mean()))
    rows.append(found)
acceptance, trials = np.array(rows).T

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3))
left.plot(sizes, acceptance, "o-")
left.set(xlabel="weights", ylabel="share of proposals accepted", xscale="log", ylim=(0, 1))
left.set_title("independence")
right.plot(sizes, trials, "o-")
right.set(xlabel="weights", ylabel="trials of a slice", xscale="log")
right.set_title("elliptical")
figure.tight_layout()

# %% [markdown]
# ## A prior that is nearly flat
#
# A nearly flat prior of the precisions makes a funnel in every weight, where NUTS is known to have
# divergences. EP's steps do not meet the funnel, since they move the weights given the precisions,
# and the scale step moves along it. At this size NUTS copes with the graph as written too: no draw
# diverges, and the quantiles are similar.

# %%
flat = av.models.ard_classification(X, t, a=0.1, b=0.1)
nuts = av.fit(flat, av.NUTS(form="as_written"), **settings)
sweeps = av.fit(flat, av.EP(hyper=av.Sampled()), **settings)
print(f"NUTS: {int(nuts['sample_stats']['diverging'].sum())} of {2 * draws} draws diverged")
for name, tree in {"nuts": nuts, "sweeps": sweeps}.items():
    log_alpha = np.log(tree["posterior"]["alpha"].values[..., -1])
    low, high = np.quantile(log_alpha, [0.01, 0.99])
    print(f"{name:7} log precision of an idle input: 1 % {low:7.1f}, 99 % {high:6.1f}")

# %% [markdown]
# ## To remember
#
# - A step that is built on an approximation is exact; the quality of the approximation only decides
#   its speed.
# - Independence proposals fail as the number of weights grows; elliptical slices need a few more
#   evaluations.
# - NUTS is as good or better where nothing has to be compiled, and for long chains; steps are for
#   short chains on new graphs, and for parts of a model that NUTS cannot take.
# - A nearly flat prior of precisions makes a funnel: integrate them out, or move them with a scale
#   step.
