"""A run whose posterior was fitted anew, in a folder of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from discrete_vae.data.chosen import chosen_examples
from discrete_vae.data.dataset import DataSplits
from discrete_vae.evaluation.elbo import MeanElbo
from discrete_vae.log_partition.estimate import comparable_log_partition
from discrete_vae.runs.atomic import publish_directory, write_bytes
from discrete_vae.runs.changed_config import CONFIG_SUM
from discrete_vae.runs.checkpoint_files import MODEL_PREFIX, write_checkpoint
from discrete_vae.runs.checkpoint_record import CheckpointRecord
from discrete_vae.runs.derived_folder import OUT, REPAIR, check_derived_folder
from discrete_vae.runs.environment import describe_environment
from discrete_vae.runs.json_files import write_json
from discrete_vae.runs.regular_files import read_regular
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.runs.writable import unwritable
from discrete_vae.training.load import CHAINS_PREFIX, LoadedRun
from discrete_vae.training.precision import choose_precision
from discrete_vae.training.refit import LEARNING_RATE, MODEL_SHARE, Refit, check_refit, refit_posterior
from discrete_vae.training.run_checkpoints import best_entry

NUM_STEPS = 2000


class RunRefit:
    """A refit of a run's posterior; whatever can be wrong is found when it is made, before the work.

    The new folder is written at the end, whole or not at all. It has the run's config, environment and log up to the
    checkpoint, and one checkpoint: the model, and the chains where the refit left them. It has nothing of the
    optimizer, so that training cannot go on with it.

    Args:
        run: The run, which stays as it is.
        loaded: A checkpoint of it.
        dataset: The run's data, whole; as many examples are read as in training.
        out: A new or empty folder outside the run, or one that this very refit has filled, in which case nothing is
            computed and the loaded model stays as it is; ``~`` is the home directory.
        num_steps: Steps of Adam.
        batch_size: Examples per step; None means as many as in training.
        model_share: Share of them that the model draws, from 0 to 1.
        learning_rate: Largest step size.
        seed: Seed of all noise.

    Attributes:
        folder: Where the new run goes.
        num_steps: Steps of Adam.
        made: What the folder says if this very refit has filled it; None otherwise.

    Raises:
        InvalidInputError: As `refit_posterior`; if the folder breaks its rule or cannot be written, or what the new run
            takes over is damaged.

    Examples:
        >>> import tempfile
        >>> from discrete_vae import load_dataset, load_experiment, load_run, train
        >>> from discrete_vae.experiments.overrides import apply_overrides
        >>> config = apply_overrides(load_experiment("digits", size="smoke"), [("training.num-epochs", ["1"])])
        >>> dataset = load_dataset("digits")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder)
        ...     result = train(config, dataset, path / "run")
        ...     run = RunDirectory.open(path / "run")
        ...     refit = RunRefit(run, load_run(run), dataset, path / "new", num_steps=5)
        ...     found = refit.run()
        ...     load_run(path / "new").step
        12
        >>> found.after.num_examples
        250
    """

    def __init__(
        self,
        run: RunDirectory,
        loaded: LoadedRun,
        dataset: DataSplits,
        out: str | Path,
        *,
        num_steps: int = NUM_STEPS,
        batch_size: int | None = None,
        model_share: float = MODEL_SHARE,
        learning_rate: float = LEARNING_RATE,
        seed: int = 0,
    ) -> None:
        self.num_steps = num_steps
        self._run, self._loaded, self._sum = run, loaded, dataset.description.sha256
        training, device = loaded.config.training, loaded.model.prior.bias.device
        self._settings: dict[str, Any] = {
            "num_steps": num_steps,
            "batch_size": training.batch_size if batch_size is None else batch_size,
            "model_share": model_share,
            "learning_rate": learning_rate,
            "num_sweeps": training.num_sweeps,
            "seed": seed,
        }
        self._dataset = chosen_examples(dataset, training)
        self._precision = choose_precision(loaded.config, device=device, begun=run.read_environment())
        self._asked: dict[str, Any] = {
            "run": str(run.path.resolve()),
            "step": loaded.step,
            "config": self._settings | {"precision": self._precision.name},
            "data_sha256": self._sum,
        }
        if loaded.changed_config is not None:
            self._asked["changed_config"] = asdict(loaded.changed_config)
        self.folder, self.made = check_derived_folder(out, run, "refit.json", self._asked, _read)
        check_refit(loaded.model, self._dataset, **self._settings)
        run.metrics().read()

    def run(self, report: Callable[[int, float], None] | None = None) -> Refit:
        """Fit the posterior and write the new run; the loaded model's posterior changes, and its chains are swept on.

        Args:
            report: Called after each step with the steps done and the loss, nats.

        Returns:
            The bound before and after.

        Raises:
            InvalidInputError: If the folder has been filled meanwhile, or cannot be written.
            NonFiniteLossError: If the loss is not finite; nothing is written.
        """
        if self.made is not None:
            return self.made
        start, loaded, seed = time.monotonic(), self._loaded, self._settings["seed"]
        log_partition = comparable_log_partition(loaded.model.prior, chains=loaded.chains.z, seed=seed)
        found = refit_posterior(
            loaded.model,
            self._dataset,
            loaded.chains,
            log_partition=log_partition.value,
            log_partition_std_error=log_partition.std_error,
            precision=self._precision.dtype,
            report=report,
            **self._settings,
        )
        about = self._asked | {
            "seconds": time.monotonic() - start,
            "before": asdict(found.before),
            "after": asdict(found.after),
            "environment": describe_environment(seed=seed, device=loaded.model.prior.bias.device),
        }
        _write(self.folder, self._run, loaded, found, about)
        return found


def _read(fields: Mapping[str, Any]) -> Refit:
    """What a folder says of a refit."""
    return Refit(before=MeanElbo(**fields["before"]), after=MeanElbo(**fields["after"]))


def _write(out: Path, run: RunDirectory, loaded: LoadedRun, found: Refit, about: dict[str, Any]) -> None:
    """Write the new run.

    Raises:
        InvalidInputError: If something cannot be written, or the folder has been filled meanwhile.
    """
    RunDirectory.check_new(out, argument=OUT)
    tensors = {f"{MODEL_PREFIX}{name}": value for name, value in loaded.model.state_dict().items()}
    tensors |= {f"{CHAINS_PREFIX}{name}": value for name, value in loaded.chains.state_dict().items()}
    meta = {"step": loaded.step, CONFIG_SUM: run.config_sha256()}
    record = CheckpointRecord(loaded.step, meta, best_entry(loaded.step, found.after))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with publish_directory(out, replace=out.exists()) as temporary:
            new = RunDirectory(temporary)
            write_bytes(new.config_path, read_regular(run.config_path))
            if run.environment_path.exists():
                write_bytes(new.environment_path, read_regular(run.environment_path))
            for line in run.metrics().read():
                if line["step"] <= loaded.step:
                    new.metrics().append(line)
            checkpoint = new.checkpoints().folder(loaded.step)
            checkpoint.mkdir(parents=True)
            write_checkpoint(checkpoint, record, tensors)
            write_json(new.best_path, record.best or {})
            write_json(new.refit_path, about)
    except OSError as error:
        raise unwritable(out, error, REPAIR) from None
