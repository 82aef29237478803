"""The lines of metrics.jsonl: after which steps they are due, and what is in them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from discrete_vae.config import TrainingConfig
from discrete_vae.samplers.protocol import TellsMetrics
from discrete_vae.training.state import TrainingState


def is_due(settings: TrainingConfig, step: int, num_steps: int) -> bool:
    """Whether a line of training metrics is due after a step."""
    return step % settings.log_every == 0 or validates(settings, step, num_steps)


def validates(settings: TrainingConfig, step: int, num_steps: int) -> bool:
    """Whether a validation, with a checkpoint, is due after a step."""
    return step == num_steps or step % settings.validate_every == 0


def missing_lines(
    records: Sequence[Mapping[str, Any]], settings: TrainingConfig, steps: range, num_steps: int
) -> list[int]:
    """Steps whose line of training metrics is due but not there.

    Args:
        records: What the log holds.
        settings: When lines are due.
        steps: Where to look.
        num_steps: Steps of the whole run.

    Examples:
        >>> missing_lines([{"step": 10, "elbo": -90.0}], TrainingConfig(log_every=10), range(1, 31), 1000)
        [20, 30]
    """
    there = {record["step"] for record in records if "elbo" in record}
    return [step for step in steps if is_due(settings, step, num_steps) and step not in there]


def state_metrics(state: TrainingState) -> dict[str, float]:
    """Metrics of the state: log Z, the step size and, where they have them, beta and the sampler's own."""
    metrics = {
        "log_partition": state.log_partition,
        "log_partition_std_error": state.log_partition_std_error,
        "learning_rate": state.optimizer.param_groups[0]["lr"],
    }
    beta = getattr(state.model.smoothing, "beta", None)
    if isinstance(beta, Tensor):
        metrics["beta"] = float(beta.detach())
    if isinstance(state.chains, TellsMetrics):
        metrics |= state.chains.metrics()
    return metrics


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
