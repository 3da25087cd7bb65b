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
# EP is an approximation. Used as the *kernel* of a Markov chain it is exact: the chain visits the
# posterior of the model, and how good EP is only decides how fast. Here one hierarchical model is
# sampled in five ways, then the dimension grows, and at the end comes a posterior on which NUTS
# diverges.

# %%
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
fast = os.environ.get("ARDVARK_FAST") == "1"
draws = 300 if fast else 2000

rng = np.random.default_rng(1)
X = rng.normal(size=(60, 5))
t = (X @ [2.0, -1.0, 0.5, 0.0, 0.0] + rng.normal(size=60) > 0).astype(int)
model = av.models.ard_classification(X, t)

# %% [markdown]
# ## One model, five samplers
#
# The same posterior of weights and precisions: in `pm.sample`, by steps of ours beside each other;
# in `av.fit`, where whole sweeps run in machine code; and by NUTS with the precisions integrated
# out.

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
trees["sweeps"] = av.fit(model, av.EP(hyper=av.Sampled()), draws=draws, chains=2, random_seed=1)
seconds["sweeps"] = time.process_time() - start
start = time.process_time()
trees["nuts"] = av.fit(model, "nuts", draws=draws, chains=2, random_seed=1, progressbar=False)
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
# The seconds of NUTS are nearly all compilation. A short chain is over before NUTS begins; for a
# long one on a small model NUTS, once compiled, is as good.
#
# ## What the dimension does
#
# An independence proposal must hit the whole posterior at once, and its acceptance falls as the
# weights grow in number. A slice on the ellipse of EP never rejects, it only takes more trials.

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
        tree = av.fit(graph, av.EP(hyper=hyper), draws=draws, chains=2, random_seed=1)
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
# ## Where NUTS diverges
#
# Precisions with a prior that is nearly flat, as the papers have it: a funnel in every weight. As
# it is written NUTS cannot follow it. The block of weights given its precisions is no funnel, so EP
# does not see one, and the scale step moves along its neck.

# %%
flat = av.models.ard_classification(X, t, a=0.1, b=0.1)
nuts = av.fit(
    flat, av.NUTS(form="as_written"), draws=draws, chains=2, random_seed=1, progressbar=False
)
sweeps = av.fit(flat, av.EP(hyper=av.Sampled()), draws=draws, chains=2, random_seed=1)
print(f"NUTS: {int(nuts['sample_stats']['diverging'].sum())} of {2 * draws} draws diverged")
for name, tree in {"nuts": nuts, "sweeps": sweeps}.items():
    log_alpha = np.log(tree["posterior"]["alpha"].values[..., -1])
    low, high = np.quantile(log_alpha, [0.01, 0.99])
    print(f"{name:7} log precision of an idle input: 1 % {low:7.1f}, 99 % {high:6.1f}")

# %% [markdown]
# ## To remember
#
# - A step built on an approximation is exact; how good the approximation is decides the speed
#   only.
# - Independence proposals fade as weights grow in number; slices on an ellipse need a few more
#   trials.
# - NUTS wins on long chains once compiled; a short chain of steps is over before that.
# - Integrate precisions out, or move them with a scale step: as written they are a funnel.
