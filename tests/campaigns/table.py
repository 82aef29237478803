"""The counts of campaigns as a table, on the terminal and in the documentation."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from tests.campaigns.engine import FAULTS, Campaign, Outcome, Report

_BEGIN, _END = "<!-- counts: written by make campaign -->", "<!-- end of counts -->"
_HEADS = {
    Outcome.REFUSED: "refused in one line",
    Outcome.EQUAL: "result of the undamaged run",
    Outcome.OTHER: "another request, or a change that nothing can detect",
    Outcome.CRASHED: "crashed or hung",
    Outcome.WRONG: "wrong without a word",
    Outcome.LOST: "something lost",
}


def line(report: Report) -> str:
    """One campaign in one line."""
    counts = ", ".join(f"{count} {name}" for name, count in sorted(report.counts.items()))
    faults = sum(report.counts[name] for name in FAULTS)
    return (
        f"{report.name}: {report.cases} cases, {report.struck} struck, {counts}; "
        f"{faults} faults; {report.seconds:.0f} s"
    )


def table(campaigns: Sequence[Campaign], reports: Sequence[Report]) -> str:
    """The counts of several campaigns in Markdown, after a line that names the machine."""
    heads = ["campaign", "cases", "struck", *_HEADS.values()]
    rows = [
        [campaign.what, report.cases, report.struck, *(report.counts[outcome] for outcome in _HEADS)]
        for campaign, report in zip(campaigns, reports, strict=True)
    ]
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    shown = "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)
    seconds = sum(report.seconds for report in reports)
    return f"{_machine()}; {seconds / 60:.0f} minutes in all.\n\n{shown}"


def write(page: Path, text: str) -> None:
    """Put the table between the marks of a page."""
    before, mark, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not mark or not end:
        raise SystemExit(f"{page} lacks the lines {_BEGIN} and {_END}")
    page.write_text(f"{before}{mark}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def _machine() -> str:
    versions = ", ".join(
        f"{name} {metadata.version(name)}" for name in ("discrete-vae", "torch", "numpy", "numba")
    )
    return (
        f"Python {platform.python_version()}, {versions}; {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores, one thread"
    )
