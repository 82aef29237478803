"""Lengths of time in words."""

from __future__ import annotations

from itertools import pairwise

_UNITS = ((86400, "day"), (3600, "h"), (60, "min"), (1, "s"))


def in_words(seconds: float) -> str:
    """A length of time in its two largest units, or in seconds with two digits.

    Args:
        seconds: From 0.

    Examples:
        >>> [in_words(seconds) for seconds in (0.02, 9.6, 60, 3661, 2066040)]
        ['0.02 s', '9.6 s', '1 min', '1 h 1 min', '23 days 22 h']
    """
    if seconds < 9.95:
        return f"{round(seconds, 3):.2g} s"
    for (size, name), (finer, finer_name) in pairwise(_UNITS):
        # rounded to what is shown first, so that 59.7 s becomes 1 min and never 60 s
        whole, rest = divmod(round(seconds / finer), size // finer)
        if whole:
            return _counted(whole, name) + (f" {_counted(rest, finer_name)}" if rest else "")
    return _counted(round(seconds), "s")


def _counted(number: int, name: str) -> str:
    return f"{number} {name}{'s' if name == 'day' and number != 1 else ''}"
