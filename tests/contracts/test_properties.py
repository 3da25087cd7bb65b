"""What must hold for any data: random problems, in many scales (hypothesis)."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from ardvark.errors import InputError
from ardvark.inference.ep.ep import EP
from ardvark.inference.laplace import Laplace
from ardvark.inference.sites.likelihoods import GaussianSites, LogitSites, ProbitSites
from ardvark.inference.sites.model import SiteModel
from ardvark.inference.vb.bound import Bound
from ardvark.models.checks import as_binary, as_inputs, as_target
from ardvark.models.inputs import Inputs, standardise

FEW = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
MANY = settings(FEW, max_examples=500)
FAMILIES = ("probit", "logit", "gaussian")
RULES = {"laplace": Laplace(), "ep": EP(), "vb": Bound(max_iterations=200)}


@some.composite
def problems(draw):
    """Rows 2 to 40, weights 1 to 40, columns and precisions over twelve orders of magnitude."""
    rows, weights = draw(some.integers(2, 40)), draw(some.integers(1, 40))
    rng = np.random.default_rng(draw(some.integers(0, 2**32 - 1)))
    scale = 10.0 ** draw(some.floats(-6, 6))
    X = rng.normal(size=(rows, weights)) * 10.0 ** rng.uniform(-2, 2, weights) * scale
    alpha = 10.0 ** rng.uniform(-3, 3, weights) * scale**2
    sign = rng.choice([-1.0, 1.0], rows)
    family = draw(some.sampled_from(FAMILIES))
    if family == "gaussian":
        noise = 10.0 ** rng.uniform(-3, 3, rows)
        sites = GaussianSites(rng.normal(size=rows), noise, 0.5 * np.log(noise / (2 * np.pi)))
    else:
        sites = {"probit": ProbitSites, "logit": LogitSites}[family](sign)
    model = SiteModel(np.zeros(weights), X, np.zeros(rows), sites, precision=alpha)
    return family, model


def holds(problem, rule):
    """Finite; no variance above the prior's; covariance positive; an evidence that can be one."""
    family, model = problem
    fit = RULES[rule].approximate(model)
    posterior = fit.posterior
    assert np.isfinite(posterior.mean).all() and np.isfinite(fit.log_evidence)
    assert np.all(posterior.marginal_variance > 0)
    # Log-concave sites only take away: Brascamp & Lieb 1976.
    assert np.all(posterior.marginal_variance <= (1 + 1e-9) / model.precision)
    spread = np.sqrt(posterior.marginal_variance)
    correlation = posterior.covariance / np.outer(spread, spread)
    assert np.linalg.eigvalsh(correlation)[0] > -1e-7
    if family != "gaussian":
        mean, variance = posterior.predictive(model.projection, model.offset)
        chance = np.exp(model.sites.tilted(mean, np.maximum(variance, 1e-300)).log_z)
        assert np.all((chance >= 0) & (chance <= 1 + 1e-12))
        if rule != "ep":
            assert fit.log_evidence <= 1e-9  # psi is a log probability less a penalty, or a bound
    if family == "gaussian":
        other = RULES["ep" if rule == "laplace" else "laplace"].approximate(model)
        size = 1 + abs(fit.log_evidence)
        assert abs(other.log_evidence - fit.log_evidence) < 1e-6 * size


@pytest.mark.parametrize("rule", RULES)
def test_posteriors_of_random_problems(rule):
    FEW(given(problem=problems())(lambda problem: holds(problem, rule)))()


@pytest.mark.validate
@pytest.mark.parametrize("rule", RULES)
def test_posteriors_of_many_random_problems(rule):
    MANY(given(problem=problems())(lambda problem: holds(problem, rule)))()


ATOMS = some.one_of(
    some.none(), some.booleans(), some.integers(), some.floats(), some.text(), some.binary(),
    some.complex_numbers(), some.dates(),
)  # fmt: skip
ANYTHING = some.recursive(
    ATOMS,
    lambda inner: some.one_of(
        some.lists(inner, max_size=4), some.dictionaries(some.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(FEW, max_examples=200)
@given(value=ANYTHING)
def test_whatever_is_given_is_a_table_or_is_refused(value):
    try:
        table = as_inputs(value)
    except InputError as error:
        assert "X" in str(error)
    else:
        assert isinstance(table, Inputs) and table.ndim == 2 and np.isfinite(table).all()


@settings(FEW, max_examples=200)
@given(value=ANYTHING, rows=some.integers(1, 4))
def test_whatever_is_given_is_a_target_or_is_refused(value, rows):
    for check in (as_target, as_binary):
        try:
            found = check(value, rows)
        except InputError as error:
            assert "t" in str(error)
        else:
            values = found if check is as_target else found[0]
            assert len(values) == rows and np.isfinite(values).all()


@FEW
@given(
    scale=some.floats(-50, 50),
    shift=some.floats(-6, 6),
    seed=some.integers(0, 2**32 - 1),
)
def test_standardised_columns_have_mean_zero_and_sd_one(scale, shift, seed):
    plain = np.random.default_rng(seed).normal(size=(20, 3))
    X = (plain + shift) * 10.0**scale
    ready = standardise(X)
    np.testing.assert_allclose(np.asarray(ready).mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(np.asarray(ready).std(axis=0), 1.0, rtol=1e-9)
    np.testing.assert_allclose(ready.scaling.apply(X), ready, atol=1e-9)
