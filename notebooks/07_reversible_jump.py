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
# # Which inputs? The posterior over subsets
#
# **Which subsets of the inputs are probable, and what does "relevant" mean?**
#
# A Markov chain that adds, deletes and exchanges inputs samples the posterior over *subsets* of
# them. We first compare it with enumeration. Then come the wine data under the RBF mixture of
# Sykacek (2000), with all labels and with 30 % of them removed; then inputs that can replace each
# other; and at the end what "relevant" means under a joint and under a conditional density.

# %%
import os
import warnings

import matplotlib.pyplot as plt
import numpy as np

import ardvark as av

warnings.simplefilter("ignore", av.errors.ConvergenceWarning)  # R-hat is shown instead
fast = os.environ.get("ARDVARK_FAST") == "1"
sweeps = 1500 if fast else 15000
jump = av.ReversibleJump(sweeps=sweeps)
options = {"draws": 250, "random_seed": 1, "progressbar": False}

# %% [markdown]
# ## Enumeration against the sampler
#
# A regression on eight inputs has 256 subsets, each with its evidence in closed form up to one
# integral. The chain has visited most of them. Error bars are Monte Carlo errors.

# %%
rng = np.random.default_rng(1)
X = rng.normal(size=(60, 8))
t = X @ [1.0, 0.5, 0.3, 0.2, 0, 0, 0, 0] + rng.normal(size=60)
linear = av.models.subset_regression(X, t)
exact = av.fit(linear, "exact", **options)
chains = av.fit(linear, jump, **options)
table = av.subsets(chains).merge(av.subsets(exact), on="features", suffixes=("", "_exact"))
print(table[["features", "probability", "mcse", "probability_exact"]].head(8).to_string())

# %%
figure, axis = plt.subplots(figsize=(5, 4))
axis.errorbar(
    table["probability_exact"], table["probability"], yerr=2 * table["mcse"], fmt="o", ms=3
)
axis.set_xscale("log")
axis.set_yscale("log")
axis.axline((1e-3, 1e-3), (1e-1, 1e-1), lw=0.5, color="k")  # y = x, whatever the limits are
axis.axvline(10 / chains["subsets"].attrs["sweeps"], lw=0.5, color="k", ls=":")
axis.set_xlabel("P(subset | t), all 256 enumerated")
axis.set_ylabel("share of sweeps")

# %% [markdown]
# Subsets that were never visited have no point. To the left of the dotted line, which is at ten
# expected visits, the subsets that were visited at all were visited by luck, so their points lie
# above the diagonal.

# %% [markdown]
# ## Wine: three classes, 13 inputs
#
# The model is a class-conditional mixture of three shared kernels. Inputs outside the subset have a
# background density that does not depend on the class. Chains start far apart; jumps to allocations
# that any chain has found bring them together.

# %%
wine = av.load("wine")
order = np.random.default_rng(1).permutation(len(wine.X))
train, test = order[:62], order[62:125]
mixture = av.models.rbf_mixture(wine.X[train], wine.t[train], n_kernels=3)
jumps = av.fit(mixture, jump, **options)
print(av.subsets(jumps).head(5).to_string())
print(av.diagnostics.subset_sizes(jumps).round(3).to_string())

# %%
labels = np.asarray(wine.t)[train].astype(object)
labels[np.random.default_rng(2).random(len(labels)) < 0.3] = None
fewer = av.models.rbf_mixture(wine.X[train], labels, n_kernels=3)
half_blind = av.fit(fewer, jump, **options)
for name, model, tree in (("all labels", mixture, jumps), ("30 % removed", fewer, half_blind)):
    found = av.predict(model, tree, wine.X[test])
    right = found["class"].values[found.values.argmax(axis=1)] == np.asarray(wine.t)[test]
    size = tree["sample_stats"]["n_inputs"].values.mean()
    print(f"{name}: {100 * right.mean():.1f} % of {len(test)} test rows, {size:.1f} inputs")

# %%
figure, axis = plt.subplots(figsize=(8, 3))
place = np.arange(13)
for shift, name, tree in ((-0.2, "all labels", jumps), (0.2, "30 % removed", half_blind)):
    axis.bar(place + shift, tree["fit"]["inclusion"].values, width=0.4, label=name)
axis.set_xticks(place, list(wine.X.feature_names), rotation=60, ha="right")
axis.set_ylabel("P(included)")
axis.set_ylim(0, 1.2)  # room for the legend above the bars
axis.legend(loc="upper center", ncols=2)

# %% [markdown]
# Rows without a label still show where the kernels are, so little is lost.

# %% [markdown]
# ## Inputs that stand in for each other
#
# Two inputs are copies of one signal with a little noise. Either is enough, and both are hardly
# ever included. The inclusion probability of each alone would hide that one of them is needed.
# `replacements` finds the pair.

# %%
signal = rng.normal(size=100)
X = np.column_stack([signal + 0.2 * rng.normal(size=100) for _ in range(2)])
X = np.column_stack([X, rng.normal(size=(100, 4))])
t = (signal + 0.5 * rng.normal(size=100) > 0).astype(int)
probit = av.models.subset_classification(X, t)
pair = av.fit(probit, jump, **options)
print(av.inclusion(pair).round(3).to_string())
print(av.diagnostics.replacements(pair).head(3).to_string())
moves = pair["sample_stats"]
rates = moves["accepted"].sum(("chain", "size")) / moves["tried"].sum(("chain", "size"))
print(rates.to_series().round(3).to_string())

# %% [markdown]
# ## What relevance means
#
# The labels below depend weakly on x2, and x0 and x1 depend on each other. For the density of
# inputs *and* labels x0 and x1 are relevant, because they are described better together than apart.
# Under P(t | x), `target="conditional"`, only inputs that separate the classes count. Its chains
# use HMC within a subset and jumps between subsets. For three inputs and 60 rows the evidence of
# each subset can also be estimated by draws from the prior; the two agree.

# %%
X = rng.normal(size=(60, 3))
X[:, 1] = X[:, 0] + 0.3 * rng.normal(size=60)
t = rng.integers(2, size=60)
X[:, 2] += t
conditional = av.models.rbf_mixture(X, t, n_kernels=2, target="conditional")
trees = {
    "joint": av.fit(av.models.rbf_mixture(X, t, n_kernels=2), jump, **options),
    "conditional": av.fit(conditional, jump, **options),
    "linear probit": av.fit(av.models.subset_classification(X, t), jump, **options),
}
table = av.diagnostics.compare_relevance(trees)
print(table.xs("inclusion", axis=1, level="kind").round(2).to_string())
found = av.diagnostics.conditional_posterior(conditional, 2000 if fast else 20000)
print("by the prior", (found.probability * found.included).sum("subset").values.round(2))

# %% [markdown]
# ## To remember
#
# - Reversible jump gives probabilities of subsets with Monte Carlo errors, and agrees with
#   enumeration within them.
# - Inputs that can replace each other share their probability: look at pairs, not only at single
#   inputs.
# - A joint density of inputs and labels keeps inputs that describe other inputs;
#   `target="conditional"` keeps those that separate the classes.
