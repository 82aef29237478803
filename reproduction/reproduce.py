"""A table or a figure of the paper from nothing: runs, records, table and picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from discrete_vae.figures.style import save_figure
from discrete_vae.runs.io import write_text
from discrete_vae.runs.output import write_columns
from reproduction.campaign import Campaign, Places, StoppedError
from reproduction.registry import REPRODUCTIONS
from reproduction.wanted import Made, Result, Wanted


@dataclass(frozen=True)
class Reproduced:
    """What was made.

    Attributes:
        result: Table, picture and notes.
        paths: The files that hold them.
    """

    result: Result
    paths: list[Path]


def reproduce(
    name: str,
    wanted: Wanted,
    places: Places,
    *,
    stop: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = print,
) -> Reproduced:
    """Make a table or a figure: train, evaluate and record what is missing, then write it.

    A run is done once it has a record in OUT/runs whose config is the one that is asked for; its folder is not needed
    any more then, but for pictures of samples and for estimates of log Z that are still to be made.

    Args:
        name: One of `REPRODUCTIONS`.
        wanted: Size, seeds and budget.
        places: Where everything is.
        stop: Asked before each step of training and between examples of an evaluation.
        say: Takes the lines about how far it is.

    Raises:
        StoppedError: If `stop` said so; what is done is saved, and the same call goes on.
        InvalidInputError: If data are missing, or a file is damaged or another run's.
        FailedRunError: If a run fails in training.
    """
    entry = REPRODUCTIONS[name]
    made_by = entry.load()
    planned = made_by.plan(wanted)

    def check() -> None:
        if stop():
            raise StoppedError

    campaign = Campaign(
        planned, places, stop=stop, say=say, needs_model=lambda each: made_by.needs_model(each, places)
    )
    runs = {stored.planned: stored for stored in campaign.complete()}
    result = made_by.make(wanted, Made(runs, places, check, say))
    return Reproduced(result, _write(_stem(name, wanted), result, places.out))


def _stem(name: str, wanted: Wanted) -> str:
    """The name of the files, without their ending."""
    entry = REPRODUCTIONS[name]
    parts = [name]
    if entry.needs or name in ("table-2", "gradient-study"):
        parts.append(wanted.size)
    if entry.needs and wanted.budget is not None:
        parts.append(f"{wanted.budget:g}-minutes")
    if wanted.num_seeds != entry.num_seeds:
        parts.append(f"{wanted.num_seeds}-seeds")
    return "-".join(parts)


def _write(stem: str, result: Result, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    parts = [f"# {result.title}"]
    if result.table is not None:
        write_text(folder / f"{stem}.csv", result.table.csv())
        paths.append(folder / f"{stem}.csv")
        parts.append(result.table.markdown())
    if result.columns is not None:
        paths.append(write_columns(folder / f"{stem}.csv", result.columns, argument="--out"))
    if result.picture is not None:
        paths.append(save_figure(result.picture, folder / f"{stem}.png"))
        parts.append(f"![{result.title}]({stem}.png)")
    write_text(folder / f"{stem}.md", "\n\n".join([*parts, *result.notes]) + "\n")
    return [folder / f"{stem}.md", *paths]
