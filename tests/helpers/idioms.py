"""More models as PyMC users write them; few have a name for their predictor.

The decorators are those of `corpus.py`. What is a weight is what a statistician would take as one:
where two Gaussian variables cannot both be weights, the predictor with most Gaussian dimensions
stays, and the other is a hyperparameter.
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from corpus import accepted, refused

__all__: list[str] = []

_rng = np.random.default_rng(0)
N, D, G = 24, 3, 4
X = _rng.normal(size=(N, D))
x = X[:, 0]
g = np.arange(N) % G
h = np.arange(N) // 6
real = X @ [1, -0.5, 0] + 0.3 * _rng.normal(size=N)
label = (real > 0).astype(int)
count = _rng.poisson(2, size=N)
positive = np.exp(0.3 * _rng.normal(size=N))
unit = _rng.uniform(0.1, 0.9, size=N)
NEIGHBOURS = np.diag(np.ones(N - 1), 1) + np.diag(np.ones(N - 1), -1)


type Likelihood = Callable[[Any], None]


def linear(name: str, likelihood: Likelihood, *hyper: str) -> None:
    """Register a likelihood of the predictor X b, b ~ N(0, 1)."""

    def body() -> None:
        likelihood(X @ pm.Normal("b", 0, 1, shape=D))

    body.__name__ = name
    accepted("b", hyper=hyper)(body)


def slopes(*hyper: str) -> Callable[[Likelihood], None]:
    """Register a likelihood of the predictor X b by the name of its function."""
    return lambda likelihood: linear(likelihood.__name__, likelihood, *hyper)


def two_classes(link: Callable[[Any], Any], eta: Any) -> None:
    pm.Bernoulli("y", p=link(eta), observed=label)


LINKS: dict[str, Callable[[Any], Any]] = {  # the probability of a class as users write it
    "cloglog": lambda eta: 1 - pt.exp(-pt.exp(eta)),
    "cauchit": lambda eta: 0.5 + pt.arctan(eta) / np.pi,
    "logit_by_hand": lambda eta: 1 / (1 + pt.exp(-eta)),
    "logit_by_hand2": lambda eta: (e := pt.exp(eta)) / (1 + e),
    "probit_clip": lambda eta: pt.clip(pm.math.invprobit(eta), 1e-9, 1 - 1e-9),
    "icdf_link": lambda eta: pt.exp(pm.logcdf(pm.Normal.dist(0, 1), eta)),
}
for _name, _link in LINKS.items():
    linear(_name, partial(two_classes, _link))


@slopes("l")
def lapse(eta: Any) -> None:
    lam = pm.Beta("l", 1, 20)
    pm.Bernoulli("y", p=lam / 2 + (1 - lam) * pm.math.sigmoid(eta), observed=label)


@accepted("a")
def prob_indexed() -> None:
    a = pm.Normal("a", 0, 1, shape=G)
    p = pm.Deterministic("p", pm.math.invlogit(a))
    pm.Binomial("y", 5, p[g], observed=np.minimum(count, 5))


@accepted("mu", "a", hyper=("s",))
def rate_indexed_hier() -> None:
    mu = pm.Normal("mu", 0, 1)
    s = pm.HalfNormal("s", 1)
    a = pm.Normal("a", mu, s, dims="region")
    lam = pm.Deterministic("lam", pt.exp(a), dims="region")
    pm.Poisson("y", lam[g] * positive, observed=count)


@slopes()
def rate_times_exposure(eta: Any) -> None:
    pm.Poisson("y", mu=positive * pt.exp(eta), observed=count)


@accepted("b")
def rate_f32() -> None:
    b = pm.Normal("b", 0, 1, shape=D)
    pm.Poisson("y", mu=np.float32(2.5) * pt.exp(X.astype("float32") @ b), observed=count)


@accepted("a")
def taken_by_index() -> None:
    a = pm.Normal("a", 0, 1, shape=G)
    pm.Normal("y", pt.take(a, g), 1, observed=real)


@accepted("B", hyper=("s",))
def einsum_of_group_slopes() -> None:
    B = pm.Normal("B", 0, 1, shape=(G, D))
    pm.Normal("y", pt.einsum("nd,nd->n", X, B[g]), pm.HalfNormal("s", 1), observed=real)


@accepted("b", hyper=("s",))
def matrix_mult() -> None:
    b = pm.Normal("b", 0, 1, shape=(D, 1))
    pm.Normal("y", pm.math.matmul(X, b)[:, 0], pm.HalfNormal("s", 1), observed=real)


@accepted("B", hyper=("s",))
def multi_output() -> None:
    B = pm.Normal("B", 0, 1, shape=(D, 2))
    s = pm.HalfNormal("s", 1, shape=2)
    pm.Normal("y", X @ B, s, observed=np.c_[real, -real])


@accepted("th", "d", hyper=("a",))
def irt_2pl() -> None:
    th = pm.Normal("th", 0, 1, shape=6)
    a = pm.LogNormal("a", 0, 0.5, shape=G)
    d = pm.Normal("d", 0, 2, shape=G)
    pm.Bernoulli("y", logit_p=a[g] * (th[h % 6] - d[g]), observed=label)


@accepted("th", "d")
def irt_2d() -> None:
    th = pm.Normal("th", 0, 1, shape=6)
    d = pm.Normal("d", 0, 1, shape=4)
    pm.Bernoulli("y", logit_p=th[:, None] - d[None, :], observed=label.reshape(6, 4))


@accepted("th", "d", hyper=("ls",))
def rasch_softplus_scale() -> None:
    th = pm.Normal("th", 0, 1, shape=6)
    d = pm.Normal("d", 0, 1, shape=4)
    ls = pm.Normal("ls", 0, 1)
    pm.Bernoulli(
        "y", logit_p=pt.softplus(ls) * (th[:, None] - d[None, :]), observed=label.reshape(6, 4)
    )


@slopes("s")
def customdist_dist(eta: Any) -> None:
    s = pm.HalfNormal("s", 1)

    def d(mu, s, size):
        return mu + s * pm.Normal.dist(0, 1, size=size)

    pm.CustomDist("y", eta, s, dist=d, observed=real)


@slopes("s")
def customdist_exp(eta: Any) -> None:
    s = pm.HalfNormal("s", 1)

    def d(mu, s, size):
        return pt.exp(pm.Normal.dist(mu, s, size=size))

    pm.CustomDist("y", eta, s, dist=d, observed=positive)


@accepted("b", hyper=("w", "s"))
def mixture2() -> None:
    b = pm.Normal("b", 0, 1, shape=D)
    w = pm.Dirichlet("w", np.ones(2))
    s = pm.HalfNormal("s", 1)
    pm.Mixture(
        "y",
        w,
        [pm.Normal.dist(X @ b, s), pm.StudentT.dist(nu=3, mu=X @ b, sigma=3 * s)],
        observed=real,
    )


@slopes("c", "w", "s")
def mixture_intercepts(eta: Any) -> None:
    c = pm.Normal("c", 0, 1, shape=2)
    w = pm.Dirichlet("w", np.ones(2))
    s = pm.HalfNormal("s", 1)
    pm.Mixture("y", w, pm.Normal.dist((eta)[:, None] + c, s), observed=real)


@refused("mu", "not separable", predictor=None)
def normalmixture() -> None:
    mu = pm.Normal("mu", 0, 1, shape=2)
    w = pm.Dirichlet("w", np.ones(2))
    pm.NormalMixture("y", w, mu=mu, sigma=1.0, observed=real)


@slopes("s")
def truncated(eta: Any) -> None:
    s = pm.HalfNormal("s", 1)
    pm.Truncated("y", pm.Normal.dist(eta, s), lower=-3, observed=np.maximum(real, -2.9))


@slopes("s")
def censored_vec(eta: Any) -> None:
    s = pm.HalfNormal("s", 1)
    pm.Censored(
        "y",
        pm.Normal.dist(eta, s),
        lower=None,
        upper=np.full(N, 0.5),
        observed=np.minimum(real, 0.5),
    )


@slopes("psi")
def hurdle_poisson(eta: Any) -> None:
    psi = pm.Beta("psi", 2, 2)
    pm.HurdlePoisson("y", psi=psi, mu=pt.exp(eta), observed=count)


@slopes("psi")
def hurdle_gamma(eta: Any) -> None:
    psi = pm.Beta("psi", 2, 2)
    pm.HurdleGamma(
        "y",
        psi=psi,
        alpha=2.0,
        beta=2.0 / pt.exp(eta),
        observed=np.where(count == 0, 0, positive),
    )


@slopes("c")
def hurdle_both(eta: Any) -> None:
    c = pm.Normal("c", 0, 1)
    pm.HurdlePoisson("y", psi=pm.math.sigmoid(c + x), mu=pt.exp(eta), observed=count)


@slopes("al")
def zinb(eta: Any) -> None:
    a = pm.Exponential("al", 1)
    pm.ZeroInflatedNegativeBinomial("y", psi=0.7, mu=pt.exp(eta), alpha=a, observed=count)


@slopes("psi")
def zib(eta: Any) -> None:
    pm.ZeroInflatedBinomial(
        "y", psi=pm.Beta("psi", 1, 1), n=10, p=pm.math.invlogit(eta), observed=count
    )


@slopes("n")
def negbin_np(eta: Any) -> None:
    n = pm.Exponential("n", 1)
    mu = pt.exp(eta)
    pm.NegativeBinomial("y", n=n, p=n / (n + mu), observed=count)


@accepted("b", hyper=("s",))
def beta_mu_sigma() -> None:
    b = pm.Normal("b", 0, 0.3, shape=D)
    pm.Beta("y", mu=pm.math.invlogit(X @ b), sigma=pm.Uniform("s", 0.01, 0.2), observed=unit)


@slopes("nu")
def beta_mu_nu(eta: Any) -> None:
    pm.Beta("y", mu=pm.math.invlogit(eta), nu=pm.HalfNormal("nu", 10), observed=unit)


@slopes("k")
def betabinom(eta: Any) -> None:
    k = pm.HalfNormal("k", 10)
    p = pm.math.invlogit(eta)
    pm.BetaBinomial("y", alpha=p * k, beta=(1 - p) * k, n=12, observed=count)


@slopes("s")
def gamma_mu_sigma(eta: Any) -> None:
    pm.Gamma("y", mu=pt.exp(eta), sigma=pm.HalfNormal("s", 1), observed=positive)


@slopes("lam")
def wald(eta: Any) -> None:
    pm.Wald("y", mu=pt.exp(eta), lam=pm.HalfNormal("lam", 1), observed=positive)


@slopes("k")
def vonmises(eta: Any) -> None:
    pm.VonMises(
        "y", mu=2 * pt.arctan(eta), kappa=pm.HalfNormal("k", 1), observed=np.clip(real, -3, 3)
    )


@slopes("s", "alpha")
def skewnormal(eta: Any) -> None:
    pm.SkewNormal(
        "y", mu=eta, sigma=pm.HalfNormal("s", 1), alpha=pm.Normal("alpha", 0, 2), observed=real
    )


@slopes("k")
def weibull_aft(eta: Any) -> None:
    k = pm.Gamma("k", 2, 1)
    pm.Weibull("y", alpha=k, beta=pt.exp(eta / k), observed=positive)


@accepted("a", "b", hyper=("c", "s"))
def mult_effect() -> None:
    a = pm.Normal("a", 0, 1)
    b = pm.Normal("b", 0, 1, shape=D)
    c = pm.Normal("c", 1, 0.2)
    pm.Normal("y", a + c * (X @ b), pm.HalfNormal("s", 1), observed=real)


@accepted("a", hyper=("b",))
def polynomial_in_normal() -> None:
    a = pm.Normal("a", 0, 1)
    b = pm.Normal("b", 0, 1)
    pm.Normal("y", a + b * x + b**2 * x**2, 1, observed=real)


@accepted("a", hyper=("ls",))
def log_scale_normal() -> None:
    a = pm.Normal("a", 0, 1)
    ls = pm.Normal("ls", 0, 1)
    pm.Normal("y", a, pt.exp(ls), observed=real)


@accepted("a", "b", hyper=("c", "d"))
def het_two_predictors() -> None:
    a = pm.Normal("a", 0, 1)
    b = pm.Normal("b", 0, 1, shape=D)
    c = pm.Normal("c", 0, 1)
    d = pm.Normal("d", 0, 1, shape=2)
    pm.Normal("y", a + X @ b, pt.exp(c + X[:, :2] @ d), observed=real)


@accepted("a", hyper=("b",))
def het_shared() -> None:
    a = pm.Normal("a", 0, 1)
    b = pm.Normal("b", 0, 1, shape=D)
    pm.Normal("y", a + X @ b, pt.exp(b[0] * x), observed=real)


@accepted("mu", "a", "b", hyper=("s",))
def nested3() -> None:
    mu = pm.Normal("mu", 0, 5)
    s = pm.HalfNormal("s", 1, shape=3)
    a = pm.Normal("a", mu, s[0], shape=2)
    b = pm.Normal("b", a[np.arange(G) // 2], s[1], shape=G)
    pm.Normal("y", b[g], s[2], observed=real)


@accepted("mu", "za", "b", hyper=("s",))
def nested4_nc_mix() -> None:
    mu = pm.Normal("mu", 0, 5)
    s = pm.HalfNormal("s", 1, shape=3)
    a = mu + s[0] * pm.Normal("za", 0, 1, shape=2)
    b = pm.Normal("b", a[np.arange(G) // 2], s[1], shape=G)
    pm.Normal("y", b[g], s[2], observed=real)


@accepted("a", "b", "i", hyper=("s",))
def crossed() -> None:
    s = pm.HalfNormal("s", 1, shape=2)
    a = pm.Normal("a", 0, s[0], shape=G)
    b = pm.Normal("b", 0, s[1], shape=4)
    i = pm.Normal("i", 0, 2)
    pm.Poisson("y", pt.exp(i + a[g] + b[h]), observed=count)


@accepted("gm", "a", "b", hyper=("s", "sy"))
def group_mean_regression() -> None:
    gm = pm.Normal("gm", 0, 1, shape=2)
    s = pm.HalfNormal("s", 1)
    U = np.c_[np.ones(G), np.arange(G)]
    a = pm.Normal("a", pm.math.dot(U, gm), s, shape=G)
    b = pm.Normal("b", 0, 1)
    pm.Normal("y", a[g] + b * x, pm.HalfNormal("sy", 1), observed=real)


@accepted("a", hyper=("ls",))
def sd_by_exp_normal() -> None:
    ls = pm.Normal("ls", 0, 1)
    a = pm.Normal("a", 0, pt.exp(ls), shape=G)
    pm.Normal("y", a[g], 1, observed=real)


@accepted("f_hsgp_coeffs", hyper=("ls", "amp", "s"))
def hsgp() -> None:
    ls = pm.Gamma("ls", 4, 4)
    eta = pm.HalfNormal("amp", 1)
    gp = pm.gp.HSGP(m=[6], c=1.5, cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls))
    f = gp.prior("f", X=x[:, None])
    pm.Normal("y", f, pm.HalfNormal("s", 1), observed=real)


@accepted("f_hsgp_coeffs_", hyper=("ls", "s"))
def hsgpp() -> None:
    ls = pm.Gamma("ls", 4, 4)
    gp = pm.gp.HSGPPeriodic(m=6, scale=1.0, cov_func=pm.gp.cov.Periodic(1, period=2.0, ls=ls))
    f = gp.prior("f", X=x[:, None])
    pm.Normal("y", f, pm.HalfNormal("s", 1), observed=real)


@accepted("mu0", "f_rotated_", hyper=("ls", "s"))
def gp_latent_both() -> None:
    ls = pm.Gamma("ls", 4, 4)
    mu0 = pm.Normal("mu0", 0, 1)
    gp = pm.gp.Latent(mean_func=pm.gp.mean.Constant(mu0), cov_func=pm.gp.cov.Matern32(1, ls))
    f = gp.prior("f", X=x[:, None])
    pm.Normal("y", f, pm.HalfNormal("s", 1), observed=real)


@accepted("mu0", "f", hyper=("ls",))
def gp_latent_centred_mean() -> None:
    ls = pm.Gamma("ls", 4, 4)
    mu0 = pm.Normal("mu0", 0, 1)
    gp = pm.gp.Latent(
        mean_func=pm.gp.mean.Constant(mu0),
        cov_func=pm.gp.cov.Matern32(1, ls) + pm.gp.cov.WhiteNoise(0.01),
    )
    f = gp.prior("f", X=x[:, None], reparameterize=False)
    pm.Poisson("y", pt.exp(f), observed=count)


@refused("ls", "no free variable with a Gaussian prior", predictor=None)
def gp_marginal() -> None:
    ls = pm.Gamma("ls", 4, 4)
    gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, ls))
    gp.marginal_likelihood("y", X=x[:, None], y=real, sigma=pm.HalfNormal("s", 1))


@refused("b", "MvNormal", "not separable", predictor=None)
def gp_marginal_mean() -> None:
    ls = pm.Gamma("ls", 4, 4)
    b = pm.Normal("b", 0, 1)
    gp = pm.gp.Marginal(mean_func=pm.gp.mean.Linear(b), cov_func=pm.gp.cov.ExpQuad(1, ls))
    gp.marginal_likelihood("y", X=x[:, None], y=real, sigma=pm.HalfNormal("s", 1))


@accepted("f_rotated_")
def gp_tp() -> None:
    gp = pm.gp.TP(nu=5, scale_func=pm.gp.cov.ExpQuad(1, 1.0))
    f = gp.prior("f", X=x[:, None])
    pm.Normal("y", f, 1, observed=real)


@accepted("z", hyper=("rho", "s"))
def ar_normal_rho() -> None:
    rho = pm.Normal("rho", 0, 0.5)
    z = pm.AR("z", rho=rho, sigma=pm.HalfNormal("s", 1), init_dist=pm.Normal.dist(0, 1), shape=N)
    pm.Poisson("y", pt.exp(z), observed=count)


@refused("rho", "AutoRegressive", predictor=None)
def ar_obs() -> None:
    rho = pm.Normal("rho", 0, 0.5)
    pm.AR("y", rho=rho, sigma=pm.HalfNormal("s", 1), init_dist=pm.Normal.dist(0, 1), observed=real)


@accepted("rho", "c", hyper=("s",))
def ar_by_hand() -> None:
    rho = pm.Normal("rho", 0, 0.5, shape=2)
    c = pm.Normal("c", 0, 1)
    pm.Normal(
        "y", c + rho[0] * real[1:-1] + rho[1] * real[:-2], pm.HalfNormal("s", 1), observed=real[2:]
    )


@accepted("drift", "z", hyper=("s",))
def grw_drift() -> None:
    mu = pm.Normal("drift", 0, 1)
    z = pm.GaussianRandomWalk(
        "z", mu=mu, sigma=pm.HalfNormal("s", 1), init_dist=pm.Normal.dist(0, 3), shape=N
    )
    pm.Normal("y", z, 1, observed=real)


@accepted("z", hyper=("s",))
def grw_init_free() -> None:
    z = pm.GaussianRandomWalk(
        "z", sigma=pm.HalfNormal("s", 1), init_dist=pm.Normal.dist(0, 3), shape=(2, 12)
    )
    pm.Normal("y", z, 1, observed=real.reshape(2, 12))


@accepted("z")
def mvgrw() -> None:
    z = pm.MvGaussianRandomWalk(
        "z",
        mu=np.zeros(2),
        cov=np.eye(2),
        init_dist=pm.MvNormal.dist(np.zeros(2), np.eye(2)),
        shape=(12, 2),
    )
    pm.Normal("y", z, 1, observed=real.reshape(12, 2))


@refused("z", "RandomWalk", predictor=None)
def studentrw() -> None:
    z = pm.MvStudentTRandomWalk(
        "z",
        nu=5,
        mu=np.zeros(2),
        scale=np.eye(2),
        init_dist=pm.MvNormal.dist(np.zeros(2), np.eye(2)),
        shape=(12, 2),
    )
    pm.Normal("y", z, 1, observed=real.reshape(12, 2))


@accepted("z", "ab", hyper=("chol",))
def lkj_nc() -> None:
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1))
    z = pm.Normal("z", 0, 1, shape=(2, G))
    ab = pm.Normal("ab", 0, 1, shape=2)
    v = pm.Deterministic("v", pt.dot(chol, z).T)
    e = ab + v
    pm.Normal("y", e[g, 0] + e[g, 1] * x, 1.0, observed=real)


@accepted("ab", "v", hyper=("chol",))
def lkj_c_chain() -> None:
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1))
    ab = pm.Normal("ab", 0, 1, shape=2)
    v = pm.MvNormal("v", ab, chol=chol, shape=(G, 2))
    pm.Bernoulli("y", logit_p=v[g, 0] + v[g, 1] * x, observed=label)


@accepted("v", hyper=("C",))
def lkjcorr() -> None:
    C_ = pm.LKJCorr("C", n=2, eta=2)
    v = pm.MvNormal("v", 0, cov=C_, shape=(G, 2))
    pm.Bernoulli("y", logit_p=v[g, 0] + v[g, 1] * x, observed=label)


@accepted("W")
def matrixnormal() -> None:
    W = pm.MatrixNormal(
        "W",
        mu=np.zeros((D, 2)),
        rowcov=np.eye(D),
        colcov=np.array([[1, 0.3], [0.3, 1]]),
        shape=(D, 2),
    )
    pm.Normal("y", X @ W, 1, observed=np.c_[real, real])


@accepted("f")
def kronnormal() -> None:
    K1 = np.eye(4) + 0.3
    K2 = np.eye(6) + 0.1
    f = pm.KroneckerNormal("f", mu=np.zeros(24), covs=[K1, K2], shape=24)
    pm.Poisson("y", pt.exp(f), observed=count)


@accepted("f", hyper=("a", "t"))
def car() -> None:
    a = pm.Beta("a", 2, 2)
    t = pm.Gamma("t", 2, 1)
    f = pm.CAR("f", mu=np.zeros(N), W=NEIGHBOURS, alpha=a, tau=t)
    pm.Poisson("y", pt.exp(f), observed=count)


@accepted("b", "f", hyper=("a",))
def car_mean() -> None:
    a = pm.Beta("a", 2, 2)
    b = pm.Normal("b", 0, 1)
    f = pm.CAR("f", mu=b * x, W=NEIGHBOURS, alpha=a, tau=1.0)
    pm.Poisson("y", pt.exp(f), observed=count)


@accepted("th", "ph", "b0", hyper=("s", "rho"))
def bym2() -> None:
    s = pm.HalfNormal("s", 1)
    rho = pm.Beta("rho", 0.5, 0.5)
    th = pm.Normal("th", 0, 1, shape=N)
    ph = pm.ICAR("ph", W=NEIGHBOURS)
    b0 = pm.Normal("b0", 0, 1)
    mix = pm.Deterministic("mix", pt.sqrt(1 - rho) * th + pt.sqrt(rho / 0.5) * ph)
    pm.Poisson("y", positive * pt.exp(b0 + s * mix), observed=count)


@accepted("ph", hyper=("s",))
def icar_sigma() -> None:
    s = pm.HalfNormal("s", 1)
    ph = pm.ICAR("ph", W=NEIGHBOURS, sigma=s)
    pm.Poisson("y", pt.exp(ph), observed=count)


@refused("integers_rv", "random variable is left", "Minibatch", predictor=None)
def minibatch() -> None:
    Xm, ym = pm.Minibatch(X, real, batch_size=5)
    b = pm.Normal("b", 0, 1, shape=D)
    pm.Normal("y", Xm @ b, 1.0, observed=ym, total_size=N)


@refused("a0", "Scan", predictor=None)
def scan_predictor() -> None:
    b = pm.Normal("b", 0, 1)
    a0 = pm.Normal("a0", 0, 1)
    out = pytensor.scan(
        lambda xx, prev, b: 0.5 * prev + b * xx,
        sequences=[pt.as_tensor(x)],
        outputs_info=[a0],
        non_sequences=[b],
        return_updates=False,
    )
    pm.Normal("y", out, 1.0, observed=real)


@accepted("a", "b")
def data_everything() -> None:
    Xd = pm.Data("X", X, dims=("visit", "predictor"))
    gd = pm.Data("g", g, dims="visit")
    a = pm.Normal("a", 0, 1, dims="region")
    b = pm.Normal("b", 0, 1, dims="predictor")
    mu = pm.Deterministic("mu", a[gd] + pm.math.dot(Xd, b), dims="visit")
    pm.Bernoulli(
        "y", pm.math.sigmoid(mu), observed=pm.Data("yd", label, dims="visit"), dims="visit"
    )


@accepted("b")
def shared_scalar() -> None:
    s = pytensor.shared(2.0)
    b = pm.Normal("b", 0, s, shape=D)
    pm.Normal("y", s * (X @ b), 1.0, observed=real)


@accepted("z", "m0", hyper=("s",))
def zsn_2d() -> None:
    z = pm.ZeroSumNormal("z", sigma=pm.HalfNormal("s", 1), n_zerosum_axes=2, shape=(4, 6))
    m0 = pm.Normal("m0", 0, 1)
    pm.Normal("y", m0 + z, 1.0, observed=real.reshape(4, 6))


@accepted("z", hyper=("t", "l", "s"))
def horseshoe_nc() -> None:
    t = pm.HalfCauchy("t", 1)
    lam = pm.HalfCauchy("l", 1, shape=D)
    z = pm.Normal("z", 0, 1, shape=D)
    b = pm.Deterministic("b", z * lam * t)
    pm.Normal("y", X @ b, pm.HalfNormal("s", 1), observed=real)


@accepted("z", "a", hyper=("t", "l", "c2"))
def finnish() -> None:
    t = pm.HalfStudentT("t", 2, 1)
    lam = pm.HalfStudentT("l", 5, 1, shape=D)
    c2 = pm.InverseGamma("c2", 1, 1)
    z = pm.Normal("z", 0, 1, shape=D)
    lt = lam * pt.sqrt(c2 / (c2 + t**2 * lam**2))
    pm.Bernoulli("y", logit_p=pm.Normal("a", 0, 2) + X @ (z * t * lt), observed=label)


@accepted("z", hyper=("i",))
def spike_slab() -> None:
    i = pm.Bernoulli("i", 0.5, shape=D)
    z = pm.Normal("z", 0, 1, shape=D)
    pm.Normal("y", X @ (i * z), 1.0, observed=real)


@accepted("mu", "b", hyper=("s",))
def student_hier() -> None:
    mu = pm.Normal("mu", 0, 1)
    b = pm.StudentT("b", nu=4, mu=mu, sigma=pm.HalfNormal("s", 1), shape=G)
    pm.Normal("y", b[g], 1.0, observed=real)


@accepted("b", hyper=("lam", "s"))
def laplace_lasso() -> None:
    lam = pm.HalfNormal("lam", 1)
    b = pm.Laplace("b", 0, 1 / lam, shape=D)
    pm.Normal("y", X @ b, pm.HalfNormal("s", 1), observed=real)


@refused("s", "no free variable with a Gaussian prior", predictor=None)
def no_gaussian_at_all() -> None:
    pm.Normal("y", 0, pm.HalfNormal("s", 1), observed=real)


@slopes("c")
def ordered_probit(eta: Any) -> None:
    c = pm.Normal("c", [-1.0, 1.0], 1, transform=pm.distributions.transforms.ordered)
    pm.OrderedProbit("y", eta=eta, cutpoints=c, observed=count % 3)


@accepted("B", predictor=None)
def softmax_of_a_matrix() -> None:
    B = pm.Normal("B", 0, 1, shape=(D, 3))
    pm.Categorical("y", p=pm.math.softmax(X @ B, axis=1), observed=count % 3)


@accepted("B", predictor=None)
def categorical_logit() -> None:
    B = pm.Normal("B", 0, 1, shape=(D, 2))
    pm.Categorical(
        "y", logit_p=pt.concatenate([pt.zeros((N, 1)), X @ B], axis=1), observed=count % 3
    )


@refused("a", "Multinomial", predictor=None)
def multinomial() -> None:
    a = pm.Normal("a", 0, 1, shape=3)
    pm.Multinomial("y", n=10, p=pm.math.softmax(a), observed=[3, 3, 4])


@refused("a", "DirichletMultinomial", predictor=None)
def dirmult() -> None:
    a = pm.Normal("a", 0, 1, shape=3)
    pm.DirichletMultinomial("y", n=10, a=pt.exp(a), observed=[3, 3, 4])


@accepted("b", hyper=("xi_unobserved",))
def missing_x() -> None:
    holes = np.where(np.arange(N) == 2, np.nan, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyMC's own notice of what it is about to do
        filled = pm.Normal("xi", 0, 1, observed=holes)
    b = pm.Normal("b", 0, 1)
    pm.Normal("y", b * filled, 1.0, observed=real)


@accepted("xt", hyper=("b",))
def errors_in_variables() -> None:
    xt = pm.Normal("xt", 0, 1, shape=N)
    pm.Normal("xo", xt, 0.2, observed=x)
    b = pm.Normal("b", 0, 1)
    pm.Normal("y", b * xt, 1.0, observed=real)


@accepted("a", "b", hyper=("tau",))
def switchpoint() -> None:
    tau = pm.DiscreteUniform("tau", 0, N)
    a = pm.Normal("a", 0, 1)
    b = pm.Normal("b", 0, 1)
    pm.Poisson("y", pt.exp(pm.math.switch(tau > np.arange(N), a, b)), observed=count)


@accepted("a", "b")
def switch_rates() -> None:
    a = pm.Normal("a", 0, 1)
    b = pm.Normal("b", 0, 1)
    pm.Poisson("y", pm.math.switch(np.arange(N) < 9, pt.exp(a), pt.exp(b)), observed=count)


@accepted("a", "b")
def stack_indexed_rates() -> None:
    a = pm.Normal("a", 0, 1)
    b = pm.Normal("b", 0, 1)
    pm.Poisson("y", pt.stack([pt.exp(a), pt.exp(b)])[g % 2], observed=count)


@accepted("a", hyper=("b",))
def sum_of_exps() -> None:
    a = pm.Normal("a", 0, 1)
    b = pm.Normal("b", 0, 1)
    pm.Poisson("y", pt.exp(a) + pt.exp(b) * positive, observed=count)


@accepted("rate", "t0", hyper=("K",))
def logistic_growth() -> None:
    K = pm.LogNormal("K", 1, 1)
    rate = pm.Normal("rate", 0, 1)
    t0 = pm.Normal("t0", 0, 1)
    pm.Normal("y", K / (1 + pt.exp(-(rate * x - t0))), 1.0, observed=real)


@accepted("a", hyper=("k",))
def nonlinear_decay() -> None:
    a = pm.Normal("a", 0, 1)
    k = pm.Normal("k", 0, 1)
    pm.Normal("y", a * pt.exp(-pt.exp(k) * positive), 1.0, observed=real)


@accepted("b", "tr", "k", hyper=("s",))
def seasonality_with_a_laplace_prior() -> None:
    t = np.arange(N)
    F = np.c_[np.sin(t), np.cos(t)]
    b = pm.Laplace("b", 0, 1, shape=2)
    tr = pm.Normal("tr", 0, 1)
    k = pm.Normal("k", 0, 1)
    pm.Normal("y", tr + k * t + pt.dot(F, b), pm.HalfNormal("s", 1), observed=real)


@accepted("b")
def dims_xtensor_mean() -> None:
    b = pm.Normal("b", 0, 1, dims="predictor")
    mu = (pm.Data("X", X, dims=("visit", "predictor")) * b).mean(axis=1)
    pm.Normal("y", mu, 1.0, observed=real, dims="visit")


@accepted("b")
def centred_in_graph() -> None:
    b = pm.Normal("b", 0, 1, shape=G)
    pm.Normal("y", (b - b.mean())[g], 1.0, observed=real)


@accepted("b")
def potential_mean() -> None:
    b = pm.Normal("b", 0, 1, shape=G)
    pm.Potential("soft", pm.logp(pm.Normal.dist(0, 0.01), b.mean()))
    pm.Normal("y", b[g], 1.0, observed=real)


@accepted("b", hyper=("s",))
def potential_censor() -> None:
    b = pm.Normal("b", 0, 1, shape=D)
    c = real > 0.5
    s = pm.HalfNormal("s", 1)
    pm.Normal("y", X[~c] @ b, s, observed=real[~c])
    pm.Potential("right", pt.log(0.5 * pt.erfc((0.5 - X[c] @ b) / (s * np.sqrt(2)))))


@accepted("b")
def potential_norm() -> None:
    b = pm.Normal("b", 0, 1, shape=D)
    pm.Potential("ridge", -0.5 * pt.sum(b**2))
    pm.Normal("y", X @ b, 1.0, observed=real)


@refused("b", "potential", predictor=None)
def potential_coupled() -> None:
    b = pm.Normal("b", 0, 1, shape=D)
    pm.Potential("p", -pt.sqrt(pt.sum(b**2)))
    pm.Normal("y", X @ b, 1.0, observed=real)


@refused("b", "potential", predictor=None)
def potential_on_theta_and_w() -> None:
    b = pm.Normal("b", 0, 1, shape=D)
    s = pm.HalfNormal("s", 1)
    pm.Potential("p", -s * pt.sum(abs(b)))
    pm.Normal("y", X @ b, s, observed=real)


@accepted("a", "b")
def det_between() -> None:
    a = pm.Normal("a", 0, 1)
    b = pm.Normal("b", 0, 1, shape=D)
    e = pm.Deterministic("lin", a + X @ b)
    p = pm.Deterministic("p", pm.math.sigmoid(e))
    lam = pm.Deterministic("lo", pm.math.logit(p))
    pm.Bernoulli("y", logit_p=lam, observed=label)


@accepted("a")
def int_data_poly() -> None:
    k = np.arange(N)
    a = pm.Normal("a", 0, 1, shape=3)
    pm.Normal("y", a[0] + a[1] * k + a[2] * k**2, 1.0, observed=real)


@accepted("a")
def bool_mask() -> None:
    a = pm.Normal("a", 0, 1, shape=N)
    msk = count > 0
    pm.Normal("y", a[msk], 1.0, observed=real[msk])


@refused("b", "MvNormal", predictor=None)
def mvnormal_lik() -> None:
    b = pm.Normal("b", 0, 1, shape=D)
    pm.MvNormal("y", X @ b, cov=np.eye(N) + 0.1, observed=real)


@refused("b", "MvNormal", predictor=None)
def mvnormal_rows() -> None:
    b = pm.Normal("b", 0, 1, shape=(D, 2))
    pm.MvNormal("y", X @ b, cov=np.eye(2) + 0.1, observed=np.c_[real, real])


@refused("b", "MvStudentT", predictor=None)
def multivariate_student_noise() -> None:
    b = pm.Normal("b", 0, 1, shape=D)
    pm.MvStudentT("y", nu=5, mu=X @ b, scale=np.eye(N), observed=real)


@accepted("a", "b", hyper=("s",))
def two_obs_shared_sigma() -> None:
    a = pm.Normal("a", 0, 1)
    b = pm.Normal("b", 0, 1)
    s = pm.HalfNormal("s", 1)
    pm.Normal("y1", a + b * x, s, observed=real)
    pm.Normal("y2", a - b, s, observed=real[:5])


@accepted("a", "b")
def obs_depends_on_obs() -> None:
    a = pm.Normal("a", 0, 1)
    y1 = pm.Normal("y1", a, 1.0, observed=real)
    b = pm.Normal("b", 0, 1)
    pm.Normal("y2", b * y1, 1.0, observed=real)


@accepted("a")
def unused_free() -> None:
    a = pm.Normal("a", 0, 1)
    pm.Normal("u", 0, 1)
    pm.Normal("y1", a, 1.0, observed=real)


@accepted("a")
def child_unobserved() -> None:
    a = pm.Normal("a", 0, 1)
    pm.Normal("ynew", a, 1.0)
    pm.Normal("y1", a, 1.0, observed=real)


@refused("Simulator_y_rv", "random variable is left", predictor=None)
def simulator() -> None:
    a = pm.Normal("a", 0, 1)
    pm.Simulator("y", lambda rng, a, size: rng.normal(a, 1, size=size), a, epsilon=1, observed=real)
