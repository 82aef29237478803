"""Numbers come back between their bounds; what is infinite, which says that a step diverged, stays."""

import math

import torch

from discrete_vae import numerics
from discrete_vae.kernels.registry import load


def test_it_is_the_plain_projection():
    project = load("norm.project")
    assert project.is_usable()
    start = torch.cat([torch.linspace(-3, 5, 70), torch.tensor([math.inf, -math.inf])])
    low, high = torch.tensor(0.01), torch.tensor(3.5)
    for value in (start, start[3], start[-1]):
        mine, right = value.clone(), value.clone()
        project.compiled(mine, low, high)
        numerics.project_.__wrapped__(right, low, high)
        assert torch.equal(mine, right)
    nan = torch.tensor(math.nan)
    project.compiled(nan, low, high)
    assert nan.isnan()
