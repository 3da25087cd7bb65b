"""What a reading is held against the model's own density, also where a likelihood has a margin."""

import numpy as np
import pytest

import ardvark as av
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.graph.verify import verify

X = np.random.default_rng(3).normal(size=(12, 2))


def read():
    return av.read_model(av.models.trigonometric_svm(X, (X[:, 0] > 0).astype(int)))


def test_another_density_than_was_read_is_refused(monkeypatch):
    """Also where random points lie beyond a margin, without any probability."""
    latent = read()
    own = LatentGaussian.log_density

    def other(self, w, theta=None, as_written=False):
        return own(self, w, theta, as_written) + w[0]

    monkeypatch.setattr(LatentGaussian, "log_density", other)
    with pytest.raises(av.errors.UnreadableModel, match="differ from the model's own log density"):
        verify(latent)


def test_rows_that_move_with_others_are_seen_inside_of_a_margin(monkeypatch):
    latent = read()
    own = LatentGaussian.log_sites

    def coupled(self, eta, theta=None, as_written=False):
        found = own(self, eta, theta, as_written)
        return found + 1e-3 * eta.sum(axis=1, keepdims=True)

    monkeypatch.setattr(LatentGaussian, "log_sites", coupled)
    with pytest.raises(av.errors.UnreadableModel, match="not separable over rows"):
        verify(latent)
