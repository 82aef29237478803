"""Networks with folded norms compute what the networks do, and read shared features once."""

import gc
from functools import partial

import pytest
import torch

from discrete_vae.nets.mlp import MLP
from discrete_vae.nets.modes import folded_networks, precision_of_products
from discrete_vae.nets.weights import row_products
from tests.models import small_model


def trained_mlp(input_sizes=(7, 3), hidden=(9, 8), dtype=torch.float32):
    """A network whose norms have statistics of their own."""
    torch.manual_seed(0)
    network = MLP(input_sizes, 4, hidden).to(dtype)
    for layer in network.layers[1::2]:
        torch.nn.init.uniform_(layer.scale, 0.5, 2.0)
        torch.nn.init.normal_(layer.offset)
    for _ in range(20):
        network(*(torch.randn(30, size, dtype=dtype) + 1 for size in input_sizes))
    return network.eval()


@torch.no_grad()
@pytest.mark.parametrize(
    ("hidden", "dtype"), [((), torch.float32), ((9,), torch.float64), ((9, 8), torch.float32)]
)
@pytest.mark.parametrize("lead", [((5,), (5,)), ((1,), (20, 1)), ((5,), (20, 5)), ((), (6,))])
def test_values_are_those_of_the_network(hidden, lead, dtype):
    network = trained_mlp(hidden=hidden, dtype=dtype)
    inputs = [torch.randn(*axes, size, dtype=dtype) for axes, size in zip(lead, (7, 3), strict=True)]
    expected = network(*inputs)
    with folded_networks(network):
        found = [network(*inputs) for _ in range(2)]
    for each in found:
        torch.testing.assert_close(each, expected)
    assert network.folded is None
    torch.testing.assert_close(network(*inputs), expected)


@torch.no_grad()
def test_one_input_is_computed_once_while_it_lives_unchanged():
    network, x = trained_mlp((7,)), torch.randn(5, 7)
    expected = network(x + 1)
    with folded_networks(network):
        first = network(x)
        assert network(x) is first
        x.add_(1)
        torch.testing.assert_close(network(x), expected)
        del x
        gc.collect()
        assert network.folded._kept is None


@torch.no_grad()
def test_shared_features_are_multiplied_once(monkeypatch):
    network, calls = trained_mlp(), []
    x = torch.randn(1, 7)

    def counted(value, *rest, **settings):
        calls.append(value.shape)
        return row_products(value, *rest, **settings)

    with folded_networks(network):
        monkeypatch.setattr("discrete_vae.nets.modes.row_products", counted)
        for _ in range(3):
            network(x, torch.randn(20, 1, 3))
    assert calls.count(x.shape) == 1


@torch.no_grad()
def test_products_in_bfloat16():
    network = trained_mlp((7, 40), (300, 200))
    inputs = torch.randn(1, 7), torch.randn(50, 1, 40)
    expected = network(*inputs)
    with precision_of_products(network, torch.bfloat16), folded_networks(network):
        found = network(*inputs)
    assert found.dtype == torch.bfloat16
    difference = (found.float() - expected).std() / expected.std()
    assert 1e-4 < difference < 0.02


@torch.no_grad()
def test_networks_with_hooks_and_in_training_are_left_alone():
    network, seen, in_training = trained_mlp(), [], trained_mlp().train()
    network.layers[0].register_forward_hook(lambda *_: seen.append(1))
    with folded_networks(network), folded_networks(in_training):
        assert network.folded is in_training.folded is None
        network(torch.randn(5, 7), torch.randn(5, 3))
    assert seen


def test_a_model_with_a_compiled_part_is_evaluated():
    decoder = {"kind": "mlp", "hidden": (7,)}  # with a norm, which training would see
    for in_place in (False, True):
        model, zeta = small_model(decoder=decoder), torch.ones(3, 4)
        expected = model.decode(zeta)
        if in_place:
            model.decoder.compile(backend="eager")
        else:
            model.decoder = torch.compile(model.decoder, backend="eager")
        torch.testing.assert_close(model.decode(zeta), expected)
        assert model.decoder.training


def test_modules_kept_in_a_list_are_evaluated_too():
    class Stages(torch.nn.Module):
        def __init__(self, network, registered):
            super().__init__()
            self.network, drop = network, torch.nn.Dropout(0.5)
            if registered:
                self.drop = drop
            self.stages = {"noise": [drop]}

        def forward(self, *inputs):
            return self.stages["noise"][0](self.network(*inputs))

    for registered in (True, False):
        model, zeta = small_model(), torch.ones(3, 4)
        expected = model.decode(zeta)
        model.decoder = Stages(model.decoder, registered)
        torch.testing.assert_close(model.decode(zeta), expected)
        assert model.decoder.training
        assert model.decoder.stages["noise"][0].training


def dropped(module, x):
    return torch.nn.functional.dropout(x, 0.5, module.training)


@pytest.mark.parametrize(
    "made",
    [
        lambda module, _: lambda x: dropped(module, x),
        lambda module, _: partial(dropped, module),
        lambda _, part: lambda x: part(x),
        lambda _, part: lambda x, part=part: part(x),
        lambda _, part: partial(part),
    ],
)
def test_a_network_with_a_function_that_reads_its_mode_is_evaluated_without_noise(made):
    class WithDropout(torch.nn.Module):
        def __init__(self, network):
            super().__init__()
            self.network, self.part = network, torch.nn.Dropout(0.5)
            self.drop = made(self, self.part)

        def forward(self, *inputs):
            return self.drop(self.network(*inputs))

    model, zeta = small_model(), torch.ones(3, 4)
    expected = model.decode(zeta)
    model.decoder = WithDropout(model.decoder)
    torch.testing.assert_close(model.decode(zeta), expected)
    assert model.decoder.training
