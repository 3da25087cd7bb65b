"""A report of every pair of model and method, and of many inputs: a small file, nothing fetched."""

import time
import warnings

import numpy as np
import pytest
from synthetic_trees import gaussian_tree

import ardvark as av
from ardvark.models.registry import MODELS
from ardvark.studies.validation.hard_inputs import PAIRS, build, settings

LONG = ("trigonometric_svm", "sample_feature")  # minutes by NUTS and SMC
TAKEN = [p for p in PAIRS if not (p[0].startswith(LONG) and p[1] in ("nuts", "smc"))]


def good_page(trees, path):
    """One file below 5 MB, made within a minute, that asks for nothing."""
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        page = av.report(trees, path).read_text("utf-8")
    assert time.process_time() - begin < 60
    assert page.rstrip().endswith("</html>") and len(page.encode()) < 5e6
    assert "http" not in page and "<script" not in page


@pytest.mark.validate
@pytest.mark.parametrize(("model", "method"), TAKEN)
def test_every_pair_has_a_report(model, method, tmp_path):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(9, 2) if (model, method) == ("rbf_mixture", "exact") else (24, 3))
    score = X[:, 0] - X[:, 1] + 0.7 * rng.normal(size=len(X))
    t = score if MODELS[model].task == "regression" else (score > 0).astype(int)
    options = {"n_kernels": 2} if model == "rbf_mixture" else {}
    made = getattr(av.models, model)(X, t, **options) if options else build(model, method, X, t)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = av.fit(
            made, settings(model, method, 3), draws=50, chains=2, random_seed=1, progressbar=False
        )
    good_page({method: tree}, tmp_path / "page.html")


@pytest.mark.validate
def test_five_hundred_inputs_have_a_report(tmp_path):
    rng = np.random.default_rng(7)
    features = [f"x{j}" for j in range(500)]
    tree = gaussian_tree(rng, np.linspace(3, 0, 501), np.full(501, 0.3), features=features)
    good_page({"laplace": tree}, tmp_path / "page.html")
