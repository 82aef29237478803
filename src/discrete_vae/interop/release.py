"""A trained run made small enough to pass on: a run of its own without what only training needs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from discrete_vae.data.splits import DataSplits, describe_data, training_subset
from discrete_vae.errors import InvalidInputError
from discrete_vae.inference.evaluate_run import log_partition_of_run
from discrete_vae.inference.rows import Report
from discrete_vae.inference.score import elbo_rows
from discrete_vae.interop.hub import CARD_FILE, EVALUATED, card_of_run, check_words
from discrete_vae.runs.checkpoints import MODEL_PREFIX, RELEASED_FROM, ROUNDED, CheckpointRecord
from discrete_vae.runs.io import read_regular, sha256_file, write_bytes, write_json, write_text
from discrete_vae.runs.load import CHAINS_PREFIX, LoadedRun, load_run
from discrete_vae.runs.results import evaluation_store, is_of, which
from discrete_vae.runs.run_directory import CONFIG_SUM, RunDirectory, check_derived_folder, derived_run

Precision = Literal["bfloat16", "float32"]

MAX_LOSS = 0.1
"""Largest loss of ELBO by a release, nats per example."""

_LINES = 50  # of the log of training, and as many of its validations


@dataclass(frozen=True)
class Release:
    """A released checkpoint, and the ELBO of validation examples before and after its weights were rounded.

    ELBOs are means, nats, with the same noise; ``difference`` is after - before, with its standard error over examples.
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
    keep every bit, so log Z is what it was.

    Nothing is published unchecked: the folder is loaded as its users will load it, and the ELBO of validation examples
    is compared with that of the run, on the same noise.

    The folder is new or empty and outside the run, and the card names the model after it; or this very release has
    filled it, in which case nothing is computed. Licenses are named as the hub does: "apache-2.0", "mit", "cc-by-4.0".
    ``report`` is called with the number of examples whose ELBO is done; each comes twice.

    Raises:
        InvalidInputError: If the folder breaks its rule or cannot be written; if the run keeps no evaluation of the
            checkpoint; if the ELBO fell by more than 0.1 nats, or is not known well enough to say that it did not.
            Nothing is left then.
    """
    settings = {"license": license, "num_examples": num_examples, "num_samples": num_samples, "seed": seed}
    folder, made = check_release(run, loaded, out, precision=precision, **settings)
    if made is not None:
        return made
    record, tensors = _checkpoint(run, loaded, precision)
    environment = run.read_environment()
    environment["data"] = describe_data(dataset) | environment.get("data", {})
    log = thinned([line for line in run.metrics().read() if line["step"] <= loaded.step])
    with derived_run(folder, run, record, tensors, environment=environment, log=log) as new:
        write_bytes(new.evaluation_path, read_regular(run.evaluation_path))
        x = training_subset(dataset, loaded.config.training).valid[:num_examples]
        found = Release(loaded.step, precision, **_compared(run, loaded, new, x, num_samples, seed, report))
        _check_loss(found)
        write_json(new.release_path, asdict(found) | _asked(new, loaded, precision, settings))
        write_text(new.path / CARD_FILE, card_of_run(new, name=folder.name, license=license, in_folder=True))
    return found


def check_release(
    run: RunDirectory, loaded: LoadedRun, out: str | Path, *, license: str, precision: str, **settings: Any
) -> tuple[Path, Release | None]:
    """Check the arguments of `release_run`, which touches nothing; returns the folder, and what it holds already."""
    if precision not in ("bfloat16", "float32"):
        rule, repair = "must be bfloat16 or float32", "Leave it out for bfloat16."
        raise InvalidInputError("precision", rule, f"{precision!r}"[:80], repair)
    check_words(license=license)
    found = evaluation_store(run).most_complete()
    if found is None or not is_of(found, loaded.step, loaded.sums):
        rule = f"must be of the checkpoint that is released, step {loaded.step}"
        received = "no such file" if found is None else which(found, loaded.step)
        repair = f"Evaluate it: dvae evaluate {run.path}."
        raise InvalidInputError(str(run.evaluation_path), rule, received, repair)
    asked = _asked(run, loaded, precision, {"license": license} | settings)
    return check_derived_folder(
        out, run, run.release_path.name, asked, lambda said: Release(**{key: said[key] for key in _KEYS})
    )


def _asked(run: RunDirectory, loaded: LoadedRun, precision: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The request as release.json says it; the evaluation, a copy, tells runs apart."""
    change = loaded.changed_config
    return {
        "step": loaded.step,
        "precision": precision,
        "config": settings,
        EVALUATED: sha256_file(run.evaluation_path),
        **({} if change is None else {"changed_config": asdict(change)}),
    }


def _checkpoint(
    run: RunDirectory, loaded: LoadedRun, precision: Precision
) -> tuple[CheckpointRecord, dict[str, Tensor]]:
    store = run.checkpoints()
    saved, best = store.load(loaded.step), store.best()
    matrices = [
        f"{MODEL_PREFIX}{name}"
        for name, parameter in loaded.model.named_parameters(remove_duplicate=False)
        if parameter.ndim > 1 and not name.startswith("prior.")
    ]
    kept = {
        name: value for name, value in saved.tensors.items() if name.startswith((MODEL_PREFIX, CHAINS_PREFIX))
    }
    tensors, rounded = rounded_weights(kept, matrices if precision == "bfloat16" else [])
    meta = {
        "step": loaded.step,
        CONFIG_SUM: run.config_sha256(),
        RELEASED_FROM: saved.record.sha256,
        **rounded,
    }
    is_best = best is not None and best["step"] == loaded.step
    return CheckpointRecord(loaded.step, meta, best if is_best else {"step": loaded.step}), tensors


def rounded_weights(
    tensors: Mapping[str, Tensor], names: Collection[str]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Round the named float32 tensors to bfloat16; returns all, and what the checkpoint's plain values say of them."""
    chosen = sorted(names)
    found = dict(tensors) | {name: tensors[name].to(torch.bfloat16) for name in chosen}
    return found, {ROUNDED: chosen} if chosen else {}


def thinned(lines: Sequence[dict[str, Any]], most: int = _LINES) -> list[dict[str, Any]]:
    """At most so many lines of a log and as many of its validations, evenly spaced, the first and the last included."""
    kept: list[dict[str, Any]] = []
    for validated in (False, True):
        kind = [line for line in lines if ("validation_elbo" in line) is validated]
        places = np.linspace(0, len(kind) - 1, min(len(kind), most)).round().astype(int)
        kept += [kind[place] for place in places]
    return sorted(kept, key=lambda line: line["step"])


def _compared(
    run: RunDirectory,
    loaded: LoadedRun,
    new: RunDirectory,
    x: Tensor,
    num_samples: int,
    seed: int,
    report: Report | None,
) -> dict[str, Any]:
    log_z = log_partition_of_run(run, loaded, seed=seed).value
    released = load_run(new, device=loaded.model.prior.bias.device).model
    score = partial(elbo_rows, x=x, log_partition=log_z, num_samples=num_samples, seed=seed)
    before = score(loaded.model, report=report).value
    after = score(released, report=None if report is None else lambda done: report(len(x) + done)).value
    change = after - before
    return {
        "before": float(before.mean()),
        "after": float(after.mean()),
        "difference": float(change.mean()),
        "difference_std_error": _error_of_mean(change),
        "num_examples": len(x),
        "num_samples": num_samples,
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
