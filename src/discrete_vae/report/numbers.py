"""Numbers as a reader wants them, with all their digits beside them for machines."""

from __future__ import annotations

import math

from discrete_vae.report.html import Markup, element, markup

_MINUS, _PLUS_MINUS = "\N{MINUS SIGN}", "\N{PLUS-MINUS SIGN}"
_MOST_DIGITS = 4


def shown(value: float, digits: int = 2) -> str:
    r"""A number with so many digits behind the point, thousands apart, and a true minus sign.

    Examples:
        >>> ascii(shown(-1234.567)), shown(math.nan), shown(3, 0)
        ("'\\u22121,234.57'", 'unknown', '3')
    """
    if math.isnan(value):
        return "unknown"
    text = f"{value:,.{digits}f}"
    return (text[1:] if float(text.replace(",", "")) == 0 and text[0] == "-" else text).replace("-", _MINUS)


def percent(share: float) -> str:
    """A share of a whole, which no line end divides.

    Examples:
        >>> [percent(share).split() for share in (0.0312, 0.4, 1.0)]
        [['3.1', '%'], ['40', '%'], ['100', '%']]
    """
    digits = 1 if 0 < abs(share) < 0.0995 else 0
    return f"{shown(100 * share, digits)}\N{NO-BREAK SPACE}%"


def error_digits(std_error: float | None) -> int:
    """Digits behind the point that an error leaves worth showing: two of its own, at most four.

    Examples:
        >>> error_digits(0.7), error_digits(0.0028), error_digits(None)
        (2, 4, 2)
    """
    if std_error is None or not std_error > 0:
        return 2
    return min(_MOST_DIGITS, max(0, 1 - math.floor(math.log10(std_error))))


def number(value: float, digits: int = 2) -> Markup:
    """A number whose element holds all of its digits.

    Examples:
        >>> number(85.363)
        '<data value="85.363">85.36</data>'
    """
    return element("data", shown(value, digits), value=repr(value))


def estimate(value: float, std_error: float | None, unit: str = "") -> Markup:
    """A value with its standard error; an error of 0 is exact, None is unknown.

    Examples:
        >>> print(estimate(85.363, 0.7))
        <span class="estimate"><data value="85.363">85.36</data> ± <data value="0.7">0.70</data></span>
    """
    digits = error_digits(std_error)
    behind = f" {unit}" if unit else ""
    if std_error is None or math.isnan(std_error):
        return markup(number(value, digits), behind)
    if std_error == 0:
        return markup(number(value, _MOST_DIGITS), f"{behind} (exact)")
    both = markup(number(value, digits), f" {_PLUS_MINUS} ", number(std_error, digits), behind)
    return element("span", both, class_="estimate")


def plus_minus(value: float, std_error: float | None, unit: str = "") -> str:
    """`estimate` as plain text, for descriptions of pictures.

    Examples:
        >>> plus_minus(0.5, 0.012, "nats")
        '0.500 ± 0.012 nats'
    """
    digits = error_digits(std_error)
    behind = f" {unit}" if unit else ""
    if std_error is None or math.isnan(std_error):
        return f"{shown(value, digits)}{behind}"
    return f"{shown(value, digits)} {_PLUS_MINUS} {shown(std_error, digits)}{behind}"
