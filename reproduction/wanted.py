"""What a table or a figure is asked for with, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reproduction.planned_run import PlannedRun, Scale, planned_run

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from discrete_vae.presets import Size
    from reproduction.campaign import Places
    from reproduction.record import StoredRun
    from reproduction.table import ResultTable


@dataclass(frozen=True)
class Wanted:
    """What is asked for.

    Attributes:
        size: Of the experiments.
        num_seeds: Runs of each kind, with seeds from 0.
        budget: Minutes of training per run; None is the experiments' lengths.
        seed: Of the noise of a study.
    """

    size: Size
    num_seeds: int = 1
    budget: float | None = None
    seed: int = 0

    def run(
        self,
        experiment: str,
        seed: int,
        changes: Mapping[str, Sequence[object]] | None = None,
        scale: Scale | None = None,
    ) -> PlannedRun:
        """One run of an experiment."""
        return planned_run(experiment, self.size, seed=seed, changes=changes, budget=self.budget, scale=scale)

    @property
    def in_words(self) -> str:
        """Size and budget, as titles have them."""
        return f"size {self.size}" + ("" if self.budget is None else f", {self.budget:g} minutes each")

    @property
    def seeds(self) -> range:
        """The seeds."""
        return range(self.num_seeds)


@dataclass(frozen=True)
class Made:
    """The runs, and what else a table or a figure may use.

    Attributes:
        runs: Their records.
        places: Where everything is.
        check: Called between parts of longer work; what it raises stops it.
        say: Takes the lines about how far it is.
    """

    runs: Mapping[PlannedRun, StoredRun]
    places: Places
    check: Callable[[], None]
    say: Callable[[str], None]

    def of(self, planned: Sequence[PlannedRun]) -> list[StoredRun]:
        """The records of some of the runs."""
        return [self.runs[each] for each in planned]


@dataclass(frozen=True)
class Result:
    """A table, a picture, or both.

    Attributes:
        title: What it shows.
        notes: Paragraphs below it: how it was made, what it cost, where it is smaller than the paper's.
        table: The numbers; None where there are none.
        picture: The picture; None where there is none.
        columns: What a picture shows, in numbers, where there is no table.
    """

    title: str
    notes: Sequence[str] = ()
    table: ResultTable | None = None
    picture: Figure | None = None
    columns: Mapping[str, np.ndarray] | None = None


def _no_runs(wanted: Wanted) -> list[PlannedRun]:
    return []


def _needs_no_model(planned: PlannedRun, places: Places) -> bool:
    return False


@dataclass(frozen=True)
class Reproduction:
    """How a table or a figure is made.

    Attributes:
        make: Makes it.
        plan: The runs that it needs, in the order in which they are made.
        needs_model: Whether a run's record is not enough for it.
    """

    make: Callable[[Wanted, Made], Result]
    plan: Callable[[Wanted], list[PlannedRun]] = field(default=_no_runs)
    needs_model: Callable[[PlannedRun, Places], bool] = field(default=_needs_no_model)
