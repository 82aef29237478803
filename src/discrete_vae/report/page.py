"""The report's page: sections with their verdicts, numbers as readers want them, and the template around them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from discrete_vae import __version__
from discrete_vae.errors import printable

if TYPE_CHECKING:
    from discrete_vae.report.source import ReportSource

_MINUS, _PLUS_MINUS = "\N{MINUS SIGN}", "\N{PLUS-MINUS SIGN}"
_KEPT = "\n\t\N{NO-BREAK SPACE}"  # of the characters that a page could not show
_MOST_DIGITS = 4


@dataclass(frozen=True)
class Verdict:
    """A section's judgement of the run's health: one sentence, with the number that it rests on."""

    healthy: bool
    text: str


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        key: Its name in links, and of the macro of ``sections.html.j2`` that shows it.
        title: Its heading.
        values: What the macro shows.
        verdict: Its judgement, if it judges.
    """

    key: str
    title: str
    values: dict[str, Any] = field(default_factory=dict)
    verdict: Verdict | None = None


def render_page(source: ReportSource, sections: Sequence[Section]) -> str:
    """A whole HTML document about a run, the section with the result first, that needs nothing but itself."""
    judged = [section for section in sections if section.verdict is not None]
    return _TEMPLATES.get_template("page.html.j2").render(
        source=source,
        sections=sections,
        judged=sorted(judged, key=lambda section: section.verdict.healthy),  # pyright: ignore[reportOptionalMemberAccess]
        style=files("discrete_vae.report").joinpath("style.css").read_text(encoding="utf-8"),
        version=__version__,
    )


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
        >>> error_digits(0.7), error_digits(0.0028), error_digits(0.0), error_digits(None)
        (2, 4, 4, 2)
    """
    if std_error is None or math.isnan(std_error):
        return 2
    digits = 1 - math.floor(math.log10(std_error)) if std_error > 0 else _MOST_DIGITS
    return min(_MOST_DIGITS, max(0, digits))


def plus_minus(value: float, std_error: float | None) -> str:
    """A value with its standard error, if that is known.

    Examples:
        >>> plus_minus(0.5, 0.012)
        '0.500 ± 0.012'
    """
    digits = error_digits(std_error)
    if std_error is None or math.isnan(std_error):
        return shown(value, digits)
    return f"{shown(value, digits)} {_PLUS_MINUS} {shown(std_error, digits)}"


def _finalize(value: object) -> object:
    """Escape control characters of all that is shown; HTML is escaped by the template itself."""
    return value if hasattr(value, "__html__") else printable(str(value), keep=_KEPT)


_TEMPLATES = Environment(
    loader=PackageLoader("discrete_vae.report", ""),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
    finalize=_finalize,
)
_TEMPLATES.filters |= {
    "shown": shown,
    "percent": percent,
    "error_digits": error_digits,
    "plus_minus": plus_minus,
}
