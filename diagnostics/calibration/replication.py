"""One replication of simulation-based calibration: simulate, fit, and place the truth.

    (θ, w, t) ~ the graph's prior       fit to t       u = Q(q ≤ q_true)   for each quantity q

u is uniform if Q is the posterior. Quantities: every free variable, the log prior, the log
likelihood (which sees errors that cancel over the prior) and the predictor of the first row.

| what Q is | how u is found |
|---|---|
| Gaussian factor of Laplace, EP, VB | its distribution function: u = Φ((w - m) / s) |
| Gamma factor of VB | its distribution function |
| draws, `KEPT` at most, no more of a chain than it is worth | rank, ties broken at random |

Approximations of a Gaussian block are called on arrays (milliseconds), all other methods by `fit`.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import gammainc, ndtr

from ardvark.errors import AccuracyWarning, ConvergenceWarning, InputError
from ardvark.inference.fit import fit
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.graph.read import read_model
from ardvark.inference.hyper.settings import Fixed
from ardvark.inference.methods import METHODS, family_of
from ardvark.inference.pymc_models.simulate import Simulator
from ardvark.inference.pymc_models.travel import Carried
from ardvark.inference.running.progress import no_tick
from ardvark.inference.samplers.chain_statistics import ess_bulk
from ardvark.inference.sites.arrays import Array
from ardvark.inference.vb.blocks import Gamma

__all__ = ["Replicator", "rank", "worth"]

type Point = Mapping[str, Array]

KEPT = 99  # draws that are ranked, at most
FEWEST = 9  # draws that are ranked however badly a chain has mixed
DRAWS = 499  # independent draws for quantities without a closed form
ERRORS = (ArithmeticError, ValueError, RuntimeError, np.linalg.LinAlgError)  # of a fit, counted


def rank(draws: Array, truth: Any, rng: np.random.Generator) -> Array:
    """Place the truth (...) among draws (S, ...), in (0, 1), ties broken at random."""
    less = np.sum(draws < truth, axis=0)
    ties = np.sum(draws == truth, axis=0)
    return np.asarray((less + rng.random(np.shape(truth)) * (ties + 1)) / (len(draws) + 1))


def worth(chains: Mapping[str, Array]) -> int:
    """How many draws are ranked of chains (chain, draw, ...): the smallest effective size.

    Dependent draws make the ranks of a right sampler pile up at both ends.
    """
    flat = np.concatenate([v.reshape((*v.shape[:2], -1)) for v in chains.values()], axis=2)
    sizes = ess_bulk(flat.astype(float))
    known = sizes[np.isfinite(sizes)]  # what does not vary has none
    return int(np.clip(known.min(initial=KEPT), FEWEST, KEPT))


@dataclass(frozen=True)
class Replicator:
    """A model, a method, and everything that is compiled once for all replications.

    `hold`: hyperparameters are held at their simulated values, which leaves the weights.
    """

    model: Any
    method: str
    settings: Any
    hold: bool
    draws: int
    chains: int

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process without what was compiled."""
        rest = (self.method, self.settings, self.hold, self.draws, self.chains)
        return _arrived, (Carried(self.model), *rest)

    @cached_property
    def simulator(self) -> Simulator:
        """The generative side of the model."""
        return Simulator(self.model, getattr(self.settings, "predictor", None))

    @cached_property
    def latent(self) -> LatentGaussian | None:
        """The model as Gaussian block times sites, if it is one."""
        if family_of(self.model) != "sites":
            return None
        return read_model(
            self.model,
            weights=getattr(self.settings, "weights", None),
            predictor=getattr(self.settings, "predictor", None),
        )

    @property
    def hyper(self) -> tuple[str, ...]:
        """Names of the hyperparameters that are held."""
        if not self.hold:
            return ()
        if self.latent is None:
            raise InputError(
                f"hold=True: what the hyperparameters of a {family_of(self.model)!r} model are is "
                "not read from its graph. Give them as numbers when you build it."
            )
        return self.latent.hyper

    @property
    def by_arrays(self) -> bool:
        """Whether the approximation can be called without `fit`."""
        kind, latent = METHODS[self.method].kind, self.latent
        if self.settings.hyper is not None or latent is None:
            return False
        return kind == "vb" or (kind == "gaussian" and (self.hold or not latent.hyper))

    def run(self, seed: np.random.SeedSequence) -> dict[str, Any]:
        """One replication, as plain numbers; a fit that fails says so in `failed`."""
        simulated, fitted, ranked = seed.spawn(3)
        truth, data = self.simulated(simulated)
        rng = np.random.default_rng(ranked)
        with self.simulator.observing(data):
            try:
                with warnings.catch_warnings():
                    for expected in (ConvergenceWarning, AccuracyWarning):  # counted below
                        warnings.simplefilter("ignore", expected)
                    if self.by_arrays:
                        gaussian = METHODS[self.method].kind == "gaussian"
                        found = (self._gaussian if gaussian else self._vb)(truth, rng)
                    else:
                        found = self._fitted(truth, int(fitted.generate_state(1)[0]), rng)
            except ERRORS as error:
                return {"failed": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        pit = {n: np.asarray(v, float).tolist() for n, v in found.pop("pit").items()}
        return {"pit": pit, **found}

    def simulated(self, seed: np.random.SeedSequence) -> tuple[Point, Point]:
        """A draw of all free variables, and data of it."""
        return self.simulator.draw(seed)

    # By arrays --------------------------------------------------------------------------------

    def _gaussian(self, truth: Point, rng: np.random.Generator) -> dict[str, Any]:
        latent = self.latent
        assert latent is not None
        arrays = latent.at({name: truth[name] for name in latent.hyper})
        answer = self.settings.approximate(arrays)
        if getattr(self.settings, "corrected", False):
            answer = self.settings.assessed(arrays, answer)
        posterior, w_true = answer.posterior, _joined(latent, truth)
        w = posterior.draws(DRAWS, rng)
        sites, prior = arrays.sites, posterior.prior
        pit = self._weights(posterior, w_true) | {
            "log_prior": rank(prior.log_density(w), prior.log_density(w_true), rng),
            "log_likelihood": rank(
                sites.log(arrays.predictor(w)).sum(axis=-1),
                sites.log(arrays.predictor(w_true)).sum(),
                rng,
            ),
        }
        return {"pit": pit, "converged": bool(answer.converged)}

    def _vb(self, truth: Point, rng: np.random.Generator) -> dict[str, Any]:
        from ardvark.inference.vb.run import ascend, hyper_draws

        latent = self.latent
        assert latent is not None
        held = Fixed({name: truth[name] for name in latent.hyper}) if self.hold else None
        roles, ended = ascend(latent, self.settings, held, no_tick, self._roles)
        state = ended.fit.state
        w = state.posterior.draws(DRAWS, rng)
        theta, log_prior, _ = hyper_draws(latent, roles, ended, w, rng)
        if self.hold:
            theta = {n: np.broadcast_to(truth[n], (DRAWS, *truth[n].shape)) for n in latent.hyper}
        pit = self._weights(state.posterior, _joined(latent, truth))
        for name, place in roles.groups.items():
            assert isinstance(state.alpha, Gamma)
            shape, rate = state.alpha.shape[place], state.alpha.rate[place]
            pit[name] = gammainc(shape, rate * truth[name].ravel()).reshape(truth[name].shape)
        if roles.noise is not None:
            pit[roles.noise.name] = rank(theta[roles.noise.name], truth[roles.noise.name], rng)
        at_truth = self.simulator.sums(truth)
        if self.hold:  # the log density of θ itself is the same at every draw
            prior = state.posterior.prior
            at_truth["log_prior"] = float(prior.log_density(_joined(latent, truth)))
        observed = np.asarray(next(iter(self.simulator.places.values())).get_value())
        eta = state.posterior.prior.model.predictor(w)
        log_likelihood = latent.log_sites_of(eta, theta, observed).sum(axis=1)
        pit["log_prior"] = rank(log_prior, at_truth["log_prior"], rng)
        pit["log_likelihood"] = rank(log_likelihood, at_truth["log_likelihood"], rng)
        return {"pit": pit, "converged": bool(ended.fit.converged)}

    @cached_property
    def _roles(self) -> Any:
        from ardvark.inference.vb.reading import read_roles

        return None if self.hold or self.latent is None else read_roles(self.latent)

    def _weights(self, posterior: Any, w_true: Array) -> dict[str, Array]:
        """Exact distribution functions of the weights and of the first predictor."""
        latent = self.latent
        assert latent is not None
        if not posterior.prior.on.all():
            off = latent.weight_names[int(np.argmin(posterior.prior.on))]
            raise InputError(
                f"{off} is switched off (its precision is infinite), so there is no truth to find: "
                "build the model without it"
            )
        u = ndtr((w_true - posterior.mean) / np.sqrt(posterior.marginal_variance))
        arrays = posterior.prior.model
        mean, variance = posterior.predictive(arrays.projection[:1], arrays.offset[:1])
        eta = arrays.predictor(w_true)[0]
        return {**latent.split(u), "first_predictor": ndtr((eta - mean[0]) / np.sqrt(variance[0]))}

    # By fit -----------------------------------------------------------------------------------

    def _fitted(self, truth: Point, seed: int, rng: np.random.Generator) -> dict[str, Any]:
        settings = self.settings
        if self.hyper:
            settings = replace(settings, hyper=Fixed({name: truth[name] for name in self.hyper}))
        tree = fit(
            self.model,
            settings,
            draws=self.draws,
            chains=self.chains,
            random_seed=seed,
            progressbar=False,
        )
        posterior = tree["posterior"].dataset
        free = [name for name in self.simulator.free if name in posterior]
        # No prior leads to hyperparameters that were searched for: they have no place.
        searched = {n for n in free if n not in self.hyper and posterior[n].attrs.get("held")}
        chains = {name: _by_chain(posterior[name]) for name in free if name not in searched}
        independent = posterior.attrs.get("sampling_kind") == "iid"
        found = self.placed(chains, truth, rng, self.hyper, independent=independent)
        return found | {"converged": bool(tree.attrs["converged"])}

    def ranked(self, names: Collection[str]) -> Collection[str]:
        """Which free variables are ranked; all of them here."""
        return names

    def placed(
        self,
        chains: Mapping[str, Array],
        truth: Point,
        rng: np.random.Generator,
        held: Collection[str] = (),
        *,
        independent: bool = False,
    ) -> dict[str, Any]:
        """Rank the truth among draws (chain, draw, ...) of the free variables, but for `held`."""
        names = [name for name in self.ranked(chains) if name not in held]
        count = KEPT if independent else worth({name: chains[name] for name in names})
        draws = {name: v.reshape((-1, *v.shape[2:])) for name, v in chains.items()}
        if family_of(self.model) == "subset":
            from ardvark.inference.subset.run import with_excluded

            draws = with_excluded(self.model, draws, rng)
        keep = np.linspace(0, len(draws[names[0]]) - 1, count).round().astype(int)
        kept = {name: values[keep] for name, values in draws.items()}
        pit = {name: rank(kept[name], truth[name], rng) for name in names}
        if set(chains) == set(self.simulator.free):
            at_draws = self.simulator.sums_at(kept)
            for name, value in self.simulator.sums(truth).items():
                pit[name] = rank(at_draws[name], value, rng)
        found: dict[str, Any] = {"pit": pit, "kept": count}
        if "included" in names:
            found["included"] = np.asarray(truth["included"]).astype(int).tolist()
            found["inclusion"] = draws["included"].mean(axis=0).tolist()
        return found


def _arrived(carried: Carried, *rest: Any) -> Replicator:
    return Replicator(carried.model, *rest)


def _joined(latent: LatentGaussian, truth: Point) -> Array:
    return np.concatenate([np.ravel(truth[name]) for name in latent.weights])


def _by_chain(values: xr.DataArray) -> Array:
    return np.asarray(values.transpose("chain", "draw", ...).values)
