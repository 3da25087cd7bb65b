"""Step methods inside `pm.sample`: exact against stored NUTS, and citizens of PyMC."""

import warnings
from pathlib import Path

import arviz_stats
import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytest
from cases import CASES, FOLDER

import ardvark as av
from ardvark.inference.graph.read import read_model
from ardvark.inference.vb.bound import Bound

warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
RUN = {"progressbar": False, "compute_convergence_checks": False, "cores": 1}


def sample(model, steps, draws=1000, tune=50, chains=2, seed=7, **more):
    """`pm.sample` without a C compiler and without jitter: what the test pays for is the steps."""
    with model, pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        return pm.sample(
            draws, tune=tune, chains=chains, step=steps, random_seed=seed, **(RUN | more)
        )


def hierarchical(n=25, d=2, link="probit"):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    t = (1.5 * X[:, 0] + rng.normal(size=n) > 0).astype(int)
    return av.models.ard_classification(X, t, link=link, a=1.5, b=0.5)


def all_steps(model, block=None):
    block = block or av.steps.EPStep
    with model:
        return [
            block([model["bias"], model["w"]]),
            av.steps.ScaleStep([model["w"], model["alpha"]]),
            av.steps.GammaGibbs([model["alpha"], model["alpha_bias"]]),
        ]


# The posterior ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("step", ["EPStep", "LaplaceStep"])
def test_against_stored_nuts(name, step):
    case = CASES[name]
    model = case.build()
    with np.load(Path(FOLDER) / f"{name}.npz") as stored:
        truth = dict(stored)
    with model:
        variables = [model[w] for w in case.weights]
        steps = getattr(av.steps, step)(variables, predictor=case.predictor)
    p = sample(model, steps, draws=400)["posterior"]
    draws = np.concatenate([p[w].values.reshape(800, -1) for w in case.weights], axis=1)
    batches = draws.reshape(40, 20, -1).mean(axis=1)
    error = np.sqrt(batches.var(axis=0, ddof=1) / 40 + truth["mean_mcse"] ** 2)
    assert (np.abs(draws.mean(axis=0) - truth["mean"]) / error).max() < 4
    squares = (draws - truth["mean"]) ** 2
    error = squares.reshape(40, 20, -1).mean(axis=1).std(axis=0, ddof=1) / np.sqrt(40)
    error = np.hypot(error, 2 * truth["sd"] * truth["sd_mcse"])
    assert (np.abs(squares.mean(axis=0) - truth["sd"] ** 2) / error).max() < 4


def log_summary(posterior):
    values = np.concatenate(
        [posterior["w"].values, np.log(posterior["alpha"].values)], axis=-1
    ).reshape(-1, 4)
    values = values[: len(values) // 40 * 40].reshape(40, -1, 4).mean(axis=1)
    return values.mean(axis=0), values.var(axis=0, ddof=1) / 40


def test_pm_sample_and_the_compiled_loop_agree():
    model = hierarchical()
    tree = av.fit(
        model, av.EP(hyper=av.Sampled()), draws=4000, chains=2, random_seed=1, progressbar=False
    )
    known, known_variance = log_summary(tree["posterior"].dataset)
    for block in (av.steps.EPStep, av.steps.VBStep, av.steps.ExactProbitStep):
        found, variance = log_summary(
            sample(model, all_steps(model, block), draws=400)["posterior"].dataset
        )
        assert (np.abs(found - known) / np.sqrt(variance + known_variance)).max() < 4


def test_inside_a_users_own_model_with_nuts():
    """A block by EP, a scale and a degree of freedom by PyMC's NUTS."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 2))
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        beta = pm.Normal("beta", 0, 1, shape=2)
        eta = pm.Deterministic("eta", X @ beta)
        pm.StudentT("y", nu=4, mu=eta, sigma=scale, observed=X @ [1.0, -1.0] + 0.2)
        step = av.steps.EPStep([beta])
    tree = sample(model, [step], draws=40, tune=40)  # NUTS on the rest is PyMC's own choice
    assert {"block_trials", "diverging"} <= set(tree["sample_stats"].data_vars)
    assert tree["posterior"]["scale"].std() > 0
    assert np.allclose(tree["posterior"]["beta"].mean(("chain", "draw")), [1.0, -1.0], atol=0.3)


def test_a_probit_of_ones_own_is_a_probit():
    """PyMC's invprobit divides by an expression, sqrt(2): the predictor is what stands before."""
    rng = np.random.default_rng(5)
    group, x = np.arange(24) % 4, rng.normal(size=24)
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 1)
        tau = pm.Gamma("tau", 3.0, 2.0)
        level = pm.Normal("level", 0, tau=tau, shape=4)
        eta = slope * x + level[group]
        pm.Bernoulli("y", p=pm.math.invprobit(eta), observed=rng.integers(0, 2, 24))
        steps = [av.steps.ExactProbitStep([slope, level]), av.steps.GammaGibbs([tau])]
    found = sample(model, steps, draws=150, tune=0)["posterior"]
    wanted = av.fit(model, av.EP(hyper=av.Sampled()), random_seed=1, progressbar=False)["posterior"]
    for name in ("slope", "level", "tau"):
        one, two = (np.atleast_1d(p[name].mean(("chain", "draw"))) for p in (found, wanted))
        error = np.hypot(*(np.atleast_1d(arviz_stats.mcse(p)[name]) for p in (found, wanted)))
        assert np.all(np.abs(one - two) < 4 * error)


