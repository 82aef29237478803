import pytest
import torch

from discrete_vae import posterior
from discrete_vae.hierarchy import base as layers
from discrete_vae.hierarchy import gaussian
from discrete_vae.smoothing import base, overlapping, spike


def constant(like, shape=None, generator=None):
    return torch.full(like.shape if shape is None else shape, 0.4, dtype=like.dtype, device=like.device)


@pytest.fixture
def fixed_noise(monkeypatch):
    """Constants in place of noise: compiled graphs and devices draw other numbers from one seed."""
    for module in (posterior, base, overlapping, spike):
        monkeypatch.setattr(module, "open_uniform", constant)
    for module in (spike, layers, gaussian):
        monkeypatch.setattr(module, "standard_normal", constant)
