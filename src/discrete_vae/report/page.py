"""The page around the sections."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from discrete_vae._version import __version__
from discrete_vae.report.html import Markup, element, markup
from discrete_vae.report.section import Section

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
