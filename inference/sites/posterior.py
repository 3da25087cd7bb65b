"""A Gaussian prior times Gaussian sites: the algebra that every approximation shares.

    p(w) prod_n exp(-tau_n eta_n^2 / 2 + nu_n eta_n),   w ~ N(m0, K),   eta = A w + o

`K` is diagonal (`1 / precision`; infinite precision = an inactive weight, it stays at m0) or dense.
Two routes give the same posterior; the cheaper one is taken, and K is never inverted:

* weights (d < N), K = C C', X = A C, w = m0 + C z:   M = I + X'TX,   cov(w) = C M^-1 C'
* functions (d >= N), S = A K A', R = (T^-1 + S)^-1:  cov(w) = K - K A' R A K, no d x d matrix

| formula                                   | code                                |
|-------------------------------------------|-------------------------------------|
| B = I + T^1/2 S T^1/2, RW06 (3.26)         | FunctionPosterior (all tau >= 0)    |
| K - K T^1/2 B^-1 T^1/2 K, RW06 (3.27)      | FunctionPosterior                   |
| 1/2 log|I + K T|, RW06 (3.32)              | half_log_det                        |
| Matheron's rule, Wilson et al. 2020 (9)    | FunctionPosterior.draws             |

Sites may have negative precisions as long as the posterior precision is positive definite;
`numpy.linalg.LinAlgError` says when it is not. Without negative precisions it always is: where
rounding hides that from Cholesky, QR of the root of the matrix finds the same factor.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtri

from ardvark.inference.sites.arrays import Array
from ardvark.inference.sites.model import Prior, SiteModel, factor_by_qr, symmetric_factor
from ardvark.inference.sites.softmax import SoftmaxSites

__all__ = ["SPACES", "FunctionPosterior", "Posterior", "condition"]

SPACES = ("auto", "weights", "functions", "sparse")
INDEFINITE = (
    "the posterior precision is not positive definite: the sites' negative precisions outweigh "
    "prior and data. Start nearer to a mode, use a tighter prior, or a log-concave likelihood."
)
OVERFLOW = (
    "the posterior precision has entries that are not finite: prior variance times squared inputs "
    "times the precision of the sites leaves the range of double precision. Standardise inputs and "
    "target (ardvark.standardise), or look for a noise or a prior precision near zero."
)
RESOLUTION = float(np.finfo(float).eps)  # a difference smaller than this share is rounding


def condition(
    prior: Prior | SiteModel, site_precision: Array, site_shift: Array, space: str = "auto"
) -> "Posterior":
    """Posterior of a prior times Gaussian sites; a model's own sites are not looked at.

    Parameters
    ----------
    prior
        A `Prior` keeps its products (A K A') from call to call; a `SiteModel` does not.
    site_precision, site_shift
        Natural parameters: site(eta) is proportional to exp(-tau eta^2 / 2 + nu eta).
    space
        "weights", "functions", or "auto": the smaller of the two. A sparse model has a space of
        its own, whatever is asked.
    """
    if isinstance(prior, SiteModel):
        prior = prior.prior()
    if space not in SPACES:
        raise ValueError(f"space must be one of {', '.join(SPACES)}; found {space!r}")
    if prior.model.sparse:
        own: Posterior = prior.conditioned(site_precision, site_shift)
        return own
    if space == "sparse":
        raise ValueError("space='sparse' needs a SparseModel; this one has dense arrays")
    if isinstance(prior.model.sites, SoftmaxSites):
        prior, site_precision, site_shift = prior.model.sites.decoupled(
            prior, site_precision, site_shift
        )
    rows, weights = prior.projection.shape
    if space == "weights" or (space == "auto" and weights < rows):
        return WeightPosterior(prior, site_precision, site_shift)
    if np.all(site_precision >= 0):
        return FunctionPosterior(prior, site_precision, site_shift)
    return SignedFunctionPosterior(prior, site_precision, site_shift)


class Posterior(ABC):
    """N(w) given Gaussian sites exp(-tau eta^2 / 2 + nu eta).

    An inactive weight has its prior mean and variance 0.
    """

    mean: Array  # (d,)
    eta_mean: Array  # (N,)
    half_log_det: float  # 1/2 log |I + K T|

    def __init__(self, prior: Prior, site_precision: Array, site_shift: Array) -> None:
        self.prior = prior
        self.site_precision = np.asarray(site_precision, dtype=np.float64)
        self.site_shift = np.asarray(site_shift, dtype=np.float64)
        self._gradient = self.site_shift - self.site_precision * prior.eta_mean  # sites', at m0
        self._factorise()
        shift = self._mean_shift()
        self.mean = prior.model.mean.copy()
        self.mean[prior.on] += shift
        self.eta_mean = prior.eta_mean + prior.projection @ shift  # inactive weights cost nothing

    @abstractmethod
    def _factorise(self) -> None:
        """Factorise and set `half_log_det`; LinAlgError if there is no such Gaussian."""

    @abstractmethod
    def _mean_shift(self) -> Array:
        """Posterior minus prior mean of the active weights (k,)."""

    @abstractmethod
    def _covariance_times(self, projection: Array) -> Array:
        """Projection (M, k) times covariance."""

    @abstractmethod
    def _variance_along(self, projection: Array) -> Array:
        """Diagonal of (projection V projection') for projection (M, k)."""

    @abstractmethod
    def _marginal_variance(self) -> Array:
        """Diagonal of V, of the active weights."""

    @property
    @abstractmethod
    def eta_variance(self) -> Array:
        """Variance of the predictor at the model's own rows (N,)."""

    @abstractmethod
    def _deviations(self, n: int, rng: np.random.Generator) -> Array:
        """Draws of w minus its mean, (n, k)."""

    @cached_property
    def marginal_variance(self) -> Array:
        """Variances of the weights (d,)."""
        variance = np.zeros_like(self.mean)
        variance[self.prior.on] = self._marginal_variance()
        return variance

    @cached_property
    def covariance(self) -> Array:
        """Covariance of the weights (d, d), computed on first use."""
        on = self.prior.on
        covariance = np.zeros((on.size, on.size))
        block = self._covariance_times(np.eye(int(on.sum())))
        covariance[np.ix_(on, on)] = 0.5 * (block + block.T)
        return covariance

    @cached_property
    def cross_covariance(self) -> Array:
        """Covariance of predictor and weights, A V (N, d)."""
        cross = np.zeros_like(self.prior.model.projection)
        cross[:, self.prior.on] = self._covariance_times(self.prior.projection)
        return cross

    @cached_property
    def information(self) -> Array:
        """A'RA = P0 - P0 V P0 (d, d), without P0: what the sites tell about the weights."""
        projection = self.prior.projection
        on = np.ix_(self.prior.on, self.prior.on)
        information = np.zeros((self.prior.on.size,) * 2)
        information[on] = projection.T @ self._information_times(projection)
        return information

    def _information_times(self, projection: Array) -> Array:
        """R A = T A - T (A V) A'T A."""
        weighted = self.site_precision[:, None] * projection
        return weighted - self.site_precision[:, None] * (
            self._covariance_times(projection) @ (projection.T @ weighted)
        )

    @abstractmethod
    def site_information(self, columns: Array) -> Array:
        """Diagonal of columns' R columns for columns (N, M), R = (T^-1 + A K A')^-1.

        What the sites would tell about one further weight with such a column of A.
        """

    def information_and_pull(self, columns: Array, squares: Array) -> tuple[Array, Array]:
        """Information R_j and pull U_j of the sites on further weights with such columns (N, M).

        `squares` is columns**2, which a caller that asks again and again keeps.
        """
        score = self.site_shift - self.site_precision * self.eta_mean
        return self.site_information(columns), columns.T @ score

    def pulled(self, force: Array) -> Array:
        """V force (d,): how far a force on the weights (d,) moves the mean."""
        on, moved = self.prior.on, np.zeros_like(self.mean)
        moved[on] = self._covariance_times(np.atleast_2d(force[on]))[0]
        return moved

    def draws(self, n: int, rng: np.random.Generator) -> Array:
        """Independent draws (n, d)."""
        draws = np.tile(self.mean, (n, 1))
        draws[:, self.prior.on] += self._deviations(n, rng)
        return draws

    def log_density(self, weights: Array) -> Array:
        """Log N(w) at weights (..., d), over the active weights.

        Needs no d x d matrix for a diagonal prior; a dense K is factorised once, with a jitter
        of 1e-10 of its mean diagonal only where the plain Cholesky fails.
        """
        prior = self.prior
        deviation = weights[..., prior.on] - self.mean[prior.on]
        eta = deviation @ prior.projection.T
        quadratic = np.sum(deviation * prior.force(deviation), axis=-1)
        quadratic = quadratic + np.sum(self.site_precision * eta**2, axis=-1)
        half_log_det = self.half_log_det + prior.half_log_det_precision
        constant = half_log_det - 0.5 * prior.mean.size * np.log(2 * np.pi)
        return np.asarray(constant - 0.5 * quadratic)

    def predictive(self, projection: Array, offset: Array) -> tuple[Array, Array]:
        """Mean and variance of projection w + offset at new rows (M, d), (M,)."""
        mean = projection @ self.mean + offset
        return mean, self._variance_along(projection[:, self.prior.on])


class WeightPosterior(Posterior):
    """Through the k x k precision M = I + X'TX of the whitened weights."""

    def _factorise(self) -> None:
        white, tau = self.prior.white_projection, self.site_precision
        precision = (white.T * tau) @ white
        precision.flat[:: len(precision) + 1] += 1.0
        signed = bool(np.any(tau < 0))
        self._lower = checked_cholesky(precision, None if signed else lambda: _rooted(tau, white))
        self.half_log_det = float(np.log(self._lower.diagonal()).sum())

    def _mean_shift(self) -> Array:
        white = self.prior.white_projection.T @ self._gradient
        if white.size:  # LAPACK itself: this is called thousands of times on small matrices
            white = dpotrs(self._lower, white, lower=1)[0]
        return self.prior.coloured(white)

    @cached_property
    def _root(self) -> Array:
        """J = C L^-T with V = J J' (k, k)."""
        inverse = dtrtri(self._lower, lower=1)[0] if self._lower.size else self._lower
        return self.prior.coloured(inverse).T

    def _covariance_times(self, projection: Array) -> Array:
        return (projection @ self._root) @ self._root.T

    def _variance_along(self, projection: Array) -> Array:
        return np.sum((projection @ self._root) ** 2, axis=1)

    def _marginal_variance(self) -> Array:
        return np.sum(self._root**2, axis=1)

    def site_information(self, columns: Array) -> Array:
        """R = T - T A V A' T."""
        told = np.einsum("n,nm,nm->m", self.site_precision, columns, columns)
        known = self._root.T @ ((self.prior.projection.T * self.site_precision) @ columns)
        return np.asarray(told - np.sum(known**2, axis=0))

    def information_and_pull(self, columns: Array, squares: Array) -> tuple[Array, Array]:
        """Both from one product: this is the inner step of sequential ARD."""
        score = self.site_shift - self.site_precision * self.eta_mean
        known = self._root.T @ (self.prior.projection.T * self.site_precision)
        projected = np.vstack([known, score]) @ columns
        taken = np.einsum("kj,kj->j", projected[:-1], projected[:-1])
        return self.site_precision @ squares - taken, projected[-1]

    @cached_property
    def eta_variance(self) -> Array:
        """Variance of the predictor (N,)."""
        return self._variance_along(self.prior.projection)

    def _deviations(self, n: int, rng: np.random.Generator) -> Array:
        return rng.standard_normal((n, len(self._root))) @ self._root.T


class FunctionPosterior(Posterior):
    """Through the N x N matrix B = I + T^1/2 S T^1/2: all site precisions >= 0."""

    def _factorise(self) -> None:
        self._scale = np.sqrt(self.site_precision)
        matrix = self._scale[:, None] * self.prior.eta_covariance * self._scale
        matrix[np.diag_indices_from(matrix)] += 1.0
        self._lower = checked_cholesky(  # RW06 (3.26)
            matrix, lambda: _rooted(self.site_precision, self.prior.white_projection).T
        )
        self.half_log_det = float(np.log(np.diag(self._lower)).sum())

    def _mean_shift(self) -> Array:
        """K A' (I + T S)^-1 g, split so that neither strong nor absent sites cancel."""
        present = self.site_precision > 0
        whitened = np.where(present, self._gradient / np.where(present, self._scale, 1.0), 0.0)
        rest = np.where(present, 0.0, self._gradient)
        whitened = whitened - self._scale * (self.prior.eta_covariance @ rest)
        pull = self._scale * cho_solve((self._lower, True), whitened) + rest
        return np.asarray(pull @ self.prior.cross)

    @property
    def data_factor(self) -> Array:
        """F (k, N) with covariance = K - F F': what the data take away from the prior."""
        return self._half_cross.T

    @cached_property
    def _half_cross(self) -> Array:
        """L^-1 T^1/2 A K (N, k): its square is what the data take away from K."""
        cross = self._scale[:, None] * self.prior.cross
        return np.asarray(solve_triangular(self._lower, cross, lower=True))

    def _covariance_times(self, projection: Array) -> Array:
        prior_part = self.prior.spread(projection)
        return prior_part - (projection @ self._half_cross.T) @ self._half_cross  # RW06 (3.27)

    def _variance_along(self, projection: Array) -> Array:
        prior_part = np.sum(self.prior.spread(projection) * projection, axis=1)
        return _left(prior_part, np.sum((projection @ self._half_cross.T) ** 2, axis=1))

    def _marginal_variance(self) -> Array:
        return _left(_prior_variance(self.prior), np.sum(self._half_cross**2, axis=0))

    def _information_times(self, projection: Array) -> Array:
        scaled = self._scale[:, None] * projection
        return np.asarray(self._scale[:, None] * cho_solve((self._lower, True), scaled))

    def site_information(self, columns: Array) -> Array:
        """R = T^1/2 B^-1 T^1/2."""
        scaled = self._scale[:, None] * columns
        return np.sum(solve_triangular(self._lower, scaled, lower=True) ** 2, axis=0)

    @cached_property
    def eta_variance(self) -> Array:
        """Variance of the predictor (N,): of two equal forms the one that rounds less."""
        tau, before = self.site_precision, np.diag(self.prior.eta_covariance)
        inverse = solve_triangular(self._lower, np.eye(len(tau)), lower=True)
        taken = (inverse * self._scale) @ self.prior.eta_covariance
        direct = _left(before, np.sum(taken**2, axis=0))
        strong = tau * before > 1.0
        diagonal = np.sum(inverse**2, axis=0)
        return np.where(strong, (1.0 - diagonal) / np.where(strong, tau, 1.0), direct)

    def _deviations(self, n: int, rng: np.random.Generator) -> Array:
        """Matheron's rule: a prior draw, corrected by its own simulated data."""
        before = self.prior.coloured(rng.standard_normal((n, self.prior.mean.size)))
        noise = rng.standard_normal((n, self._scale.size))
        surprise = self._scale * (before @ self.prior.projection.T) + noise
        pull = self._scale * cho_solve((self._lower, True), surprise.T).T
        return np.asarray(before - pull @ self.prior.cross)


class SignedFunctionPosterior(Posterior):
    """Function space with negative site precisions: S = F F', M = I + F'TF must be definite."""

    def _factorise(self) -> None:
        factor = symmetric_factor(self.prior.eta_covariance)
        precision = (factor.T * self.site_precision) @ factor
        precision[np.diag_indices_from(precision)] += 1.0
        lower = checked_cholesky(precision)
        self.half_log_det = float(np.log(np.diag(lower)).sum())
        self._eta_root = solve_triangular(lower, factor.T, lower=True).T
        system = self.site_precision[:, None] * self.prior.eta_covariance
        system[np.diag_indices_from(system)] += 1.0
        right = np.column_stack([np.diag(self.site_precision), self._gradient])
        solution = np.linalg.solve(system, right)
        self._information, self._pull = solution[:, :-1], solution[:, -1]

    def _mean_shift(self) -> Array:
        return np.asarray(self._pull @ self.prior.cross)

    def _covariance_times(self, projection: Array) -> Array:
        projected = projection @ self.prior.cross.T
        return self.prior.spread(projection) - projected @ self._information @ self.prior.cross

    def _variance_along(self, projection: Array) -> Array:
        projected = projection @ self.prior.cross.T
        prior_part = np.sum(self.prior.spread(projection) * projection, axis=1)
        return prior_part - np.sum((projected @ self._information) * projected, axis=1)

    def _marginal_variance(self) -> Array:
        cross = self.prior.cross
        return _prior_variance(self.prior) - np.sum(cross * (self._information @ cross), axis=0)

    def _information_times(self, projection: Array) -> Array:
        return self._information @ projection

    def site_information(self, columns: Array) -> Array:
        """R by a plain solve."""
        return np.sum(columns * (self._information @ columns), axis=0)

    @cached_property
    def eta_variance(self) -> Array:
        """Variance of the predictor (N,)."""
        return np.sum(self._eta_root**2, axis=1)

    def _deviations(self, n: int, rng: np.random.Generator) -> Array:
        on = self.prior.on
        root = symmetric_factor(self.covariance[np.ix_(on, on)])
        return rng.standard_normal((n, len(root))) @ root.T


def _prior_variance(prior: Prior) -> Array:
    if prior.variance is not None:
        return prior.variance
    assert prior.model.covariance is not None
    return np.diag(prior.model.covariance)


def _left(variance: Array, taken: Array) -> Array:
    """What the data leave of a variance: never less than the rounding of the difference."""
    return np.maximum(variance - taken, RESOLUTION * variance)


def _rooted(site_precision: Array, white: Array) -> Array:
    """T^1/2 X, whose square plus one is the matrix to factorise."""
    return np.asarray(np.sqrt(site_precision)[:, None] * white)


def checked_cholesky(matrix: Array, root: Callable[[], Array] | None = None) -> Array:
    """Lower Cholesky factor, or a LinAlgError that says what is wrong.

    With `root` the matrix is I + root'root, definite whatever Cholesky makes of its rounded
    entries, and its factor is then taken from a QR decomposition of (root, I).
    """
    if not np.isfinite(matrix).all():
        raise np.linalg.LinAlgError(OVERFLOW)
    if not matrix.size:
        return matrix
    lower, failed = dpotrf(matrix, lower=1, clean=1)
    if not failed:
        return np.asarray(lower)
    if root is None:
        raise np.linalg.LinAlgError(INDEFINITE)
    return factor_by_qr(np.vstack([root(), np.eye(len(matrix))]))