def test_blocks_that_alternate():
    """Bilinear: w given lam and lam given w, each affine; their products are what is known."""
    rng = np.random.default_rng(4)
    F = rng.normal(size=(40, 2, 3))
    y = np.einsum("nij,i,j->n", F, [1.0, 0.5], [1.0, -1.0, 0.0]) + 0.1 * rng.normal(size=40)
    with pm.Model() as model:
        w = pm.Normal("w", 0, 1, shape=2)
        lam = pm.Normal("lam", 0, 1, shape=3)
        eta = pm.Deterministic("eta", ((F * w[None, :, None]).sum(axis=1) * lam).sum(axis=1))
        pm.Normal("y", eta, 0.1, observed=y)
        steps = [av.steps.LaplaceStep([w]), av.steps.LaplaceStep([lam])]
    p = sample(model, steps, draws=200, tune=100)["posterior"]
    product = (p["w"].values[..., :, None] * p["lam"].values[..., None, :]).mean(axis=(0, 1))
    assert np.allclose(product, np.outer([1.0, 0.5], [1.0, -1.0, 0.0]), atol=0.1)


@pytest.mark.parametrize("name", ["probit", "logit"])
def test_the_gaussian_of_a_vb_step_is_that_of_vb(name):
    """Two routes to one bound: the rule of the step, and the blocks of `av.VB` at fixed alpha."""
    model = CASES[name].build()
    tree = av.fit(model, av.VB(tolerance=1e-12), draws=4, random_seed=0, progressbar=False)
    fit = Bound(tolerance=1e-9, max_iterations=5000).approximate(read_model(model).at({}))
    assert fit.log_evidence == pytest.approx(float(tree["fit"]["elbo"][-1]), abs=1e-6)
    assert np.allclose(fit.posterior.mean, tree["fit"]["mean_vector"], atol=1e-4)


# PyMC's own rules ---------------------------------------------------------------------------------


def test_state_restored_and_stepped_again_gives_the_same_point():
    model = hierarchical()
    with model, pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        start = model.initial_point()
    for step in all_steps(model):
        state = step.sampling_state
        first, statistics = step.step(start)
        step.sampling_state = state
        second, _ = step.step(start)
        assert list(first) == list(start)  # PyMC records by position
        assert all(np.array_equal(first[k], second[k]) for k in start)
        assert all(first[k].dtype == start[k].dtype for k in start)
        assert set(statistics[0]) == set(step.stats_dtypes_shapes)


def test_a_step_survives_the_way_to_another_process():
    model = hierarchical()
    with model, pytensor.config.change_flags(cxx="", mode="FAST_COMPILE"):
        start = model.initial_point()
    for step in [*all_steps(model), *all_steps(model, av.steps.ExactProbitStep)[:1]]:
        twin = cloudpickle.loads(cloudpickle.dumps(step))
        here, there = step.step(start)[0], twin.step(start)[0]
        assert all(np.array_equal(here[k], there[k]) for k in start)


