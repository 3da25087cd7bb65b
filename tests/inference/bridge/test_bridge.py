"""Bridge sampling: exact evidences, calibrated errors, Jacobians of any graph, SMC beside it."""

import numpy as np
import pymc as pm
import pytensor
import pytest
import xarray as xr
from scipy import stats
from scipy.special import betaln, gammaln

import ardvark as av
from ardvark.errors import InputError, UnsupportedPair
from ardvark.inference.bridge.bridge import bridge_evidence, meet
from ardvark.inference.bridge.target import target_of

RNG = np.random.default_rng(90210)
X = RNG.normal(size=(40, 3))
SCORE = X @ [1.5, 0.0, -1.0]
T = SCORE + 0.5 * RNG.normal(size=40)
LABEL = (SCORE + RNG.normal(size=40) > 0).astype(int)


def independent(quantity):
    return float(quantity.size)


def fit(model, method, **settings):
    with pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        return av.fit(model, method, random_seed=1, progressbar=False, **settings)


def conjugate_tree(draws, method="nuts", kind="mcmc"):
    posterior = xr.Dataset(
        {name: (("chain", "draw", *dims), values) for name, (dims, values) in draws.items()},
        attrs={"sampling_kind": kind},
    )
    tree = xr.DataTree.from_dict({"posterior": posterior})
    tree.attrs |= {"method": method, "hyper": "posterior"}
    return tree


# ------------------------------------------------------------------------------- the arrays


@pytest.mark.parametrize("shape", [0.0, 2.0])
def test_the_error_is_calibrated(shape):
    """Gaussian (shape 0) and log-gamma densities, whose constants are known."""
    size, z = 4, []
    for seed in range(100):
        rng = np.random.default_rng([7, seed])
        if shape:
            draws = np.log(rng.gamma(shape, size=(4, 250, size)))
            truth = size * gammaln(shape)
        else:
            draws, truth = rng.normal(size=(4, 250, size)), 0.5 * size * np.log(2 * np.pi)

        def log_density(x):
            return ((shape * x - np.exp(x)) if shape else -0.5 * x**2).sum(axis=-1)

        found = bridge_evidence(log_density, draws, rng, effective=independent)
        z.append((found.log_evidence - truth) / found.error)
        assert abs(found.log_evidence - truth) < 5 * found.error
    # 100 standard normals: their mean has sd 0.1, their sd 0.07
    assert abs(np.mean(z)) < 0.4 and 0.75 < np.std(z) < 1.3


def test_banks_of_other_sizes_meet_at_the_same_evidence():
    """Markov chains count by their effective number: then s1 is not a half."""
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(8000, 3)), 1.3 * rng.normal(size=(8000, 3))
    truth = 1.5 * np.log(2 * np.pi)

    def log_ratio(points):
        return -0.5 * (points**2).sum(axis=1) - stats.norm.logpdf(points, scale=1.3).sum(axis=1)

    for share in (0.05, 0.5, 0.95):
        assert meet(log_ratio(x), log_ratio(y), share) == pytest.approx(truth, abs=0.03)


def test_the_error_of_chains_is_calibrated():
    """AR(1) chains of correlation 0.9, of which 19 draws count as one."""
    phi, z = 0.9, []
    for seed in range(60):
        rng = np.random.default_rng([8, seed])
        draws = rng.normal(size=(4, 400, 2))
        for n in range(1, 400):
            draws[:, n] = phi * draws[:, n - 1] + np.sqrt(1 - phi**2) * draws[:, n]
        found = bridge_evidence(
            lambda x: -0.5 * (x**2).sum(axis=-1),
            draws,
            rng,
            effective=lambda q: q.size * (1 - phi**2) / (1 + phi**2),  # of a quadratic: phi²
        )
        z.append((found.log_evidence - np.log(2 * np.pi)) / found.error)
    assert 0.6 < np.sqrt(np.mean(np.square(z))) < 1.5


def test_warping_takes_the_skewness_out():
    rng = np.random.default_rng(3)
    draws = np.log(rng.gamma(0.5, size=(4, 1000, 3)))

    def log_density(x):
        return (0.5 * x - np.exp(x)).sum(axis=-1)

    found = {
        warp: bridge_evidence(log_density, draws, rng, effective=independent, warp=warp)
        for warp in (False, True)
    }
    for estimate in found.values():
        assert abs(estimate.log_evidence - 3 * gammaln(0.5)) < 4 * estimate.error
    assert found[True].error < 0.8 * found[False].error
    assert found[True].overlap > found[False].overlap


def test_huge_logarithms_do_not_overflow():
    rng = np.random.default_rng(4)
    ours, theirs = rng.normal(size=(2, 500))
    plain = meet(ours, theirs)
    for shift in (5000.0, -5000.0):
        assert meet(ours + shift, theirs + shift) == pytest.approx(plain + shift, abs=1e-9)


