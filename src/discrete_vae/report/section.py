"""What a section of the page is made of."""

from __future__ import annotations

from dataclasses import dataclass

from discrete_vae.report.html import Child, Markup, element, markup


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
