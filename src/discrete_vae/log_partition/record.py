"""What every estimate of log Z returns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LogPartition:
    """An estimate of log Z.

    Attributes:
        value: log Z in nats.
        std_error: Standard error of value in nats; 0 where it is exact.
        method: How it was had, one word.
        num_samples: States enumerated or drawn.
    """

    value: float
    std_error: float
    method: str
    num_samples: int

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        error = "exact" if self.method == "enumeration" else f"+- {self.std_error:.4f}"
        return f"log Z = {self.value:.4f} nats ({error}, {self.method})"
