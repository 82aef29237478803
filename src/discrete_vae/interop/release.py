"""A trained run made small enough to pass on: a run of its own without what only training needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from discrete_vae.data.splits import DataSplits, describe_data, training_subset
from discrete_vae.errors import InvalidInputError
from discrete_vae.inference.evaluate_run import log_partition_of_run
from discrete_vae.inference.rows import Report
from discrete_vae.inference.score import elbo_rows
from discrete_vae.interop.hub import CARD_FILE, EVALUATED, card_of_run
from discrete_vae.load import CHAINS_PREFIX, LoadedRun, load_run
from discrete_vae.runs.checkpoints import (
    MODEL_PREFIX,
    RELEASED_FROM,
    CheckpointRecord,
    rounded_weights,
    write_checkpoint,
)
from discrete_vae.runs.io import (
    publish_directory,
    read_regular,
    sha256_file,
    unwritable,
    write_bytes,
    write_json,
    write_text,
)
from discrete_vae.runs.results import is_of, kept_evaluations, which
from discrete_vae.runs.run_directory import CONFIG_SUM, OUT, REPAIR, RunDirectory, check_derived_folder

Precision = Literal["bfloat16", "float32"]

MAX_LOSS = 0.1
"""How much ELBO a release may cost, nats per example."""

_LINES = 50  # of the log of training, and as many of its validations


@dataclass(frozen=True)
class Release:
    """What was released, and what rounding its weights did to the ELBO of validation examples.

    Attributes:
        step: Step of the checkpoint.
        precision: In which the matrices of the networks are kept.
        before: Mean ELBO of the run's own weights, nats.
        after: That of the released weights, with the same noise, nats.
        difference: after - before, nats.
        difference_std_error: Its standard error over examples, nats.
        num_examples: Validation examples.
        num_samples: Draws per example.
    """

    step: int
    precision: Precision
    before: float
    after: float
    difference: float
    difference_std_error: float
    num_examples: int
    num_samples: int

    def __str__(self) -> str:
        return (
            f"ELBO of {self.num_examples} validation examples: {self.before:.3f} nats before, {self.after:.3f} after, "
            f"a difference of {self.difference:+.4f} +- {self.difference_std_error:.4f}"
        )


_KEYS = [field.name for field in fields(Release)]


def release_run(
    run: RunDirectory,
    loaded: LoadedRun,
    dataset: DataSplits,
    out: str | Path,
    *,
    license: str,
    precision: Precision = "bfloat16",
    num_examples: int = 1000,
    num_samples: int = 10,
    seed: int = 0,
    report: Report | None = None,
) -> Release:
    """Write a run that holds what using a model takes and nothing else: weights, chains, what is known of it, a card.

    Every verb for a trained run takes the folder, and `load_run` gives float32 weights. It has one checkpoint, without
    the optimizer, so that training cannot go on with it; of the log of training a hundred lines; what pictures need of
    the data; and ``evaluation.json``, which is that of the run, before its weights were rounded.

    In bfloat16, the matrices of the networks are rounded to the nearest; the prior, biases, batch norms and buffers
    keep every bit, so log Z is what it was. 3 MiB then hold about 1.5 million weights, in float32 half as many:
    static MNIST with 64 + 64 units and four layers of 32 takes 2.7 MiB where networks have one hidden layer of 150,
    2.1 MiB with two of 100. The chains take an eighth of a byte per unit.

    Nothing is published unchecked: the folder is loaded as its users will load it, and the ELBO of validation examples
    is compared with that of the run, on the same noise.

    Args:
        run: The run, which stays as it is.
        loaded: The checkpoint of it.
        dataset: The run's data.
        out: A new or empty folder outside the run, after which the card names the model, or one that this very release
            has filled, in which case nothing is computed; ``~`` is the home directory.
        license: Of the weights, as the hub names licenses: "apache-2.0", "mit", "cc-by-4.0".
        precision: Of the matrices.
        num_examples: Validation examples of the check, at most.
        num_samples: Draws of the posterior for each.
        seed: Seed of the noise.
        report: Called with the number of examples whose ELBO is done; each comes twice.

    Raises:
        InvalidInputError: If the folder breaks its rule or cannot be written; if the run keeps no evaluation of the
            checkpoint; if the ELBO fell by more than 0.1 nats, or is not known well enough to say that it did not.
            Nothing is left then.

    Examples:
        >>> import tempfile
        >>> from discrete_vae import load_dataset, load_pretrained
        >>> from discrete_vae.runs.hub import shipped_folder
        >>> run = RunDirectory.open(shipped_folder("digits"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = release_run(
        ...         run, load_pretrained("digits"), load_dataset("digits"), f"{folder}/again", license="apache-2.0"
        ...     )
        ...     load_run(f"{folder}/again").step == found.step
        True
        >>> found.difference  # its weights had been rounded before
        0.0
    """
    settings = {"license": license, "num_examples": num_examples, "num_samples": num_samples, "seed": seed}
    folder, made = check_release(run, loaded, out, precision=precision, **settings)
    if made is not None:
        return made
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with publish_directory(folder, replace=folder.exists()) as temporary:
            new = RunDirectory(temporary)
            _write(new, run, loaded, dataset, precision)
            found = _compared(
                run, loaded, new, _examples(loaded, dataset, num_examples), num_samples, seed, report
            )
            found = Release(loaded.step, precision, **found, num_samples=num_samples)
            _check_loss(found)
            write_json(new.release_path, asdict(found) | _asked(new, loaded, precision, settings))
            write_text(
                new.path / CARD_FILE, card_of_run(new, name=folder.name, license=license, in_folder=True)
            )
            RunDirectory.check_new(folder, argument=OUT)  # which may have been filled meanwhile
    except OSError as error:
        raise unwritable(folder, error, REPAIR) from None
    return found


def check_release(
    run: RunDirectory, loaded: LoadedRun, out: str | Path, *, license: str, precision: str, **settings: Any
) -> tuple[Path, Release | None]:
    """What can be known before the data are read: the folder, and the release if it is there; touches nothing.

    Args:
        run: As in `release_run`.
        loaded: Likewise.
        out: Likewise.
        license: Likewise.
        precision: Likewise.
        settings: The other keywords of `release_run` that change the result.

    Raises:
        InvalidInputError: As `release_run`.
    """
    if precision not in ("bfloat16", "float32"):
        raise InvalidInputError(
            "precision", "must be bfloat16 or float32", f"{precision!r}"[:80], "Leave it out for bfloat16."
        )
    if not isinstance(license, str) or not license.strip() or not license.isprintable():
        raise InvalidInputError("license", "must be a word", f"{license!r}"[:80], "For example apache-2.0.")
    found = kept_evaluations(run).fullest()
    if found is None or not is_of(found, loaded.step, loaded.sums):
        rule = f"must be of the checkpoint that is released, step {loaded.step}"
        received = "no such file" if found is None else which(found, loaded.step)
        raise InvalidInputError(
            str(run.evaluation_path), rule, received, f"Evaluate it: dvae evaluate {run.path}."
        )
    asked = _asked(run, loaded, precision, {"license": license} | settings)
    return check_derived_folder(
        out, run, run.release_path.name, asked, lambda said: Release(**{key: said[key] for key in _KEYS})
    )


def _asked(run: RunDirectory, loaded: LoadedRun, precision: str, settings: dict[str, Any]) -> dict[str, Any]:
    """What release.json says of the request; the evaluation, a copy, tells runs apart."""
    change = loaded.changed_config
    return {
        "step": loaded.step,
        "precision": precision,
        "config": settings,
        EVALUATED: sha256_file(run.evaluation_path),
        **({} if change is None else {"changed_config": asdict(change)}),
    }


def _write(
    new: RunDirectory, run: RunDirectory, loaded: LoadedRun, dataset: DataSplits, precision: Precision
) -> None:
    """Write all of the new run but what is said of the release."""
    store = run.checkpoints()
    saved, best = store.load(loaded.step), store.best()
    kept = {
        name: value for name, value in saved.tensors.items() if name.startswith((MODEL_PREFIX, CHAINS_PREFIX))
    }
    matrices = [
        f"{MODEL_PREFIX}{name}"
        for name, parameter in loaded.model.named_parameters(remove_duplicate=False)
        if parameter.ndim > 1 and not name.startswith("prior.")
    ]
    tensors, rounded = rounded_weights(kept, matrices if precision == "bfloat16" else [])
    meta = {"step": loaded.step, CONFIG_SUM: run.config_sha256(), RELEASED_FROM: saved.sha256, **rounded}
    record = CheckpointRecord(
        loaded.step, meta, best if best is not None and best["step"] == loaded.step else {"step": loaded.step}
    )
    environment = run.read_environment()
    environment["data"] = describe_data(dataset) | environment.get("data", {})
    write_bytes(new.config_path, read_regular(run.config_path))
    write_bytes(new.evaluation_path, read_regular(run.evaluation_path))
    write_json(new.environment_path, environment)
    log = new.metrics()
    for line in thinned([line for line in run.metrics().read() if line["step"] <= loaded.step]):
        log.append(line)
    checkpoint = new.checkpoints().folder(loaded.step)
    checkpoint.mkdir(parents=True)
    write_checkpoint(checkpoint, record, tensors)
    write_json(new.best_path, record.best or {})


def thinned(lines: Sequence[dict[str, Any]], most: int = _LINES) -> list[dict[str, Any]]:
    """A few lines of a log, evenly spaced, the first and the last among them; validations apart from the others.

    Args:
        lines: All of them, by step.
        most: How many of either kind stay.

    Examples:
        >>> [line["step"] for line in thinned([{"step": step} for step in range(1, 12)], 3)]
        [1, 6, 11]
    """
    kept: list[dict[str, Any]] = []
    for validated in (False, True):
        kind = [line for line in lines if ("validation_elbo" in line) is validated]
        places = np.linspace(0, len(kind) - 1, min(len(kind), most)).round().astype(int)
        kept += [kind[place] for place in places]
    return sorted(kept, key=lambda line: line["step"])


def _examples(loaded: LoadedRun, dataset: DataSplits, num_examples: int) -> Tensor:
    return training_subset(dataset, loaded.config.training).valid[:num_examples]


def _compared(
    run: RunDirectory,
    loaded: LoadedRun,
    new: RunDirectory,
    x: Tensor,
    num_samples: int,
    seed: int,
    report: Report | None,
) -> dict[str, Any]:
    """The ELBO of the run and of what was written, read back."""
    log_z = log_partition_of_run(run, loaded, seed=seed).value
    released = load_run(new, device=loaded.model.prior.bias.device).model
    before, after = (
        elbo_rows(model, x, log_partition=log_z, num_samples=num_samples, seed=seed, report=shifted).value
        for model, shifted in (
            (loaded.model, report),
            (released, None if report is None else lambda done: report(len(x) + done)),
        )
    )
    change = after - before
    return {
        "before": float(before.mean()),
        "after": float(after.mean()),
        "difference": float(change.mean()),
        "difference_std_error": _error_of_mean(change),
        "num_examples": len(x),
    }


def _error_of_mean(change: np.ndarray) -> float:
    """Standard error over examples; 0 where nothing has changed, infinite where one example cannot tell."""
    if not change.any():
        return 0.0
    return float(change.std(ddof=1)) / math.sqrt(len(change)) if len(change) > 1 else math.inf


def _check_loss(found: Release) -> None:
    """Refuse a release whose ELBO fell, or may have fallen within two standard errors."""
    if 2 * found.difference_std_error - found.difference > MAX_LOSS:
        rule = f"must keep the ELBO to {MAX_LOSS} nats, within two standard errors"
        received = f"{found.difference:+.3f} +- {found.difference_std_error:.3f} nats"
        repair = "Use float32: --precision float32; or check more examples: --num-examples."
        raise InvalidInputError(f"precision {found.precision}", rule, received, repair)
