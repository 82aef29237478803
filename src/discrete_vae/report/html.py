"""HTML by functions: every text is escaped, control characters too, but what is `Markup` already."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TypeAlias

from discrete_vae.shown import printable

_KEPT = "\n\t\N{NO-BREAK SPACE}"
_VOID = {"br", "col", "hr", "img", "link", "meta"}


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child: TypeAlias = str | Iterable["Child"] | None


def markup(*children: Child) -> Markup:
    r"""Join children; strings that are not `Markup` are escaped.

    Examples:
        >>> markup("a < b ", Markup("<br>"), [None, "c"])
        'a &lt; b <br>c'
        >>> print(markup("bad \x1b[2J name"))
        bad \x1b[2J name
    """
    parts: list[str] = []
    for child in children:
        if isinstance(child, Markup):
            parts.append(child)
        elif isinstance(child, str):
            parts.append(html.escape(printable(child, keep=_KEPT), quote=False))
        elif child is not None:
            parts.append(markup(*child))
    return Markup("".join(parts))


def element(tag: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """An element of HTML or SVG.

    Args:
        tag: Its name.
        children: What stands inside.
        attributes: By name, with _ for - and a trailing _ where Python has the word; None and False leave one out,
            True gives it no value.

    Examples:
        >>> element("p", "1 < 2", class_="note", hidden=True, title=None)
        '<p class="note" hidden>1 &lt; 2</p>'
        >>> element("img", src="data:,", alt='a "b"')
        '<img src="data:," alt="a &quot;b&quot;">'
    """
    said = []
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            said.append(f" {key}")
        elif value is not None and value is not False:
            text = f"{value:.6g}" if isinstance(value, float) else str(value)
            said.append(f' {key}="{html.escape(printable(text, keep=_KEPT))}"')
    start = f"<{tag}{''.join(said)}>"
    return Markup(start if tag in _VOID else f"{start}{markup(*children)}</{tag}>")
