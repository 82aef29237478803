"""Text that fits the terminal."""

from __future__ import annotations

import shutil
import textwrap
from typing import Any

_NARROWEST = 60


def width() -> int:
    """Columns of the terminal, 80 where there is none, from 60."""
    return max(_NARROWEST, shutil.get_terminal_size((80, 24)).columns)


def hanging(text: str, first: str = "", *, indent: int | None = None) -> str:
    """A text that starts after its first words and whose further lines are indented; words stay whole.

    Args:
        text: What may be broken.
        first: What stands before it on the first line.
        indent: Columns that further lines start after; None means as many as `first` takes.

    Examples:
        >>> print(hanging("one two three four " * 4, "Numbers  "))
        Numbers  one two three four one two three four one two three four one two three
                 four
    """
    further = " " * (len(first) if indent is None else indent)
    whole: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    lines = textwrap.wrap(text, width(), initial_indent=first, subsequent_indent=further, **whole)
    return "\n".join(lines) or first.rstrip()
