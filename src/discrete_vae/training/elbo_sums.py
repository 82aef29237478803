"""What a line of the log averages, kept over an interruption."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from discrete_vae.checks import check_number
from discrete_vae.errors import InvalidInputError

_PARTS = ("elbo", "reconstruction", "kl_discrete", "kl_continuous")


class ElboSums:
    """Sums of the bound's parts over the steps since the last line of the log.

    Examples:
        >>> ElboSums().state()
        {'parts': [0.0, 0.0, 0.0, 0.0], 'count': 0}
    """

    def __init__(self) -> None:
        self._parts = [0.0] * len(_PARTS)
        self._count = 0

    @classmethod
    def from_state(cls, state: object) -> Self:
        """Go on from what `state` gave.

        Raises:
            InvalidInputError: If it is damaged.
        """
        sums = cls()
        sums._parts, sums._count = _checked(state)
        return sums

    def state(self) -> dict[str, Any]:
        """The sums as plain values, to the last bit."""
        return {"parts": self._parts, "count": self._count}

    def add(self, means: Sequence[float], log_partition: float) -> None:
        """Count one step.

        Args:
            means: Of reconstruction, kl_relative and kl_continuous over the batch, nats.
            log_partition: log Z, nats.
        """
        reconstruction, relative, continuous = means
        discrete = relative + log_partition
        parts = (reconstruction - discrete - continuous, reconstruction, discrete, continuous)
        self._parts = [total + part for total, part in zip(self._parts, parts, strict=True)]
        self._count += 1

    def means(self, log_partition_change: float) -> dict[str, float]:
        """Means over the steps counted, nats per example.

        Args:
            log_partition_change: log Z after these steps minus that before, which they were counted with; it is taken
                to have changed evenly.
        """
        means = {name: total / self._count for name, total in zip(_PARTS, self._parts, strict=True)}
        means["elbo"] -= log_partition_change / 2
        means["kl_discrete"] += log_partition_change / 2
        return means


def _checked(state: object) -> tuple[list[float], int]:
    fields = state if isinstance(state, dict) else {}
    parts, count = fields.get("parts"), fields.get("count")
    if (
        not isinstance(parts, list)
        or len(parts) != len(_PARTS)
        or isinstance(count, bool)
        or not isinstance(count, int)
        or not 0 <= count < 2**63
    ):
        rule = f"must hold a count and the {len(_PARTS)} sums of {', '.join(_PARTS)}"
        raise InvalidInputError("sums", rule, f"{state!r}"[:80], "Load the right file.")
    return [check_number("sums", part, repair="Load the right file.") for part in parts], count
