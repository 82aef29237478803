"""dvae report: one self-contained page about a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from discrete_vae.commands.options import data_dir_option, option, whole_number
from discrete_vae.commands.trained import EXPLAINED, AskedRun, takes_run
from discrete_vae.commands.verbs import verb


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
    from discrete_vae.runs.output_file import OutputFile

    place = asked.place(asked.directory.path / "report.html") if out is None else out
    page = OutputFile(place, endings=(".html", ".htm"))
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
    print(f"Report: {page.write_text(text)} ({len(text.encode()) / 2**20:.1f} MiB)")
    return 0


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
