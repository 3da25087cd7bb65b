"""`predict`: what a fitted model says of new rows.

A Gaussian approximation N(m, V) gives η* ~ N(a'm + o, a'Va) in closed form, and the probability
of a class is the normaliser of its site under that Gaussian: the tilted moment that the sites
know already. Draws of a sampler are averaged, each with its own hyperparameters.

| task | statistic |
|---|---|
| two classes | ∫ p(t = k | η) q(η) dη, for each class k |
| Gaussian noise | E η and sqrt(var η + σ²): the sd includes the noise |
| any other likelihood | mean and sd of posterior predictive draws |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import xarray as xr

from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.arguments import check_model, check_tree
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.graph.read import read_model
from ardvark.inference.hyper.stored import theta_of
from ardvark.inference.methods import family_of, prediction_route
from ardvark.inference.pymc_models.compile import quick
from ardvark.inference.pymc_models.copies import private_copy, put_data
from ardvark.inference.pymc_models.fingerprint import require_model
from ardvark.inference.pymc_models.forms import gaussian_form
from ardvark.inference.running.progress import silent
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import GaussianSites
from ardvark.inference.sites.posterior import Posterior, condition
from ardvark.models.card import card_of
from ardvark.models.checks import Seed, as_flag, some_seed
from ardvark.models.inputs import Inputs, as_inputs, scaled_like
from ardvark.models.tables import as_frame, refuse_other_columns

__all__ = ["Average", "Beliefs", "class_table", "in_blocks", "predict", "row_table"]

_SHAPE_WORDS = ("shape", "broadcast", "dimension", "mismatch")
DRAWS_AT_A_TIME = 2000  # of a sampler: all are used, in blocks that bound the memory


def predict(
    model: Any,
    tree: xr.DataTree,
    X_new: Any,
    *,
    weights: str | tuple[str, ...] | None = None,
    predictor: str | None = None,
    bayes_point: bool = False,
    random_seed: Seed = 0,
) -> xr.DataArray:
    """Predict the target at new rows.

    Parameters
    ----------
    model : pm.Model
        The model that was fitted; its inputs must be `pm.Data`.
    tree : xr.DataTree
        What `fit` gave.
    X_new : table or mapping
        New rows. Raw rows are put on the scale of the model if it was built on standardised
        inputs. For your own graph: the array for its one `pm.Data` in the predictor, or a
        mapping name → array.
    weights, predictor : optional
        Names in the graph, when they differ from those of the fit.
    bayes_point : bool
        Predict at the posterior mean of η, as if it were known: Qi04 (3) instead of (2).
    random_seed : int, Generator or SeedSequence
        For likelihoods that are neither two-class nor Gaussian, where the answer is made of draws.

    Returns
    -------
    xr.DataArray
        Classes: (row, class) probabilities. Otherwise (row, statistic) with mean and sd.
    """
    check_tree(tree)
    model = check_model(model)
    as_flag(bayes_point, "bayes_point")
    require_model(model, {"tree": tree})
    _require_settings(model, tree)
    route, seed = prediction_route(model), some_seed(random_seed)
    if route is not None:
        if bayes_point:
            raise UnsupportedPair(
                f"bayes_point=True: not for {family_of(model)!r} models, which "
                "have no affine predictor whose mean could be taken"
            )
        return _by_family(route, model, tree, X_new, seed)
    settings = json.loads(tree.attrs.get("settings", "{}"))
    names = weights if weights is not None else settings.get("weights")
    with private_copy(gaussian_form(model)) as own:
        latent = read_model(
            own,
            weights=tuple(names) if isinstance(names, list) else names,
            predictor=predictor or settings.get("predictor"),
            sparse={"auto": None, "sparse": True}.get(settings.get("space", ""), False),
        )
        belief = _own_posterior(own, latent, tree)
        values = _new_values(own, latent, X_new)
        put_data(own, values)
        with _readable_shapes(latent):
            return _prediction(latent, tree, values, bayes_point, seed, belief)


def _prediction(
    latent: LatentGaussian,
    tree: xr.DataTree,
    values: Mapping[str, Array],
    bayes_point: bool,
    seed: int,
    posterior: Posterior | None = None,
) -> xr.DataArray:
    """Predict at the data that the model of `latent` holds."""
    gaussian = "mean_vector" in tree.children.get("fit", {})
    belief: _Belief = _Gaussian(latent, tree, posterior) if gaussian else Beliefs(latent, tree)
    if bayes_point:
        belief = belief.at_its_mean()
    if latent.two_classes:
        positive = belief.probability(1)
        return class_table(latent.model, np.stack([1.0 - positive, positive], axis=1))
    moments = belief.gaussian_noise()
    if moments is None:
        moments = _by_simulation(latent, tree, values, seed)
    return row_table(np.stack(moments, axis=1), "statistic", ["mean", "sd"])


def _own_posterior(model: Any, latent: LatentGaussian, tree: xr.DataTree) -> Posterior | None:
    """The Gaussian of a tree that holds variances alone, made again from its sites and its data."""
    if "variance_vector" not in tree.children.get("fit", {}):
        return None
    fit = tree["fit"].to_dataset()
    data = tree["constant_data"].data_vars if "constant_data" in tree.children else {}
    put_data(model, {n: data[n].values for n in latent.predictor_data if n in data})
    theta = theta_of(tree, latent.hyper)
    found = condition(latent.at(theta), fit["site_precision"].values, fit["site_shift"].values)
    if not np.allclose(found.mean, fit["mean_vector"].values, rtol=1e-6, atol=1e-6):
        raise InputError("tree: its weights are not those of its sites; fit the model again")
    return found


def _require_settings(model: Any, tree: xr.DataTree) -> None:
    """Refuse a tree of `fit(data=...)` that was given another noise, other centres and the like."""
    fitted = tree["constant_data"].data_vars if "constant_data" in tree.children else {}
    rows = {d for rv in model.observed_RVs for d in model.named_vars_to_dims.get(rv.name) or ()}
    for variable in model.data_vars:
        name, dims = variable.name, model.named_vars_to_dims.get(variable.name) or ()
        if name not in fitted or rows & set(dims) or (variable.ndim and not dims):
            continue
        if not np.array_equal(fitted[name].values, variable.get_value()):
            raise InputError(
                f"model: it holds another {name!r} than the tree was fitted with; give it the "
                f"tree's by model.set_data({name!r}, ...)"
            )


def _by_family(
    route: Callable[..., xr.DataArray], model: Any, tree: xr.DataTree, X_new: Any, seed: int
) -> xr.DataArray:
    """Predict for a model of another shape than a Gaussian block times scalar sites."""
    card = card_of(model)
    assert card is not None  # only a card names another family
    return route(model, tree, scaled_like(X_new, card.scaling, card.feature_names), seed)


@contextmanager
def _readable_shapes(latent: LatentGaussian) -> Iterator[None]:
    """Say what to do when part of the graph keeps the length of the old rows."""
    try:
        yield
    except (AssertionError, ValueError) as error:
        if isinstance(error, InputError) or not any(w in str(error).lower() for w in _SHAPE_WORDS):
            raise
        raise InputError(
            f"part of the model keeps its number of rows whatever the inputs are: give the "
            f"observed {latent.observed!r} and all else that has one value per row as a pm.Data, "
            f"and new values of it in X_new ({error})"
        ) from error


class _Gaussian:
    """η at the new rows under the Gaussian approximation of the tree."""

    def __init__(
        self, latent: LatentGaussian, tree: xr.DataTree, posterior: Posterior | None = None
    ) -> None:
        fit = tree["fit"].to_dataset()
        self.latent = latent
        self.theta = theta_of(tree, latent.hyper)
        projection, offset = latent.affine_map(self.theta)
        kept = fit["active"].values
        if len(kept) != latent.n_weights:
            raise InputError(
                f"tree has {len(kept)} weights, the model has {latent.n_weights}: it is the "
                f"tree of another model"
            )
        mean = latent.prior(self.theta)[0]
        mean[kept] = fit["mean_vector"].values
        own = _own_rows(latent, self.theta)
        self.mean = (projection @ mean + offset)[own]
        rows = projection[own][:, kept]
        if posterior is not None:
            self.variance = posterior.predictive(projection[own], offset[own])[1]
        elif "covariance_matrix" in fit:
            rows = rows.toarray() if hasattr(rows, "toarray") else rows
            self.variance = np.einsum("ni,ij,nj->n", rows, fit["covariance_matrix"].values, rows)
        else:
            factor = rows @ fit["covariance_factor"].values
            self.variance = rows**2 @ fit["covariance_diagonal"].values - np.square(factor).sum(
                axis=1
            )

    def at_its_mean(self) -> _Gaussian:
        self.variance = np.zeros_like(self.mean)
        return self

    def probability(self, label: int) -> Array:
        sites = self.latent.sites(self.theta, observed=np.full(len(self.mean), label))
        return np.exp(sites.tilted(self.mean, np.maximum(self.variance, 1e-300)).log_z)

    def gaussian_noise(self) -> tuple[Array, Array] | None:
        noise = _noise_variance(self.latent, self.theta, len(self.mean))
        return None if noise is None else (self.mean, np.sqrt(self.variance + noise))


class Average:
    """Mean and variance over all draws of values (draw, row) that come in blocks."""

    def __init__(self) -> None:
        self.count, self.mean, self.variance = 0, np.zeros(()), np.zeros(())

    def add(self, values: Array) -> None:
        """Take more draws in."""
        share = len(values) / (self.count + len(values))
        mean = values.mean(axis=0)
        between = share * (1.0 - share) * (mean - self.mean) ** 2
        self.variance = (1.0 - share) * self.variance + share * values.var(axis=0) + between
        self.mean = self.mean + share * (mean - self.mean)
        self.count += len(values)


def in_blocks(draws: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """Give all draws (S, ...), a block at a time: predictions at many rows are large."""
    for start in range(0, len(next(iter(draws.values()))), DRAWS_AT_A_TIME):
        yield {name: values[start : start + DRAWS_AT_A_TIME] for name, values in draws.items()}


class Beliefs:
    """η at the new rows for each draw, with the draw's own hyperparameters."""

    def __init__(self, latent: LatentGaussian, tree: xr.DataTree) -> None:
        self.latent = latent
        self.known: Array | None = None
        stacked = tree["posterior"].to_dataset().stack(sample=("chain", "draw"), create_index=False)
        missing = [n for n in (*latent.weights, *latent.hyper) if n not in stacked]
        if missing:
            raise InputError(
                f"tree has no draws of {missing[0]!r}: it is the tree of another model"
            )
        self.draws = {
            name: np.moveaxis(stacked[name].values, stacked[name].dims.index("sample"), 0)
            for name in (*latent.weights, *latent.hyper)
        }

    def blocks(self) -> Iterator[tuple[dict[str, Array], Array]]:
        """Draws of θ (S, ...) and η (S, N) at them, block by block."""
        for draws in in_blocks(self.draws):
            theta = {name: draws[name] for name in self.latent.hyper}
            if self.known is None:
                first = {name: values[0] for name, values in theta.items()}
                yield theta, self.latent.eta_of(draws)[:, _own_rows(self.latent, first)]
            else:
                count = len(next(iter(draws.values())))
                yield theta, np.broadcast_to(self.known, (count, len(self.known)))

    def at_its_mean(self) -> Beliefs:
        """The same as if η were known at its mean."""
        mean = Average()
        for _, eta in self.blocks():
            mean.add(eta)
        self.known = mean.mean
        return self

    def probability(self, label: int) -> Array:
        """Probability of a class at each row."""
        found = Average()
        for theta, eta in self.blocks():
            labels = np.full(eta.shape[1], label)
            found.add(np.exp(self.latent.log_sites_of(eta, theta, labels)))
        return found.mean

    def gaussian_noise(self) -> tuple[Array, Array] | None:
        """Mean and sd of the target, if the noise is Gaussian."""
        predictor, noise = Average(), Average()
        for theta, eta in self.blocks():
            variance = self.noise_variance(theta, eta.shape[1])
            if variance is None:
                return None
            predictor.add(eta)
            noise.add(variance)
        return predictor.mean, np.sqrt(predictor.variance + noise.mean)

    def noise_variance(self, theta: Mapping[str, Array], rows: int) -> Array | None:
        """σ² of each draw and row, if the noise is Gaussian."""
        start = {name: values[0] for name, values in theta.items()}
        constant = _noise_variance(self.latent, start, rows)
        if constant is None or not theta:
            return None if constant is None else np.atleast_2d(constant)
        # At t = 0 and η = 0 a Gaussian site is log N(0; 0, σ²): the noise of each draw.
        zeros = np.zeros((len(next(iter(theta.values()))), rows))
        log_peak = self.latent.log_sites_of(zeros, theta, np.zeros(rows))
        return np.asarray(np.exp(-2.0 * log_peak) / (2.0 * np.pi))


