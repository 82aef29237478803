"""The run's config and environment, as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from discrete_vae.report.html import Child, Markup, element, markup
from discrete_vae.report.section import Section, folded, paragraph, table
from discrete_vae.report.source import ReportSource


def config(source: ReportSource) -> Section:
    """Every setting of the experiment."""
    change = source.loaded.note
    note = None if change is None else element("p", change, class_="note")
    body = markup(note, _part("config.json", source.config.model_dump(mode="json")))
    return Section("config", "Config", body)


def environment(source: ReportSource) -> Section | None:
    """What the run ran on; None for a run that does not say it."""
    found = source.environment
    if not found:
        return None
    data = found.get("data", {})
    said = [f"Data: {data['source']}, {data.get('split', '')}."] if data.get("source") else []
    return Section(
        "environment",
        "Environment",
        markup([paragraph(text) for text in said], _part("environment.json", found)),
    )


def _part(name: str, fields: dict[str, Any]) -> Markup:
    rows: list[tuple[Child, ...]] = [(key, element("code", value)) for key, value in flattened(fields)]
    return folded(
        f"{name}: {len(rows)} values", table(("Setting", "value"), rows, caption=name, class_="settings")
    )


def flattened(fields: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested values by their dotted names.

    Examples:
        >>> list(flattened({"seed": 0, "model": {"hidden": [5, 6], "encoder": None}}))
        [('seed', '0'), ('model.hidden', '5, 6'), ('model.encoder', 'none')]
    """
    if isinstance(fields, dict):
        for key, value in fields.items():
            yield from flattened(value, f"{prefix}.{key}" if prefix else str(key))
        return
    if isinstance(fields, list | tuple):
        text = ", ".join(str(each) for each in fields) or "none"
    elif fields is None:
        text = "none"
    else:
        text = str(fields).lower() if isinstance(fields, bool) else str(fields)
    yield prefix, text
