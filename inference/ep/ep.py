"""Expectation propagation: each site is replaced by the Gaussian that matches tilted moments.

Per row: q gives eta_n the mean m and variance v; the site exp(-tau eta^2 / 2 + nu eta) taken out of
it leaves the cavity N(mu, lambda); cavity times true site is the tilted distribution, of mass Z_n,
and the new site is the one that gives q its mean and variance.

    r = nu - tau m,   lambda = v / (1 - tau v),   mu = m - lambda r
    log Z = sum log Z_n - 1/2 sum log(1 - tau v) - 1/2 log |I + K T| - 1/2 sum (mu - eta_0) r

The last line is Qi04 (10) and (11) with all that cancels left out (eta_0 is eta at the prior mean):
no constant grows with a precision or an offset, and any sign of tau will do.

| Qi, Minka, Picard & Ghahramani 2004            | code                                          |
|------------------------------------------------|-----------------------------------------------|
| (4) to (9), one row after the other             | `sequential.py`                               |
| (4) to (9), all rows at once                    | `parallel.py`                                 |
| (10), (11); a product is printed as a quotient  | `_log_evidence`                               |
| (12), (13) and the one after it                 | `_error_estimates`                            |
| gradient at the fixed point: sites stay         | `EP.evidence_gradient`                        |
| what is left out (not in the paper)             | `EP.assessed`, `correction.py`                |
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri_exp

from ardvark.errors import InputError
from ardvark.inference.ep.correction import evidence_correction, moment_correction
from ardvark.inference.ep.parallel import parallel
from ardvark.inference.ep.run_of_steps import Weights, run_of_steps
from ardvark.inference.ep.sequential import Rows, sequential
from ardvark.inference.known_sites.known import KnownSites, known
from ardvark.inference.known_sites.stacked import expansion, log_concave
from ardvark.inference.sites.approximation import (
    Approximation,
    Cotangents,
    GaussianFit,
    RunOfSteps,
)
from ardvark.inference.sites.arrays import Array, Index, Mask
from ardvark.inference.sites.likelihoods import (
    GaussianSites,
    LogitSites,
    ProbitSites,
    Sites,
    StepSites,
)
from ardvark.inference.sites.model import Prior, SiteModel
from ardvark.inference.sites.posterior import SPACES, Posterior, condition
from ardvark.inference.sites.quadrature import is_multimodal, tilted_nodes
from ardvark.inference.sites.settings import MethodSettings
from ardvark.inference.sites.trigonometric import TrigonometricSites
from ardvark.inference.sparse.posterior import row_cotangents
from ardvark.models.checks import one_of, positive, positive_integer

__all__ = ["EP", "UPDATES"]

TWO_CLASSES = (ProbitSites, LogitSites, StepSites, TrigonometricSites)
UPDATES = ("auto", "sequential", "parallel")
PRESCALE = 50.0  # of z in Qi04 (13)
PATH_TOLERANCE = 1e-6
SHOWN_SWEEPS = 40
CORRECTED_ROWS = 3000  # beyond, the matrix of all pairs of rows is too large for a mere check
MOST_PRODUCTS = 10**9  # rows² weights beyond which the variances are left alone: seconds
LOG_HALF = math.log(0.5)


@dataclass(frozen=True, slots=True)
class EP(MethodSettings, Approximation):
    """Expectation propagation.

    Parameters
    ----------
    hyper
        How hyperparameters are treated; None = by evidence if the graph has free ones.
    weights, predictor
        Names in the graph; None = every Gaussian block that enters the predictor.
    updates
        "sequential" (machine code; sites of known families), "parallel" (any sites, all rows in
        one call per sweep), or "auto": sequential where all sites are known and log-concave.
    damping
        Share of each update that is made; 1 = all. Parallel updates lower it when they oscillate.
    tolerance
        Stop when no site would change by more than this, relative to itself or to the rest of q.
    max_sweeps
        Sweeps before the fit is returned with `converged=False`.
    space
        "weights", "functions", "sparse" (parallel updates), or "auto": the cheapest.
    """

    updates: str = "auto"
    damping: float = 1.0
    tolerance: float = 1e-10
    max_sweeps: int = 200
    space: str = "auto"

    def __post_init__(self) -> None:
        """Refuse settings that cannot work."""
        one_of(self.updates, UPDATES, "updates")
        if positive(self.damping, "damping") > 1:
            raise InputError(f"damping must be above 0 and at most 1; found {self.damping!r}")
        positive(self.tolerance, "tolerance")
        positive_integer(self.max_sweeps, "max_sweeps")
        one_of(self.space, SPACES, "space")

    def loosened(self) -> "EP":
        """The same rule for the many fits of a path, where sites good to 1e-6 are good enough.

        On the gene expression paths of the Qi04 study this moves the evidence by 1e-6 nats.
        """
        return replace(self, tolerance=max(self.tolerance, PATH_TOLERANCE))

    def approximate(self, model: SiteModel, warm: GaussianFit | None = None) -> GaussianFit:
        """Gaussian posterior of `model`, started from the sites of a `warm` fit or from none."""
        prior = model.prior()
        if not prior.on.any() and not isinstance(model.sites, StepSites):
            return self._fit(prior, _known_rows(prior))
        start = _start(prior, warm)
        sites, settles, signed = _traits_of(model.sites, len(prior.eta_mean))
        if self.updates == "sequential" and sites is None:
            raise InputError(
                f"updates='sequential' needs sites of known families; these are "
                f"{type(model.sites).__name__}. Use updates='parallel'."
            )
        if model.sparse and self.updates == "sequential":
            raise InputError(
                "updates='sequential' needs the covariance of all rows, which a sparse model does "
                "not form. Use updates='parallel', or space='weights'."
            )
        if (
            sites is not None
            and not model.sparse
            and (self.updates == "sequential" or (self.updates == "auto" and settles))
        ):
            return self._fit(prior, self._sequential(prior, sites, signed, start))
        settings = (self.damping, self.tolerance, self.max_sweeps, self.space)
        return self._fit(prior, parallel(prior, start, *settings))

    def _sequential(
        self, prior: Prior, sites: KnownSites, signed: bool, start: tuple[Array, Array]
    ) -> Rows:
        n_rows, k = prior.projection.shape
        if signed and self.space == "functions":
            raise InputError(
                "updates='sequential' with space='functions' needs log-concave sites, and some of "
                "these may have negative precisions. Use updates='parallel' or space='weights'."
            )
        functions = self.space == "functions" or (self.space == "auto" and k >= n_rows)
        functions = functions and not signed
        if not signed and np.any(start[0] < 0):
            start = (np.zeros(n_rows), np.zeros(n_rows))
        matrix = prior.eta_covariance if functions else prior.white_projection
        settings = (float(self.damping), float(self.tolerance), int(self.max_sweeps))
        try:
            found = sequential(matrix, functions, prior.eta_mean, sites, start, settings)
        except np.linalg.LinAlgError:
            raise np.linalg.LinAlgError(
                "EP's sites have become too strong to go on. Step-function sites do this when no "
                "weights put every row on its side of zero: use a probit likelihood then."
            ) from None
        _check_site_variances(prior.model.sites, found.tau)
        return found

    def _fit(self, prior: Prior, rows: Rows) -> GaussianFit:
        posterior = rows.posterior
        if posterior is None:
            posterior = condition(prior, rows.tau, rows.nu, self.space)
        sites = prior.model.sites
        counts = np.array([[rows.negative_cavities], [rows.skipped], [rows.unresolved]])
        info = _info(sites, np.array([rows.change]), counts, rows.log_z[None])[0]
        if not rows.unresolved and not log_concave(sites, len(rows.tau)).all():
            several = is_multimodal(sites.log, rows.cavity_mean, rows.cavity_variance)
            info["multimodal_sites"] = float(several.sum())
        return GaussianFit(
            posterior=posterior,
            log_evidence=_log_evidence(posterior, rows),
            iterations=rows.sweeps,
            converged=bool(rows.change <= self.tolerance and not rows.unresolved),
            site_precision=rows.tau,
            site_shift=rows.nu,
            info=info,
            by_row=_by_row(rows),
        )

    def run_of_steps(
        self,
        model: SiteModel,
        fit: GaussianFit,
        free: Mask,
        bounds: tuple[Array, Array],
        floor: float,
        most: int,
    ) -> RunOfSteps | None:
        """Steps in machine code, where a fit is one too, in the space of the weights."""
        prior = model.prior()
        rows, k = prior.projection.shape
        sites, settles, _ = _traits_of(model.sites, rows)
        in_weights = self.space == "weights" or (self.space == "auto" and k < rows)
        if self.updates == "parallel" or sites is None or not (settles and in_weights and k):
            return None
        assert model.precision is not None
        on, posterior = np.flatnonzero(prior.on), fit.posterior
        weights = Weights(
            prior.projection, model.precision[on], posterior.mean[on],
            posterior.marginal_variance[on], free[on], bounds[0][on], bounds[1][on],
        )  # fmt: skip
        settings = (float(self.damping), float(self.tolerance), int(self.max_sweeps))
        start = _start(prior, fit)
        try:
            found = run_of_steps(weights, prior.eta_mean, sites, start, floor, most, settings)
        except np.linalg.LinAlgError:
            return None  # a step by itself says what is wrong

        def fit_after(i: int) -> GaussianFit:
            precision = np.full(prior.on.size, np.inf)
            precision[on] = found.precision[i]
            return self._fit(replace(model, precision=precision).prior(), found.rows(i))

        counts = np.stack([found.negative_cavities, found.skipped, np.zeros_like(found.skipped)])
        info = _info(model.sites, found.change, counts, found.log_z)
        return RunOfSteps(
            on[found.weight], found.gain, found.precision, found.log_evidence, info, fit_after
        )

    def completed(self, model: SiteModel, fit: GaussianFit) -> GaussianFit:
        """Add what is made once, at the end: corrections, and the evidence sweep by sweep."""
        if not fit.converged or len(fit.site_precision) > CORRECTED_ROWS:
            return fit
        by_sweep = {"log_evidence_by_sweep": self._sweep_by_sweep(fit)}
        return self.assessed(model, fit)._replace(by_sweep=by_sweep)

    def assessed(self, model: SiteModel, fit: GaussianFit) -> GaussianFit:
        """Estimate what is left out of evidence, means and variances, to second order."""
        rows, weights = model.projection.shape
        if not fit.converged or rows > CORRECTED_ROWS:
            return fit
        if rows * rows * weights > MOST_PRODUCTS:
            correction = evidence_correction(fit).value
            return fit._replace(info=fit.info | {"log_evidence_correction": correction})
        found = moment_correction(fit)
        fit = fit._replace(info=fit.info | {"log_evidence_correction": found.evidence.value})
        return fit.assessed(found.mean, found.variance)

    def _sweep_by_sweep(self, fit: GaussianFit) -> Array:
        """Log evidence after each sweep from flat sites: a search ends with a warm start."""
        single, found = replace(self, max_sweeps=1), list[float]()
        state: GaussianFit | None = None
        try:
            while len(found) < SHOWN_SWEEPS and not (state is not None and state.converged):
                state = single.approximate(fit.posterior.prior.model, state)
                found.append(state.log_evidence)
        except np.linalg.LinAlgError:  # of a single undamped sweep, which the search itself mends
            pass
        return np.array(found)

    def evidence_gradient(self, model: SiteModel, fit: GaussianFit) -> Cotangents:
        """Adjoints of `fit.log_evidence` at the fixed point, where it is stationary in the sites.

        The likelihood's part is the tilted expectation of d log site: nodes and weights that sum
        to one in each row.
        """
        posterior = fit.posterior
        force = fit.site_shift - fit.site_precision * posterior.eta_mean  # r, d log Z / d offset
        eta, share = _nodes(model.sites, fit.by_row["cavity_mean"], fit.by_row["cavity_variance"])
        still = np.zeros_like(share)
        found = Cotangents(force, eta, share, still, still)
        if model.sparse:  # rows at their entries alone
            return found._replace(rows=row_cotangents(posterior, force, -fit.site_precision)[0])
        deviation = posterior.mean - model.mean
        projection = np.outer(force, posterior.mean)
        projection -= fit.site_precision[:, None] * posterior.cross_covariance
        pull = model.projection.T @ force  # P0 (m - m0)
        precision = covariance = None
        if model.precision is not None:
            precision = 0.5 / model.precision - 0.5 * (deviation**2 + posterior.marginal_variance)
            precision[~posterior.prior.on] = 0.0  # an inactive weight stays inactive
        else:
            covariance = 0.5 * (np.outer(pull, pull) - posterior.information)
        return found._replace(
            mean=pull, precision=precision, covariance=covariance, projection=projection
        )


def _nodes(sites: Sites, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Points of eta (Q, N) and their shares of the tilted mass, which sum to 1 in each row."""
    if isinstance(sites, GaussianSites):  # tilted is Gaussian: a few nodes are exact
        _, centre, spread = sites.tilted(mean, variance)
        x, share = np.polynomial.hermite_e.hermegauss(5)
        eta = centre + np.sqrt(spread) * x[:, None]
        return eta, np.broadcast_to((share / share.sum())[:, None], eta.shape)
    if isinstance(sites, TrigonometricSites):
        return sites.nodes(mean, variance)
    known = variance < 1e-200  # no weight is active: eta is its prior mean
    eta, share = tilted_nodes(sites.log, mean, np.where(known, 1.0, variance))
    return np.where(known, mean, eta), share


