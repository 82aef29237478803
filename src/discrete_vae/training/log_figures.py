"""The figures of a line of metrics.jsonl."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from discrete_vae.objectives.elbo import Elbo
from discrete_vae.training.state import TrainingState


def state_figures(state: TrainingState) -> dict[str, float]:
    """Figures of the state: log Z, the step size and, where it has one, beta."""
    figures = {
        "log_partition": state.log_partition,
        "log_partition_std_error": state.log_partition_std_error,
        "learning_rate": state.optimiser.param_groups[0]["lr"],
    }
    beta = getattr(state.model.smoothing, "beta", None)
    if isinstance(beta, Tensor):
        figures["beta"] = float(beta.detach())
    return figures


class ElboSums:
    """Sums of the bound's parts over the steps since the last line of the log."""

    def __init__(self) -> None:
        self._parts = torch.zeros(4, dtype=torch.float64)
        self._count = 0

    def add(self, elbo: Elbo) -> None:
        """Count one step's bound."""
        parts = (elbo.value, elbo.reconstruction, elbo.kl_discrete, elbo.kl_continuous)
        self._parts += torch.stack([part.detach().mean() for part in parts]).double().cpu()
        self._count += 1

    def means(self, log_partition_change: float) -> dict[str, float]:
        """Means over the steps counted, nats per example.

        Args:
            log_partition_change: log Z after these steps minus that before, which they were counted with; it is taken
                to have changed evenly.
        """
        names = ("elbo", "reconstruction", "kl_discrete", "kl_continuous")
        means: dict[str, float] = dict(zip(names, (self._parts / self._count).tolist(), strict=True))
        means["elbo"] -= log_partition_change / 2
        means["kl_discrete"] += log_partition_change / 2
        return means


class Clock:
    """Seconds of training, those before a resumption included.

    Args:
        records: What the log holds already.

    Examples:
        >>> clock = Clock([{"step": 1, "seconds": 60.0}])
        >>> 60.0 <= clock.total() < 61.0, clock.here() < 1.0
        (True, True)
    """

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        self._before = max((record.get("seconds", 0.0) for record in records), default=0.0)
        self._start = time.monotonic()

    def here(self) -> float:
        """Of this process."""
        return time.monotonic() - self._start

    def total(self) -> float:
        """Of all processes that the run has had."""
        return self._before + self.here()
