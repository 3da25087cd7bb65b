"""Models as PyMC users write them: to be read as a latent Gaussian, or to be refused.

A builder below is the body of a `with pm.Model(coords=COORDS):` block and has the name of its case.
`@accepted` says which Gaussian blocks and which hyperparameters must be found, `@refused` what the
message must say. The predictor is found, unless a case asks for one by name. The names, priors and
ways to write a sum differ on purpose: so do users. More are in `idioms.py`.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

__all__ = ["CASES", "Case"]


@dataclass(frozen=True, slots=True)
class Case:
    """A model, how it is to be read, and what must come out."""

    name: str
    build: Callable[[], Any]
    weights: str | tuple[str, ...] | None = None
    predictor: str | None = None  # asked for by name
    reads: tuple[str, ...] | None = None  # the Gaussian blocks, in the order of model.free_RVs
    hyper: tuple[str, ...] = ()
    conjugate: tuple[str, ...] | None = None  # with a Gamma conditional; None = not asked
    refused: str | None = None  # pattern of the UnreadableModel message
    tolerance: float = 1e-8  # of the log density, where the graph itself is less exact


CASES: list[Case] = []
type Body = Callable[[], None]


def _register(**expected: Any) -> Callable[[Body], Body]:
    def register(body: Body) -> Body:
        def build() -> Any:
            with pm.Model(coords=COORDS) as model:
                body()
            return model

        CASES.append(Case(body.__name__, build, **expected))
        return body

    return register


def accepted(*reads: str, hyper: tuple[str, ...] = (), **options: Any) -> Callable[[Body], Body]:
    """Register a model whose Gaussian blocks are `reads`."""
    return _register(reads=reads, hyper=hyper, **options)


def refused(name: str, *reasons: str, **options: Any) -> Callable[[Body], Body]:
    """Register a model whose refusal holds `name` as a word and all `reasons`, in any order."""
    options = {"predictor": "eta", **options}
    patterns = (rf"\b{name}\b", *reasons)
    return _register(refused="(?is)" + "".join(f"(?=.*(?:{p}))" for p in patterns), **options)


NOT_AFFINE = r"affine"
LEAK = r"past|leak|outside|besides|other than through"
COUPLED = r"separa|couple|per row|each row|row by row|one number"
DIMENSIONS = r"dimension|matrix|shape"

# --- data -----------------------------------------------------------------------------------------

_rng = np.random.default_rng(1789)
N, D, G = 16, 3, 4
X = _rng.normal(size=(N, D))
X1 = np.column_stack([np.ones(N), X])
x = X[:, 0]
group = np.arange(N) % G  # every group has rows
FEATURES = ("age", "dose", "weight")
COORDS = {
    "obs": tuple(range(N)),
    "visit": tuple(range(24)),
    "predictor": FEATURES,
    "region": ("n", "e", "s", "w"),
}
signal = X @ np.array([1.0, -0.5, 0.0])
label = (signal + _rng.logistic(size=N) > 0).astype(int)
real = signal + 0.3 * _rng.normal(size=N)
exposure = _rng.uniform(1.0, 5.0, size=N)
count = _rng.poisson(exposure * np.exp(0.5 * signal))
trials = _rng.integers(3, 9, size=N)
successes = _rng.binomial(trials, 0.4)
duration = _rng.exponential(np.exp(0.5 * signal)) + 0.05
rating = np.arange(N) % 3
spline = np.maximum(x[:, None] - np.linspace(-1.0, 1.0, 4), 0.0)


def _linear() -> Any:
    return pm.Deterministic("eta", X @ pm.Normal("w", 0, 1, shape=D))


# --- to be read: ways to write the likelihood -----------------------------------------------------


@accepted("bias", "w", hyper=("alpha_bias", "alpha"), conjugate=("alpha_bias", "alpha"))
def ard_probit_custom() -> None:
    inputs = pm.Data("X", X, dims=("obs", "predictor"))
    alpha_bias = pm.Gamma("alpha_bias", 2, 1)
    alpha = pm.Gamma("alpha", 2, 1, dims="predictor")
    bias = pm.Normal("bias", 0, sigma=alpha_bias**-0.5)
    w = pm.Normal("w", 0, sigma=alpha**-0.5, dims="predictor")
    eta = pm.Deterministic("eta", bias + inputs @ w, dims="obs")

    def log_normal_cdf(value: Any, eta: Any) -> Any:
        z = (2 * value - 1) * eta
        return pt.log(pt.erfcx(-z / np.float64(np.sqrt(2.0))) / 2) - z * z / 2

    pm.CustomDist("t", eta, logp=log_normal_cdf, dtype="int64", observed=label, dims="obs")


@accepted("intercept", "beta", predictor="mu")
def logistic_regression() -> None:
    intercept = pm.Normal("intercept", 0, 10)
    beta = pm.Normal("beta", 0, 2.5, dims="predictor")
    mu = pm.Deterministic("mu", intercept + pm.math.dot(X, beta))
    pm.Deterministic("odds_ratio", pm.math.exp(beta))  # a by-product, no part of the density
    pm.Bernoulli("outcome", logit_p=mu, observed=label)


@accepted("b", hyper=("tau",))
def logistic_by_probability() -> None:
    tau = pm.HalfNormal("tau", 1)
    b = pm.Normal("b", 0, tau, shape=D + 1)
    eta = pm.Deterministic("eta", pt.dot(X1, b))
    p = pm.Deterministic("p", pm.math.invlogit(eta))
    pm.Bernoulli("y", p=p, observed=label)


# The stock invprobit holds sqrt(2) in single precision: 2e-7 from the normal distribution function.
@accepted("beta", weights="beta", predictor="latent", tolerance=1e-5)
def stock_probit() -> None:
    beta = pm.Normal("beta", mu=0, sigma=1, shape=D)
    latent = pm.Deterministic("latent", X @ beta)
    pm.Bernoulli("y", p=pm.math.invprobit(latent), observed=label)


@accepted("a", "b")
def binomial_trials() -> None:
    a = pm.Normal("a")
    b = pm.Normal("b", shape=(D,))
    eta = pm.Deterministic("eta", a + (b * X).sum(axis=-1))
    pm.Binomial("successes", n=trials, logit_p=eta, observed=successes)


@accepted("intercept", "slopes", predictor="log_rate")
def poisson_with_exposure() -> None:
    log_exposure = pm.Data("log_exposure", np.log(exposure), dims="obs")
    inputs = pm.Data("inputs", X, dims=("obs", "predictor"))
    intercept = pm.Normal("intercept", -1, 2)
    slopes = pm.Normal("slopes", 0, 1, dims="predictor")
    log_rate = pm.Deterministic("log_rate", log_exposure + intercept + inputs @ slopes, dims="obs")
    claims = pm.Data("claims_observed", count, dims="obs")
    pm.Poisson("claims", mu=pm.math.exp(log_rate), observed=claims, dims="obs")


@accepted("w", hyper=("dispersion",))
def negative_binomial() -> None:
    dispersion = pm.Exponential("dispersion", 1)
    w = pm.Normal("w", 0, 1, shape=D)
    eta = pm.Deterministic("eta", pm.math.dot(w, X.T))
    pm.NegativeBinomial("y", mu=pt.exp(eta), alpha=dispersion, observed=count)


@accepted("psi_0", "psi_1", hyper=("zero",))
def zero_inflated_poisson() -> None:
    psi_0, psi_1 = pm.Normal("psi_0", 0, 1), pm.Normal("psi_1", 0, 1)
    zero = pm.Beta("zero", 2, 2)
    eta = pm.Deterministic("eta", psi_0 + psi_1 * x)
    pm.ZeroInflatedPoisson("y", psi=zero, mu=pt.exp(eta), observed=count)


@accepted("alpha", "beta", predictor="mu", hyper=("nu", "sigma"))
def robust_regression() -> None:
    alpha = pm.Normal("alpha", 0, 5)
    beta = pm.Normal("beta", 0, 5, shape=D)
    nu = pm.Gamma("nu", 2, 0.1)
    sigma = pm.HalfNormal("sigma", 1)
    mu = pm.Deterministic("mu", alpha + X @ beta)
    pm.StudentT("y", nu=nu, mu=mu, sigma=sigma, observed=real)


@accepted("beta", weights="beta", predictor="mu", hyper=("sigma",))
def linear_regression() -> None:
    beta = pm.Normal("beta", 0, 10, shape=D + 1)
    sigma = pm.HalfCauchy("sigma", 1)
    mu = pm.Deterministic("mu", X1 @ beta)
    pm.Normal("y", mu, sigma, observed=real)


@accepted("beta", hyper=("gamma",))
def regression_of_the_noise() -> None:
    beta = pm.Normal("beta", 0, 2, shape=D)
    gamma = pm.Normal("gamma", 0, 0.5, shape=D)
    eta = pm.Deterministic("eta", X @ beta)
    pm.Normal("y", eta, pm.math.exp(X @ gamma), observed=real)


@accepted("beta", hyper=("b",))
def median_regression() -> None:
    beta = pm.Normal("beta", 0, 1, dims="predictor")
    b = pm.HalfNormal("b", 1)
    eta = pm.Deterministic("eta", X @ beta)
    pm.Laplace("y", mu=eta, b=b, observed=real)


@accepted("beta", hyper=("scale",))
def quantile_regression() -> None:
    beta = pm.Normal("beta", 0, 1, dims="predictor")
    scale = pm.HalfNormal("scale", 1)
    eta = pm.Deterministic("eta", X @ beta)
    pm.AsymmetricLaplace("y", mu=eta, q=0.9, b=1 / scale, observed=real)


@accepted("w", hyper=("shape",))
def gamma_log_link() -> None:
    shape = pm.Gamma("shape", 2, 1)
    eta = _linear()
    pm.Gamma("y", alpha=shape, beta=shape / pm.math.exp(eta), observed=duration)


@accepted("b0", "b1")
def exponential_survival() -> None:
    b0, b1 = pm.Normal("b0", 0, 1), pm.Normal("b1", 0, 1)
    eta = pm.Deterministic("eta", b0 - b1 * x)
    pm.Exponential("time", scale=pt.exp(eta), observed=duration)


@accepted("beta", hyper=("sigma",))
def tobit() -> None:
    beta = pm.Normal("beta", 0, 2, shape=D)
    sigma = pm.HalfNormal("sigma", 1)
    eta = pm.Deterministic("eta", X @ beta)
    latent = pm.Normal.dist(eta, sigma)
    pm.Censored("y", latent, lower=0, upper=None, observed=np.maximum(real, 0))


@accepted("beta", hyper=("sigma", "outliers"))
def outlier_mixture() -> None:
    beta = pm.Normal("beta", 0, 2, shape=D)
    sigma = pm.HalfNormal("sigma", 1)
    outliers = pm.Beta("outliers", 1, 9)
    eta = pm.Deterministic("eta", X @ beta)
    components = [pm.Normal.dist(eta, sigma), pm.Normal.dist(eta, 10 * sigma)]
    pm.Mixture("y", w=pt.stack([1 - outliers, outliers]), comp_dists=components, observed=real)


@accepted("w")
def spread_follows_predictor() -> None:
    eta = _linear()
    pm.Normal("y", mu=eta, sigma=pt.exp(0.3 * eta), observed=real)


@accepted("beta", hyper=("cutpoints",))
def ordered_logit() -> None:
    beta = pm.Normal("beta", 0, 1, dims="predictor")
    cutpoints = pm.Normal(
        "cutpoints", [-1.0, 1.0], 2, transform=pm.distributions.transforms.ordered, shape=2
    )
    eta = pm.Deterministic("eta", X @ beta)
    pm.OrderedLogistic("y", eta=eta, cutpoints=cutpoints, compute_p=False, observed=rating)


@accepted("w")
def scaled_up_subsample() -> None:
    eta = _linear()
    # every row stands for 62.5 rows, in the model's own density and so in the sites
    pm.Bernoulli("y", logit_p=eta, observed=label, total_size=1000)


# --- to be read: ways to write the prior ----------------------------------------------------------


@accepted("w")
def own_mean_and_scale_each() -> None:
    w = pm.Normal("w", mu=np.array([1.0, 0.0, -1.0]), sigma=np.array([0.5, 1.0, 2.0]))
    eta = pm.Deterministic("eta", X @ w)
    pm.Bernoulli("y", logit_p=eta, observed=label)


@accepted("w", hyper=("alpha", "beta"), conjugate=("alpha", "beta"))
def precisions_everywhere() -> None:
    alpha = pm.Gamma("alpha", 1, 1, shape=D)
    beta = pm.Gamma("beta", 2, 2)
    w = pm.Normal("w", 0, tau=alpha)
    eta = pm.Deterministic("eta", X @ w)
    pm.Normal("y", eta, tau=beta, observed=real)


@accepted("w", hyper=("alpha",), conjugate=("alpha",))
def grouped_precisions() -> None:
    alpha = pm.Gamma("alpha", 2, 1, shape=2)
    w = pm.Normal("w", 0, sigma=1 / pt.sqrt(alpha[np.array([0, 0, 1])]))
    eta = pm.Deterministic("eta", X @ w)
    pm.Bernoulli("y", logit_p=eta, observed=label)


@accepted("w", hyper=("alpha",), conjugate=())
def gamma_on_the_scale() -> None:
    alpha = pm.Gamma("alpha", 2, 1, shape=D)  # of an sd: no conjugate conditional
    w = pm.Normal("w", 0, sigma=alpha)
    eta = pm.Deterministic("eta", X @ w)
    pm.Bernoulli("y", logit_p=eta, observed=label)


@accepted("w", hyper=("alpha",), conjugate=())
def bounded_precision() -> None:
    alpha = pm.Uniform("alpha", 0, 10)  # its conditional is a Gamma cut at 10
    w = pm.Normal("w", 0, tau=alpha, shape=D)
    eta = pm.Deterministic("eta", X @ w)
    pm.Bernoulli("y", logit_p=eta, observed=label)


@accepted("w", hyper=("u_unobserved",))
def name_like_an_imputed_one() -> None:
    u = pm.HalfNormal("u_unobserved", 1)
    w = pm.Normal("w", 0, u, shape=D)
    eta = pm.Deterministic("eta", X @ w)
    pm.Bernoulli("y", logit_p=eta, observed=label)


@accepted("w", hyper=("sigma", "tau"))
def prior_in_units_of_the_noise() -> None:
    sigma, tau = pm.HalfNormal("sigma", 1), pm.HalfCauchy("tau", 1)
    w = pm.Normal("w", 0, sigma * tau, shape=D)
    eta = pm.Deterministic("eta", X @ w)
    pm.Normal("y", eta, sigma, observed=real)


@accepted("mu_beta", "beta", hyper=("sd_beta",))
def hierarchical_mean() -> None:
    mu_beta = pm.Normal("mu_beta", 0, 1)
    sd_beta = pm.HalfNormal("sd_beta", 1)
    beta = pm.Normal("beta", mu_beta, sd_beta, dims="predictor")
    eta = pm.Deterministic("eta", X @ beta)
    pm.Bernoulli("y", logit_p=eta, observed=label)


@accepted("beta", hyper=("tau", "lam"), predictor="mu")
def horseshoe() -> None:
    tau = pm.HalfCauchy("tau", 0.5)
    lam = pm.HalfCauchy("lam", 1, dims="predictor")
    beta = pm.Normal("beta", 0, tau * lam, dims="predictor")
    mu = pm.Deterministic("mu", pm.math.dot(X, beta))
    pm.Normal("y", mu, 0.5, observed=real)


@accepted("bias", "z", hyper=("alpha",), conjugate=(), weights=("z", "bias"))
def non_centred_ard() -> None:
    alpha = pm.Gamma("alpha", 2, 1, shape=D)
    bias = pm.Normal("bias", 0, 3)
    z = pm.Normal("z", shape=D)
    w = pm.Deterministic("w", z / pt.sqrt(alpha))
    eta = pm.Deterministic("eta", bias + X @ w)
    pm.Bernoulli("y", logit_p=eta, observed=label)


@accepted("mu", "z", hyper=("tau",))
def eight_schools() -> None:
    mu = pm.Normal("mu", 0, 5)
    tau = pm.HalfCauchy("tau", 5)
    z = pm.Normal("z", 0, 1, shape=N)
    theta = pm.Deterministic("eta", mu + tau * z)
    pm.Normal("y", mu=theta, sigma=exposure, observed=5 * real)


@accepted("z", weights="z", hyper=("log_tau",))
def scale_by_a_normal_logarithm() -> None:
    log_tau = pm.Normal("log_tau", 0, 1)
    z = pm.Normal("z", 0, 1, shape=D)
    eta = pm.Deterministic("eta", X @ (z * pt.exp(log_tau)))
    pm.Bernoulli("y", logit_p=eta, observed=label)


@accepted("beta", hyper=("g",))
def g_prior() -> None:
    g = pm.HalfNormal("g", 5)
    beta = pm.MvNormal("beta", mu=np.zeros(D), cov=g * np.linalg.inv(X.T @ X))
    eta = pm.Deterministic("eta", X @ beta)
    pm.Bernoulli("y", logit_p=eta, observed=label)


@accepted("intercept", "beta", hyper=("chol", "sigma"))
def correlated_slopes() -> None:
    chol, _, _ = pm.LKJCholeskyCov("chol", n=D, eta=2, sd_dist=pm.Exponential.dist(1))
    intercept = pm.Normal("intercept", 0, 1)
    beta = pm.MvNormal("beta", mu=np.array([0.5, 0.0, 0.0]), chol=chol)
    sigma = pm.HalfNormal("sigma", 1)
    eta = pm.Deterministic("eta", intercept + X @ beta)
    pm.Normal("y", eta, sigma, observed=real)


@accepted("field", hyper=("kappa",), conjugate=())  # a Gamma, but behind a matrix inverse
def neighbours_by_precision_matrix() -> None:
    kappa = pm.Gamma("kappa", 2, 1)
    ring = 2.5 * np.eye(G) - np.roll(np.eye(G), 1, axis=0) - np.roll(np.eye(G), -1, axis=0)
    field = pm.MvNormal("field", mu=np.zeros(G), tau=kappa * ring, dims="region")
    eta = pm.Deterministic("eta", field[group] + np.log(exposure))
    pm.Poisson("y", pm.math.exp(eta), observed=count)


@accepted("f_rotated_", weights="f_rotated_", predictor="f", hyper=("ls", "amplitude"))
def gp_latent_rotated() -> None:
    ls, amplitude = pm.Gamma("ls", 4, 4), pm.HalfNormal("amplitude", 1)
    gp = pm.gp.Latent(cov_func=amplitude**2 * pm.gp.cov.ExpQuad(1, ls=ls))
    f = gp.prior("f", X=x[:, None])
    pm.Bernoulli("y", logit_p=f, observed=label)


@accepted("f", weights="f", predictor="f", hyper=("ls", "nu"))
def gp_latent_centred() -> None:
    ls = pm.Gamma("ls", 4, 4, shape=D)
    gp = pm.gp.Latent(cov_func=pm.gp.cov.Matern52(D, ls=ls) + pm.gp.cov.WhiteNoise(1e-2))
    f = gp.prior("f", X=X, reparameterize=False)
    nu = pm.Gamma("nu", 2, 0.5)
    pm.StudentT("y", nu=nu, mu=f, sigma=0.3, observed=real)


@accepted("level", "f_hsgp_coeffs", hyper=("ls",))
def hilbert_space_gp() -> None:
    level = pm.Normal("level", 0, 2)
    ls = pm.Gamma("ls", 4, 4)
    gp = pm.gp.HSGP(m=[5], c=1.5, cov_func=pm.gp.cov.Matern32(1, ls=ls))
    f = gp.prior("f", X=x[:, None])
    eta = pm.Deterministic("eta", level + f)
    pm.Poisson("y", mu=pt.exp(eta), observed=count)


@accepted("w", hyper=("tau",))
def potential_on_a_hyperparameter() -> None:
    tau = pm.HalfFlat("tau")
    pm.Potential("reference_prior", -pt.log(tau) - tau)
    w = pm.Normal("w", 0, tau, shape=D)
    eta = pm.Deterministic("eta", X @ w)
    pm.Bernoulli("y", logit_p=eta, observed=label)


# --- to be read: ways to write the predictor ------------------------------------------------------


@accepted("a", "beta", hyper=("s",))
def random_intercepts() -> None:
    index = pm.Data("index", group, dims="obs")
    s = pm.Exponential("s", 1)
    a = pm.Normal("a", 0, s, dims="region")
    beta = pm.Normal("beta", 0, 1)
    eta = pm.Deterministic("eta", a[index] + beta * x, dims="obs")
    pm.Bernoulli("y", logit_p=eta, observed=label, dims="obs")


@accepted("mu_a", "z_a", "mu_b", "z_b", hyper=("s_a", "s_b", "sigma"), predictor="mu")
def varying_slopes_non_centred() -> None:
    mu_a, s_a = pm.Normal("mu_a", 0, 2), pm.HalfNormal("s_a", 1)
    z_a = pm.Normal("z_a", 0, 1, dims="region")
    mu_b, s_b = pm.Normal("mu_b", 0, 2), pm.HalfNormal("s_b", 1)
    z_b = pm.Normal("z_b", 0, 1, dims="region")
    a = pm.Deterministic("a", mu_a + z_a * s_a, dims="region")
    b = pm.Deterministic("b", mu_b + z_b * s_b, dims="region")
    mu = pm.Deterministic("mu", a[group] + b[group] * x)
    sigma = pm.HalfNormal("sigma", 1)
    pm.Normal("y", mu, sigma, observed=real)


@accepted("slopes", hyper=("spread",))
def one_normal_vector_per_group() -> None:
    spread = pm.HalfNormal("spread", 1, dims="predictor")
    slopes = pm.Normal("slopes", 0, spread, dims=("region", "predictor"))
    eta = pm.Deterministic("eta", (X * slopes[group]).sum(axis=-1))
    pm.Bernoulli("y", logit_p=eta, observed=label)


@accepted("w", weights="w", hyper=("lam",))
def bilinear_in_w() -> None:
    lam = pm.Normal("lam", 1, 0.5, shape=G)
    w = pm.Normal("w", 0, 1, shape=D)
    eta = pm.Deterministic("eta", (X @ w) * lam[group])
    pm.Normal("y", eta, 0.5, observed=real)


@accepted("lam", weights=("lam",), hyper=("w", "beta"))
def bilinear_in_lam() -> None:
    lam = pm.Normal("lam", 1, 0.5, shape=N)
    w = pm.Normal("w", 0, 1, shape=D)
    beta = pm.Gamma("beta", 2, 1)
    eta = pm.Deterministic("eta", (X * w[None, :] * lam[:, None]).sum(axis=1))
    pm.Normal("y", eta, tau=beta, observed=real)


@accepted("b", "w")
def concatenated_design() -> None:
    b = pm.Normal("b", 0, 5)
    w = pm.Normal("w", 0, 1, shape=D)
    coefficients = pt.concatenate([b[None], w])
    eta = pm.Deterministic("eta", pm.math.dot(X1, coefficients))
    pm.Bernoulli("y", logit_p=eta, observed=label)


@accepted("b0", "b1", "b2")
def stacked_scalars() -> None:
    b = pm.math.stack([pm.Normal(f"b{i}", 0, 1) for i in range(3)])
    eta = pm.Deterministic("eta", pt.stack([np.ones(N), x, x**2]).T @ b)
    pm.Bernoulli("y", logit_p=eta, observed=label)


@accepted("w")
def slices_of_one_vector() -> None:
    w = pm.Normal("w", 0, 1, shape=5)
    eta = pm.Deterministic("eta", w[0] + w[1] * x + pt.dot(X[:, 1:], w[2:4]) - w[-1] / 2)
    pm.Poisson("y", pt.exp(eta), observed=count)


@accepted("w")
def column_vectors_and_transposes() -> None:
    w = pm.Normal("w", 0, 1, shape=D)
    inputs = pm.Data("inputs", X)
    eta = pm.Deterministic("eta", (w[None, :] @ inputs.T).T.flatten() / np.sqrt(D))
    pm.Bernoulli("y", logit_p=eta, observed=label)


@accepted("w")
def column_of_weights() -> None:
    w = pm.Normal("w", 0, 1, shape=(D, 1))
    eta = pm.Deterministic("eta", pm.math.dot(X, w).squeeze(axis=1))
    pm.Bernoulli("y", logit_p=eta, observed=label)


@accepted("w")
def einsum_predictor() -> None:
    w = pm.Normal("w", 0, 1, shape=D)
    eta = pm.Deterministic("eta", pt.einsum("nd,d->n", X, w))
    pm.Bernoulli("y", logit_p=eta, observed=label)


@accepted("effect")
def reference_level() -> None:
    effect = pm.Normal("effect", 0, 1, shape=G - 1)
    level = pt.concatenate([np.zeros(1), effect])
    eta = pm.Deterministic("eta", level[group])
    pm.Poisson("y", pm.math.exp(eta), observed=count)


@accepted("free")
def some_coefficients_set_to_zero() -> None:
    free = pm.Normal("free", 0, 1, shape=2)
    w = pt.set_subtensor(pt.zeros(D)[np.array([0, 2])], free)
    eta = pm.Deterministic("eta", X @ w)
    pm.Bernoulli("y", logit_p=eta, observed=label)


@accepted("before", "after")
def known_switchpoint() -> None:
    before, after = pm.Normal("before", 0, 1), pm.Normal("after", 0, 1)
    eta = pm.Deterministic("eta", pm.math.switch(np.arange(N) < 9, before, after))
    pm.Poisson("y", pm.math.exp(eta), observed=count)


@accepted("start", "steps", hyper=("drift",))
def local_level_by_cumsum() -> None:
    start = pm.Normal("start", 0, 1)
    drift = pm.HalfNormal("drift", 0.5)
    steps = pm.Normal("steps", 0, 1, shape=N)
    eta = pm.Deterministic("eta", start + drift * pt.cumsum(steps))
    pm.Poisson("y", pm.math.exp(eta), observed=count)


@accepted("intercept", "knots", "fixed", hyper=("wiggle",))
def additive_spline() -> None:
    intercept = pm.Normal("intercept", 0, 5)
    wiggle = pm.HalfNormal("wiggle", 1)
    knots = pm.Normal("knots", 0, wiggle, shape=spline.shape[1])
    fixed = pm.Normal("fixed", 0, 1, shape=2)
    parts = [intercept, pm.math.dot(spline, knots), X[:, 1] * fixed[0], X[:, 2] * fixed[1]]
    eta = pm.Deterministic("eta", sum(parts))
    pm.Bernoulli("y", logit_p=eta, observed=label)


# --- the predictor is not affine ------------------------------------------------------------------


def _logistic(eta: Any) -> None:
    pm.Bernoulli("y", logit_p=pm.Deterministic("eta", eta), observed=label)


@refused("eta", NOT_AFFINE)
def tanh_unit() -> None:
    w = pm.Normal("w", 0, 1, shape=D)
    _logistic(pm.math.tanh(X @ w))


@refused("eta", NOT_AFFINE)
def positive_slopes_by_exp() -> None:
    w = pm.Normal("w", 0, 1, shape=D)
    _logistic(X @ pm.math.exp(w))


@refused("eta", NOT_AFFINE, weights="w")
def squared_weights() -> None:
    w = pm.Normal("w", 0, 1, shape=D)
    _logistic(X @ w**2)


@accepted("bias", hyper=("w",), predictor="eta")
def absolute_weights() -> None:
    bias = pm.Normal("bias", 0, 1)
    w = pm.Normal("w", 0, 1, shape=D)
    _logistic(bias + X @ abs(w))


@refused("eta", NOT_AFFINE)
def rectified_predictor() -> None:
    w = pm.Normal("w", 0, 1, shape=D)
    _logistic(pm.math.maximum(X @ w, 0.0))


@refused("eta", NOT_AFFINE)
def clipped_predictor() -> None:
    w = pm.Normal("w", 0, 1, shape=D)
    _logistic(pm.math.clip(X @ w, -50, 50))  # no draw from the prior would notice


@refused("eta", f"{NOT_AFFINE}|scan")
def predictor_by_scan() -> None:
    w = pm.Normal("w", 0, 1, shape=D)
    rows = pytensor.scan(
        pt.dot, sequences=[pt.as_tensor(X)], non_sequences=[w], return_updates=False
    )
    _logistic(rows)


@refused("p", NOT_AFFINE, predictor="p")
def probability_as_predictor() -> None:
    w = pm.Normal("w", 0, 1, shape=D)
    p = pm.Deterministic("p", pm.math.sigmoid(X @ w))
    pm.Bernoulli("y", p=p, observed=label)


@refused("eta", NOT_AFFINE)
def sorted_weights() -> None:
    w = pm.Normal("w", 0, 1, shape=D)
    _logistic(X @ pt.sort(w))


@refused("eta", NOT_AFFINE)
def branch_on_a_weight() -> None:
    w = pm.Normal("w", 0, 1, shape=D)
    _logistic(pm.math.switch(w[0] > 0, X @ w, 0.5 * (X @ w)))


@accepted("lam", hyper=("w",))  # four numbers against three
def bilinear_unnamed() -> None:
    lam = pm.Normal("lam", 1, 1, shape=G)
    w = pm.Normal("w", 0, 1, shape=D)
    _logistic((X @ w) * lam[group])


@refused("eta", NOT_AFFINE, weights=("w", "lam"))
def bilinear_both_named() -> None:
    lam = pm.Normal("lam", 1, 1, shape=N)
    w = pm.Normal("w", 0, 1, shape=D)
    _logistic((X @ w) * lam)


@accepted("z", hyper=("log_tau",))
def normal_log_scale_unnamed() -> None:
    log_tau = pm.Normal("log_tau", 0, 1)
    z = pm.Normal("z", 0, 1, shape=D)
    _logistic(X @ (z * pm.math.exp(log_tau)))


# --- the weights are at work elsewhere ------------------------------------------------------------


@refused("w", LEAK)
def leak_in_the_likelihood() -> None:
    w = pm.Normal("w", 0, 1, shape=D)
    eta = pm.Deterministic("eta", X @ w)
    pm.Bernoulli("y", logit_p=eta + w[0], observed=label)


@refused("w", LEAK)
def leak_in_the_noise() -> None:
    w = pm.Normal("w", 0, 1, shape=D)
    eta = pm.Deterministic("eta", X @ w)
    pm.Normal("y", eta, pm.math.exp(w[0]), observed=real)


@refused("eta", rf"{LEAK}|not use")
def likelihood_forgets_predictor() -> None:
    w = pm.Normal("w", 0, 1, shape=D)
    pm.Deterministic("eta", X @ w)
    pm.Bernoulli("y", logit_p=X @ w, observed=label)


@accepted("w")
def potential_on_weights() -> None:
    w = pm.Normal("w", 0, 1, shape=D)
    pm.Potential("sum_to_zero", -0.5 * (w.sum() / 0.01) ** 2)
    _logistic(X @ w)


@accepted("w")
def potential_on_predictor() -> None:
    eta = _linear()
    pm.Potential("smooth", -pt.sqr(pt.diff(eta)).sum())
    pm.Bernoulli("y", logit_p=eta, observed=label)


@accepted("w", weights="w")
def weights_are_parents() -> None:
    w = pm.Normal("w", 0, 1, shape=D)
    pm.Normal("child", w.mean(), 1)
    _logistic(X @ w)


@accepted("grand", "effect")
def mean_in_prior_and_predictor() -> None:
    grand = pm.Normal("grand", 0, 1)
    effect = pm.Normal("effect", grand, 1, dims="region")
    _logistic(grand * x + effect[group])


# --- the likelihood -------------------------------------------------------------------------------


@refused("y", COUPLED)
def correlated_noise() -> None:
    eta = _linear()
    nearness = np.exp(-np.abs(np.subtract.outer(np.arange(N), np.arange(N))))
    pm.MvNormal("y", eta, cov=nearness, observed=real)


@refused("eta", COUPLED)
def centred_predictor() -> None:
    eta = _linear()
    pm.Normal("y", mu=eta - eta.mean(), sigma=1, observed=real)


@refused("eta", COUPLED)
def reversed_predictor() -> None:
    eta = _linear()
    pm.Normal("y", mu=eta[::-1], sigma=1, observed=real)


@refused("eta", COUPLED)
def lagged_predictor() -> None:
    eta = _linear()
    shifted = pt.concatenate([eta[:1], eta[:-1]])
    pm.Normal("y", mu=0.5 * eta + 0.5 * shifted, sigma=1, observed=real)


@refused("eta", f"{COUPLED}|length|{DIMENSIONS}")
def predictor_per_group() -> None:
    w = pm.Normal("w", 0, 1, dims="region")
    eta = pm.Deterministic("eta", 2.0 * w, dims="region")
    pm.Bernoulli("y", logit_p=eta[group], observed=label)


@accepted("w")
def one_mean_for_all() -> None:
    w = pm.Normal("w", 0, 1)
    eta = pm.Deterministic("eta", 1.0 * w)
    pm.Normal("y", eta, 1, observed=real)


@accepted("w")
def two_outcomes() -> None:
    eta = _linear()
    pm.Poisson("cases", pm.math.exp(eta), observed=count)
    pm.Bernoulli("deaths", logit_p=eta, observed=label)


@refused("observed")
def nothing_observed() -> None:
    eta = _linear()
    pm.Normal("y", eta, 1)


@refused("observed")
def likelihood_by_potential() -> None:
    eta = _linear()
    pm.Potential("loglik", label * eta - pt.softplus(eta))


@accepted("w")
def missing_outcomes() -> None:
    eta = _linear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyMC's own notice of what it is about to do
        pm.Normal("y", eta, 1, observed=np.where(np.arange(N) == 3, np.nan, real))


# --- the weights are not one Gaussian vector ------------------------------------------------------


@accepted("w", predictor=None)
def softmax_with_matrix_weights() -> None:
    w = pm.Normal("w", 0, 1, shape=(D, 3))
    eta = pm.Deterministic("eta", X @ w)
    pm.Categorical("y", logit_p=eta, observed=rating)


@accepted("w", predictor=None)
def softmax_with_flat_weights() -> None:
    w = pm.Normal("w", 0, 1, shape=3 * D)
    eta = pm.Deterministic("eta", X @ w.reshape((D, 3)))
    pm.Categorical("y", p=pm.math.softmax(eta, axis=-1), observed=rating)


@accepted("ab")
def varying_slopes_in_a_matrix() -> None:
    ab = pm.MvNormal("ab", mu=np.zeros(2), cov=np.eye(2), shape=(G, 2))
    _logistic(ab[group, 0] + ab[group, 1] * x)


@refused("included", "discrete", weights="included")
def inclusion_indicators_as_weights() -> None:
    included = pm.Bernoulli("included", 0.5, shape=D)
    _logistic(X @ included)


@refused("k", "discrete", weights=("k", "w"))
def poisson_weights() -> None:
    k = pm.Poisson("k", 1.0, shape=D)
    w = pm.Normal("w", 0, 1)
    _logistic(w + X @ k)


@refused("level", "discrete", weights="level")
def categorical_weights() -> None:
    level = pm.Categorical("level", p=np.ones(3) / 3)
    _logistic(level * x)


@accepted("intercept", "beta", weights=("intercept", "beta"))
def lasso() -> None:
    intercept = pm.Normal("intercept", 0, 5)
    beta = pm.Laplace("beta", 0, 1, shape=D)
    _logistic(intercept + X @ beta)


@accepted("beta")
def lasso_unnamed() -> None:
    beta = pm.Laplace("beta", 0, 1, shape=D)
    _logistic(X @ beta)


@accepted("intercept", "beta")
def lasso_beside_a_normal_intercept() -> None:
    intercept = pm.Normal("intercept", 0, 5)
    beta = pm.Laplace("beta", 0, 1, shape=D)
    _logistic(intercept + X @ beta)


@accepted("beta", weights="beta")
def student_weights() -> None:
    beta = pm.StudentT("beta", nu=3, mu=0, sigma=2.5, shape=D)
    _logistic(X @ beta)


@refused("beta", "Half_?Normal", weights="beta")
def positive_weights() -> None:
    beta = pm.HalfNormal("beta", 1, shape=D)
    _logistic(X @ beta)


@refused("beta", "Truncated", weights="beta")
def truncated_weights() -> None:
    beta = pm.TruncatedNormal("beta", mu=0, sigma=1, lower=-1, shape=D)
    _logistic(X @ beta)


@refused("share", "Dirichlet", weights="share")
def simplex_weights() -> None:
    share = pm.Dirichlet("share", np.ones(D))
    _logistic(X @ share)


@accepted("effect", weights="effect")
def zero_sum_effects() -> None:
    effect = pm.ZeroSumNormal("effect", 1, dims="region")
    _logistic(effect[group])


@accepted("level", weights="level")
def random_walk_prior() -> None:
    start = pm.Normal.dist(0, 1)
    level = pm.GaussianRandomWalk("level", mu=0, sigma=0.3, init_dist=start, steps=N - 1)
    _logistic(1.0 * level)


@accepted("level", weights="level")
def autoregressive_prior() -> None:
    level = pm.AR("level", rho=[0.7], sigma=0.3, init_dist=pm.Normal.dist(0, 1), shape=N)
    _logistic(1.0 * level)


@refused("w", "transform|ordered", weights="w")
def ordered_weights() -> None:
    ordered = pm.distributions.transforms.ordered
    w = pm.Normal("w", [-1.0, 0.0, 1.0], 1, transform=ordered)
    _logistic(X @ w)


# --- the names ------------------------------------------------------------------------------------


@refused("eta", "logits", "predictor")
def unknown_predictor() -> None:
    w = pm.Normal("w", 0, 1, shape=D)
    logits = pm.Deterministic("logits", X @ w)
    pm.Bernoulli("y", logit_p=logits, observed=label)


@refused("beta", "slopes", weights="beta")
def unknown_weights() -> None:
    slopes = pm.Normal("slopes", 0, 1, shape=D)
    _logistic(X @ slopes)


@refused("unused", "predictor", weights="unused")
def weights_without_a_part() -> None:
    w = pm.Normal("w", 0, 1, shape=D)
    pm.Normal("unused", 0, 1)
    _logistic(X @ w)


@refused("y", "observed|free variable", weights="y")
def outcome_as_weights() -> None:
    eta = _linear()
    pm.Normal("y", eta, 1, observed=real)
