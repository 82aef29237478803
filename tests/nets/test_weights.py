"""Linear maps of rows: torch's own values, and the same digits wherever a row stands."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from discrete_vae.nets import weights as module
from discrete_vae.nets.mlp import MLP, ConcatLinear
from discrete_vae.nets.modes import set_precision
from discrete_vae.nets.weights import row_products

# on processors without AVX-512 torch's own products depend on places
SIZES = [(6, 5), (5, 5), (7, 11), (5, 1), (784, 50)]


def some(num_inputs, num_outputs, num_rows=37):
    torch.manual_seed(0)
    return torch.randn(num_rows, num_inputs), torch.randn(num_outputs, num_inputs), torch.randn(num_outputs)


@pytest.mark.parametrize("sizes", SIZES)
def test_a_row_has_its_digits_wherever_it_stands(sizes):
    rows, weight, bias = some(*sizes)
    order = torch.randperm(len(rows))
    for bias_or_none in (bias, None):
        whole = row_products(rows, weight, bias_or_none)
        assert torch.equal(row_products(rows[order], weight, bias_or_none), whole[order])
        assert torch.equal(row_products(rows[3:5], weight, bias_or_none), whole[3:5])


@pytest.mark.parametrize("rectify", [False, True])
@pytest.mark.parametrize("shape", [(6,), (0, 6), (4, 6), (3, 4, 6)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_values_are_torchs(shape, rectify, dtype):
    _, weight, bias = (value.to(dtype) for value in some(6, 5))
    rows = torch.randn(shape).to(dtype)
    expected = F.linear(rows, weight, bias)
    expected = expected.relu() if rectify else expected
    tolerance = 0.05 if dtype == torch.bfloat16 else 1e-5
    found = row_products(rows, weight, bias, rectify=rectify)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_bfloat16_on_a_processor_without_instructions_for_it(monkeypatch):
    rows, weight, bias = (value.bfloat16() for value in some(6, 5))
    monkeypatch.setattr(module, "_multiplies", lambda dtype: dtype != torch.bfloat16)
    expected = F.linear(rows, weight, bias)
    assert torch.equal(row_products(rows, weight, bias), expected)
    assert torch.equal(row_products(rows, weight, bias, rectify=True), expected.relu())


def test_a_layer_takes_them_without_gradients_alone():
    layer = ConcatLinear((4, 3), 5)
    x, y = torch.randn(8, 4), torch.randn(8, 3)
    with torch.no_grad():
        plain = layer(x, y)
        assert torch.equal(plain, row_products(torch.cat([x, y], 1), layer.weight, layer.bias))
    found = layer(x, y)
    assert found.requires_grad
    torch.testing.assert_close(found, plain)


@pytest.mark.parametrize("first", [0, 3])
def test_columns_of_a_wider_weight_give_the_digits_of_their_copy(first):
    rows, wide, bias = some(40, 20)
    part, rows = wide[:, first : first + 32], rows[:, :32]
    assert torch.equal(row_products(rows, part, bias), row_products(rows, part.contiguous(), bias))


def test_inputs_that_a_sample_axis_sets_apart_give_the_digits_of_contiguous_weights():
    layer = ConcatLinear((32, 8), 20)
    x, y = torch.randn(37, 32), torch.randn(2, 37, 8)
    with torch.no_grad():
        of_x, of_y = (part.contiguous() for part in layer.weight.split((32, 8), 1))
        assert torch.equal(layer(x, y), row_products(x, of_x) + row_products(y, of_y) + layer.bias)


@pytest.mark.parametrize("change", ["other parameters", "another precision"])
def test_weights_that_have_left_their_copies_get_gradients_of_their_own_precision(change):
    torch.manual_seed(0)
    network, x = MLP([6], 3, (5, 4)), torch.randn(20, 6)
    layers = [*network.layers[::2], network.output]
    set_precision(network, torch.bfloat16)
    network(x).sum().backward()
    if change == "other parameters":
        for layer in layers:
            layer.weight = torch.nn.Parameter(layer.weight.detach().clone())
    else:
        network, x = network.double(), x.double()
    for layer in layers:
        layer.mixed_precision.clear_gradient()
    network(x).sum().backward()
    for layer in layers:
        assert layer.weight.grad.dtype == layer.weight.dtype
        assert layer.weight.grad.abs().max() > 0
