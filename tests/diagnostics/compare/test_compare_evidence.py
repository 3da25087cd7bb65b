"""The table of evidences: order, figures, and what must not stand in one table."""

import numpy as np
import pytensor
import pytest
import xarray as xr

import ardvark as av
from ardvark.errors import InputError

RNG = np.random.default_rng(17)
X = RNG.uniform(-10, 10, (40, 1))
T = np.sinc(X[:, 0] / np.pi) + 0.1 * RNG.normal(size=40)


@pytest.fixture(scope="module")
def trees():
    kernels = {"wide": av.RBF(width=30.0), "good": av.RBF(width=2.0), "linear": av.kernels.Linear()}
    with pytensor.config.change_flags(cxx=""):
        return {
            name: av.fit(av.models.rvm_regression(X, T, kernel=kernel), draws=50, random_seed=1)
            for name, kernel in kernels.items()
        }


def test_the_largest_evidence_comes_first(trees):
    table = av.diagnostics.compare_evidence(trees)
    assert table.index[0] == "good" and table["below_best"].iloc[0] == 0
    for name, tree in trees.items():
        row = table.loc[name]
        assert row["log_evidence"] == pytest.approx(float(tree["fit"]["log_evidence"]))
        assert row["active"] == int(tree["fit"]["active"].sum())
        best = table["log_evidence"].max()
        assert row["below_best"] == pytest.approx(best - row["log_evidence"])
    assert table["elpd_loo"].idxmax() == "good" and table["elpd_loo_se"].notna().all()


def test_evidences_of_other_data_are_refused(trees):
    """By the fingerprints of the trees; without them by what they keep of the data."""
    good, other = (trees["good"].copy(deep=True) for _ in range(2))
    del good.attrs["fingerprint"], other.attrs["fingerprint"]
    other["observed_data"]["t"][0] += 1.0
    with pytest.raises(InputError, match="other was fitted to other values of 't' than good"):
        av.diagnostics.compare_evidence({"good": good, "other": other})


def test_a_sampler_has_no_evidence(trees):
    groups = {"posterior": trees["good"]["posterior"].to_dataset()}
    draws = xr.DataTree.from_dict(groups)
    with pytest.raises(InputError, match="has no log evidence"):
        av.diagnostics.compare_evidence({"nuts": draws})
    with pytest.raises(InputError, match="found none"):
        av.diagnostics.compare_evidence({})
