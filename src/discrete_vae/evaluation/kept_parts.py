"""Finished parts of an evaluation in a folder, so that one that was killed goes on where it was."""

from __future__ import annotations

import shutil
import time
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from discrete_vae.boltzmann.log_partition import LogPartition
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.log_likelihood import ExampleLogLikelihoods, MeanLogLikelihood
from discrete_vae.log_partition.bennett import LogPartitionWarning
from discrete_vae.log_partition.estimate import AnnealingDisagreementWarning, CheckedLogPartition
from discrete_vae.runs.atomic import write_stream
from discrete_vae.runs.json_files import read_json, write_json

_ESTIMATES = ("best", "forward", "reverse")
_WARNINGS = {kind.__name__: kind for kind in (LogPartitionWarning, AnnealingDisagreementWarning)}
_EXAMPLES = ("index", "value", "std_error", "ess")
_NUMBERS = (
    "value",
    "std_error",
    "monte_carlo_std_error",
    "min_ess",
    "median_ess",
    "doubling_gain",
    "log_partition_std_error",
)
_COUNTS = ("num_examples", "num_samples")


class KeptParts:
    """The parts of one evaluation: log Z, and the log-likelihoods of some examples each.

    A part is there whole or not at all, and holds every digit. What cannot be read is computed anew.

    Args:
        folder: Where they are kept, of this evaluation alone: one model, data, seed and config. Made when needed.

    Attributes:
        seconds: Time that it took to compute what was found there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._warned = False
        self.seconds = 0.0

    def log_partition(self, compute: Callable[[], CheckedLogPartition]) -> CheckedLogPartition:
        """log Z, computed unless it is there; what was warned of then is warned of again."""
        path = self._folder / "log_partition.json"
        if path.exists():
            try:
                fields = read_json(path)
                known, said = (
                    _estimates(fields),
                    [(str(kind), str(text)) for kind, text in fields["warnings"]],
                )
                self.seconds += float(fields["seconds"])
            except (InvalidInputError, TypeError, KeyError, ValueError, AttributeError):
                pass  # it was damaged
            else:
                _warn(said)
                return known
        start = time.monotonic()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = compute()
        said = [(each.category.__name__, str(each.message)) for each in caught]
        values = {name: _plain(getattr(found, name)) for name in _ESTIMATES}
        more = {"seconds": time.monotonic() - start, "warnings": said}
        self._keep(lambda: write_json(path, values | more))
        _warn(said)
        return found

    def log_likelihood(self, name: str, compute: Callable[[], MeanLogLikelihood]) -> MeanLogLikelihood:
        """The log-likelihoods of a part, computed unless they are there."""
        path = self._folder / f"{name}.npz"
        if path.exists():
            try:
                with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                    part = _mean({key: arrays[key] for key in arrays.files})
                    self.seconds += float(arrays["seconds"])
                    return part
            except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile):
                pass
        start = time.monotonic()
        found = compute()
        examples = found.examples
        assert examples is not None
        arrays = {f"example_{key}": getattr(examples, key).numpy() for key in _EXAMPLES}
        arrays |= {key: np.array(getattr(found, key)) for key in (*_NUMBERS, *_COUNTS)}
        arrays["seconds"] = np.array(time.monotonic() - start)
        self._keep(lambda: write_stream(path, lambda file: np.savez(file, allow_pickle=False, **arrays)))
        return found

    def _keep(self, write: Callable[[], object]) -> None:
        """Write a part; where that fails the evaluation goes on without, as its result is what counts."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write()
        except OSError as error:
            if not self._warned:
                warnings.warn(
                    f"if this is killed it begins anew, as {self._folder} keeps nothing: {error}",
                    stacklevel=4,
                )
            self._warned = True

    def discard(self) -> None:
        """Remove what is kept, when the result has it all."""
        shutil.rmtree(self._folder, ignore_errors=True)
        with suppress(OSError):  # the folder around it may keep parts of another evaluation, or not be there
            self._folder.parent.rmdir()


def _warn(said: list[tuple[str, str]]) -> None:
    for kind, text in said:
        warnings.warn(text, _WARNINGS.get(kind, UserWarning), stacklevel=4)


def _plain(found: LogPartition | None) -> dict[str, Any] | None:
    return None if found is None else asdict(found)


def _estimates(fields: dict[str, Any]) -> CheckedLogPartition:
    found = [None if fields[name] is None else _estimate(fields[name]) for name in _ESTIMATES]
    best = found[0]
    if best is None:
        raise KeyError("best")
    return CheckedLogPartition(best, *found[1:])


def _estimate(fields: dict[str, Any]) -> LogPartition:
    """JSON makes lists of tuples."""
    given: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()
    }
    return LogPartition(**given)


def _mean(arrays: dict[str, np.ndarray]) -> MeanLogLikelihood:
    examples = ExampleLogLikelihoods(*(torch.from_numpy(arrays[f"example_{key}"]) for key in _EXAMPLES))
    numbers: dict[str, Any] = {key: float(arrays[key]) for key in _NUMBERS}
    counts = {key: int(arrays[key]) for key in _COUNTS}
    return MeanLogLikelihood(**numbers | counts, examples=examples)