def test_a_density_without_its_draws_is_noticed():
    """The control: draws of something narrower than the density leave a large error."""
    rng = np.random.default_rng(5)
    draws = 0.2 * rng.normal(size=(4, 250, 6))
    found = bridge_evidence(lambda x: -0.5 * (x**2).sum(axis=-1), draws, rng, effective=independent)
    assert abs(found.log_evidence - 3 * np.log(2 * np.pi)) > 0.5
    with pytest.raises(ValueError, match="too few to fit a Gaussian in 6"):
        bridge_evidence(lambda x: x[:, 0], draws[:, :4], rng, effective=independent)


# -------------------------------------------------------------------- at given hyperparameters


def test_exact_gaussian_evidence_to_a_hundredth():
    model = av.models.ard_regression(X, T, alpha=[0.5, 1.0, 2.0, 4.0], noise=0.5)
    exact = fit(model, "exact")
    chains = fit(model, av.EllipticalSlice())
    truth = float(exact["fit"]["log_evidence"])
    for tree in (exact, chains):
        found = av.diagnostics.bridge(model, tree)
        assert found.of == "p(t | θ)" and found.reliable
        assert abs(found.log_evidence - truth) < 0.01
        assert abs(found.log_evidence - truth) < 4 * found.error + 1e-3
    assert av.diagnostics.bridge(model, exact) == av.diagnostics.bridge(model, exact)
    assert "log p(t | θ) = " in str(found)


def test_switched_off_weights_and_a_fitted_theta():
    label = LABEL.copy()
    label[:3] = 1 - label[:3]  # else separable, which a search is warned of
    model = av.models.ard_classification(X, label)
    laplace = fit(model, av.Laplace(), draws=50)
    exact = fit(model, av.Exact(hyper=av.Fixed(laplace)))
    found = av.diagnostics.bridge(model, exact)
    spread = np.hypot(found.error, float(exact["fit"]["log_evidence_error"]))
    assert abs(found.log_evidence - float(exact["fit"]["log_evidence"])) < 4 * spread
    with pytest.raises(UnsupportedPair, match="of the approximation laplace"):
        av.diagnostics.bridge(model, laplace)


def test_a_process_is_bridged_in_white_coordinates():
    kernel = av.ARDGaussian(2.0, [0.5, 0.1, 0.3], 1.0)
    model = av.models.trigonometric_svm(X[:15], LABEL[:15], kernel=kernel)
    chains = fit(model, av.EllipticalSlice(thin=3), draws=1000)
    ep = fit(model, "ep", draws=50)
    found = av.diagnostics.bridge(model, chains, warp=True)
    # EP is right to hundredths of a nat on so small a process; the bridge has its own error
    assert abs(found.log_evidence - float(ep["fit"]["log_evidence"])) < 4 * found.error + 0.1


def test_softmax_at_its_precisions():
    classes = np.digitize(SCORE, [-1.0, 1.0])
    model = av.models.rvm_classification(
        X[:20], classes[:20], kernel=av.kernels.Linear(), alpha=np.ones(21)
    )
    laplace = fit(model, "laplace", draws=50)
    target = target_of(model, laplace)
    posterior = laplace["posterior"].dataset
    ours = target.log_density(target.pack(posterior).reshape(200, -1))
    theirs = laplace["sample_stats"]["lp"].to_numpy().ravel()
    # the same density up to the Jacobian of the white coordinates, which is constant
    assert np.ptp(ours - theirs) < 1e-8


# ------------------------------------------------------------------------------------ any graph


def test_jacobians_of_every_kind_of_variable():
    """Beta, gamma, Dirichlet and a bounded variable with a known product of evidences."""
    counts, seen = np.array([3, 5, 2]), np.array([2, 4, 3])
    with pm.Model(coords={"part": ["a", "b", "c"]}) as model:
        p = pm.Beta("p", 2.0, 3.0)
        pm.Binomial("k", 20, p, observed=7)
        rate = pm.Gamma("rate", 3.0, 2.0, dims="part")
        pm.Poisson("n", rate, observed=seen, dims="part")
        share = pm.Dirichlet("share", np.array([1.0, 2.0, 1.5]))
        pm.Multinomial("m", 10, share, observed=counts)
        top = pm.Uniform("top", 1.0, 2.0)
        pm.Uniform("place", 0.0, top)  # its bound moves: the transform depends on another draw
    rng = np.random.default_rng(6)
    shape = (4, 500)
    ceiling = rng.uniform(1, 2, shape)
    draws = {
        "p": ((), rng.beta(9.0, 16.0, shape)),
        "rate": (("part",), rng.gamma(3.0 + seen, size=(*shape, 3)) / 3.0),
        "share": (("cell",), rng.dirichlet(np.array([1.0, 2.0, 1.5]) + counts, shape)),
        "top": ((), ceiling),
        "place": ((), ceiling * rng.uniform(size=shape)),
    }
    prior = np.array([1.0, 2.0, 1.5])
    truth = stats.betabinom.logpmf(7, 20, 2.0, 3.0)
    truth += stats.nbinom.logpmf(seen, 3.0, 2.0 / 3.0).sum()
    truth += gammaln(11) - gammaln(counts + 1).sum()
    truth += (gammaln(prior + counts) - gammaln(prior)).sum()
    truth += gammaln(prior.sum()) - gammaln(prior.sum() + 10)
    found = av.diagnostics.bridge(model, conjugate_tree(draws))
    assert betaln(9, 16) < 0 and found.of == "p(t)"
    assert abs(found.log_evidence - truth) < 4 * found.error
    assert found.error < 0.1


