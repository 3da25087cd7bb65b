"""Which conditionals are Gammas is told by the operations of a graph, not by slopes at points."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.special import logsumexp
from scipy.stats import gamma, multivariate_normal

import ardvark as av
from ardvark.inference.graph.gamma_form import first_other_form
from ardvark.inference.graph.read import read_model

rng = np.random.default_rng(12)
X = rng.normal(size=(12, 2))
label = (X[:, 0] + rng.normal(size=12) > 0).astype(int)
real = X[:, 0] + 0.5 * rng.normal(size=12)

# Names of the hyperparameters, and those with a Gamma conditional.
GRAPHS = {}


def graph(hyper, conjugate):
    def keep(build):
        GRAPHS[build.__name__] = (build, hyper, conjugate)
        return build

    return keep


def likelihood(precision, **noise):
    w = pm.Normal("w", 0, tau=precision, shape=2)
    eta = pm.Deterministic("eta", pt.dot(X, w))
    pm.Normal("y", eta, **(noise or {"sigma": 1.0}), observed=real)


@graph(("alpha",), ("alpha",))
def plain():
    likelihood(pm.Gamma("alpha", 2.0, 1.0, shape=2))


@graph(("alpha",), ("alpha",))
def exponential_and_scaled():
    alpha = pm.Exponential("alpha", 1.0, shape=2)
    scale = pm.Data("scale", np.array([2.0, 0.5]))
    w = pm.Normal("w", 0, sigma=scale / pt.sqrt(alpha))
    eta = pm.Deterministic("eta", pt.dot(X, w))
    pm.Normal("y", eta, 1.0, observed=real)


@graph(("rate", "alpha"), ("rate", "alpha"))
def random_rate():
    rate = pm.Gamma("rate", 2.0, 1.0)
    likelihood(pm.Gamma("alpha", 2.0, rate, shape=2))


@graph(("order", "alpha"), ("alpha",))
def random_shape():
    order = pm.Gamma("order", 2.0, 1.0)
    likelihood(pm.Gamma("alpha", order, 1.0, shape=2))


@graph(("alpha", "beta"), ("alpha", "beta"))
def noise_and_pieces():
    alpha = pm.Gamma("alpha", 2.0, 1.0)
    beta = pm.Gamma("beta", 2.0, 1.0)
    likelihood(pt.stack([alpha, 3.0]), tau=beta)


@graph(("alpha",), ())
def step_potential():
    alpha = pm.Gamma("alpha", 2.0, 1.0, shape=2)
    pm.Potential("order", pt.switch(alpha[0] < alpha[1], 0.0, -np.inf))
    likelihood(alpha)


@graph(("alpha",), ())
def kink_far_from_the_start():
    alpha = pm.Gamma("alpha", 2.0, 1.0, shape=2)
    pm.Potential("kink", -pt.abs(alpha - 50.0).sum())
    likelihood(alpha)


@graph(("alpha",), ())
def straight_potential():
    alpha = pm.Gamma("alpha", 2.0, 1.0, shape=2)
    pm.Potential("more", -alpha.sum())
    likelihood(alpha)


@graph(("alpha",), ())
def truncated_gamma():
    likelihood(pm.Truncated("alpha", pm.Gamma.dist(2.0, 1.0), upper=30.0, shape=2))


@graph(("alpha",), ())
def inverse_gamma():
    likelihood(pm.InverseGamma("alpha", 2.0, 1.0, shape=2))


@graph(("alpha",), ())
def half_normal():
    likelihood(pm.HalfNormal("alpha", 1.0, shape=2))


@graph(("alpha",), ())
def clipped():
    likelihood(pt.clip(pm.Gamma("alpha", 2.0, 1.0, shape=2), 1e-3, 40.0))


@graph(("alpha",), ())
def switched():
    alpha = pm.Gamma("alpha", 2.0, 1.0, shape=2)
    likelihood(pt.switch(alpha > 40.0, 40.0, alpha))


@graph(("alpha",), ())
def kink_under_the_root():
    likelihood(pt.abs(pm.Gamma("alpha", 2.0, 1.0, shape=2) - 40.0))


@graph(("alpha",), ())
def coupled_sum():
    alpha = pm.Gamma("alpha", 2.0, 1.0, shape=2)
    likelihood(pt.sum(alpha) * np.ones(2))


@graph(("alpha",), ())
def coupled_product():
    alpha = pm.Gamma("alpha", 2.0, 1.0, shape=2)
    likelihood(alpha * alpha[::-1])


@graph(("alpha",), ())
def bound_of_the_data():
    alpha = pm.Gamma("alpha", 2.0, 1.0)
    w = pm.Normal("w", 0, tau=alpha, shape=2)
    eta = pm.Deterministic("eta", pt.dot(X, w))
    pm.Censored("y", pm.Normal.dist(eta, 1.0), lower=None, upper=5.0 + alpha, observed=real)


@graph(("alpha",), ())
def tails_of_the_data():
    alpha = pm.Gamma("alpha", 2.0, 1.0)
    w = pm.Normal("w", 0, tau=alpha, shape=2)
    eta = pm.Deterministic("eta", pt.dot(X, w))
    pm.StudentT("y", nu=4, mu=eta, lam=alpha, observed=real)


each = pytest.mark.parametrize("name", GRAPHS)


@each
def test_structure_decides(name):
    """A step, a kink or a bound away from the start was not seen by slopes near it."""
    build, hyper, conjugate = GRAPHS[name]
    with pm.Model() as model:
        build()
    latent = read_model(model)
    assert latent.hyper == hyper
    assert latent.conjugate == conjugate


@each
def test_a_gamma_is_one_wherever_its_variable_is(name):
    """The joint log density less that of the conditional does not move, over twelve decades."""
    build, _, conjugate = GRAPHS[name]
    with pm.Model() as model:
        build()
    latent, r = read_model(model), np.random.default_rng(5)
    w = r.normal(size=latent.n_weights)
    reading = latent.reading
    total = sum((term.sum() for term in reading.terms.values()), pt.constant(0.0))
    with pytensor.config.change_flags(cxx=""):
        joint = pytensor.function([*reading.w, *reading.theta], total, mode="FAST_COMPILE")
    theta = {n: v * r.uniform(0.5, 2.0, np.shape(v)) for n, v in latent.initial_theta().items()}
    found = latent.gamma_conditionals(w, theta)
    assert set(found) == set(conjugate)
    for one, (shape, rate) in found.items():
        rest = []
        for size in 10.0 ** np.arange(-6, 7):
            value = size * r.uniform(0.5, 2.0, np.shape(theta[one]))
            moved = latent.ordered({**theta, one: value})
            density = float(joint(*latent.split(w).values(), *moved))
            known = gamma.logpdf(value, shape, scale=1 / rate).sum()
            rest.append(density - known)
            assert abs(rest[-1] - rest[0]) < 1e-8 * (1.0 + abs(known))


@each
def test_gamma_gibbs_draws_gammas_and_refuses_all_else(name):
    build, hyper, conjugate = GRAPHS[name]
    with pm.Model() as model:
        build()
        for one in hyper:
            if one in conjugate:
                step = av.steps.GammaGibbs([model[one]])
                assert np.all(step.slopes[0].at(model.initial_point())[1] > 0)
                continue
            with pytest.raises(
                av.errors.UnsupportedPair, match=rf"{one}.*Leave.* to NUTS or Slice"
            ):
                av.steps.GammaGibbs([model[one]])


def test_a_refusal_names_the_potential():
    with pm.Model() as model:
        step_potential()
        with pytest.raises(av.errors.UnsupportedPair, match="enters the potential 'order'"):
            av.steps.GammaGibbs([model["alpha"]])


def test_operations_are_named():
    alpha = pt.vector("alpha", dtype="float64")
    for expression, reason in (
        (pt.exp(alpha), "Exp"),
        (alpha**2, "its power 2"),
        (pt.floor(alpha), "Floor"),
        (pt.cast(alpha, "int64") * 1.0, "Cast"),
        (pt.cumprod(alpha), "CumProd"),
        (pt.log(alpha + 1.0), "Log"),
        (pt.switch(alpha > 3.0, alpha, 1.0), "a condition on it"),
        (alpha[pt.argmax(alpha)], "Subtensor"),
    ):
        assert first_other_form(expression, alpha) == reason
    for known in (
        3.0 * alpha - pt.log(alpha),
        -((alpha**-0.5) ** -2),
        pt.switch(alpha > 0, alpha, 1),
    ):
        assert first_other_form(known, alpha) is None


# Exactness ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::ardvark.errors.ConvergenceWarning")
def test_an_order_of_precisions_is_kept():
    """`hyper=Sampled()` ignored the potential: a quarter of its draws were impossible."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 1.0, shape=2)
        w = pm.Normal("w", 0, tau=alpha, shape=2)
        eta = pm.Deterministic("eta", pt.dot(X, w))
        pm.Bernoulli("y", p=pm.math.invprobit(eta), observed=label)
        pm.Potential("order", pt.switch(alpha[0] < alpha[1], 0.0, -np.inf))
    hyper = av.Sampled(tune=30)
    tree = av.fit(model, av.EP(hyper=hyper), draws=80, chains=2, random_seed=1, progressbar=False)
    found = tree["posterior"]["alpha"].values
    assert np.all(found[..., 0] < found[..., 1])


