"""Where the runs of a table or a figure stand: what is done, and how long the rest takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from discrete_vae.config import ExperimentConfig
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.system import in_words
from reproduction.planned_run import PlannedRun
from reproduction.record import StoredRun

_WORTH_SAYING = 5.0  # seconds


@dataclass(frozen=True)
class Standing:
    """Where one run stands.

    Attributes:
        planned: The run.
        stored: Its record; None if it has none.
        done: Steps that a checkpoint has.
        num_steps: Steps of the whole run; None where a budget has not set them yet.
        seconds: Time that its training has taken so far, as far as its log goes.
        logged: Steps that its log has.
    """

    planned: PlannedRun
    stored: StoredRun | None
    done: int
    num_steps: int | None
    seconds: float
    logged: int

    @property
    def is_trained(self) -> bool:
        """Whether all steps are done."""
        return self.num_steps is not None and self.done >= self.num_steps

    @property
    def step_seconds(self) -> float | None:
        """Time of a step, validations included; None before the first line of the log."""
        return self.seconds / self.logged if self.logged else None


def run_of(planned: PlannedRun, folder: RunDirectory) -> ExperimentConfig | None:
    """The config of the run in a folder; None if the folder holds none yet.

    Raises:
        InvalidInputError: If it is another run, or cannot be read.
    """
    if not folder.config_path.exists():
        return None
    stored = folder.read_experiment()
    repair = f"Move {folder.path} away to have the run made anew, or give another --runs."
    planned.check_same(stored, str(folder.config_path), repair)
    return stored


def look(
    planned: PlannedRun, folder: RunDirectory, stored: StoredRun | None, num_steps: int | None
) -> Standing:
    """Where a run stands, by its folder.

    Args:
        planned: The run.
        folder: Its folder, which need not exist.
        stored: Its record.
        num_steps: Its steps, where they are known.
    """
    if stored is not None and not folder.config_path.exists():
        record = stored.record
        return Standing(planned, stored, record.num_steps, record.num_steps, record.seconds, record.num_steps)
    steps, lines = folder.checkpoints().steps(), folder.metrics().read()
    seconds = max((line.get("seconds", 0.0) for line in lines), default=0.0)
    logged = max((line["step"] for line in lines), default=0)
    return Standing(planned, stored, steps[-1] if steps else 0, num_steps, seconds, logged)


def seconds_left(standings: Sequence[Standing]) -> float | None:
    """Time that the runs still take, from the steps and evaluations that are measured; None if none is.

    A run whose steps are not measured counts with the mean of the others, one with a budget with its budget.
    """
    speeds = [each.step_seconds for each in standings if each.step_seconds is not None]
    evaluations = [each.stored.record.evaluation_seconds for each in standings if each.stored is not None]
    total = 0.0
    for each in standings:
        if each.stored is not None:
            continue
        total += fmean(evaluations) if evaluations else 0.0
        budget, speed = each.planned.budget, each.step_seconds or (fmean(speeds) if speeds else None)
        if each.is_trained:
            continue
        if budget is not None and each.step_seconds is None:
            total += 60 * budget
        elif speed is None or each.num_steps is None:
            return None
        else:
            total += speed * (each.num_steps - each.done)
    return total


def where_it_stands(number: int, standings: Sequence[Standing]) -> str:
    """One line about a run and all of them.

    Args:
        number: Which of them is next, from 0.
        standings: All of them.
    """
    here = standings[number]
    if here.is_trained:
        steps = f"trained, {here.num_steps} steps; to be evaluated"
    elif here.num_steps is None:
        steps = "its steps are timed first"
    else:
        steps = f"{here.done} of {here.num_steps} steps"
    left = seconds_left(standings)
    if left is None:
        rest = "; how long all take is not measured yet"
    else:
        rest = f"; about {in_words(left)} left in all" if left > _WORTH_SAYING else ""
    return f"run {number + 1} of {len(standings)}: {here.planned}: {steps}{rest}"
