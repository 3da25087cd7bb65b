"""Step methods for `pm.sample` that move a Gaussian block by an approximation, and stay exact.

    pm.sample(step=[av.steps.EPStep([w]), av.steps.GammaGibbs([alpha]), pm.NUTS([rest])])

At each step the rest of the model is given: its values make a `SiteModel`, a rule (EP, Laplace)
makes a Gaussian q of it, and a kernel of `sites/moves.py` moves the block. q starts cold at
each step, so it is a function of the rest and the data, and the kernels are exact whether or not
the rule has converged; where the rule finds no Gaussian at all, q is the prior, which is exact too.

PyMC hands over a point of transformed values and records what comes back *by position*: a step
changes one entry of a copy, and never the order.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
from pymc.model import modelcontext

from ardvark.errors import AccuracyWarning, InputError
from ardvark.inference.ep.ep import EP
from ardvark.inference.exact.exact import draw_probit
from ardvark.inference.graph.read import read_model
from ardvark.inference.laplace import Laplace
from ardvark.inference.pymc_models.own import as_pymc
from ardvark.inference.sites.approximation import Approximation
from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.likelihoods import ProbitSites
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.sites.moves import KERNELS, approximate_or_prior, move_block
from ardvark.inference.steps.contract import OwnStep
from ardvark.inference.vb.bound import Bound
from ardvark.models.checks import one_of, positive

__all__ = ["BlockStep", "EPStep", "ExactProbitStep", "GivenRest", "LaplaceStep", "VBStep"]


class GivenRest:
    """The block's `SiteModel` at a point of PyMC's value variables."""

    def __init__(self, model: Any, names: tuple[str, ...], predictor: str | None) -> None:
        self.latent = read_model(model, weights=names, predictor=predictor)
        hyper = self.latent.hyper
        self.values = {name: model.rvs_to_values[model[name]].name for name in hyper}
        self.at(model.initial_point())  # compiles: a worker gets functions, not graphs

    def theta(self, point: dict[str, Array]) -> dict[str, Array]:
        """Everything else, on its natural scale."""
        if not self.values:
            return {}
        free = {name: point[value] for name, value in self.values.items()}
        return self.latent.adjoint.constrain(free)

    def at(self, point: dict[str, Array]) -> SiteModel:
        """Arrays of the block given the rest."""
        return self.latent.at(self.theta(point))

    def weights(self, point: dict[str, Array]) -> Array:
        """The block as one vector."""
        return np.concatenate([np.ravel(point[name]) for name in self.latent.weights])

    def moved(self, point: dict[str, Array], weights: Array) -> dict[str, Array]:
        """Give a copy of the point with another block, keys in the old order."""
        return {**point, **self.latent.split(weights)}


class BlockStep(OwnStep):
    """A block of Normal weights given everything else."""

    def __init__(
        self,
        vars: Any = None,
        *,
        predictor: str | None = None,
        model: Any = None,
        **common: Any,
    ) -> None:
        model = modelcontext(as_pymc(model))
        super().__init__(vars, model=model, **common)
        names = tuple(model.values_to_rvs[value].name for value in self.vars)
        self.given = GivenRest(model, names, predictor)


class _ApproximationStep(BlockStep):
    """A block moved by a kernel that knows a Gaussian approximation.

    Parameters
    ----------
    vars : list of variables
        The Normal or MvNormal block, jointly affine in the predictor.
    kernel : "elliptical", "independence" or "draw"
        A slice on an ellipse of q, which never rejects; Metropolis-Hastings with proposals from q;
        or a draw of q itself, which is not exact, and a warning says so.
    freedom : float, optional
        q gets the tails of a Student-t with so many degrees of freedom, for targets with heavier
        tails than a Gaussian; None = Gaussian.
    approximation : settings, optional
        The rule with its settings. q need not be converged: a loose tolerance is exact too.
    predictor : str, optional
        Name of the variable through which the block reaches the likelihood. Default: it is found.
    """

    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "block_trials": (np.int64, []),
        "block_acceptance": (np.float64, []),
        "block_moved": (bool, []),
        "block_exact": (bool, []),
        "block_approximated": (bool, []),  # False: the rule failed, and q was the prior
    }
    default_rule: ClassVar[Any]

    def __init__(
        self,
        vars: Any = None,
        *,
        kernel: str = "elliptical",
        freedom: float | None = 8.0,
        approximation: Approximation | None = None,
        **common: Any,
    ) -> None:
        one_of(kernel, KERNELS, "kernel")
        if freedom is not None:
            positive(freedom, "freedom")
        self.kernel, self.freedom = kernel, freedom
        self.rule = self.default_rule if approximation is None else approximation
        super().__init__(vars, **common)
        if kernel == "draw":
            warnings.warn(
                f"{type(self).__name__}(kernel='draw') draws from the approximation itself: the "
                f"chain's posterior is not the model's. Use kernel='elliptical' for the exact one.",
                AccuracyWarning,
                stacklevel=2,
            )

    def step(self, point: dict[str, Array]) -> tuple[dict[str, Array], list[dict[str, Any]]]:
        """Move the block once."""
        site_model = self.given.at(point)
        q, found = approximate_or_prior(self.rule, site_model)
        weights = self.given.weights(point)
        moved = move_block(site_model, q, weights, self.rng, self.kernel, self.freedom)
        statistics = {
            "block_trials": moved.trials,
            "block_acceptance": moved.acceptance,
            "block_moved": moved.moved,
            "block_exact": self.kernel != "draw",
            "block_approximated": found,
        }
        return self.given.moved(point, moved.weights), [statistics]


class EPStep(_ApproximationStep):
    """Move a block by expectation propagation."""

    __doc__ = f"{__doc__}{_ApproximationStep.__doc__}"
    name = "ep_step"
    default_rule = EP(tolerance=1e-3, max_sweeps=20)


class LaplaceStep(_ApproximationStep):
    """Move a block by Laplace's approximation."""

    __doc__ = f"{__doc__}{_ApproximationStep.__doc__}"
    name = "laplace_step"
    default_rule = Laplace(tolerance=1e-4, max_iterations=20)


class VBStep(_ApproximationStep):
    """Move a block by the Gaussian of mean-field VB: logit, probit and Gaussian likelihoods."""

    __doc__ = f"{__doc__}{_ApproximationStep.__doc__}"
    name = "vb_step"
    default_rule = Bound()


class ExactProbitStep(BlockStep):
    """Independent exact draws of a block under a probit likelihood, given the rest.

    For more weights than rows, very few weights, or strong priors; see `exact/exact.py`.
    """

    name = "exact_probit_step"
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {"exact_proposals": (np.int64, [])}

    def __init__(self, vars: Any = None, **common: Any) -> None:
        super().__init__(vars, **common)
        model = modelcontext(common.get("model"))
        sites = self.given.at(model.initial_point()).sites
        if not isinstance(sites, ProbitSites):
            raise InputError(
                f"ExactProbitStep needs a probit likelihood of its predictor; this one is read as "
                f"{type(sites).__name__}. Use EPStep."
            )

    def step(self, point: dict[str, Array]) -> tuple[dict[str, Array], list[dict[str, Any]]]:
        """Draw the block anew."""
        weights, proposals = draw_probit(self.given.at(point), self.rng)
        return self.given.moved(point, weights), [{"exact_proposals": proposals}]
