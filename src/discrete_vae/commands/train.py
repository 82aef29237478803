"""dvae train: from data to a trained model."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from discrete_vae.commands.options import (
    accept_changed_config_option,
    device_option,
    one_of,
    option,
    whole_number,
)
from discrete_vae.commands.request import EPILOG, EXPLAINED, TYPED, Request, takes_experiment
from discrete_vae.commands.verbs import verb
from discrete_vae.durations import in_words
from discrete_vae.errors import InvalidInputError

if TYPE_CHECKING:
    import torch

    from discrete_vae.config import ExperimentConfig
    from discrete_vae.data.dataset import DataSplits
    from discrete_vae.runs.run_directory import RunDirectory
    from discrete_vae.training.logger import MetricsLogger


@verb("train", EXPLAINED, takes_settings=True, divides=True, epilog=EPILOG, typed=TYPED)
@takes_experiment
@option("--run-dir DIR", "new folder for the results; default: runs/EXPERIMENT-SIZE-SETTINGS")
@option("--resume", "go on from the last checkpoint of the run in --run-dir")
@option(
    "--profile N",
    "record every operation of N steps, after five that warm up, in profile.json of the run's folder, for "
    "ui.perfetto.dev or chrome://tracing",
    whole_number(at_most=1000),
)
@option(
    "--logger tensorboard",
    "write the metrics as TensorBoard events too, in the folder tensorboard of the run's",
    one_of("tensorboard"),
)
@device_option
@accept_changed_config_option
def run_train(
    request: Request,
    run_dir: str | None,
    resume: bool,
    profile: int | None,
    logger: str | None,
    device: str,
    accept_changed_config: bool,
) -> int:
    """Train, or resume; returns the exit status."""
    from discrete_vae.commands.device import choose_device
    from discrete_vae.commands.headline import headline
    from discrete_vae.commands.interrupts import stop_on_signals
    from discrete_vae.commands.trained import open_run
    from discrete_vae.distributed import compute_on_rank_zero, held_by_rank_zero, rank, world_size
    from discrete_vae.runs.lock import sole_writer
    from discrete_vae.runs.run_directory import RunDirectory
    from discrete_vae.training.experiment_check import check_experiment
    from discrete_vae.training.loop import run_steps
    from discrete_vae.training.precision import choose_precision
    from discrete_vae.training.run import check_same_data, prepare_run
    from discrete_vae.training.step_trace import StepTrace
    from discrete_vae.training.threads import training_threads

    # everything that can be wrong is found before the folder is made
    where = choose_device(device)
    make_logger = None if logger is None else _tensorboard()
    if resume:
        run = open_run(_run_dir(request, resume) if run_dir is None else run_dir)
        config = _resumed_config(run, request, accept_changed_config)
        dataset = request.load(config)
    else:
        if accept_changed_config:
            repair = "Leave it out: a new run writes its own config.json."
            raise InvalidInputError("--accept-changed-config", "must go with --resume", "no --resume", repair)
        config, load = request.resolve()
        folder = _run_dir(request) if run_dir is None else run_dir
        run = RunDirectory(compute_on_rank_zero(lambda: RunDirectory.check_new(folder)))
        dataset = load()
    num_steps = check_experiment(config, dataset)
    if profile is not None and world_size() > 1:
        repair = "Profile a run of one process."
        raise InvalidInputError("--profile", "must not be given with several processes", profile, repair)
    if resume:
        check_same_data(run, dataset)
    else:
        run = compute_on_rank_zero(lambda: RunDirectory.create(run.path))
    begun = run.read_environment() if resume else {}
    held = held_by_rank_zero(sole_writer(run.path))
    with held, stop_on_signals() as stop, training_threads(config, begun):
        compute_on_rank_zero(lambda: prepare_run(run, config, dataset, device=where))
        steps = run.checkpoints().steps()
        done = steps[-1] if steps else 0
        if resume and not steps and rank() == 0:
            print("No checkpoint was saved yet: the run goes on from the start.", file=sys.stderr)
        if done < num_steps and rank() == 0:
            _say_other_device(begun, where)
            precision = choose_precision(config, device=where, begun=begun)
            print(headline(config, dataset, run, done, num_steps, where, precision), file=sys.stderr)
        try:
            result = run_steps(
                config,
                dataset,
                run,
                device=where,
                stop=stop,
                accept_changed_config=accept_changed_config,
                trace=None if profile is None else StepTrace(run.profile_path, profile),
                logger=None if make_logger is None else make_logger(run.tensorboard_path),
            )
        except KeyboardInterrupt:  # the other processes, if there are any, are not waited for
            raise click.exceptions.Exit(_interrupted(run, stop.status)) from None
    if rank() > 0:
        return 0 if result.step == num_steps else stop.status
    if result.step < num_steps:
        return _interrupted(run, stop.status)
    if done >= num_steps:
        print(f"{run.path} has finished its {num_steps} steps; nothing is left to do.")
    else:
        print(f"Trained {num_steps - done} steps in {in_words(result.seconds)}.")
    assert result.best_elbo is not None  # the last step validates, and a checkpoint of it names its best
    print(f"Best checkpoint: step {result.best_step}, validation ELBO {result.best_elbo:.2f} nats.")
    _print_baseline(dataset, config, result.best_elbo)
    run.checkpoints().verify("best")
    print(f"Next: dvae evaluate {run.path}")
    return 0


def _tensorboard() -> Callable[[Path], MetricsLogger]:
    """What makes the logger of a folder; TensorBoard is there."""
    from discrete_vae.interop.tensorboard import TensorBoardLogger, check_installed

    check_installed()
    return TensorBoardLogger


def _say_other_device(begun: dict[str, Any], device: torch.device) -> None:
    """Say that a resumed run goes on elsewhere, where numbers are rounded otherwise."""
    before = begun.get("device", {}).get("type")
    if before is not None and before != device.type:
        print(
            f"The run began on {before} and goes on on {device}: the same up to rounding, not bit for bit.",
            file=sys.stderr,
        )


def _print_baseline(dataset: DataSplits, config: ExperimentConfig, elbo: float) -> None:
    """What independent features reach, and whether the model has learned more."""
    from discrete_vae.commands.evaluation_table import below_baseline
    from discrete_vae.commands.layout import hanging
    from discrete_vae.training.run import validation_baseline

    baseline = validation_baseline(config, dataset)
    print(f"Independent features: {baseline.value:.2f} nats (validation).")
    if warning := below_baseline("validation ELBO", elbo, baseline):
        print(hanging(f"{warning} The ELBO is a lower bound; dvae evaluate gives the log-likelihood."))


def _interrupted(run: RunDirectory, status: int) -> int:
    """Say which step is saved and how to go on; returns the exit status."""
    steps = run.checkpoints().steps()
    kept = f"step {steps[-1]} is saved" if steps else "no checkpoint was saved yet"
    go_on = f"dvae train --resume --run-dir {shlex.quote(str(run.path))}"
    print(f"\nInterrupted; {kept}. Continue: {go_on}", file=sys.stderr)
    return status


def _run_dir(request: Request, resume: bool = False) -> str:
    """Where a run is or will be that no folder is named for."""
    from discrete_vae.experiments.run_names import run_name

    if request.data is None and request.experiment is None and resume:
        repair = "Name the folder: dvae train --resume --run-dir DIR."
        raise InvalidInputError("--run-dir", "or EXPERIMENT must be given with --resume", "neither", repair)
    name = request.experiment if request.data is None else Path(request.data).stem
    base = f"{name}-{request.size or 'short'}"
    return f"runs/{run_name(base, request.seed, request.overrides)}"


def _resumed_config(run: RunDirectory, request: Request, accept_changed_config: bool) -> ExperimentConfig:
    """The config of the run to go on with, which the command line must not contradict."""
    from discrete_vae.config import FileDataConfig
    from discrete_vae.experiments.differences import first_difference
    from discrete_vae.experiments.overrides import apply_overrides
    from discrete_vae.runs.changed_config import check_config

    stored = run.read_experiment()
    given = {"name": request.experiment, "size": request.size, "seed": request.seed}
    asked = apply_overrides(stored, request.overrides).model_copy(
        update={name: value for name, value in given.items() if value is not None}
    )
    if request.data is not None:
        file = FileDataConfig(path=Path(request.data)).path
        of_run = stored.data.path if isinstance(stored.data, FileDataConfig) else stored.data.kind
        if file != of_run:
            raise _other("--data", of_run, file)
    if asked != stored:
        raise _other(*first_difference(stored, asked))
    if not accept_changed_config:  # else training warns of it
        check_config(run, run.checkpoints().newest(), accept=False)
    return stored


def _other(option: str, before: object, after: object) -> InvalidInputError:
    repair = "Leave it out, or start a new run in another --run-dir."
    return InvalidInputError(option, f"must be the resumed run's {before}", after, repair)