_Belief = _Gaussian | Beliefs


def _own_rows(latent: LatentGaussian, theta: Mapping[str, Array]) -> slice:
    """Rows of the observed variable that is predicted; others are of priors and potentials."""
    if len(latent.reading.rows) == 1:
        return slice(None)
    return latent.row_slices(theta)[latent.observed]


def _noise_variance(latent: LatentGaussian, theta: Mapping[str, Any], rows: int) -> Array | None:
    """σ² if t ~ N(η, σ²): sites that are Gaussian and centred on the observed t, whatever it is."""
    for value in (0.0, 1.0):  # at 0 alone t ~ N(c η, σ²) would pass
        sites = latent.sites(theta, observed=np.full(rows, value))
        if not isinstance(sites, GaussianSites) or not np.allclose(sites.mean, value, atol=1e-9):
            return None
    assert isinstance(sites, GaussianSites)
    return 1.0 / np.asarray(sites.precision)


def _new_values(model: Any, latent: LatentGaussian, X_new: Any) -> dict[str, Array]:
    if latent.predictor in latent.weights:
        raise UnsupportedPair(
            f"the predictor {latent.predictor!r} is itself the Gaussian block: new rows would "
            f"need its covariance "
            f"with the old ones, which the graph does not hold"
        )
    card = card_of(model)
    if card is not None:
        return card.new_data(scaled_like(X_new, card.scaling, card.feature_names))
    feeding = latent.predictor_data
    if isinstance(X_new, Mapping) and as_frame(X_new, "X_new") is None:
        return {
            name: np.atleast_1d(_own_values(model, name, value)) for name, value in X_new.items()
        }
    if len(feeding) != 1:
        found = ", ".join(feeding) or "none: its inputs are constants, wrap them in pm.Data"
        raise InputError(
            f"X_new must be a mapping name → array for this graph: the pm.Data in "
            f"{latent.predictor!r} are {found}"
        )
    return {feeding[0]: np.asarray(_own_values(model, feeding[0], X_new), float)}


