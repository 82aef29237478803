"""Hierarchies with every parameter and running statistic at random."""

import pytest
import torch

from discrete_vae.nets.mlp import L1BatchNorm


@pytest.fixture
def scramble():
    """Return a module in float64 and evaluation mode with parameters and running statistics drawn at random."""

    def apply(module, scale=0.4, seed=0):
        generator = torch.Generator().manual_seed(seed)
        module = module.double().eval()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
            for part in module.modules():
                if isinstance(part, L1BatchNorm):
                    part.running_mean.copy_(0.2 * torch.randn(part.num_features, generator=generator))
                    part.running_deviation.copy_(0.5 + torch.rand(part.num_features, generator=generator))
                    part.scale.add_(1.0)
        return module

    return apply
