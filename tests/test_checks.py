"""Checks name the argument, the rule, what came, and the repair."""

import math

import pytest
import torch

from discrete_vae import checks
from discrete_vae.errors import DiscreteVAEError, InvalidInputError


def test_the_error_is_a_value_error_with_four_parts():
    error = InvalidInputError("x", "must be small", "12", "Halve it.")
    assert isinstance(error, ValueError)
    assert isinstance(error, DiscreteVAEError)
    assert str(error) == "x must be small; received 12. Halve it."
    assert (error.argument, error.rule, error.received, error.repair) == (
        "x",
        "must be small",
        "12",
        "Halve it.",
    )


@pytest.mark.parametrize("value", [0, -1, 1.0, True, None, "3"])
def test_positive_int_refuses(value):
    with pytest.raises(InvalidInputError, match="n must be a positive integer; received"):
        checks.check_positive_int("n", value)


def test_positive_int_accepts():
    assert checks.check_positive_int("n", 5) == 5


@pytest.mark.parametrize("value", [math.nan, math.inf, "1", None, True, 0.0, 2.5])
def test_number_refuses(value):
    with pytest.raises(
        InvalidInputError, match="a must be a finite number above 0 and of at most 2; received"
    ):
        checks.check_number("a", value, above=0, at_most=2, repair="Choose 1.")


def test_number_accepts():
    assert checks.check_number("a", 1, above=0, at_least=1, repair="") == 1.0


@pytest.mark.parametrize(
    ("shape", "fits"),
    [
        ((2, 3), True),
        (("batch", 3), True),
        ((..., 3), True),
        ((...,), True),
        ((..., 4), False),
        ((3,), False),
        ((2, "a", "b"), False),
        ((..., 5, 2, 3), False),
    ],
)
def test_tensor_shapes(shape, fits):
    value = torch.zeros(2, 3)
    if fits:
        assert checks.check_tensor("x", value, shape) is value
    else:
        with pytest.raises(InvalidInputError, match=r"x must have shape \(.*\); received shape \(2, 3\)"):
            checks.check_tensor("x", value, shape)


def test_tensor_types():
    with pytest.raises(InvalidInputError, match="x must be a torch.Tensor; received a list"):
        checks.check_tensor("x", [1.0], (...,))
    with pytest.raises(
        InvalidInputError, match=r"floating-point dtype; received torch.int64\. Convert it with x\.float"
    ):
        checks.check_tensor("x", torch.zeros(1, dtype=torch.int64), (...,))


def test_unit_interval():
    checks.check_unit_interval("x", torch.tensor([0.0, 0.5, 1.0]))
    with pytest.raises(InvalidInputError, match="received a value of 255. Divide 0..255 intensities by 255"):
        checks.check_unit_interval("x", torch.tensor([0.0, 255.0]))
    for wrong in (-0.1, math.nan):
        with pytest.raises(InvalidInputError, match=r"must hold values in \[0, 1\]"):
            checks.check_unit_interval("x", torch.tensor([0.5, wrong]))


def test_binary():
    checks.check_binary("x", torch.tensor([0.0, 1.0]))
    for wrong in (0.5, 2.0, math.nan):
        with pytest.raises(InvalidInputError, match="x must hold only the values 0 and 1"):
            checks.check_binary("x", torch.tensor([0.0, wrong]))


@pytest.mark.parametrize("change", [lambda t: t.to_sparse(), lambda t: t.to("meta")])
def test_a_tensor_without_values_or_not_dense(change):
    with pytest.raises(InvalidInputError, match="x must be a dense tensor with values; received "):
        checks.check_tensor("x", change(torch.ones(2, 3)), ("batch", 3))
