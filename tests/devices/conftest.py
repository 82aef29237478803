import pytest
import torch

from discrete_vae.hierarchy.gaussian import Gaussian
from discrete_vae.smoothing import base


@pytest.fixture
def fixed_noise(monkeypatch):
    """Constants in place of noise: compiled graphs and devices draw other numbers from one seed."""
    monkeypatch.setattr(base, "open_uniform", lambda like, generator=None: torch.full_like(like, 0.4))
    monkeypatch.setattr(Gaussian, "rsample", lambda law, generator=None: law.mean + 0.3 * law.log_std.exp())