def _traits_of(sites: Any, rows: int) -> tuple[KnownSites | None, bool, bool]:
    """Sites in machine code, whether sweeps settle surely, whether sites may turn negative.

    Kept for sites that are arrays alone: they are the same at every step of a search.
    """
    of_arrays = isinstance(sites, KnownSites | ProbitSites | LogitSites)
    return (_traits_kept if of_arrays else _traits)(sites, rows)


def _traits(sites: Sites, rows: int) -> tuple[KnownSites | None, bool, bool]:
    found = known(sites, rows)
    settles = not isinstance(sites, GaussianSites) and bool(np.all(log_concave(sites, rows)))
    return found, settles, found is not None and not bool(found.log_concave.all())


_traits_kept = lru_cache(maxsize=2)(_traits)


def _known_rows(prior: Prior) -> Rows:
    """No weight is active, so eta is known: the sites are the expansions there, the limit of EP."""
    eta = prior.eta_mean
    site = expansion(prior.model.sites, eta)
    tau, nu = -site.second, site.first - site.second * eta
    still = np.zeros_like(eta)
    return Rows(0, 0.0, 0, 0, 0, tau, nu, eta, still, np.asarray(site.value))


def _start(prior: Prior, warm: GaussianFit | None) -> tuple[Array, Array]:
    rows = len(prior.eta_mean)
    if warm is None:
        return np.zeros(rows), np.zeros(rows)
    tau, nu = warm.site_precision, warm.site_shift
    if tau.shape != (rows,):
        raise ValueError(f"a warm start needs sites of {rows} rows; this fit has {tau.size}")
    return (tau, nu) if np.isfinite(tau + nu).all() else (np.zeros(rows), np.zeros(rows))


