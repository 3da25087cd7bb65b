"""A method is declared once: its settings, its routes and its refusals are all found there."""

import dataclasses

import numpy as np
import pytest
import xarray as xr

import ardvark as av
from ardvark.inference.facts import Facts, Run
from ardvark.inference.fit import named_method
from ardvark.inference.methods import METHODS, PREDICTIONS, _load
from ardvark.inference.sample_feature import run as sample_feature


@pytest.mark.parametrize("name", METHODS)
def test_every_place_that_is_named_exists(name):
    entry = METHODS[name]
    assert callable(entry.load(entry.settings))
    assert all(callable(_load(place)) for place in (*entry.fits.values(), *PREDICTIONS.values()))
    assert not set(entry.fits) & set(entry.refuses)
    assert entry.sample == "" or callable(entry.load(entry.sample))


def test_settings_are_known_by_their_class_not_by_its_name():
    @dataclasses.dataclass
    class Laplace:
        hyper: object = None

    with pytest.raises(av.errors.InputError, match="settings such as"):
        named_method(Laplace())
    assert named_method(av.Laplace())[0] == "laplace"


def test_a_refusal_gives_its_reason():
    rng = np.random.default_rng(2)
    model = av.models.rvm_classification(rng.normal(size=(12, 2)), np.arange(12) % 3)
    for name, reason in {
        "ep": "couples all K",
        "exact": "no exact",
        "vb": "not been built",
    }.items():
        with pytest.raises(av.errors.UnsupportedPair, match=reason):
            av.fit(model, name)


def test_facts_have_converged_when_they_have_no_problem():
    facts = Facts("fixed", weights=("w",)).with_extra(loo="cavity")
    found = facts.attributes()
    assert found["converged"] and found["problems"] == "" and found["loo"] == "cavity"
    bad = dataclasses.replace(facts, problems=("one", "two")).attributes()
    assert not bad["converged"] and bad["problems"] == "one; two"


def test_nuts_on_a_sample_feature_machine_is_checked_by_products(monkeypatch):
    """The chains differ in the sign of (w, lam) alone: products agree, weights do not."""
    rng = np.random.default_rng(3)
    X, t = rng.normal(size=(8, 2)), rng.normal(size=8)
    model = av.models.sample_feature_regression(X, t)

    def sampled(model, name, settings, run):
        shape = (run.chains, run.draws)
        sign = np.where(np.arange(run.chains) % 2, -1.0, 1.0)[:, None, None]
        w, lam = (1.0 + 0.1 * rng.normal(size=(*shape, k)) for k in (9, 3))
        posterior = xr.Dataset(
            {
                "w": (("chain", "draw", "sample_term"), sign * w),
                "lam": (("chain", "draw", "feature_term"), sign * lam),
            }
        )
        likelihood = xr.Dataset({"t": (("chain", "draw", "row"), rng.normal(size=(*shape, 8)))})
        groups = {
            "posterior": posterior,
            "log_likelihood": likelihood,
            "sample_stats": xr.Dataset(),
        }
        return groups, Facts("posterior", problems=("R-hat 2 of w",), sampler={"rhat_max": 2.0})

    monkeypatch.setattr(sample_feature.sampler, "fit_sampler", sampled)
    groups, facts = sample_feature.fit_sampler(model, "nuts", av.NUTS(), Run(1000, 4, 1, False))
    assert facts.converged and facts.sampler["rhat_max"] < 1.01
    assert float(groups["posterior"]["lam"].min()) > 0
    assert not sample_feature.fit_sampler(model, "smc", av.SMC(), Run(1000, 4, 1, False))[
        1
    ].converged
