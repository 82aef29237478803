"""Numbers come back between their bounds; what is infinite, which says that a step diverged, stays."""

import math

import torch

from discrete_vae import bounds
from discrete_vae.compiled import projection


def test_it_is_the_plain_projection():
    assert projection.works()
    start = torch.cat([torch.linspace(-3, 5, 70), torch.tensor([math.inf, -math.inf])])
    low, high = torch.tensor(0.01), torch.tensor(3.5)
    for value in (start, start[3], start[-1]):
        mine, right = value.clone(), value.clone()
        projection.project_(mine, low, high)
        bounds.project_(right, low, high)
        assert torch.equal(mine, right)
    nan = torch.tensor(math.nan)
    projection.project_(nan, low, high)
    assert nan.isnan()
