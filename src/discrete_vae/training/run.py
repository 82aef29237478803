"""A run's folder around the steps of training: from Python as from `dvae train`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from discrete_vae.config import ExperimentConfig, instantiate
from discrete_vae.data.splits import DataSplits, data_sum, describe_data, training_subset
from discrete_vae.distributed import compute_on_rank_zero, held_by_rank_zero
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import IndependentFeatures, independent_features
from discrete_vae.runs.io import write_json
from discrete_vae.runs.progress import TrainingProgress
from discrete_vae.runs.run_directory import RunDirectory, describe_environment, sole_writer
from discrete_vae.system import check_device, unicode_path
from discrete_vae.training.logging import MetricsLogger
from discrete_vae.training.loop import TrainingResult, run_steps
from discrete_vae.training.preflight import check_experiment
from discrete_vae.training.step import KEY, choose_precision


def train(
    config: ExperimentConfig,
    dataset: DataSplits,
    run_dir: str | Path | RunDirectory,
    *,
    device: torch.device | str = "cpu",
    progress: TrainingProgress | None = None,
    stop: Callable[[], bool] | None = None,
    accept_changed_config: bool = False,
    logger: MetricsLogger | None = None,
) -> TrainingResult:
    """Train a model as `dvae train` does, or go on with a run of the same config; `load_run` gives the model.

    The folder holds what the command writes, so that its verbs read it. The number of threads stays torch's. Within
    `discrete_vae.distributed.process_group`, or any other process group, each step is divided among the processes.

    Args:
        config: The experiment.
        dataset: Its data.
        run_dir: The folder: new, empty, or that of a run to go on with; ``~`` is the home directory.
        device: Where to compute.
        progress: What shows the metrics; None makes one on standard error.
        stop: Asked before each step; once it says True, the run is saved where it is and left.
        accept_changed_config: Whether to go on, with a warning, where the run's config.json is not the file that its
            last checkpoint was trained with.
        logger: Where the lines of metrics.jsonl go beside it, for example
            `discrete_vae.interop.tensorboard.TensorBoardLogger`; closed however training ends.

    Returns:
        How far it came and which checkpoint is the best.

    Raises:
        InvalidInputError: If the data do not fit the model, the device is not there, the folder holds something else,
            another config's or other data's run, or another process trains in it; or the last checkpoint is damaged.
        NonFiniteLossError: If a term of the loss, a weight or the validation ELBO is not finite; checkpoints stay as
            they are.
        CheckpointWriteError: If a checkpoint cannot be written; those before it stay.

    Examples:
        >>> import tempfile
        >>> from discrete_vae import load_dataset, load_experiment, load_run
        >>> config = load_experiment("digits", size="smoke")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = train(config, load_dataset("digits"), folder, stop=lambda: True)  # before the first step
        >>> result.step
        0
    """
    for name, given, wanted in (("config", config, ExperimentConfig), ("dataset", dataset, DataSplits)):
        if not isinstance(given, wanted):
            received, repair = f"a {type(given).__name__}", "load_experiment and load_dataset make them."
            raise InvalidInputError(name, f"must be of type {wanted.__name__}", received, repair)
    device = check_device(device)
    with prepared_run(config, dataset, run_dir, device=device) as (run, _):
        return run_steps(
            config,
            dataset,
            run,
            device=device,
            progress=progress,
            stop=stop,
            accept_changed_config=accept_changed_config,
            logger=logger,
        )


@contextmanager
def prepared_run(
    config: ExperimentConfig, dataset: DataSplits, run_dir: str | Path | RunDirectory, *, device: torch.device
) -> Iterator[tuple[RunDirectory, int]]:
    """Check an experiment, make or open the folder of its run, and hold it against other writers within the block.

    Yields:
        The run, and the number of its steps.
    """
    num_steps = check_experiment(config, dataset)
    run = compute_on_rank_zero(lambda: _folder(run_dir))
    with held_by_rank_zero(sole_writer(run.path)):
        compute_on_rank_zero(lambda: _prepare(run, config, dataset, device=device))
        yield run, num_steps


def _folder(run_dir: str | Path | RunDirectory) -> RunDirectory:
    run = run_dir if isinstance(run_dir, RunDirectory) else RunDirectory(unicode_path("run_dir", run_dir))
    return RunDirectory.open(run.path) if run.config_path.exists() else RunDirectory.create(run.path)


def _prepare(
    run: RunDirectory, config: ExperimentConfig, dataset: DataSplits, *, device: torch.device
) -> None:
    """Write what a run's folder says of it, unless it says so already; the caller is the folder's sole writer."""
    for file, what in (
        (run.refit_path, "whose posterior dvae refit has fitted anew"),
        (run.release_path, "a released run, which has nothing of the optimizer"),
    ):
        if file.exists():
            repair = "Go on with the run that it was made of, or begin a new one."
            rule = "must be a run that training left"
            raise InvalidInputError("run_dir", rule, f"{run.path}, {what}", repair)
    if run.config_path.exists():
        _check_same(run, config, dataset)
    run.remove_temporaries()
    if not run.config_path.exists():
        run.write_config(config.model_dump_json(indent=2) + "\n")
    if not run.environment_path.exists():  # a kill may have come between the two
        environment = describe_environment(seed=config.seed, device=device)
        precision = choose_precision(config, device=device).name
        write_json(run.environment_path, environment | {"data": describe_data(dataset), KEY: precision})


def _check_same(run: RunDirectory, config: ExperimentConfig, dataset: DataSplits) -> None:
    stored, trained = run.read_experiment(), data_sum(run)
    if config != stored:
        names = [name for name in type(config).model_fields if getattr(config, name) != getattr(stored, name)]
        repair = "Train with the run's, load_run(...).config, or give another run_dir."
        received = f"another {' and '.join(names)}"
        raise InvalidInputError("config", f"must be that of the run in {run.path}", received, repair)
    if trained is not None and trained != dataset.description.sha256:
        rule = f"must be those that {run.environment_path} names, SHA-256 {trained}"
        received = f"{dataset.description.source} with SHA-256 {dataset.description.sha256}"
        repair = "Bring the file back, or start a new run in another --run-dir."
        raise InvalidInputError("data", rule, received, repair)


def validation_baseline(config: ExperimentConfig, dataset: DataSplits) -> IndependentFeatures:
    """Log-likelihood of independent features on a run's validation examples, fitted to those it trains on."""
    chosen = training_subset(dataset, config.training)
    likelihood = instantiate(config.model.likelihood, event_shape=config.model.shape)
    return independent_features(
        likelihood,
        chosen.train,
        chosen.valid,
        train_weights=chosen.weights.get("train"),
        weights=chosen.weights.get("valid"),
    )