def no_order_is_possible():
    alpha = pm.Gamma("alpha", 2.0, 1.0, shape=2)
    pm.Potential("never", pt.switch(alpha[0] < 0.0, 0.0, -np.inf))
    likelihood(alpha)


def test_an_impossible_prior_is_refused():
    with pm.Model() as model:
        no_order_is_possible()
    with pytest.raises(av.errors.UnsupportedPair, match="possible under their priors"):
        av.fit(model, av.Laplace(hyper=av.Sampled()), random_seed=1, progressbar=False)


def step_down(alpha):
    pm.Potential("step", pt.switch(alpha < 1.5, 0.0, -2.0))
    return alpha


ONE_PRECISION = {  # prior of α on a grid, precision of w, and the same in a graph
    "step": (
        lambda a: gamma.logpdf(a, 2.0) - 2.0 * (a >= 1.5),
        lambda a: a,
        lambda: step_down(pm.Gamma("alpha", 2.0, 1.0)),
    ),
    "truncated": (
        lambda a: np.where(a < 2.5, gamma.logpdf(a, 2.0), -np.inf),
        lambda a: a,
        lambda: pm.Truncated("alpha", pm.Gamma.dist(2.0, 1.0), upper=2.5),
    ),
    "clipped": (
        lambda a: gamma.logpdf(a, 2.0),
        lambda a: np.minimum(a, 0.8),
        lambda: pt.minimum(pm.Gamma("alpha", 2.0, 1.0), 0.8),
    ),
    "plain": (  # the Gamma that is still drawn as one
        lambda a: gamma.logpdf(a, 2.0),
        lambda a: a,
        lambda: pm.Gamma("alpha", 2.0, 1.0),
    ),
}


