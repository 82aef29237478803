"""What a figure of the registry is made of, and what it gives."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from discrete_vae.config import instantiate
from discrete_vae.data.recorded import RecordedData
from discrete_vae.figures.ink import Ink, ink_for, ink_of_range

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from discrete_vae.data.dataset import DataSplits
    from discrete_vae.figures.saving import FigureTable
    from discrete_vae.runs.run_directory import RunDirectory
    from discrete_vae.training.load import LoadedRun


@dataclass(frozen=True)
class Drawing:
    """A figure.

    Attributes:
        table: What it shows, in numbers.
        picture: The picture of them.
        note: What the metadata of its file say of it.
    """

    table: FigureTable
    picture: Figure
    note: str | None = None


class FigureRun:
    """A run that a figure is drawn of; model and data are loaded once, when a figure wants them.

    Args:
        directory: Its folder.
        load: Gives the model.
        data_dir: The folder of the data sets, if one was given.
    """

    def __init__(
        self, directory: RunDirectory, load: Callable[[], LoadedRun], *, data_dir: str | None = None
    ) -> None:
        self.directory = directory
        self._load, self._data_dir = load, data_dir

    @cached_property
    def loaded(self) -> LoadedRun:
        """The model and its chains."""
        return self._load()

    @cached_property
    def dataset(self) -> DataSplits:
        """The data of the run's config."""
        return instantiate(self.loaded.config.data, data_dir=self._data_dir)

    @cached_property
    def recorded(self) -> RecordedData:
        """What pictures need of the data: as the run keeps it, of a run that keeps nothing from the data."""
        return RecordedData.read(self.directory.read_environment()) or RecordedData.of(self.dataset)

    @property
    def ink(self) -> Ink:
        """The scale of gray of the test data; that of a table takes these, since each feature has its own."""
        if self.recorded.image_shape is None:
            return ink_for(self.dataset.test, per_feature=True)
        return ink_of_range(self.recorded.low, self.recorded.high)

    @cached_property
    def title(self) -> str:
        """What was trained: the experiment, its data where they have another name, size and seed."""
        config = self.directory.read_experiment()
        data = self.directory.read_environment().get("data", {}).get("name", config.name)
        of = config.name if config.name == data else f"{config.name} on {data}"
        return f"{of}, size {config.size}, seed {config.seed}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class FigureRequest:
    """What a figure is asked for with.

    Attributes:
        runs: The runs that it is drawn of, as many as its entry allows.
        size: How much is computed, for figures that have sizes.
        seed: Seed of all noise.
        table_path: Where the table will be written; a figure that takes long keeps there what it has, and what it
            trains in the folder of that name without its ending. None keeps nothing.
        report: Takes notes on progress, a line each.
    """

    runs: tuple[FigureRun, ...] = ()
    size: Literal["smoke", "short", "paper"] = "short"
    seed: int = 0
    table_path: Path | None = None
    report: Callable[[str], None] = field(default=_say)

    @property
    def run(self) -> FigureRun:
        """The only run."""
        (run,) = self.runs
        return run
