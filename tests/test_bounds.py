"""Bounded parameters: values, gradients, and what is not finite."""

import math

import pytest
import torch

from discrete_vae.numerics import bounded, project_


def test_bounded_stays_inside_and_lets_the_gradient_lead_back():
    for sign, expected in ((1.0, [0.0, 1.0, 1.0]), (-1.0, [-1.0, -1.0, 0.0])):
        value = torch.tensor([1.0, 2.5, 4.0], requires_grad=True)
        inside = bounded(value, 2.0, 3.0)
        assert inside.tolist() == [2.0, 2.5, 3.0]
        (sign * inside).sum().backward()
        assert value.grad.tolist() == expected


def test_bounded_by_tensors():
    limit = torch.tensor([1.0, 2.0])
    assert bounded(torch.tensor([5.0, -5.0]), -limit, limit).tolist() == [1.0, -2.0]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_bounds_do_not_hide_what_is_not_finite(value):
    for high in (3.0, math.inf):
        parameter = torch.tensor([value, 2.5], requires_grad=True)
        assert bounded(parameter, 2.0, high).isnan().tolist() == [True, False]
        project_(parameter, 2.0, high)
        torch.testing.assert_close(parameter.detach(), torch.tensor([value, 2.5]), equal_nan=True)
    limit = torch.tensor([2.0, 3.0])
    outside = torch.tensor([-5.0, 1.0])
    project_(outside, -limit, limit)
    assert outside.tolist() == [-2.0, 1.0]
