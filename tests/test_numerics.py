"""Elementary functions against float64 and closed forms."""

import math

import pytest
import torch

from discrete_vae import numerics

GRID = torch.linspace(-40, 40, 4001)


@pytest.mark.parametrize(
    ("function", "reference", "tolerance"),
    [
        (numerics.softplus, lambda x: torch.logaddexp(x, torch.zeros_like(x)), 2e-7),
        (numerics.bernoulli_entropy, None, 4e-7),
    ],
)
def test_relative_error_in_float32(function, reference, tolerance):
    if reference is None:

        def reference(x):
            p, q = torch.sigmoid(-x.abs()), torch.sigmoid(x.abs())
            return -(p * torch.log(p)) - q * torch.log1p(-p)

    got, exact = function(GRID).double(), reference(GRID.double())
    assert float(((got - exact).abs() / exact).max()) < tolerance


def test_mean_keeps_its_gradient_where_it_saturates():
    x = GRID.clone().requires_grad_()
    (got,) = torch.autograd.grad(numerics.mean_and_entropy(x)[0].sum(), x)
    exact = torch.sigmoid(GRID.double()) * torch.sigmoid(-GRID.double())
    torch.testing.assert_close(got.double(), exact, rtol=1e-6, atol=0)


def test_entropy_of_all_units_is_the_sum_of_those_of_each():
    x = GRID.clone().requires_grad_()
    mean, entropy = numerics.mean_and_entropy(x[:, None])
    assert torch.equal(mean[:, 0], torch.sigmoid(GRID))
    exact = numerics.bernoulli_entropy(GRID.double())
    assert float(((entropy.detach().double() - exact).abs() / exact).max()) < 4e-7
    (got,) = torch.autograd.grad(entropy.sum(), x)
    wide = GRID.double()
    exact = -wide * torch.sigmoid(wide) * torch.sigmoid(-wide)
    torch.testing.assert_close(got.double(), exact, rtol=1e-6, atol=0)


def test_gradients_of_both_together():
    x = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(numerics.mean_and_entropy, x)


def test_entropy_gradient():
    x = GRID.clone().requires_grad_()
    (got,) = torch.autograd.grad(numerics.bernoulli_entropy(x).sum(), x)
    wide = GRID.double()
    torch.testing.assert_close(
        got.double(), -wide * torch.sigmoid(wide) * torch.sigmoid(-wide), rtol=1e-5, atol=1e-7
    )


def test_bernoulli_log_prob():
    z = torch.tensor([0.0, 1.0, 0.25])
    got = numerics.bernoulli_log_prob(z, torch.tensor([[2.0], [-90.0]]))
    reference = torch.distributions.Bernoulli(
        logits=torch.tensor([[2.0], [-90.0]]), validate_args=False
    ).log_prob(z)
    torch.testing.assert_close(got, reference)
    assert got[1, 1].item() == -90.0


def test_replace_gradient():
    x = torch.tensor([2.0], requires_grad=True)
    y = numerics.replace_gradient(x**3, 5 * x)
    assert y.item() == 8.0
    assert torch.autograd.grad(y, x)[0].item() == 5.0


def test_bounded_stays_inside_and_lets_the_gradient_lead_back():
    for sign, expected in ((1.0, [0.0, 1.0, 1.0]), (-1.0, [-1.0, -1.0, 0.0])):
        value = torch.tensor([1.0, 2.5, 4.0], requires_grad=True)
        inside = numerics.bounded(value, 2.0, 3.0)
        assert inside.tolist() == [2.0, 2.5, 3.0]
        (sign * inside).sum().backward()
        assert value.grad.tolist() == expected


def test_bounded_by_tensors():
    limit = torch.tensor([1.0, 2.0])
    assert numerics.bounded(torch.tensor([5.0, -5.0]), -limit, limit).tolist() == [1.0, -2.0]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_bounds_do_not_hide_what_is_not_finite(value):
    for high in (3.0, math.inf):
        parameter = torch.tensor([value, 2.5], requires_grad=True)
        assert numerics.bounded(parameter, 2.0, high).isnan().tolist() == [True, False]
        numerics.project_(parameter, 2.0, high)
        torch.testing.assert_close(parameter.detach(), torch.tensor([value, 2.5]), equal_nan=True)
    limit = torch.tensor([2.0, 3.0])
    outside = torch.tensor([-5.0, 1.0])
    numerics.project_(outside, -limit, limit)
    assert outside.tolist() == [-2.0, 1.0]
