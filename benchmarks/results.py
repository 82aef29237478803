"""The page of results: one section per benchmark, each written anew by its own command."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

PAGE = Path(__file__).with_name("RESULTS.md")
HEAD = """# Benchmarks

Figures of one machine, each table from one interleaved run: compare rows, not machines or days. `make bench` writes
the sections about time anew, those about nats have their own commands.
"""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; columns but the first are aligned to the right.

    A column whose head begins with "(" or "±" is written behind the one before it, so that pairs take less room.
    """
    top, *lines = (_joined(head, line) for line in (head, *rows))
    lines = [top, ["---", *["---:"] * (len(top) - 1)], *lines]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return text.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")


def _joined(head: Sequence[str], line: Sequence[str]) -> list[str]:
    cells: list[str] = []
    for name, cell in zip(head, line, strict=True):
        if not name.startswith(("(", "±")):
            cells.append(cell)
        elif cell is name:
            cells[-1] += f" {cell}"
        elif cell.strip("—"):
            cells[-1] += f" ({cell})" if name.startswith("(") else f" ± {cell}"
    return cells


def describe_machine(num_threads: int) -> str:
    """Processor, threads, load and versions, in one paragraph."""
    cpu_info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", cpu_info.read_text()) if cpu_info.exists() else None
    processor = found.group(1) if found else platform.processor() or platform.machine()
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "numba", "numpy"))
    load = f", load {os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else ""
    return (
        f"{processor}, {os.cpu_count()} cores, {num_threads} used{load}; Python {platform.python_version()}, "
        f"{packages}; {datetime.now(UTC):%Y-%m-%d}."
    )


def write_section(page: Path, title: str, text: str) -> None:
    """Replace the section of that title on the page, or add it."""
    before = page.read_text() if page.exists() else HEAD
    section = f"## {title}\n\n{text.strip()}\n"
    pattern = rf"^## {re.escape(title)}\n.*?(?=^## |\Z)"
    after, found = re.subn(pattern, lambda _: section + "\n", before, flags=re.DOTALL | re.MULTILINE)
    page.write_text((after if found else f"{before.rstrip()}\n\n{section}").rstrip() + "\n")