@pytest.mark.filterwarnings("ignore::ardvark.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", ONE_PRECISION)
def test_one_precision_against_quadrature(name):
    log_prior, precision, in_graph = ONE_PRECISION[name]
    with pm.Model() as model:
        w = pm.Normal("w", 0, tau=in_graph())
        eta = pm.Deterministic("eta", X[:, 0] * w)
        pm.Normal("y", eta, 1.0, observed=real)
    tree = av.fit(
        model, av.Laplace(hyper=av.Sampled(tune=100)), draws=450, chains=2, random_seed=3,
        progressbar=False,
    )  # fmt: skip
    u = np.linspace(-9.0, 4.0, 2601)
    a = np.exp(u)
    fits = [
        multivariate_normal.logpdf(real, cov=np.eye(12) + np.outer(X[:, 0], X[:, 0]) / p)
        for p in precision(a)
    ]
    with np.errstate(divide="ignore"):
        weight = log_prior(a) + u + np.array(fits)
    weight = np.exp(weight - logsumexp(weight))
    draws = tree["posterior"]["alpha"].values
    for function in (np.log, lambda x: x < 0.8, lambda x: x < 1.5):
        seen = np.asarray(function(draws), float)
        batches = seen.reshape(30, -1).mean(axis=1)
        error = batches.std(ddof=1) / np.sqrt(30)
        assert abs(seen.mean() - weight @ function(a)) < 4.0 * error
