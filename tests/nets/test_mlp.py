"""Networks of several inputs."""

import pytest
import torch

from discrete_vae.errors import InvalidInputError
from discrete_vae.nets.mlp import MLP, ConcatLinear


def test_broadcast_inputs_give_the_concatenation():
    layer = ConcatLinear([3, 2], 4).double()
    x = torch.randn(5, 3, dtype=torch.float64)
    zeta = torch.randn(7, 5, 2, dtype=torch.float64)
    joint = torch.cat([x.expand(7, 5, 3), zeta], -1)
    torch.testing.assert_close(layer(x, zeta), torch.nn.functional.linear(joint, layer.weight, layer.bias))


def test_layers_and_parameter_count():
    network = MLP([10, 4], 3, (8, 6), bias=False)
    expected = 14 * 8 + 2 * 8 + 8 * 6 + 2 * 6 + 6 * 3  # weights, then scale and offset of each norm
    assert sum(p.numel() for p in network.parameters()) == expected
    assert sum(p.numel() for p in MLP([10], 3).parameters()) == 33


def test_hidden_layers_are_rectified():
    network = MLP([2], 1, (5,)).eval()
    with torch.no_grad():
        network.layers[1].offset.fill_(-100.0)  # nothing passes the rectifier
    out = network(torch.randn(4, 2))
    torch.testing.assert_close(out, network.output.bias.expand(4, 1))


def test_gradients_reach_every_parameter():
    network = MLP([6, 2], 3, (5, 4))
    network(torch.randn(20, 6), torch.randn(20, 2)).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in network.parameters())


@pytest.mark.parametrize("sizes", [([0], 1, (3,)), ([2], 1, (0,)), ([2], 0, (3,))])
def test_wrong_sizes(sizes):
    with pytest.raises(InvalidInputError, match="must be a positive integer; received 0"):
        MLP(*sizes)
