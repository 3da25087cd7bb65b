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
# # Samples and features at once: the variational relevance sample-feature machine
#
# **Which samples and which features does a problem need, and what does mean-field independence
# cost?**
#
# The model has a kernel around each sample for each feature, one weight for each sample and one for
# each feature, and a precision for every weight. Mean-field VB finds which samples and which
# features are needed. At the end we compare it with NUTS, to see what its assumption of
# independence costs.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np

import ardvark as av

fast = os.environ.get("ARDVARK_FAST") == "1"
n = 60 if fast else 100

# %% [markdown]
# ## 2D-sin: two inputs of ten matter
#
# t = sin(x0) + x1/10 + noise of sd 1, and the eight other inputs are noise. gamma is chosen on 100
# validation rows, as in the paper, or by the lower bound alone.

# %%
data = av.load("sin2d", n=n, n_test=2100, seed=1)
X, t = np.asarray(data.X), np.asarray(data.t)
model = av.models.sample_feature_regression(X[:n], t[:n])
validation = (X[n : n + 100], t[n : n + 100])
by_rows = av.search_gamma(model, by="validation", validation=validation)
by_bound = av.search_gamma(model, by="elbo")
by_rows.gamma, by_bound.gamma

# %%
model.set_data("gamma", by_rows.gamma)
tree = av.fit(model, av.VB(), random_seed=1)
rsfm = av.fit(model, av.Laplace(), random_seed=1)
tree.attrs["caption"]

# %%
test = slice(n + 100, None)
for name, fit in {"VB": tree, "RSFM": rsfm}.items():
    mean = av.predict(model, fit, X[test]).sel(statistic="mean").values
    print(name, "mean square error", np.mean((mean - t[test]) ** 2).round(3), "(noise alone: 1)")

# %% [markdown]
# Single weights are not identified, since (c w, lam / c) is the same function. Whether a weight is
# in the model is, and so are the products: a map of samples and features.

# %%
av.relevance(tree)

# %%
av.relevance(tree, of="samples").query("inclusion > 0")

# %%
posterior = tree["posterior"]
products = (posterior.w * posterior.lam).mean(("chain", "draw")).values[1:, 1:]
figure, axis = plt.subplots(figsize=(8, 3))
reach = np.abs(products).max()
shown = axis.imshow(products.T, aspect="auto", cmap="RdBu", vmin=-reach, vmax=reach)
axis.set_yticks(range(10), model.coords["feature"])
axis.set_xlabel("sample")
axis.set_title("mean of w_i lam_j")
figure.colorbar(shown)

# %% [markdown]
# ## The bound
#
# No step lowers the bound. When weights are pruned the model becomes smaller and has another bound,
# which gives the jumps. Different starts are therefore compared by the bound of the whole model
# (`elbo_whole`).

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
left.plot(tree["fit"].elbo)
left.set_xlabel("sweep")
left.set_title("ELBO of what is in the model")
right.semilogy(tree["fit"].n_samples, label="samples")
right.semilogy(tree["fit"].n_features, label="features")
right.set_xlabel("sweep")
right.legend()

# %% [markdown]
# ## Two classes: Ripley's four Gaussians and eight inputs of noise

# %%
ripley = av.load("ripley", n=n, irrelevant=8, seed=2)
Xc, tc = np.asarray(ripley.X), np.asarray(ripley.t)
classes = av.models.sample_feature_classification(Xc[:n], tc[:n], gamma=8.0)
found = av.fit(classes, av.VB(), random_seed=1)
probability = av.predict(classes, found, Xc[n:]).values[:, 1]
print("test error", np.mean((probability > 0.5) != tc[n:]).round(3), "(Bayes: 0.089)")
av.relevance(found).query("inclusion > 0")

# %% [markdown]
# ## What independence costs
#
# NUTS needs a proper hyperprior, few weights and small steps: we take 20 samples and 2 features. VB
# gets the same prior, and nothing is pruned. The two are compared by products and by predictions,
# not by single weights.

# %%
rng = np.random.default_rng(3)
Xs = rng.uniform(-2, 2, (20, 2))
ts = 2 * np.sin(1.5 * Xs[:, 0]) + 0.3 * rng.standard_normal(20)
small = av.models.sample_feature_regression(Xs, ts, a=2.0, b=0.5)
sampler = av.NUTS(tune=500 if fast else 1500, target_accept=0.99)
nuts = av.fit(small, sampler, draws=300 if fast else 2000, random_seed=1, progressbar=False)
vb = av.fit(small, av.VB(prune=None), random_seed=1)
nuts.attrs["problems"]

# %%
columns = ["worst_mean_error", "worst_sd_ratio", "khat", "seconds"]
av.compare({"vb": vb, "nuts": nuts}, reference="nuts", detail=True)[columns]

# %%
grid = np.column_stack([np.linspace(-2, 2, 60), np.zeros(60)])
figure, axis = plt.subplots(figsize=(6, 3.5))
for name, fit in {"vb": vb, "nuts": nuts}.items():
    band = av.predict(small, fit, grid)
    mean, sd = band.sel(statistic="mean"), band.sel(statistic="sd")
    [line] = axis.plot(grid[:, 0], mean, label=name)
    axis.fill_between(grid[:, 0], mean - sd, mean + sd, alpha=0.2, color=line.get_color())
axis.plot(grid[:, 0], 2 * np.sin(1.5 * grid[:, 0]), "k--", linewidth=0.8, label="truth")
axis.set_xlabel("x0")
axis.legend()

# %%
figure, axis = plt.subplots(figsize=(3.6, 3.6))
sds = {
    name: (fit["posterior"].w * fit["posterior"].lam).std(("chain", "draw")).values[1:, 1:].ravel()
    for name, fit in {"vb": vb, "nuts": nuts}.items()
}
axis.plot(sds["nuts"], sds["vb"], ".")
axis.axline((0, 0), slope=1, color="k", linewidth=0.8)
axis.set_xlabel("sd of w_i lam_j under NUTS")
axis.set_ylabel("under VB")
print("median of the ratio", np.median(sds["vb"] / sds["nuts"]).round(2))

# %% [markdown]
# The functions agree. The sds of the products under VB are about half of those of NUTS, since w and
# lam compensate for each other and a mean field cannot represent that.

# %% [markdown]
# ## To remember
#
# - Only products of the weights of samples and features are identified.
# - Compare different starts by the bound of the whole model, not of what was left after pruning.
# - Choose gamma by validation rows or folds; the bound prefers kernels that are too narrow.
# - The mean-field predictions are right, though the sds of single products are about half of what
#   they should be.
