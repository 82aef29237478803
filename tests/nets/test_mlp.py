"""Networks of several inputs; the L1 batch norm: the paper's formula, its bounds, its running statistics."""

import copy

import pytest
import torch
from torch.nn.utils import parametrizations

from discrete_vae.kernels.registry import Kernel
from discrete_vae.nets.mlp import MLP, ConcatLinear, L1BatchNorm, normalized
from tests.refusals import refused_argument


def test_broadcast_inputs_give_the_concatenation():
    layer = ConcatLinear([3, 2], 4).double()
    x = torch.randn(5, 3, dtype=torch.float64)
    zeta = torch.randn(7, 5, 2, dtype=torch.float64)
    joint = torch.cat([x.expand(7, 5, 3), zeta], -1)
    torch.testing.assert_close(layer(x, zeta), torch.nn.functional.linear(joint, layer.weight, layer.bias))


def test_a_parametrized_weight_is_read():
    layer, x = ConcatLinear([3], 4), torch.randn(5, 3)
    parametrizations.weight_norm(layer, "weight")
    torch.testing.assert_close(layer(x), torch.nn.functional.linear(x, layer.weight, layer.bias))


def test_hidden_layers_are_rectified():
    network = MLP([2], 1, (5,)).eval()
    with torch.no_grad():
        network.layers[1].offset.fill_(-100.0)  # nothing passes the rectifier
    out = network(torch.randn(4, 2))
    torch.testing.assert_close(out, network.output.bias.expand(4, 1))


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


# The L1 batch norm.


def test_training_formula():
    norm = L1BatchNorm(3).double()
    x = torch.randn(50, 3, dtype=torch.float64)
    with torch.no_grad():
        norm.scale.copy_(torch.tensor([1.0, 2.0, 3.0]))
        norm.offset.copy_(torch.tensor([0.5, -1.0, 0.0]))
    y = x - x.mean(0)
    torch.testing.assert_close(norm(x), y / (y.abs().mean(0) + 1e-3) * norm.scale + norm.offset)


def test_running_statistics_are_exponential_averages():
    norm = L1BatchNorm(1, momentum=0.25)
    norm(torch.tensor([[0.0], [2.0]]))
    assert norm.running_mean.item() == pytest.approx(0.25 * 1.0)
    assert norm.running_deviation.item() == pytest.approx(0.75 * 1.0 + 0.25 * 1.0)
    norm(torch.tensor([[0.0], [4.0]]))
    assert norm.running_mean.item() == pytest.approx(0.75 * 0.25 + 0.25 * 2.0)
    assert norm.running_deviation.item() == pytest.approx(0.75 + 0.25 * 2.0)


def test_evaluation_does_not_depend_on_the_rest_of_the_batch():
    norm = L1BatchNorm(4).eval()
    x = torch.randn(10, 4)
    before = norm.running_mean.clone()
    torch.testing.assert_close(norm(x)[:3], norm(x[:3]))
    torch.testing.assert_close(norm(x)[:1], norm(x[:1]))  # of which training could take no deviation
    assert torch.equal(norm.running_mean, before)


def test_a_constant_column_has_modest_gradients():
    x = torch.full((20, 1), 3.0, requires_grad=True)
    L1BatchNorm(1)(x).square().sum().backward()
    assert float(x.grad.abs().max()) < 1e4


@pytest.mark.parametrize("compiled", [True, False])
def test_projection_brings_the_scale_first(compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(Kernel, "is_usable", lambda self: False)
    norm, free = L1BatchNorm(6, bounded=True), L1BatchNorm(1)
    with torch.no_grad():
        norm.scale.copy_(torch.tensor([1.0, 2.5, 9.0, 2.0, torch.inf, 2.0]))
        norm.offset.copy_(torch.tensor([-5.0, 1.0, 3.5, 2.5, 0.0, torch.nan]))
        free.scale.fill_(50.0)
    norm.project_()
    free.project_()
    assert norm.scale.tolist() == [2.0, 2.5, 3.0, 2.0, torch.inf, 2.0]
    assert norm.offset[:4].tolist() == [-2.0, 1.0, 3.0, 2.0]
    assert norm.offset[5].isnan()
    assert free.scale.item() == 50.0


REFUSED = [
    ("num_features", lambda: L1BatchNorm(0)),
    ("eps", lambda: L1BatchNorm(1, eps=0.0)),
    ("momentum", lambda: L1BatchNorm(1, momentum=1.5)),
    ("x", lambda: L1BatchNorm(3)(torch.zeros(1, 3))),
    ("x", lambda: MLP([3], 2, (4,))(torch.zeros(1, 3))),
    ("x", lambda: normalized(MLP([3], 2), L1BatchNorm(2), torch.zeros(0, 3))),
    ("input_sizes[0]", lambda: MLP([0], 1, (3,))),
    ("hidden[0]", lambda: MLP([2], 1, (0,))),
    ("num_outputs", lambda: MLP([2], 0, (3,))),
]


@pytest.mark.parametrize(("argument", "call"), REFUSED)
def test_refusals(argument, call):
    assert refused_argument(call) == argument
