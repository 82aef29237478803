"""log Z for scores: what a run keeps of its prior, or a new estimate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from discrete_vae.distributed import compute_on_rank_zero
from discrete_vae.log_partition.estimate import estimate_log_partition
from discrete_vae.runs.results import is_of, kept_evaluations, kept_log_partitions
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training.load import LoadedRun


@dataclass(frozen=True)
class KnownLogPartition:
    """log Z, and where it is from.

    Attributes:
        value: log Z, nats.
        std_error: Its standard error, nats; 0 if it is exact.
        origin: Where it is from, in words.
    """

    value: float
    std_error: float
    origin: str

    def __str__(self) -> str:
        error = "exact" if self.std_error == 0 else f"+- {self.std_error:.4f}"
        return f"{self.value:.4f} ({error}; {self.origin})"


def log_partition_of_run(run: RunDirectory, loaded: LoadedRun, *, seed: int = 0) -> KnownLogPartition:
    """The best estimate that the run keeps of this checkpoint's prior; without one a new estimate.

    `dvae evaluate` and `dvae log-partition` keep estimates. A new one goes for the standard error of the run's
    evaluation, and starts from its chains. Under torchrun the first process makes it.

    Args:
        run: The run.
        loaded: What `discrete_vae.load_run` made of it; a new estimate advances its chains.
        seed: Seed of a new estimate.

    Raises:
        InvalidInputError: If a result that the run keeps is damaged.
    """
    return compute_on_rank_zero(lambda: _known(run, loaded, seed))


def _known(run: RunDirectory, loaded: LoadedRun, seed: int) -> KnownLogPartition:
    # with another config than that of training a kept result may be of another prior
    kept = [] if loaded.changed_config is not None else list(_kept(run, loaded))
    if kept:
        return min(kept, key=lambda each: each.std_error)
    config = loaded.config.evaluation
    found = estimate_log_partition(
        loaded.model.prior,
        chains=loaded.chains.step(config.num_chain_sweeps),
        std_error=config.log_partition_std_error,
        max_sweeps=config.max_tempered_sweeps,
        num_chains=config.num_annealed_chains,
        num_temperatures=config.num_temperatures,
        seed=seed,
    ).best
    return KnownLogPartition(found.value, found.std_error, f"{found.method}, now")


def _kept(run: RunDirectory, loaded: LoadedRun) -> Iterator[KnownLogPartition]:
    """What the run keeps of a checkpoint's prior."""
    sources = kept_evaluations(run), kept_log_partitions(run)
    for kept, fields in ((kept, kept.fullest()) for kept in sources):
        if fields is None or "changed_config" in fields or not is_of(fields, loaded.step, loaded.sums):
            continue
        estimates = fields["estimates"] if "estimates" in fields else [fields["log_partition"]["best"]]
        for each in estimates:
            yield KnownLogPartition(each["value"], each["std_error"], f"kept in {kept.fullest_path.name}")
