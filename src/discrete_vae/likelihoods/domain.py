"""Domains of features, and the check that data lie in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.checks import values_are_readable
from discrete_vae.errors import InvalidInputError


@dataclass(frozen=True)
class Domain:
    """The values that a feature may have.

    Attributes:
        rule: End of a sentence that starts with the argument's name ("must hold ...").
        contains: Which entries of a tensor lie in the domain, a bool tensor of its shape; False for NaN.
        repair: What to do about a given value outside, as a sentence.
    """

    rule: str
    contains: Callable[[Tensor], Tensor]
    repair: Callable[[float], str]


UNIT_INTERVAL = Domain(
    "must hold values in [0, 1]",
    lambda x: (x >= 0) & (x <= 1),
    lambda value: (
        "Divide 0..255 intensities by 255."
        if value > 1
        else "Remove negative entries, or map -1..1 to 0..1 by (x + 1) / 2."
    ),
)
BINARY = Domain(
    "must hold only the values 0 and 1",
    lambda x: (x == 0) | (x == 1),
    lambda _: "Binarise it, for example with torch.bernoulli.",
)
FINITE = Domain(
    "must hold finite values",
    torch.isfinite,
    lambda _: "Remove infinite entries; NaN marks those that were not observed.",
)
COUNTS = Domain(
    "must hold whole numbers of at least 0",
    lambda x: (x >= 0) & (x < torch.inf) & (x == x.floor()),
    lambda _: "Give raw counts, neither scaled nor logarithms.",
)


def categories(number: int) -> Domain:
    """The codes 0, 1, ..., number - 1.

    Examples:
        >>> categories(3).contains(torch.tensor([0.0, 2.0, 3.0, 0.5])).tolist()
        [True, True, False, False]
    """
    return Domain(
        f"must hold whole numbers from 0 to {number - 1}",
        lambda x: (x >= 0) & (x < number) & (x == x.floor()),
        lambda _: "Number the categories from 0.",
    )


def check_observed(x: Tensor, observed: Tensor | None) -> None:
    """Check that a mask of observed entries is a bool tensor of x's shape; None is none.

    Raises:
        InvalidInputError: If it is anything else.
    """
    if observed is None:
        return
    if not isinstance(observed, Tensor) or observed.dtype != torch.bool or observed.shape != x.shape:
        received = (
            f"{observed.dtype} of shape {tuple(observed.shape)}"
            if isinstance(observed, Tensor)
            else f"a {type(observed).__name__}"
        )
        rule = f"must be a bool tensor of x's shape {tuple(x.shape)}"
        raise InvalidInputError("observed", rule, received, "True marks the entries that were observed.")


def check_values(x: Tensor, observed: Tensor | None, domain: Domain) -> None:
    """Check that every observed entry of x lies in the domain, where its values can be read.

    Args:
        x: Any shape.
        observed: Bool, of x's shape. None: every entry that is not NaN is observed.
        domain: Where the entries must lie.

    Raises:
        InvalidInputError: If an observed entry lies outside; names the first one's value.
    """
    if not values_are_readable(x):
        return
    inside = domain.contains(x)
    if bool(inside.all()):
        return
    outside = ~inside & (~x.isnan() if observed is None else observed)
    if not bool(outside.any()):
        return
    value = x[outside][0].item()
    if value != value:
        repair = "Mark it as not observed, or fill it."
        raise InvalidInputError("x", "must hold no NaN where observed is True", "NaN", repair)
    raise InvalidInputError("x", domain.rule, f"a value of {value:g}", domain.repair(value))
