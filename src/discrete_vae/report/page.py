"""The report's page: numbers in words, a section, the whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from discrete_vae._version import __version__
from discrete_vae.report.charts import Child, Markup, element, markup

# Numbers as a reader wants them, with all their digits beside them for machines.


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


# What a section of the page is made of.


@dataclass(frozen=True)
class Verdict:
    """What a section says of the run's health.

    Attributes:
        healthy: Whether nothing needs a look.
        text: One sentence, with the number that it rests on.
    """

    healthy: bool
    text: str


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        key: Its name in links.
        title: Its heading.
        body: Its HTML.
        verdict: What it says of the run's health, if it judges.
    """

    key: str
    title: str
    body: Markup
    verdict: Verdict | None = None


def verdict_line(verdict: Verdict) -> Markup:
    """A verdict with its sign, which does not rest on color."""
    sign, word, kind = ("\N{CHECK MARK}", "Healthy", "good") if verdict.healthy else ("!", "Look", "look")
    mark = element("span", sign, class_="sign", aria_hidden="true")
    return element("p", mark, element("strong", f"{word}: "), verdict.text, class_=f"verdict {kind}")


def figure(picture: Child, reading: Child, *, title: str | None = None) -> Markup:
    """A picture with the sentence that says how to read it."""
    heading = None if title is None else element("h3", title)
    return element("figure", heading, picture, element("figcaption", reading))


def table(
    head: tuple[Child, ...], rows: list[tuple[Child, ...]], *, caption: str, class_: str = ""
) -> Markup:
    """A table whose first column names the row.

    Args:
        head: Names of the columns.
        rows: Their cells.
        caption: What it holds, for screen readers.
        class_: Of the table.
    """
    names = [element("th", name, scope="col") for name in head]
    body = [
        element("tr", element("th", row[0], scope="row"), [element("td", cell) for cell in row[1:]])
        for row in rows
    ]
    made = element(
        "table",
        element("caption", caption, class_="unseen"),
        element("thead", element("tr", names)),
        element("tbody", body),
        class_=class_ or None,
    )
    return element("div", made, class_="table", role="region", aria_label=caption, tabindex="0")


def folded(title: str, *children: Child) -> Markup:
    """What is shown on a click, and in print."""
    return element("details", element("summary", title), children)


def bar(share: float, kind: str = "s1", *, most: float = 1.0) -> Markup:
    """A bar of HTML; the number stands in another cell."""
    width = 0.0 if most <= 0 else max(0.0, min(100.0, 100 * share / most))
    return element(
        "span", element("span", class_=kind, style=f"width:{width:.2f}%"), class_="bar", aria_hidden="true"
    )


def signed_bar(value: float, *, most: float) -> Markup:
    """A bar to the right for a positive value, to the left for a negative one."""
    width = 0.0 if most <= 0 else min(50.0, 50 * abs(value) / most)
    start, kind = (50.0, "s1") if value >= 0 else (50.0 - width, "s2")
    inner = element("span", class_=kind, style=f"left:{start:.2f}%;width:{width:.2f}%")
    return element("span", inner, class_="bar signed", aria_hidden="true")


def paragraph(*children: Child) -> Markup:
    """A paragraph."""
    return element("p", markup(*children))


# The page around the sections.


_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(title: str, about: str, sections: Sequence[Section], *, note: str | None = None) -> str:
    """A whole HTML document that needs nothing but itself.

    Args:
        title: What was trained.
        about: A line below it.
        sections: The sections, the one with the result first.
        note: What must be known before all else, if anything.

    Returns:
        The document.

    Examples:
        >>> text = page("digits", "runs/digits", [Section("result", "Result", Markup("<p>1</p>"))])
        >>> text.startswith("<!doctype html>"), "<script" in text
        (True, False)
    """
    style = Markup(files("discrete_vae.report").joinpath("style.css").read_text(encoding="utf-8"))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title}: report"),
        element("link", rel="icon", href="data:,"),
        element("style", style),
    )
    links = [element("li", element("a", each.title, href=f"#{each.key}")) for each in sections]
    first, *rest = sections
    body = element(
        "body",
        element("a", "Skip to the result", href="#main", class_="skip"),
        element(
            "header",
            element("h1", title),
            element("p", about, class_="about"),
            None if note is None else element("p", note, class_="note"),
        ),
        element("nav", element("ul", links), aria_label="Sections"),
        element("main", _section(first, _checks(sections)), [_section(each) for each in rest], id="main"),
        element(
            "footer",
            element("p", f"Made by dvae report, discrete-vae {__version__}. All values in nats per example."),
        ),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _section(section: Section, more: Markup | None = None) -> Markup:
    return element("section", element("h2", section.title), section.body, more, id=section.key)


def _checks(sections: Sequence[Section]) -> Markup | None:
    """What each section says of the run's health, those that need a look first."""
    judged = [section for section in sections if section.verdict is not None]
    if not judged:
        return None
    judged.sort(key=lambda section: section.verdict is not None and section.verdict.healthy)
    looks = sum(not section.verdict.healthy for section in judged if section.verdict is not None)
    entries = []
    for section in judged:
        verdict = section.verdict
        assert verdict is not None
        sign, word = ("\N{CHECK MARK}", "healthy") if verdict.healthy else ("!", "look")
        entries.append(
            element(
                "li",
                element(
                    "span", sign, class_=f"sign {'good' if verdict.healthy else 'look'}", aria_hidden="true"
                ),
                element("span", f"{word}: ", class_="unseen"),
                element("a", section.title, href=f"#{section.key}"),
                f": {verdict.text}",
            )
        )
    count = (
        f"{looks} of {len(judged)} checks need a look" if looks else f"All {len(judged)} checks are healthy"
    )
    return markup(element("h3", count), element("ul", entries, class_="checks"))