def _check_site_variances(sites: Sites, tau: Array) -> None:
    """A probit's site variance exceeds 1 whatever the cavity; if not, the code is wrong."""
    if isinstance(sites, ProbitSites) and not tau.max(initial=0.0) <= 1.0 + 1e-9:
        raise AssertionError(f"a probit site has precision {tau.max()}: it cannot exceed 1")


def _log_evidence(posterior: Posterior, rows: Rows) -> float:
    """Qi04 (10), (11) with precisions multiplied, and everything that cancels left out."""
    if rows.unresolved:
        return math.nan
    force = rows.nu - rows.tau * posterior.eta_mean
    gain = rows.tau * rows.cavity_variance  # 1 + tau lambda = 1 / (1 - tau v)
    shift = (rows.cavity_mean - posterior.prior.eta_mean) @ force
    per_row = float(rows.log_z.sum() + 0.5 * np.log1p(gain).sum())
    return per_row - posterior.half_log_det - 0.5 * float(shift)


def _info(sites: Sites, change: Array, counts: Index, log_z: Array) -> list[dict[str, float]]:
    """What each of m fits says of itself: counts are (3, m), log masses (m, N)."""
    columns: dict[str, Array | Index] = {
        "site_change": change,
        "negative_cavities": counts[0],
        "skipped": counts[1],
        "improper_sites": counts[2],
        "multimodal_sites": np.zeros_like(change),
        "log_loo_probability": log_z.sum(axis=-1),
    }
    if isinstance(sites, TWO_CLASSES):
        columns |= _error_estimates(log_z)
    values = np.array(list(columns.values()), float).T.tolist()
    return [dict(zip(columns, row, strict=True)) for row in values]


