"""Axes: their range and where their ticks are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        low: Its least value.
        high: Its greatest, above `low`.
        label: What it shows, with the unit.
        whole: Whether only whole numbers have a meaning.
    """

    low: float
    high: float
    label: str
    whole: bool = False

    @classmethod
    def around(cls, values: Iterable[float], label: str, *, span: float = 0.0, zero: bool = False) -> Axis:
        """An axis that holds values with a margin.

        Args:
            values: Numbers; those that are not finite count nowhere.
            label: See above.
            span: The least range, so that what does not change looks so.
            zero: Whether it begins at 0, for values that are not negative.
        """
        found = np.array([value for value in values if math.isfinite(value)] or [0.0, 1.0])
        low, high = float(found.min()), float(found.max())
        if zero:
            return cls(0.0, 1.06 * high or 1.0, label)
        least = (0.05 * abs(high) or 0.5) if high == low else 0.0
        margin = max(0.06 * (high - low), (span - (high - low)) / 2, least)
        return cls(low - margin, high + margin, label)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Round values inside the range with their labels, at most so many.

        Examples:
            >>> Axis(0.0, 52.0, "epoch").ticks(6)
            [(0.0, '0'), (10.0, '10'), (20.0, '20'), (30.0, '30'), (40.0, '40'), (50.0, '50')]
            >>> Axis(1.0, 3.0, "unit", whole=True).ticks(6)
            [(1.0, '1'), (2.0, '2'), (3.0, '3')]
        """
        rough = (self.high - self.low) / most
        rough = max(rough, 1.0) if self.whole else rough
        unit = 10.0 ** math.floor(math.log10(rough))
        steps = [each * unit for each in _STEPS if not self.whole or (each * unit).is_integer()]
        step = next(each for each in steps if each >= rough * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        digits += not math.isclose(step * 10**digits, round(step * 10**digits), rel_tol=1e-6)
        values = [step * number for number in range(first, last + 1)]
        return [(value, f"{value + 0.0:,.{digits}f}".replace("-", "\N{MINUS SIGN}")) for value in values]
