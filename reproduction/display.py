"""Results of a sweep: tables, pictures of ours beside the paper's, and the notes below them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FormatStrFormatter, MaxNLocator, NullLocator

from discrete_vae.config import (
    ConvolutionalDecoderConfig,
    ConvolutionalEncoderConfig,
    ExperimentConfig,
    FlattenEncoderConfig,
    MLPDecoderConfig,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.style import BLUE, GREEN, VERMILION, Picture, save_figure, tidy
from discrete_vae.runs.io import write_text
from discrete_vae.system import in_words
from reproduction.records import PlannedRun, RunRecord, Scale, StoredRun, Value, plan_run
from reproduction.sizes import Size
from reproduction.sweep import Sweep

MINUS = "\N{MINUS SIGN}"

# What is asked for, and what it gives.


@dataclass(frozen=True)
class Options:
    """Options of a table or a figure."""

    size: Size  # of the experiments
    num_seeds: int = 1  # runs of each kind, with seeds from 0
    budget: float | None = None  # minutes of training per run; None is the experiments' lengths
    seed: int = 0  # of the noise of a study
    only: tuple[str, ...] = ()  # names of the parts that are asked for; of a kind of which none is named, all

    def run(
        self,
        experiment: str,
        seed: int,
        changes: Mapping[str, Sequence[object]] | None = None,
        scale: Scale | None = None,
    ) -> PlannedRun:
        """Plan one run of an experiment."""
        return plan_run(experiment, self.size, seed=seed, changes=changes, budget=self.budget, scale=scale)

    @property
    def in_words(self) -> str:
        """Size and budget, as titles have them."""
        return f"size {self.size}" + ("" if self.budget is None else f", {self.budget:g} minutes each")

    def chosen(self, names: Sequence[str]) -> list[str]:
        """Those of a kind of parts that are asked for."""
        return [name for name in names if name in self.only] or list(names)

    @property
    def seeds(self) -> range:
        """The seeds of the runs."""
        return range(self.num_seeds)


@dataclass(frozen=True)
class Result:
    """A table, a picture, or both."""

    title: str
    # paragraphs below it: how it was made, what it cost, where it is smaller than the paper's
    notes: Sequence[str] = ()
    table: Table | None = None
    picture: Figure | None = None
    numbers: pd.DataFrame | None = None  # what a picture without a table shows
    ending: str = ".png"  # of the picture's file; charts are .svg, what has images in it is .png

    def write(self, stem: Path) -> list[Path]:
        """Write it to STEM.md, with .csv and picture beside it; returns the files."""
        stem.parent.mkdir(parents=True, exist_ok=True)
        page, numbers, picture = (stem.with_name(f"{stem.name}{end}") for end in (".md", ".csv", self.ending))
        paths, parts = [page], [f"# {self.title}"]
        frame = self.numbers if self.table is None else self.table.numbers()
        if frame is not None:
            write_text(numbers, frame.to_csv(index=False))
            paths.append(numbers)
        if self.table is not None:
            parts.append(self.table.markdown())
        if self.picture is not None:
            paths.append(save_figure(self.picture, picture))
            parts.append(f"![{self.title}]({picture.name})")
        write_text(page, "\n\n".join([*parts, *self.notes]) + "\n")
        return paths


def no_runs(options: Options) -> list[PlannedRun]:
    """The plan of what nothing is trained for."""
    return []


@dataclass(frozen=True)
class Reproduction:
    """A table or a figure."""

    about: str  # what it shows, one line
    make: Callable[[Options, Sweep], Result]  # of a complete sweep
    plan: Callable[[Options], list[PlannedRun]] = no_runs  # in the order in which they are made
    trains: str = ""  # what is trained for it, in words; empty where nothing is
    num_seeds: int | None = None  # of each run unless others are asked for; None where it is made of one seed
    # whether a run's record is not enough for it
    needs_model: Callable[[PlannedRun, Sweep], bool] = lambda planned, sweep: False
    may_diverge: bool = False  # whether it is made without runs whose loss is not finite
    # the default first; empty where size changes nothing
    sizes: tuple[Size, ...] = ("cpu", "smoke", "short", "paper")
    has_noise: bool = False  # of its own
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)  # what may be asked for alone, by kind


# Tables.


Cell = str | int | float | Value | None


class Column(NamedTuple):
    """A column of a table."""

    title: str  # its head in words
    name: str  # its head in a .csv file
    digits: int = 2  # after the point, of numbers
    signed: bool = False  # whether positive numbers have a plus, as differences have
    # of numbers; with "g" digits are significant ones, for numbers of many orders of magnitude
    form: Literal["f", "g"] = "f"

    def text(self, cell: Cell) -> str:
        """A cell in words.

        Examples:
            >>> Column("gap", "gap", signed=True).text(Value(0.5, 0.021))
            '+0.50 ± 0.02'
            >>> Column("variance", "variance", form="g").text(Value(0.0042, 0.0001))
            '0.0042 ± 0.0001'
        """
        if isinstance(cell, Value):
            error = "" if math.isnan(cell.std_error) else f" ± {cell.std_error:.{self.digits}{self.form}}"
            return self.text(cell.value) + error
        if isinstance(cell, float):
            sign = "+" if self.signed else ""
            return "" if math.isnan(cell) else f"{cell:{sign}.{self.digits}{self.form}}".replace("-", MINUS)
        return "" if cell is None else str(cell)


@dataclass(frozen=True)
class Table:
    """Rows of a result."""

    columns: Sequence[Column]  # the first one says what the row is about
    rows: Sequence[Sequence[Cell]]  # a cell per column each

    def numbers(self) -> pd.DataFrame:
        """The table with all digits; a standard error has a column of its own where any row has one."""
        found: dict[str, list[Cell]] = {}
        for column, cells in zip(self.columns, zip(*self.rows, strict=True), strict=True):
            found[column.name] = [cell.value if isinstance(cell, Value) else cell for cell in cells]
            if any(isinstance(cell, Value) for cell in cells):
                errors = [cell.std_error if isinstance(cell, Value) else math.nan for cell in cells]
                found[f"{column.name}_std_error"] = list(errors)
        return pd.DataFrame(found)

    def texts(self) -> pd.DataFrame:
        """The table to read."""
        words = [
            [column.text(cell) for column, cell in zip(self.columns, row, strict=True)] for row in self.rows
        ]
        return pd.DataFrame(words, columns=[column.title for column in self.columns])

    def markdown(self) -> str:
        """The table in Markdown, numbers to the right."""
        texts = self.texts()
        rows = [list(texts), ["---"] + ["---:"] * (len(self.columns) - 1), *texts.to_numpy().tolist()]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)


# Pictures of points.


# Markers tell series apart without color.
OURS, PAPER, OTHER = (BLUE, "o"), (VERMILION, "D"), (GREEN, "s")
_ROW_HEIGHT, _FRAME_HEIGHT = 0.45, 1.25
_LABEL_WIDTH = 24  # characters
_LONG_NAME = 32  # characters, of which the legend has room for two beside each other


class Series(NamedTuple):
    """Points of one origin."""

    name: str  # for the legend
    look: tuple[str, str]  # color and marker
    values: Sequence[float | Value]  # at each place; those with a standard error have bars

    def draw(self, axes: Axes, places: np.ndarray, *, horizontal: bool) -> None:
        """Draw the points, in rows or over an axis of places."""
        color, marker = self.look
        pairs = [each if isinstance(each, Value) else Value(each) for each in self.values]
        value, error = (np.array(numbers, np.float64) for numbers in zip(*pairs, strict=True))
        bars = np.nan_to_num(error) if any(isinstance(each, Value) for each in self.values) else None
        style = {"color": color, "markersize": 5.5, "capsize": 3, "label": self.name}
        style["markerfacecolor"] = color if self.look == OURS else "white"
        style["zorder"] = 3 if self.look == OURS else 2  # where both are the same, ours shows within
        if horizontal:
            axes.errorbar(value, places, xerr=bars, fmt=marker, **style)
        else:
            line = "-" if self.look == OURS else "--"
            axes.errorbar(places, value, yerr=bars, fmt=marker, linestyle=line, linewidth=1.2, **style)


def draw_rows(labels: Sequence[str], series: Sequence[Series], *, title: str, xlabel: str) -> Picture:
    """A row per label, from the top, with a point per series in it; ``xlabel`` is what they are, with its unit."""
    figure = Picture((7.2, _FRAME_HEIGHT + _ROW_HEIGHT * len(labels)), layout="constrained")
    axes = figure.subplots()
    reach = 0.14 if len(series) < 4 else 0.3
    shift = np.linspace(-reach, reach, len(series)) if len(series) > 1 else [0.0]
    for each, up in zip(series, shift, strict=True):
        each.draw(axes, np.arange(len(labels)) + up, horizontal=True)
    axes.set_yticks(range(len(labels)), [textwrap.fill(label, _LABEL_WIDTH) for label in labels])
    axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
    axes.set_xlabel(xlabel, fontsize=9)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.margins(x=0.08)
    tidy(axes)
    _finish(figure, title)
    return figure


Panel = tuple[str, Sequence[tuple[Series, Sequence[float]]]]
"""What the points of a panel are, with its unit, and its series, each with the places of its points."""


def draw_curves(panels: Sequence[Panel], *, title: str, xlabel: str) -> Picture:
    """Points joined by lines over a logarithmic axis of what was varied; panels share the scale of their points."""
    figure = Picture((7.2, 2.8), layout="constrained")
    (row,) = figure.subplots(1, len(panels), sharey=True, squeeze=False)
    for axes, (ylabel, series) in zip(row, panels, strict=True):
        axes.set_xscale("log")
        axes.axhline(0.0, color="0.75", linewidth=0.8, zorder=0)
        for each, places in series:
            each.draw(axes, np.asarray(places, np.float64), horizontal=False)
        marks = sorted({place for _, places in series for place in places})
        axes.xaxis.set_major_locator(FixedLocator(marks))
        axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(textwrap.fill(xlabel, 72 // len(panels)), fontsize=9)
        axes.set_ylabel(textwrap.fill(ylabel, _LABEL_WIDTH), fontsize=9)
        axes.margins(y=0.12)
        tidy(axes)
    _finish(figure, title)
    return figure


def _finish(figure: Picture, title: str) -> None:
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    longest = max(len(name) for axes in figure.axes for name in axes.get_legend_handles_labels()[1])
    legend_below(figure, 3 if longest < _LONG_NAME else 2)


def legend_below(figure: Picture, ncols: int) -> None:
    """What the lines mean, each once, whichever panels have it: below all panels, never over the data."""
    of_panels = [axes.get_legend_handles_labels() for axes in figure.axes]
    shown = {name: line for lines, names in of_panels for line, name in zip(lines, names, strict=True)}
    figure.legend(shown.values(), shown, loc="outside lower center", ncols=ncols, frameon=False, fontsize=9)


# Notes below a table: how its runs were made, what they cost, and where they are smaller than the paper's.


_SIZES = {
    "Gaussian layers": "model.hierarchy.num_layers",
    "units of each": "model.hierarchy.num_units",
    "their prior networks": "model.hierarchy.prior_hidden",
    "their posterior networks": "model.hierarchy.posterior_hidden",
    "posterior networks of the binary latents": "model.posterior.hidden",
    "encoder": "model.encoder",
    "decoder": "model.decoder",
    "epochs": "training.num_epochs",
    "Gibbs iterations": "training.num_sweeps",
}
"""Settings in which sizes differ, by their names in a note."""


def notes_of(
    runs: Sequence[StoredRun], *, paper_scale: Scale | None = None, varied: Collection[str] = ()
) -> list[str]:
    """Paragraphs about runs: evaluation, cost, data, and what is smaller than in size paper.

    ``paper_scale`` is what size paper has of its own for their table or figure. Settings that the figure varies, by
    their paths in the config, are no difference from size paper.
    """
    records = [run.record for run in runs]
    sources = dict.fromkeys(f"{r.data.name}: {r.data.source}, {r.data.version}" for r in records)
    lines = [_evaluation(records), _budget(records), _cost(records), f"Data: {'; '.join(sources)}."]
    lines += [_moved_or_refitted(records), _smaller(runs, paper_scale, varied)]
    return [line for line in lines if line]


def _moved_or_refitted(records: Sequence[RunRecord]) -> str:
    """What was done to images before training and to posteriors before the evaluation."""
    found = dict.fromkeys((r.data.name, r.config.training.augmentation, r.refit_steps) for r in records)
    words = []
    for name, moves, refit_steps in found:
        flips = " and mirrored at random" if moves.horizontal_flip else ""
        if moves.moves:
            shifts = f"shifted by at most {moves.max_shift} px{flips} until {moves.end:g} of the run"
            words.append(f"Training images of {name} were {shifts}.")
        if refit_steps:
            words.append(f"Before the evaluation {refit_steps:,} steps fitted the posterior of {name} anew.")
    return " ".join(words)


def _evaluation(records: Sequence[RunRecord]) -> str:
    kinds = sorted({(r.num_samples, r.num_examples, r.evaluation_precision) for r in records})
    parts = [f"{k:,} importance samples for each of {n:,} test examples, in {p}" for k, n, p in kinds]
    sizes, seeds = sorted({r.size for r in records}), sorted({r.seed for r in records})
    gain = max(r.doubling_gain for r in records)
    error = max(r.log_partition.std_error or 0.0 for r in records)
    differences = ", of differences paired by example where both sides are ours"
    if len(seeds) > 1:
        differences = (
            "; those of differences between runs of ours, paired by example, are over examples and seeds"
        )
    return (
        f"Size {', '.join(sizes)}, {_count('seed', len(seeds))} {', '.join(map(str, seeds))}. Evaluated with "
        f"{'; '.join(parts)}. The last doubling of the samples brought {gain:.2f} nats at most, by which estimates are "
        f"low; log Z has a standard error of {error:.4f} nats at most. Standard errors are over test examples and of "
        f"log Z{differences}."
    )


def _budget(records: Sequence[RunRecord]) -> str:
    budgets = sorted({r.budget_minutes for r in records if r.budget_minutes is not None})
    if not budgets:
        return ""
    minutes = " or ".join(f"{budget:g}" for budget in budgets)
    timed = "by a timing of its steps or of shorter runs before its first step"
    return f"Each run has as many epochs as {minutes} minutes had room for {timed}."


def _cost(records: Sequence[RunRecord]) -> str:
    training, evaluation = sum(r.seconds for r in records), sum(r.evaluation_seconds for r in records)
    where = "; ".join(sorted({f"{r.device} ({r.machine}, {_threads(r.threads)})" for r in records}))
    commits = sorted({f"{(r.commit or 'unknown')[:10]}{' with changes' * bool(r.modified)}" for r in records})
    return (
        f"Cost of the {len(records)} {_count('run', len(records))}: {in_words(training)} of training and "
        f"{in_words(evaluation)} of evaluation on {where}. Commit: {', '.join(commits)}."
    )


def _threads(count: int | None) -> str:
    return "threads unknown" if count is None else f"{count} {_count('thread', count)}"


def _count(word: str, count: int) -> str:
    return word + "s" * (count > 1)


def _smaller(runs: Sequence[StoredRun], paper_scale: Scale | None, varied: Collection[str]) -> str:
    """Sizes that differ from those of size paper, by experiment; those that all share come first."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        if run.planned.size != "paper" or run.planned.budget is not None:
            words = _sizes_beside_paper(run, paper_scale, varied)
            found.setdefault(run.planned.experiment, {}).update(dict.fromkeys(words))
    if not any(found.values()):
        return ""
    first, *others = found.values()
    shared = [word for word in first if others and all(word in other for other in others)]
    parts = [f"All: {', '.join(shared)}"] if shared else []
    for experiment, words in found.items():
        own = [word for word in words if word not in shared]
        parts += [f"{experiment}: {', '.join(own)}"] if own else []
    return (
        "Other sizes than in size paper, whose values stand in brackets (its epochs are ours, the paper gives none). "
        f"{'; '.join(parts)}."
    )


def _sizes_beside_paper(run: StoredRun, paper_scale: Scale | None, varied: Collection[str]) -> list[str]:
    """The sizes of a run that differ from those of size paper, each in words, without those that its figure varies."""
    try:
        paper = replace(run.planned, size="paper", budget=None, scale=paper_scale).config
    except InvalidInputError:  # a setting that size paper does not have
        return []
    words = []
    for name, path in _SIZES.items():
        ours, papers = _size(run.record.config, path), _size(paper, path)
        if path not in varied and ours != papers:
            words.append(f"{name} {ours} ({papers})")
    return words


def _size(config: ExperimentConfig, path: str) -> str:
    value = reduce(lambda record, name: getattr(record, name, None), path.split("."), config)
    if isinstance(value, ConvolutionalEncoderConfig | ConvolutionalDecoderConfig):
        return f"convolutions of {'+'.join(map(str, value.widths))} channels"
    if isinstance(value, FlattenEncoderConfig):
        return "none"
    if isinstance(value, MLPDecoderConfig):
        value = value.hidden
    if isinstance(value, tuple):
        return "+".join(map(str, value)) if value else "no hidden layer"
    return str(value)
