"""dvae figure: one figure by name, with the table of its numbers beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from discrete_vae.commands.layout import hanging
from discrete_vae.commands.options import data_dir_option, one_of, option
from discrete_vae.commands.trained import OPTIONS, ask_runs
from discrete_vae.commands.verbs import not_one_of, verb
from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.registry import FIGURES, FigureEntry
from discrete_vae.paths import user_path
from discrete_vae.runs.writable import check_replaces_none, check_writable, is_stream

_FOLDER = "figures"
_REPAIR = "Give another place: --out FILE.png."
_MORE = "NAME is one of those that it lists without one; RUN is the folder of a run, for figures that are drawn of one."


@verb("figure", _MORE)
@click.argument("name", required=False)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@option(
    "--out FILE",
    "the picture, .png, .pdf or .svg; its table goes beside it as .csv, but for a pipe or a device; default: "
    "RUN/figures/NAME.png, without a run figures/NAME.png here, with --pretrained MODEL MODEL-NAME.png",
)
@option(
    "--size smoke|short|paper",
    "how much is computed, for figures that have sizes; default: short",
    one_of("smoke", "short", "paper"),
)
@OPTIONS
@data_dir_option
def run_figure(
    name: str | None,
    runs: tuple[str, ...],
    out: str | None,
    size: str | None,
    seed: int | None,
    data_dir: str | None,
    pretrained: str | None,
    **named: Any,
) -> int:
    """Draw a figure and write its table; returns the exit status."""
    if name is None:
        print_figures()
        return 0
    if name not in FIGURES:
        raise not_one_of("NAME", list(FIGURES), name)
    entry = FIGURES[name]
    _check_runs(name, entry, runs or (() if pretrained is None else (pretrained,)))
    if size is not None and not entry.has_sizes:
        repair = "Leave it out."
        raise InvalidInputError("--size", f"must not be given for {name}, which has one size", size, repair)
    asked = ask_runs(runs, pretrained, **named)

    from discrete_vae.figures import FigureRequest, FigureRun, save_figure, save_table
    from discrete_vae.figures.saving import picture_file

    if out is not None:
        picture = picture_file(out, argument="--out").path
    else:
        file = f"{name}-{size or 'short'}.png" if entry.has_sizes else f"{name}.png"
        (one,) = asked if len(asked) == 1 else (None,)
        place = Path(_FOLDER) / file if one is None else one.place(one.directory.figures_path / file)
        picture = user_path("--out", place)
    check_writable(picture, repair=_REPAIR)
    table = None if is_stream(picture) else picture.with_suffix(".csv")
    if table is not None:
        if out is None and len(asked) == 1 and pretrained is None:
            table = asked[0].place(table)
        check_writable(table, repair=_REPAIR)
        for each in asked:
            check_replaces_none(table, each.sources, argument=f"--out {picture}, whose table is {table},")
    sources = tuple(FigureRun(each.directory, each.load, data_dir=data_dir) for each in asked)
    drawing = entry.make(FigureRequest(sources, size or "short", seed or 0, table))  # pyright: ignore[reportArgumentType]
    if table is not None:
        print(f"Table:   {save_table(drawing.table, table)}")
    print(f"Picture: {save_figure(drawing.picture, picture, note=drawing.note)}")
    return 0


def print_figures() -> None:
    """Print every figure with what it shows."""
    print("Figures: dvae figure NAME, and the folder of a run where RUN stands behind it")
    for name, entry in FIGURES.items():
        takes = {0: "", 1: " RUN"}.get(entry.min_runs, " RUN RUN") + (
            " ..." if entry.max_runs is None else ""
        )
        print(hanging(entry.about, f"  {name + takes:29} "))


def _check_runs(name: str, entry: FigureEntry, runs: tuple[str, ...]) -> None:
    """Refuse another number of runs than a figure is drawn of."""
    most = entry.max_runs
    if len(runs) < entry.min_runs:
        many = "RUN" if entry.min_runs == 1 else f"at least {entry.min_runs} runs"
        repair = f"For example: dvae figure {name} runs/digits-short."
        received = f"{len(runs)} runs" if runs else "nothing"
        raise InvalidInputError(many, f"must be given for the figure {name}", received, repair)
    if most is not None and len(runs) > most:
        drawn = "is drawn of no run" if most == 0 else f"is drawn of {most} run{'s' * (most > 1)}"
        raise InvalidInputError(f"dvae figure {name}", drawn, repr(runs[most]), "Leave it out.")
