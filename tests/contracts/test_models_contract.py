"""Every graph of the registry meets the contract; a later model joins by its line there."""

import subprocess
import sys

import numpy as np
import pytest
from contracts import CHECKS, HAND_LOGP, Case, cases
from model_variants import samples

import ardvark.models
from ardvark.models.registry import MODELS

CASES = list(cases())
by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.variant}")


@by_case
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(check, case: Case):
    check(case)  # the assertions are the contract's


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.name in HAND_LOGP],
    ids=lambda case: f"{case.name}-{case.variant}",
)
def test_logp_equals_the_one_written_by_hand(case: Case):
    model = case.build()
    draws = case.prior.prior
    for draw in (0, 7):
        point = {
            rv.name: draws[rv.name].isel(chain=0, draw=draw).to_numpy() for rv in model.free_RVs
        }
        by_hand = HAND_LOGP[case.name](case.card(model).task, point, **case.arguments)
        np.testing.assert_allclose(case.logp(point), by_hand, rtol=1e-10, atol=1e-10)


def test_registry_and_package_agree():
    assert set(ardvark.models.__all__) == set(MODELS) == set(dir(ardvark.models))
    assert all(getattr(ardvark.models, name).__name__ == name for name in MODELS)
    with pytest.raises(AttributeError, match="models: ard_classification"):
        _ = ardvark.models.ard_clasification


@pytest.mark.parametrize("name", MODELS)
def test_registry_lines_are_complete(name):
    entry = MODELS[name]
    assert set(entry.tasks) <= {"binary", "multiclass", "regression"}
    assert entry.paper
    assert entry.methods
    assert not set(entry.methods) & set(entry.reasons)
    assert all("Use " in reason for reason in entry.reasons.values())
    assert "default" in dict(samples(name))


def test_importing_the_package_imports_no_pymc():
    code = "import sys, ardvark.models; sys.exit('pymc' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
