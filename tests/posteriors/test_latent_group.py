"""What a group of latents refuses."""

import pytest
import torch

from discrete_vae import LatentGroup
from discrete_vae.errors import InvalidInputError


def test_shapes_must_agree():
    with pytest.raises(InvalidInputError, match="zeta must have the shape of logits"):
        LatentGroup(logits=torch.zeros(2, 3), zeta=torch.zeros(1, 3), bits=torch.zeros(2, 3))
    with pytest.raises(InvalidInputError, match=r"bits must have shape \(..., 3\); received shape \(2, 2\)"):
        LatentGroup(logits=torch.zeros(2, 3), zeta=torch.zeros(2, 3), bits=torch.zeros(2, 2))


@pytest.mark.parametrize("units", [torch.tensor([0, 1]), torch.tensor([0.0, 1.0, 2.0]), [0, 1, 2]])
def test_units_must_be_indices(units):
    zeros = torch.zeros(2, 3)
    with pytest.raises(InvalidInputError, match="units must be an int64 tensor of shape"):
        LatentGroup(logits=zeros, zeta=zeros, bits=zeros, units=units)


def test_it_is_frozen():
    zeros = torch.zeros(2, 3)
    group = LatentGroup(logits=zeros, zeta=zeros, bits=zeros)
    with pytest.raises(AttributeError):
        group.logits = zeros
