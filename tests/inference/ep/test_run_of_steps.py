"""A run of ARD steps in machine code: the steps that the search makes one by one."""

from dataclasses import replace

import numpy as np
import pytest

from ardvark.inference.ard.sequential_ard import precision_bounds, sequential_ard
from ardvark.inference.ep.ep import EP
from ardvark.inference.sites.likelihoods import LogitSites, PoissonSites, ProbitSites
from ardvark.inference.sites.model import SiteModel

RNG_SEED = 71
ROWS, WEIGHTS = 40, 60


def make_model(kind="probit", seed=RNG_SEED):
    rng = np.random.default_rng(seed)
    projection = rng.normal(size=(ROWS, WEIGHTS))
    projection[:, 0] = 1.0
    eta = projection[:, :4] @ np.array([0.5, 2.0, -1.5, 1.0])
    sign = np.where(eta + rng.normal(size=ROWS) > 0, 1.0, -1.0)
    sites = {
        "probit": ProbitSites(sign),
        "logit": LogitSites(sign),
        "poisson": PoissonSites(rng.poisson(np.exp(0.3 * eta)).astype(float)),
    }[kind]
    mean = np.zeros(WEIGHTS)
    mean[-1] = 0.3  # with a precision that is given
    return SiteModel(mean, projection, 0.1 * np.ones(ROWS), sites, np.ones(WEIGHTS))


def search(model, rule, runs, **settings):
    told = []
    found = sequential_ard(
        model,
        rule.approximate,
        optimised=np.arange(WEIGHTS) < WEIGHTS - 1,
        runs=rule.run_of_steps if runs else None,
        tick=lambda text, share=0.0: told.append(text),
        **settings,
    )
    return found, told


@pytest.mark.parametrize("kind", ["probit", "logit", "poisson"])
def test_a_run_makes_the_steps_one_by_one(kind):
    model, rule = make_model(kind), EP().loosened()
    slow, each = search(model, rule, runs=False)
    fast, some = search(model, rule, runs=True)
    assert len(some) < len(each)  # there were runs
    assert [(s.action, s.weight) for s in fast.path] == [(s.action, s.weight) for s in slow.path]
    assert fast.converged == slow.converged
    np.testing.assert_allclose(fast.precision, slow.precision, rtol=1e-8)
    for one, other in zip(fast.path, slow.path, strict=True):
        np.testing.assert_array_equal(one.on, other.on)
        np.testing.assert_allclose(one.values, other.values, rtol=1e-8)
        assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-9)
        assert one.gain == pytest.approx(other.gain, abs=1e-9)
        assert one.info == pytest.approx(other.info, rel=1e-6, abs=1e-9, nan_ok=True)
    np.testing.assert_allclose(fast.fit.posterior.mean, slow.fit.posterior.mean, rtol=1e-7)
    assert fast.fit.iterations == slow.fit.iterations


@pytest.mark.parametrize("most", [3, 7, 20])
def test_a_run_ends_where_the_steps_do(most):
    model = make_model()
    found, _ = search(model, EP().loosened(), runs=True, max_steps=most)
    assert found.steps == most
    assert not found.converged


def test_the_fit_after_a_step_is_that_of_its_precisions():
    model, rule = make_model(), EP()
    on = np.isin(np.arange(WEIGHTS), (1, 2, 3))  # those that matter: none is deleted
    here = replace(model, precision=np.where(on, 1.0, np.inf), mean=np.zeros(WEIGHTS))
    fit, bounds = rule.approximate(here), precision_bounds(here)
    run = rule.run_of_steps(here, fit, on, bounds, 1e-6, 4)
    assert run.weight.size == 4
    for i in range(4):
        precision = np.full(WEIGHTS, np.inf)
        precision[on] = run.precision[i]
        own = rule.approximate(replace(here, precision=precision))
        told = run.fit_after(i)
        assert told.log_evidence == pytest.approx(own.log_evidence, abs=1e-9)
        assert run.log_evidence[i] == pytest.approx(own.log_evidence, abs=1e-9)
        np.testing.assert_allclose(told.posterior.mean, own.posterior.mean, atol=1e-8)
        moved = np.flatnonzero(run.precision[i] != (run.precision[i - 1] if i else 1.0))
        np.testing.assert_array_equal(np.flatnonzero(on)[moved], run.weight[i])


def test_no_run_where_a_fit_is_not_one_in_machine_code():
    model, nothing = make_model(), np.zeros(WEIGHTS)
    model = replace(model, mean=nothing)
    for rule, few in ((EP(updates="parallel"), 6), (EP(space="functions"), 6), (EP(), ROWS)):
        on = np.arange(WEIGHTS) < few
        here = replace(model, precision=np.where(on, 1.0, np.inf))
        fit = rule.approximate(here)
        assert rule.run_of_steps(here, fit, on, precision_bounds(here), 1e-6, 4) is None
