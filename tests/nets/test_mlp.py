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
    network = MLP([10, 4], (8, 6), 3, bounded_output=True)
    expected = 14 * 8 + 2 * 8 + 8 * 6 + 2 * 6 + 6 * 3 + 2 * 3  # weights, then scale and offset of each norm
    assert sum(p.numel() for p in network.parameters()) == expected
    assert sum(p.numel() for p in MLP([10], (), 3).parameters()) == 33


def test_hidden_layers_are_rectified():
    network = MLP([2], (5,), 1).eval()
    with torch.no_grad():
        network.layers[1].offset.fill_(-100.0)  # nothing passes the rectifier
    out = network(torch.randn(4, 2))
    torch.testing.assert_close(out, network.layers[2].bias.expand(4, 1))


def test_gradients_reach_every_parameter():
    network = MLP([6, 2], (5, 4), 3, bounded_output=True)
    network(torch.randn(20, 6), torch.randn(20, 2)).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in network.parameters())


def test_wrong_inputs():
    network = MLP([3, 2], (4,), 1)
    with pytest.raises(
        InvalidInputError, match="inputs must match the network's inputs; received 1 tensors. Give 2"
    ):
        network(torch.zeros(5, 3))
    with pytest.raises(InvalidInputError, match=r"inputs\[1\] must have shape \(\.\.\., 2\)"):
        network(torch.zeros(5, 3), torch.zeros(5, 3))


@pytest.mark.parametrize("sizes", [([0], (3,), 1), ([2], (0,), 1), ([2], (3,), 0)])
def test_wrong_sizes(sizes):
    with pytest.raises(InvalidInputError, match="must be a positive integer; received 0"):
        MLP(*sizes)
