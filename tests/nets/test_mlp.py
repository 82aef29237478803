"""Networks of several inputs."""

import copy

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


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("front", [(), (7,)], ids=["draw", "draws"])
def test_constant_inputs_have_no_gradient_in_front_of_a_norm(front, fused):
    torch.manual_seed(0)
    network = MLP([5, 3], 4, (6,))
    if not fused:
        network.layers[0].register_forward_hook(lambda *_: None)  # layers are called one by one
    x, zeta = torch.randn(50, 5), torch.randn(*front, 50, 3)
    x[:, 1], x[:, 3], zeta[..., 2] = 1.0, 0.3, 0.7
    loss = network(x, zeta).sin().sum()
    loss.backward()
    found, wide = network.layers[0].weight.grad, copy.deepcopy(network).double()
    wide.zero_grad()
    wide(x.double(), zeta.double()).sin().sum().backward()
    constant = [1, 3, 7]
    assert found[:, constant].count_nonzero() == 0
    torch.testing.assert_close(found, wide.layers[0].weight.grad.float(), rtol=1e-4, atol=1e-4)
    others = [0, 2, 4, 5, 6]
    assert bool((found[:, others] != 0).any(0).all())


def test_constant_inputs_have_their_gradient_where_no_mean_is_taken_away():
    x = torch.ones(50, 1)
    for network in (MLP([1], 4, (6,)).eval(), MLP([1], 4), MLP([1], 4, bias=False)):
        first = network.layers[0] if len(network.layers) else network.output
        network(x).sum().backward()
        assert first.weight.grad.count_nonzero() > 0
    frozen = MLP([1], 4, (6,))
    frozen.layers[1].eval()
    frozen(x).sum().backward()
    assert frozen.layers[0].weight.grad.count_nonzero() > 0


@pytest.mark.parametrize(
    ("argument", "sizes"),
    [("input_sizes[0]", ([0], 1, (3,))), ("hidden[0]", ([2], 1, (0,))), ("num_outputs", ([2], 0, (3,)))],
)
def test_wrong_sizes(argument, sizes):
    with pytest.raises(InvalidInputError) as caught:
        MLP(*sizes)
    assert caught.value.argument == argument
