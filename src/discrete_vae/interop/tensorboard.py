"""Metrics of a run as TensorBoard events."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from discrete_vae.errors import InvalidInputError
from discrete_vae.system import unicode_path


def check_installed() -> type:
    """The writer of events that torch has, which needs TensorBoard; an error without it."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError:
        received, repair = "no module tensorboard", "Install it: pip install 'discrete-vae[tensorboard]'."
        raise InvalidInputError("logger", "must be installed", received, repair) from None
    return SummaryWriter


class TensorBoardLogger:
    """Lines of metrics.jsonl as TensorBoard events, a scalar per number; a logger for `discrete_vae.train`.

    A run that goes on has all of its lines written anew, with ``purge_step`` 0, so that TensorBoard shows what
    metrics.jsonl holds: nothing twice, nothing of steps that were taken again, nothing lost in a kill. Numbers are
    float32 in events. TensorBoard, which is imported here alone, comes with `pip install 'discrete-vae[tensorboard]'`.

    Args:
        path: The folder of the events; ``~`` is the home directory. The command takes the run's ``tensorboard``.
    """

    def __init__(self, path: str | Path) -> None:
        self._make = check_installed()
        self._folder = unicode_path("path", path)
        self._writer: Any = None

    def begin(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write the lines that there are, in place of all earlier events."""
        earlier = any(self._folder.glob("events.out.*"))
        self._writer = self._make(str(self._folder), purge_step=0 if earlier else None)
        # as if the run had never paused, so that TensorBoard's relative times are those of training
        start = time.time() - max((record.get("seconds", 0.0) for record in records), default=0.0)
        for record in records:
            self._add(record, start + record.get("seconds", 0.0))
        self._writer.flush()

    def write(self, record: Mapping[str, Any]) -> None:
        """Write one line, at once to the file."""
        self._add(record, time.time())
        self._writer.flush()

    def close(self) -> None:
        """Close the file; without `begin` there is none."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _add(self, record: Mapping[str, Any], when: float) -> None:
        for name, value in record.items():
            if name != "step" and isinstance(value, int | float):
                self._writer.add_scalar(name, value, record["step"], walltime=when)
