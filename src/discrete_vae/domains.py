"""Domains of features and summaries of values, without torch: what a config can say of data before a model is built."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_INFINITY = math.inf


@dataclass(frozen=True)
class ValueSummary:
    """What is known of the values of some data.

    Attributes:
        low: Smallest observed value.
        high: Largest observed value; below low where nothing was observed.
        whole: Whether all observed values are whole numbers.
        num_missing: Number of values that are missing.
        num_values: Number of values, missing ones included.
    """

    low: float
    high: float
    whole: bool
    num_missing: int = 0
    num_values: int = 0

    def __add__(self, other: ValueSummary) -> ValueSummary:
        """The summary of both."""
        return ValueSummary(
            min(self.low, other.low),
            max(self.high, other.high),
            self.whole and other.whole,
            self.num_missing + other.num_missing,
            self.num_values + other.num_values,
        )

    def __str__(self) -> str:
        """For messages.

        Examples:
            >>> str(ValueSummary(-3.1, 7.2, whole=False))
            'values from -3.1 to 7.2'
        """
        return f"{'whole numbers' if self.whole else 'values'} from {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Domain:
    """The values that a feature may have: an interval, or the whole numbers in it. Infinity never belongs to it.

    Attributes:
        rule: End of a sentence that starts with the argument's name ("must hold ...").
        repair: What to do about a given value outside, as a sentence.
        low: Least value.
        high: Largest value.
        whole: Whether only whole numbers belong to it.
    """

    rule: str
    repair: Callable[[float], str]
    low: float = -_INFINITY
    high: float = _INFINITY
    whole: bool = False

    def repair_of(self, values: ValueSummary) -> str:
        """What to do about values that do not belong to it, as a sentence."""
        if math.inf in (values.high, -values.low):
            return FINITE.repair(math.inf)
        return self.repair(values.high if values.high > self.high else values.low)

    def contains(self, x: Any) -> Any:
        """Which entries of an array or tensor lie in the domain, a bool one of its shape; False for NaN."""
        inside = (x >= self.low) & (x <= self.high) & (abs(x) < _INFINITY)
        return inside & (x == x // 1) if self.whole else inside

    def holds(self, values: ValueSummary) -> bool:
        """Whether all observed values lie in the domain.

        Examples:
            >>> UNIT_INTERVAL.holds(ValueSummary(0.0, 0.5, whole=False)), BINARY.holds(ValueSummary(0.0, 0.5, False))
            (True, False)
        """
        if values.low > values.high:
            return True
        finite = values.low > -_INFINITY and values.high < _INFINITY
        return (
            finite
            and self.low <= values.low
            and values.high <= self.high
            and (values.whole or not self.whole)
        )


UNIT_INTERVAL = Domain(
    "must hold values in [0, 1]",
    lambda value: (
        "Divide 0..255 intensities by 255."
        if value > 1
        else "Remove negative entries, or map -1..1 to 0..1 by (x + 1) / 2."
    ),
    0.0,
    1.0,
)
BINARY = Domain(
    "must hold only the values 0 and 1",
    lambda _: "Binarize it, for example with torch.bernoulli.",
    0.0,
    1.0,
    whole=True,
)
FINITE = Domain(
    "must hold finite values", lambda _: "Remove infinite entries; NaN marks those that were not observed."
)
COUNTS = Domain(
    "must hold whole numbers of at least 0",
    lambda _: "Give raw counts, neither scaled nor logarithms.",
    0.0,
    whole=True,
)


def categories(number: int) -> Domain:
    """The codes 0, 1, ..., number - 1.

    Examples:
        >>> import torch
        >>> categories(3).contains(torch.tensor([0.0, 2.0, 3.0, 0.5])).tolist()
        [True, True, False, False]
    """
    rule = f"must hold whole numbers from 0 to {number - 1}"
    return Domain(rule, lambda _: "Number the categories from 0.", 0.0, number - 1, whole=True)
