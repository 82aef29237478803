"""What is reported about a trained prior: log Z, repeated, and the health of the chains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from discrete_vae.boltzmann.log_partition import LogPartition
from discrete_vae.checks import check_number
from discrete_vae.config import EvaluationConfig
from discrete_vae.evaluation.chain_health import ChainHealth, chain_health
from discrete_vae.evaluation.repeats import RepeatedLogPartition, repeat_log_partition
from discrete_vae.log_partition.bennett import bennett_log_partition
from discrete_vae.log_partition.exact import MAX_ENUMERATED_UNITS, quick_exact_log_partition
from discrete_vae.records import ShowsTable
from discrete_vae.samplers.protocol import Sampler


@dataclass(frozen=True)
class PriorEvaluation(ShowsTable):
    """Estimates of log Z and what they rest on.

    Attributes:
        repeated: Independent estimates by bridge sampling.
        exact: The value by enumeration; None where there are too many units.
        chains: The health of the chains of training.
    """

    repeated: RepeatedLogPartition
    exact: LogPartition | None
    chains: ChainHealth

    def to_json(self) -> dict[str, Any]:
        """Plain values for log_partition.json."""
        return {
            "estimates": [asdict(found) for found in self.repeated.estimates],
            "exact": None if self.exact is None else self.exact.value,
            "chains": asdict(self.chains),
        }


def evaluate_prior(
    chains: Sampler,
    config: EvaluationConfig,
    *,
    repeats: int = 1,
    health_sweeps: int = 500,
    report: Callable[[int, LogPartition], None] | None = None,
) -> PriorEvaluation:
    """Estimate log Z of the machine that chains sample, and look at the chains.

    Args:
        chains: The chains of training, which this call advances.
        config: The standard error to go for, how many sweeps, and the seed.
        repeats: Independent estimates.
        health_sweeps: Sweeps of the chains to look at, at least 20.
        report: Called with each estimate and its number from 1, before them with the exact value and 0.

    Raises:
        InvalidInputError: If a number breaks its rule.

    Warns:
        LogPartitionWarning: If bridge sampling did not reach the standard error, or its chains do not mix.
    """
    prior, std_error = chains.energy, config.log_partition_std_error
    check_number("std_error", std_error, at_least=1e-6, repair="Give nats, for example 0.01.")
    start = chains.step(config.num_chain_sweeps)
    exact = quick_exact_log_partition(prior, MAX_ENUMERATED_UNITS)
    if exact is not None and report is not None:
        report(0, exact)

    def estimate(seed: int) -> LogPartition:
        return bennett_log_partition(
            prior, std_error=std_error, max_sweeps=config.max_tempered_sweeps, start=start, seed=seed
        )

    repeated = repeat_log_partition(estimate, repeats, seed=config.seed, report=report)
    return PriorEvaluation(repeated, exact, chain_health(chains, num_sweeps=health_sweeps))
