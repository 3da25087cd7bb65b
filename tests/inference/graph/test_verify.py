"""What a reading is held against the model's own density, also where a likelihood has a margin."""

import numpy as np
import pytest

import ardvark as av
from ardvark.inference.graph.latent import LatentGaussian
from ardvark.inference.graph.verify import verify

X = np.random.default_rng(3).normal(size=(40, 2))


def read(builder, **options):
    return av.read_model(getattr(av.models, builder)(X, (X[:, 0] > 0).astype(int), **options))


@pytest.mark.parametrize(
    ("builder", "options"),
    [
        ("ard_classification", {}),
        ("trigonometric_svm", {}),  # no probability beyond a margin, where random points lie
    ],
)
def test_another_density_than_was_read_is_refused(monkeypatch, builder, options):
    latent = read(builder, **options)
    verify(latent)
    own = LatentGaussian.log_density

    def other(self, w, theta=None, as_written=False):
        return own(self, w, theta, as_written) + w[0]

    monkeypatch.setattr(LatentGaussian, "log_density", other)
    with pytest.raises(av.errors.UnreadableModel, match="differ from the model's own log density"):
        verify(latent)


def test_rows_that_move_with_others_are_seen_inside_of_a_margin(monkeypatch):
    latent = read("trigonometric_svm")
    own = LatentGaussian.log_sites

    def coupled(self, eta, theta=None, as_written=False):
        found = own(self, eta, theta, as_written)
        return found + 1e-3 * eta.sum(axis=1, keepdims=True)

    monkeypatch.setattr(LatentGaussian, "log_sites", coupled)
    with pytest.raises(av.errors.UnreadableModel, match="not separable over rows"):
        verify(latent)