def test_same_draws_in_one_process_and_in_two():
    model = hierarchical()
    steps = all_steps(model)
    one, two = (sample(model, steps, 20, 5, cores=c)["posterior"] for c in (1, 2))
    assert all(np.array_equal(one[n].values, two[n].values) for n in ("w", "alpha", "bias"))


@pytest.mark.validate
@pytest.mark.parametrize("context", ["forkserver", "spawn"])
@pytest.mark.parametrize("block", ["EPStep", "VBStep", "ExactProbitStep"])
def test_same_draws_where_processes_begin_from_nothing(context, block):
    """Steps are sent there as they are: nothing may hang on what the parent had compiled."""
    model = hierarchical()
    steps = all_steps(model, getattr(av.steps, block))
    one = sample(model, steps, 20, 5)["posterior"]
    two = sample(model, steps, 20, 5, cores=2, mp_ctx=context)["posterior"]
    assert all(np.array_equal(one[n].values, two[n].values) for n in ("w", "alpha", "bias"))


def test_used_only_when_requested():
    model = hierarchical()
    for step in all_steps(model):
        assert int(step.competence(model["w"], True)) == 0


def test_compile_kwargs_reach_the_functions():
    model = hierarchical()
    with model:
        step = av.steps.GammaGibbs([model["alpha"]], compile_kwargs={"mode": "FAST_COMPILE"})
        with pytest.raises(Exception, match=r"(?i)mode"):
            av.steps.GammaGibbs([model["alpha"]], compile_kwargs={"mode": "no_such_mode"})
    assert step.slopes[0].slope is not None


# Refusals -----------------------------------------------------------------------------------------


def test_gamma_gibbs_refuses_what_is_no_gamma():
    with pm.Model() as model:
        s = pm.Gamma("s", 2.0, 1.0)
        u = pm.Uniform("u", 0, 1)
        pm.Normal("x", 0, s, observed=[0.3, -1.0])  # a standard deviation, not a precision
        pm.Normal("y", u, 1, observed=0.0)
        with pytest.raises(av.errors.UnsupportedPair, match="no Gamma"):
            av.steps.GammaGibbs([s])
        with pytest.raises(av.errors.UnsupportedPair, match="inf"):
            av.steps.GammaGibbs([u])
        with pytest.raises(av.errors.InputError, match="needs its variables"):
            av.steps.GammaGibbs()
    assert model is not None


def test_gamma_gibbs_reads_shape_and_rate_by_number():
    """Grouped precisions: two weights share one, and the third has its own."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 3.0, shape=2)
        pm.Normal("w", 0, alpha[np.array([0, 0, 1])] ** -0.5, observed=[1.0, 2.0, 3.0])
        step = av.steps.GammaGibbs([alpha])
        shape, rate = step.slopes[0].at(model.initial_point())
    assert np.allclose(shape, [3.0, 2.5], atol=1e-8)  # 2 + 2/2, 2 + 1/2
    assert np.allclose(rate, [3.0 + 2.5, 3.0 + 4.5], atol=1e-8)


def test_block_steps_say_what_they_need():
    model = hierarchical(link="logit")
    with model:
        with pytest.raises(av.errors.InputError, match="probit"):
            av.steps.ExactProbitStep([model["bias"], model["w"]])
        with pytest.raises(av.errors.InputError, match="kernel must be one of"):
            av.steps.EPStep([model["w"]], kernel="walk")
        with pytest.raises(av.errors.InputError, match="freedom"):
            av.steps.EPStep([model["w"]], kernel="independence", freedom=-1.0)
        with pytest.raises(av.errors.InputError, match="needs its variables"):
            av.steps.EPStep()
        with pytest.raises(av.errors.InputError, match=r"ScaleStep\(\[w, alpha\]\)"):
            av.steps.ScaleStep([model["w"]])
        with pytest.raises(av.errors.UnsupportedPair, match="not the precision"):
            av.steps.ScaleStep([model["w"], model["alpha_bias"]])
        with pytest.raises(av.errors.UnreadableModel):
            av.steps.EPStep([model["alpha"]])
        with pytest.warns(av.errors.AccuracyWarning, match="approximation itself"):
            av.steps.EPStep([model["w"]], kernel="draw")
