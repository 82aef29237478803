"""What every estimate of a machine's log Z returns."""

from __future__ import annotations

from dataclasses import dataclass

from discrete_vae.records import ShowsTable


@dataclass(frozen=True)
class LogPartition(ShowsTable):
    """An estimate of log Z.

    Attributes:
        value: log Z in nats.
        std_error: Standard error of value in nats; 0 where it is exact.
        method: Name of the method, such as "bridge sampling".
        num_samples: States enumerated or drawn.
        inverse_temperatures: The ladder of the replicas; None where there is none.
        swap_rates: Exchange rates of its neighbors.
        round_trips: Trips of walkers from the hottest replica to the coldest and back, per chain.
        effective_samples: Independent states per replica that would give the same error.
        num_sweeps: Sweeps of each replica, those that were dropped included.
        seconds: Time it took.
        converged: Whether the error that was asked for was reached by chains that mix; None where nothing was asked.
    """

    value: float
    std_error: float
    method: str
    num_samples: int
    inverse_temperatures: tuple[float, ...] | None = None
    swap_rates: tuple[float, ...] | None = None
    round_trips: float | None = None
    effective_samples: float | None = None
    num_sweeps: int | None = None
    seconds: float | None = None
    converged: bool | None = None

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        error = "exact" if self.method == "enumeration" else f"+- {self.std_error:.4f}"
        return f"log Z = {self.value:.4f} nats ({error}, {self.method})"
