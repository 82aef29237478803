"""Finished parts of an evaluation in a folder, so that one that was killed goes on where it was."""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import TypeAdapter

from discrete_vae.evaluation.log_likelihood import ExampleLogLikelihoods, MeanLogLikelihood
from discrete_vae.log_partition.bennett import LogPartitionWarning
from discrete_vae.log_partition.estimate import AnnealingDisagreementWarning, CheckedLogPartition
from discrete_vae.runs.atomic import write_bytes
from discrete_vae.runs.checksums import sha256_bytes
from discrete_vae.runs.regular_files import read_regular

_Found = TypeVar("_Found")
_WARNINGS = {kind.__name__: kind for kind in (LogPartitionWarning, AnnealingDisagreementWarning)}
_ROWS = {"index": torch.int64, "value": torch.float64, "std_error": torch.float64, "ess": torch.float64}


class KeptParts:
    """The parts of one evaluation: log Z, and the log-likelihoods of some examples each.

    A part is there whole or not at all, and holds every digit. It counts only if it has the SHA-256 of its own
    content and names this evaluation and its own place in it; any other is computed anew.

    Args:
        folder: Where the parts of evaluations are kept, those of each in a folder of its own. Made when needed.
        key: What tells this evaluation from every other one: a digest of all that its digits depend on.

    Attributes:
        seconds: Time that it took to compute what was found there.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self._folder, self._key = folder / sha256_bytes(key.encode())[:16], key
        self._warned = False
        self.seconds = 0.0

    def log_partition(self, compute: Callable[[], CheckedLogPartition]) -> CheckedLogPartition:
        """log Z, computed unless it is there; what was warned of then is warned of again."""

        def compute_fields() -> dict[str, Any]:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found = TypeAdapter(CheckedLogPartition).dump_python(compute())
            return {"found": found, "said": [(each.category.__name__, str(each.message)) for each in caught]}

        found, said = self._part("log_partition", compute_fields, _log_partition)
        for kind, text in said:
            warnings.warn(text, _WARNINGS.get(kind, UserWarning), stacklevel=3)
        return found

    def log_likelihood(self, name: str, compute: Callable[[], MeanLogLikelihood]) -> MeanLogLikelihood:
        """The log-likelihoods of a part, computed unless they are there."""

        def compute_fields() -> dict[str, Any]:
            found = compute()
            assert found.examples is not None
            rows = {name: getattr(found.examples, name).tolist() for name in _ROWS}
            return {"found": {**vars(found), "examples": None}, "rows": rows}

        return self._part(name, compute_fields, _log_likelihood)

    def discard(self) -> None:
        """Remove what is kept, when the result has it all."""
        shutil.rmtree(self._folder, ignore_errors=True)
        with suppress(OSError):  # the folder around it may keep parts of another evaluation, or not be there
            self._folder.parent.rmdir()

    def _part(
        self, name: str, compute: Callable[[], dict[str, Any]], read: Callable[[dict[str, Any]], _Found]
    ) -> _Found:
        """A part as it is read from the plain values that are kept of it, or that are computed and kept."""
        path, of = self._folder / f"{name}.json", f"{self._key} {name}"
        with suppress(Exception):  # whatever a missing, damaged or forged file makes its reader raise
            total, _, content = read_regular(path).partition(b"\n")
            if total.decode() == sha256_bytes(content) and (fields := json.loads(content))["of"] == of:
                found, seconds = read(fields), float(fields["seconds"])
                self.seconds += max(seconds, 0.0)
                return found
        start = time.monotonic()
        fields = compute()
        content = json.dumps({"of": of, "seconds": time.monotonic() - start, **fields}).encode()
        self._keep(path, sha256_bytes(content).encode() + b"\n" + content)
        return read(fields)

    def _keep(self, path: Path, content: bytes) -> None:
        """Write a part; where that fails the evaluation goes on without, as its result is what counts."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_bytes(path, content)
        except OSError as error:
            if not self._warned:
                warnings.warn(
                    f"if this is killed it begins anew, as {self._folder} keeps nothing: {error}",
                    stacklevel=4,
                )
            self._warned = True


def _log_partition(fields: dict[str, Any]) -> tuple[CheckedLogPartition, list[tuple[str, str]]]:
    found = TypeAdapter(CheckedLogPartition).validate_python(fields["found"])
    return found, TypeAdapter(list[tuple[str, str]]).validate_python(fields["said"])


def _log_likelihood(fields: dict[str, Any]) -> MeanLogLikelihood:
    rows = {name: torch.tensor(fields["rows"][name], dtype=dtype) for name, dtype in _ROWS.items()}
    found = TypeAdapter(dict[str, float | None]).validate_python(fields["found"])
    counts = {name: int(fields["found"][name]) for name in ("num_examples", "num_samples")}
    if {row.shape for row in rows.values()} != {(counts["num_examples"],)}:
        raise ValueError("rows of another number than examples")
    return MeanLogLikelihood(**{**found, **counts, "examples": ExampleLogLikelihoods(**rows)})  # pyright: ignore