def _own_values(model: Any, name: str, values: Any) -> Any:
    """New values for a `pm.Data` of a user's graph; a table's names are held against its dim's."""
    if not isinstance(values, Inputs) and as_frame(values, "X_new") is None:
        return np.asarray(values)
    X = as_inputs(values, argument="X_new")
    dims: tuple[str, ...] = tuple(model.named_vars_to_dims.get(name) or ())
    if len(dims) == 2 and model.coords.get(dims[1]) is not None:
        refuse_other_columns(X.feature_names, tuple(map(str, model.coords[dims[1]])))
    return np.asarray(X)


def _by_simulation(
    latent: LatentGaussian, tree: xr.DataTree, values: Mapping[str, Array], seed: int
) -> tuple[Array, Array]:
    """Mean and sd of posterior predictive draws, for likelihoods without a closed form."""
    import pymc as pm

    model = latent.model
    rows = max(len(value) for value in values.values())
    fillers = {
        v.name: np.zeros((rows, *v.get_value().shape[1:]), v.dtype) for v in latent.observed_data
    }
    put_data(model, fillers)
    with quick(), silent("pymc.sampling.forward"):
        drawn = pm.sample_posterior_predictive(
            tree,
            model=model,
            var_names=[latent.observed],
            random_seed=seed,
            progressbar=False,
            compile_kwargs={"mode": "FAST_COMPILE"},
        )
    samples = drawn["posterior_predictive"][latent.observed]
    if samples.shape[-1] != rows:
        raise InputError(
            f"the likelihood keeps {samples.shape[-1]} rows whatever the inputs are: give it "
            f"the observed values "
            f"as a pm.Data, or leave out shape="
        )
    return samples.mean(("chain", "draw")).values, samples.std(("chain", "draw")).values


def class_table(model: Any, probabilities: Array) -> xr.DataArray:
    """Probabilities (row, class) under the labels of the model."""
    card = card_of(model)
    labels = [0, 1] if card is None or card.classes is None else list(card.classes)
    return row_table(probabilities, "class", labels)


def row_table(values: Array, dim: str, labels: list[Any]) -> xr.DataArray:
    """Predictions (row, dim) with their labels."""
    return xr.DataArray(
        values,
        dims=("row", dim),
        coords={"row": np.arange(len(values)), dim: np.asarray(labels)},
        name="prediction",
    )