def _error_estimates(log_z: Array) -> dict[str, Array]:
    """Leave-one-out error (m,) of two-class sites (m, N) from z with Psi(z_n) = Z_n."""
    known = np.isfinite(log_z).all(axis=-1)  # else a row is without leave-one-out probability
    rows = log_z.shape[-1]
    log_z = np.where(known[:, None], log_z, 0.0)
    z = ndtri_exp(np.minimum(log_z, 0.0))
    decided = log_z - LOG_HALF
    ties = np.abs(decided) <= 1e-12  # half an error each
    errors = (decided < -1e-12).sum(axis=-1) + 0.5 * ties.sum(axis=-1)
    log_terms = log_ndtr(-PRESCALE * z)
    top = log_terms.max(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.exp(log_terms - top[:, None]).sum(axis=-1) / rows
        smooth = np.where(np.isfinite(top), top + np.log(mean), top)
    found = {
        "loo_error": errors / rows,  # Qi04 (12)
        "log_loo_error_smooth": smooth,  # Qi04 (13), z times 50
        "loo_error_unsigned": ndtr(-np.abs(z)).sum(axis=-1) / rows,  # Opper & Winther
    }
    return {name: np.where(known, values, math.nan) for name, values in found.items()}


def _by_row(rows: Rows) -> dict[str, Array]:
    present = rows.tau != 0
    tau = np.where(present, rows.tau, 1.0)
    return {
        "site_mean": np.where(present, rows.nu / tau, 0.0),
        "site_variance": np.where(present, 1.0 / tau, np.inf),
        "cavity_mean": rows.cavity_mean,
        "cavity_variance": rows.cavity_variance,
        "log_loo_probability": rows.log_z,
        "loo_probability": np.exp(rows.log_z),
    }
