"""A run that a table or a figure of the paper needs: what is to be trained, and the folder that it goes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from discrete_vae.config import ExperimentConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.overrides import Override, apply_overrides
from discrete_vae.presets import Size, first_difference, load_experiment, run_name
from discrete_vae.training.budget import with_epochs

Changes = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Scale:
    """Settings that only make a run smaller or larger than its experiment.

    Attributes:
        name: In the name of the run.
        settings: Settings and their values.
    """

    name: str
    settings: Changes


@dataclass(frozen=True)
class PlannedRun:
    """What is to be trained; make one with `planned_run`.

    Attributes:
        experiment: Name of the experiment.
        size: Its size.
        seed: Its seed.
        changes: Settings that differ from the experiment's, and their values.
        budget: Minutes of training that set its length; None is the experiment's length.
        scale: What makes it smaller or larger besides; None is nothing.
    """

    experiment: str
    size: Size
    seed: int = 0
    changes: Changes = ()
    budget: float | None = None
    scale: Scale | None = None

    @cached_property
    def name(self) -> str:
        """Of its folder and its record; equal for equal runs, whichever table they are for."""
        base = f"{self.experiment}-{self.size}"
        if self.scale is not None:
            base += f"-{self.scale.name}"
        if self.budget is not None:
            base += f"-{self.budget:g}-minutes"
        return run_name(base, self.seed, _lists(self.changes))

    @cached_property
    def config(self) -> ExperimentConfig:
        """The experiment, with the length that it has without a budget.

        Raises:
            InvalidInputError: If a change is none of its settings.
        """
        base = load_experiment(self.experiment, self.size)
        return apply_overrides(base, [("seed", [str(self.seed)]), *self.overrides])

    @property
    def overrides(self) -> list[Override]:
        """Every setting that differs from the experiment's, with its values."""
        return _lists(self.changes if self.scale is None else (*self.scale.settings, *self.changes))

    def like(self, stored: ExperimentConfig) -> ExperimentConfig:
        """The config with the length of one that a budget has set, and as it is without a budget.

        Raises:
            InvalidInputError: If that is no length for it.
        """
        if self.budget is None:
            return self.config
        settings = stored.training
        return with_epochs(self.config, settings.num_epochs, settings.validate_every, settings.log_every)

    def check_same(self, stored: ExperimentConfig, source: str, repair: str) -> None:
        """Check that a config is that of this run; how it is evaluated does not matter.

        Args:
            stored: The config.
            source: The file that it is from.
            repair: What to do if it is another.

        Raises:
            InvalidInputError: If it is that of another run; names the first setting that differs.
        """
        wanted = self.like(stored)
        stored = stored.model_copy(update={"evaluation": wanted.evaluation})
        if stored == wanted:
            return
        option, one, other = first_difference(stored, wanted)
        rule = f"must be that of {self}, with {option} {other}"
        raise InvalidInputError(source, rule, f"{option} {one}", repair)

    def __str__(self) -> str:
        words = [
            self.experiment,
            self.size,
            *([] if self.scale is None else [self.scale.name]),
            f"seed {self.seed}",
        ]
        words += [f"{path.rpartition('.')[2]} {' '.join(values)}" for path, values in self.changes]
        return ", ".join(words if self.budget is None else [*words, f"{self.budget:g} minutes"])


def planned_run(
    experiment: str,
    size: Size,
    *,
    seed: int = 0,
    changes: Mapping[str, Sequence[object]] | None = None,
    budget: float | None = None,
    scale: Scale | None = None,
) -> PlannedRun:
    """A run; changes that change nothing are left out, so that equal runs are equal.

    Args:
        experiment: Name of the experiment.
        size: Its size.
        seed: Its seed.
        changes: Values by setting, such as {"training.num-sweeps": [10]}.
        budget: Minutes of training; None is the experiment's length.
        scale: What makes it smaller or larger besides; of a setting in both that of changes counts.

    Examples:
        >>> planned_run("mnist-static", "cpu", changes={"model.prior": ["factorial"]}).name
        'mnist-static-cpu-prior-factorial-seed-0'
        >>> planned_run("mnist-static", "cpu", changes={"model.prior.num-left": [64]}, budget=90).name
        'mnist-static-cpu-90-minutes-seed-0'
    """
    kept = dict(as_changes(changes or {}))
    whole = PlannedRun(experiment, size, seed, tuple(kept.items()), budget, scale)
    for path in list(kept):
        fewer = tuple((other, values) for other, values in kept.items() if other != path)
        if PlannedRun(experiment, size, seed, fewer, budget, scale).config == whole.config:
            del kept[path]
    return PlannedRun(experiment, size, seed, tuple(kept.items()), budget, scale)


def as_changes(settings: Mapping[str, Sequence[object]]) -> Changes:
    """Settings and their values as options have them."""
    return tuple((path, tuple(map(str, values))) for path, values in settings.items())


def _lists(changes: Changes) -> list[Override]:
    return [(path, list(values)) for path, values in changes]
