"""MacKay and EM: the same optimum as the sequential steps, reached by other ways."""

import numpy as np
import pytest

import ardvark as av
from ardvark.inference.ard.fixed_point import UPDATES, fixed_point_ard
from ardvark.inference.ard.sequential_ard import sequential_ard
from ardvark.inference.laplace import Laplace
from ardvark.inference.sites.likelihoods import GaussianSites
from ardvark.inference.sites.model import SiteModel

RNG = np.random.default_rng(61)
N, D = 30, 6
A = RNG.normal(size=(N, D))
TARGET = A[:, 0] - 0.7 * A[:, 1] + 0.3 * RNG.normal(size=N)
SITES = GaussianSites(TARGET, np.full(N, 1 / 0.09), np.full(N, -0.5 * np.log(2 * np.pi * 0.09)))
MODEL = SiteModel(np.zeros(D), A, np.zeros(N), SITES, precision=np.ones(D))
approximate = Laplace().approximate


@pytest.mark.parametrize("algorithm", UPDATES)
def test_same_evidence_as_sequential_for_the_same_active_set(algorithm):
    sequential = sequential_ard(MODEL, approximate, tolerance=1e-12)
    active = np.isfinite(sequential.precision)
    result = fixed_point_ard(MODEL, approximate, algorithm=algorithm, start=active, tolerance=1e-9)
    assert result.converged
    assert result.fit.log_evidence == pytest.approx(sequential.fit.log_evidence, abs=1e-6)
    np.testing.assert_allclose(result.precision[active], sequential.precision[active], rtol=1e-5)


def test_em_never_falls_and_mackay_is_quicker():
    em = fixed_point_ard(MODEL, approximate, algorithm="em", max_steps=20000)
    mackay = fixed_point_ard(MODEL, approximate, algorithm="mackay")
    climbs = np.diff([step.log_evidence for step in em.path])
    assert climbs.min() > -1e-10  # rounding
    assert mackay.converged and mackay.steps < em.steps / 5


def test_the_gradient_is_zero_where_it_stops():
    """d log Z / d log alpha_j = (1 - alpha_j (V_jj + m_j²)) / 2, the same for every rule."""
    result = fixed_point_ard(MODEL, approximate, algorithm="mackay", tolerance=1e-10)
    on = np.isfinite(result.precision)
    posterior = result.fit.posterior
    slope = 1 - result.precision[on] * (posterior.marginal_variance[on] + posterior.mean[on] ** 2)
    weight_matters = 1 - result.precision[on] * posterior.marginal_variance[on] > 1e-3
    assert np.abs(slope[weight_matters]).max() < 1e-6


@pytest.mark.parametrize("algorithm", ["sequential", "mackay", "em"])
def test_through_fit_with_the_noise(algorithm):
    model = av.models.ard_regression(A, TARGET)
    method = av.Laplace(hyper=av.Evidence(algorithm=algorithm, tolerance=1e-5, max_steps=20000))
    tree = av.fit(model, method, draws=5, random_seed=0)
    assert tree.attrs["converged"]
    assert tree["theta"].sigma.item() == pytest.approx(0.3, rel=0.4)
    gamma = tree["fit"].well_determined.sel(rows=["w[x0]", "w[x1]"])
    assert ((gamma > 0.9) & (gamma < 1)).all()


def test_an_unknown_algorithm_is_refused():
    with pytest.raises(
        av.errors.InputError, match="algorithm must be one of 'sequential', 'mackay', 'em'"
    ):
        av.Evidence(algorithm="newton")
