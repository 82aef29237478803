"""Text from outside, what a file or a label is called, made fit for terminals, pages, pictures and spreadsheets."""

from __future__ import annotations

import re

_FORMULA = re.compile("'*\\s*[=+@\t\r\n\uff1d\uff0b\uff0d\uff20-].", re.DOTALL)  # and their wide forms
_QUOTED = re.compile("'" + _FORMULA.pattern, re.DOTALL)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def printable(text: str, *, keep: str = "") -> str:
    r"""Escape what a terminal would obey or could not show: control characters and codes, halves of surrogates.

    Args:
        text: The text.
        keep: Characters that stay as they are.

    Examples:
        >>> print(printable("bad \x1b[2J name\n"))
        bad \x1b[2J name\n
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else ascii(each)[1:-1] for each in text)


def plot_text(text: str) -> str:
    r"""Let matplotlib show text as it is: a dollar sign begins no TeX.

    Examples:
        >>> print(plot_text("5$ or 6$"))
        5\$ or 6\$
    """
    return printable(text, keep="\n").replace("$", r"\$")


def spreadsheet_cell(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would compute.

    Text is computed that begins with = + - @ or the end of a cell or a line, blanks before it or not, unless it is a
    number. So that `text_of_cell` gives back every text, one more is put before apostrophes that stand there already.

    Examples:
        >>> [spreadsheet_cell(text) for text in ("=1+1", "-1.5", "-a", "-", "'=1+1")]
        ["'=1+1", '-1.5', "'-a", '-', "''=1+1"]
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def text_of_cell(cell: str) -> str:
    """Take away the apostrophe of `spreadsheet_cell`.

    Examples:
        >>> [text_of_cell(cell) for cell in ("'=1+1", "-1.5", "''=1+1", "'a'")]
        ['=1+1', '-1.5', "'=1+1", "'a'"]
    """
    return cell[1:] if _QUOTED.match(cell) else cell
