"""Where the time of training steps goes: for the log, and for a trace of single steps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager

import torch
from torch.profiler import record_function

PARTS = ("chains", "networks", "optimizer")
TIME_METRICS = ("seconds", "examples_per_second", *(f"{part}_share" for part in PARTS))
"""Metrics that differ between two runs of the same numbers."""


class StepTimes:
    """Seconds of the parts of steps since the last line of the log.

    The parts are the chains; the networks, which are the objective and its gradients; the optimizer. What is left of
    the time are the data and the log. An accelerator works while the host goes on, so there the host's clock says
    nothing of the parts, and shares are left out.

    Examples:
        >>> times = StepTimes()
        >>> times.begin("chains")
        >>> times.end_step()
        >>> sorted(times.metrics(100, torch.device("cpu")))
        ['chains_share', 'examples_per_second', 'networks_share', 'optimizer_share']
    """

    def __init__(self) -> None:
        self.labels = False  # whether the parts have names in a trace
        self._label: AbstractContextManager[object] | None = None
        self.restart()

    def restart(self) -> None:
        """Count from now on."""
        self._start = self._since = time.perf_counter()
        self._part: str | None = None
        self._seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self._steps = 0

    def begin(self, part: str | None) -> None:
        """Say which part the time from now on belongs to; None is none of them."""
        now = time.perf_counter()
        if self._part is not None:
            self._seconds[self._part] += now - self._since
        self._part, self._since = part, now
        if self._label is not None:
            self._label.__exit__(None, None, None)
            self._label = None
        if self.labels and part is not None:
            self._label = record_function(part)
            self._label.__enter__()

    def end_step(self) -> None:
        """Count a step."""
        self.begin(None)
        self._steps += 1

    def metrics(self, batch_size: int, device: torch.device) -> dict[str, float]:
        """Examples per second since the last restart and, on the CPU, the share of each part in the time."""
        elapsed = time.perf_counter() - self._start
        if self._steps == 0 or elapsed <= 0:
            return {}
        found = {"examples_per_second": self._steps * batch_size / elapsed}
        if device.type == "cpu":
            found |= {f"{part}_share": seconds / elapsed for part, seconds in self._seconds.items()}
        return found


def shares_in_words(metrics: Mapping[str, float]) -> Iterator[str]:
    """The share of each part that is known.

    Examples:
        >>> list(shares_in_words({"chains_share": 0.104, "seconds": 3.0}))
        ['chains 10 %']
    """
    for part in PARTS:
        if f"{part}_share" in metrics:
            yield f"{part} {100 * metrics[f'{part}_share']:.0f} %"
