"""dvae report: one self-contained page about a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from discrete_vae.commands.options import data_dir_option, option, whole_number
from discrete_vae.commands.trained import EXPLAINED, AskedRun, takes_run
from discrete_vae.commands.verbs import verb
from discrete_vae.errors import InvalidInputError
from discrete_vae.paths import user_path

_REPAIR = "Free space, check permissions, or give another --out FILE.html."


@verb("report", EXPLAINED)
@takes_run
@option(
    "--out FILE.html",
    "where to write the page; default: RUN/report.html, with --pretrained NAME-report.html here",
)
@option(
    "--labels FILE",
    "a .npy or .csv file of one label per training example, or per row of the user's file, to compare modes with; "
    "default: those of the data set, if it has some",
)
@option(
    "--num-examples N",
    "training and test examples that are looked at; default: 2000",
    whole_number(),
    default="2000",
)
@data_dir_option
def run_report(
    asked: AskedRun,
    seed: int | None,
    out: str | None,
    labels: str | None,
    num_examples: int,
    data_dir: str | None,
) -> int:
    """Write the page about a run; returns the exit status."""
    from discrete_vae.commands.device import say_device
    from discrete_vae.report import make_report
    from discrete_vae.runs.atomic import write_text
    from discrete_vae.runs.writable import check_writable, unwritable

    place = asked.place(asked.directory.path / "report.html") if out is None else _page_path(out)
    check_writable(place, repair=_REPAIR)
    with _progress() as shown:

        def report(name: str, number: int, count: int) -> None:
            if number == 1:  # what is wrong has been found by then
                say_device(asked.device)
            shown(name, number, count)

        text = make_report(
            asked.directory,
            labels=labels,
            num_examples=num_examples,
            seed=seed or 0,
            data_dir=data_dir,
            load=asked.load,
            report=report,
        )
    try:
        write_text(place, text)
    except OSError as error:
        raise unwritable(place, error, _REPAIR) from None
    print(f"Report: {place} ({len(text.encode()) / 2**20:.1f} MiB)")
    return 0


def _page_path(out: str) -> Path:
    place = user_path("--out", out)
    if place.suffix.lower() not in {".html", ".htm"}:
        raise InvalidInputError(
            "--out", "must end in .html", repr(out), f"Did you mean {place.with_suffix('.html')}?"
        )
    if not place.parent.is_dir():
        raise InvalidInputError(
            "--out", "must lie in a folder that exists", repr(out), "Make the folder first."
        )
    return place


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on a terminal, and what moves it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(file=sys.stderr)
    columns = BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("loading")
        yield lambda name, number, count: bar.update(
            task, description=name, completed=number - 1, total=count
        )