def test_bridge_and_smc_agree():
    """A logit at given precisions; SMC needs seconds, so few rows (more in the validation)."""
    model = av.models.ard_classification(X[:12, :2], LABEL[:12], link="logit", alpha=np.ones(3))
    smc = fit(model, av.SMC(), draws=150)["fit"]
    found = av.diagnostics.bridge(model, fit(model, av.EllipticalSlice()), warp=True)
    spread = np.hypot(found.error, float(smc["log_evidence_error"]))
    # the error of SMC is estimated from four runs: a t of three degrees of freedom
    assert abs(found.log_evidence - float(smc["log_evidence"])) < 5 * spread + 0.02
    assert found.error < 0.02


def test_integrated_precisions_do_not_change_the_evidence():
    """Chains that draw the precisions too; the evidence at fixed precisions, averaged over them."""
    model = av.models.ard_classification(X[:12, :1], LABEL[:12], bias=False, a=2.0, b=2.0)
    found = av.diagnostics.bridge(model, fit(model, av.EP(hyper=av.Sampled()), draws=1000))
    w = np.linspace(-12, 12, 4001)
    prior = stats.t.logpdf(w, 4.0)  # shape 2, rate 2: Student-t of 4 degrees of freedom, scale 1
    sign = 2.0 * LABEL[:12] - 1.0
    rows = stats.norm.logcdf(sign * X[:12, 0] * w[:, None]).sum(axis=1)
    truth = np.log(np.trapezoid(np.exp(prior + rows), w))
    assert found.of == "p(t)"
    assert abs(found.log_evidence - truth) < 4 * found.error and found.error < 0.05


def test_what_cannot_be_bridged_is_refused():
    model = av.models.subset_regression(X, T)
    with pytest.raises(InputError, match="not the tree of a fit"):
        av.diagnostics.bridge(model, xr.DataTree())
    rng = np.random.default_rng(8)
    shape = (2, 50)
    draws = {
        "included": (("feature",), rng.integers(0, 2, (*shape, 3))),
        "w": (("feature",), rng.normal(size=(*shape, 3))),
    }
    with pytest.raises(UnsupportedPair, match="discrete"):
        av.diagnostics.bridge(model, conjugate_tree(draws))
    with pytest.raises(InputError, match="another model"):
        other = av.models.ard_regression(X, T, alpha=np.ones(4), noise=0.5)
        tree = conjugate_tree({"beta": ((), rng.normal(size=shape))})
        tree.attrs["hyper"] = "fixed"
        av.diagnostics.bridge(other, tree)


def prior_monte_carlo(draws=2_000_000):
    """Evidence of the probit with free precisions as the mean likelihood of prior draws."""
    rng, rows = np.random.default_rng(12), np.column_stack([np.ones(40), X])
    logs = []
    for _ in range(draws // 100_000):
        alpha = rng.gamma(2.0, 1.5, size=(100_000, 4))  # shape 2, rate 2/3: the defaults
        w = rng.normal(size=(100_000, 4)) / np.sqrt(alpha)
        logs.append(stats.norm.logcdf((2 * LABEL - 1) * (w @ rows.T)).sum(axis=1))
    value = np.exp(np.concatenate(logs))
    return np.log(value.mean()), value.std() / value.mean() / np.sqrt(value.size)


@pytest.mark.validate
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_bridge_on_nuts_agrees_with_smc(kind):
    """Free precisions and noise: NUTS and SMC both on the graph, the evidence of all of it.

    The error of SMC is the spread of four runs, which all may be low: 0.3 nats in one of the two.
    """
    build = {"regression": av.models.ard_regression, "classification": av.models.ard_classification}
    model = build[kind](X, T if kind == "regression" else LABEL)
    nuts = av.fit(model, "nuts", random_seed=1, progressbar=False)
    smc = av.fit(model, av.SMC(), draws=2000, random_seed=1, progressbar=False)["fit"]
    found = av.diagnostics.bridge(model, nuts, warp=True)
    spread = np.hypot(found.error, float(smc["log_evidence_error"]))
    print(kind, found, float(smc["log_evidence"]), float(smc["log_evidence_error"]))
    assert abs(found.log_evidence - float(smc["log_evidence"])) < 5 * spread + 0.02
    if kind == "classification":
        value, error = prior_monte_carlo()
        assert abs(found.log_evidence - value) < 4 * np.hypot(found.error, error)
