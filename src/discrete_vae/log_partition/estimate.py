"""log Z of any machine: exact where that is quick, else by bridge sampling, with annealing as a check; its gradient."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from discrete_vae.boltzmann.base import (
    MAX_ENUMERATED_UNITS,
    BoltzmannMachine,
    LogPartition,
    check_chains,
    check_energy,
    check_parameters,
    enumerate_log_partition,
    num_enumerated_units,
)
from discrete_vae.checks import check_binary, check_index, check_number, check_positive_int, check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.kernels.gibbs import check_logits, fair_coins, run_sweeps
from discrete_vae.numerics import softplus
from discrete_vae.records import ShowsTable
from discrete_vae.rng import key_to_seed

AGREEMENT = 0.1  # nats by which annealing may differ from the estimate before a warning


class AnnealingDisagreementWarning(UserWarning):
    """Annealing and bridge sampling differ: log Z, and every likelihood with it, may be off by that much."""


@dataclass(frozen=True)
class CheckedLogPartition(ShowsTable):
    """log Z, exact or by bridge sampling, and its check by annealing.

    Attributes:
        best: The value to use: exact, or by bridge sampling.
        forward: Annealed from t = 0, a check; None where best is exact.
        reverse: Annealed in reverse from the chains, a check; None where best is exact or there are no chains.
    """

    best: LogPartition
    forward: LogPartition | None = None
    reverse: LogPartition | None = None

    @property
    def value(self) -> float:
        """log Z, nats: that of best."""
        return self.best.value

    @property
    def std_error(self) -> float:
        """Standard error of the value, nats; 0 where it is exact."""
        return self.best.std_error

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return str(self.best)

    @property
    def gap(self) -> float | None:
        """Reverse minus forward, nats; None without both."""
        if self.reverse is None or self.forward is None:
            return None
        return self.reverse.value - self.forward.value


def estimate_log_partition(
    energy: BoltzmannMachine,
    *,
    chains: Tensor | None = None,
    std_error: float = 0.003,
    max_sweeps: int = 50_000,
    num_chains: int = 500,
    num_temperatures: int = 2000,
    max_enumerated: int = MAX_ENUMERATED_UNITS,
    seed: int = 0,
    report: Callable[[int, LogPartition], None] | None = None,
) -> CheckedLogPartition:
    """log Z by enumeration where one side is small enough, else by bridge sampling, with annealing as a check.

    Args:
        energy: The machine.
        chains: (chain, unit), states of p in the modes that are known: half of the bridge's chains start there, and of
            two or more reverse annealing. None leaves both out.
        std_error: Standard error that bridge sampling goes for, nats.
        max_sweeps: Sweeps of bridge sampling, at most, as in `bennett_log_partition`.
        num_chains: Chains of annealing in either direction, at most.
        num_temperatures: Temperatures of annealing.
        max_enumerated: Most units to enumerate.
        seed: Seed of all of it.
        report: Called along bridge sampling with the sweeps done and the estimate so far.

    Warns:
        LogPartitionWarning: If bridge sampling did not reach the standard error, or its chains do not mix.
        AnnealingDisagreementWarning: If annealing in a direction differs from the estimate by more than 0.1 nats and
            four standard errors.
    """
    check_energy(energy)
    check_number("std_error", std_error, above=0, repair="Ask for a few thousandths of a nat.")
    check_positive_int("max_sweeps", max_sweeps)
    if check_positive_int("num_chains", num_chains) < 2:
        raise InvalidInputError("num_chains", "must be at least 2", num_chains, "Their spread is the error.")
    check_positive_int("num_temperatures", num_temperatures)
    check_index("max_enumerated", max_enumerated, MAX_ENUMERATED_UNITS + 1, repair="0 never enumerates.")
    key_to_seed(seed)
    if chains is not None:
        check_binary("chains", check_tensor("chains", chains, ("chain", energy.num_units)))
        if len(chains) == 0:
            raise InvalidInputError("chains", "must hold a state", "none", "Leave them out.")
    exact = quick_exact_log_partition(energy, max_enumerated)
    if exact is not None:
        return CheckedLogPartition(exact)
    from discrete_vae.log_partition.bridge import bennett_log_partition  # here, since few units need none

    best = bennett_log_partition(
        energy, std_error=std_error, max_sweeps=max_sweeps, start=chains, seed=seed, report=report
    )
    anneal = partial(annealed_log_partition, energy, num_temperatures=num_temperatures, seed=seed)
    forward = anneal(num_chains=num_chains)
    reverse = None
    if chains is not None and len(chains) > 1:
        count = min(num_chains, len(chains))
        # chains may come in any order, by energy too
        spread = torch.arange(count, device=chains.device) * len(chains) // count
        reverse = anneal(start=chains[spread])
    for check in (forward, reverse):
        if check is not None:
            _compare(best, check)
    return CheckedLogPartition(best, forward, reverse)


def _compare(best: LogPartition, check: LogPartition) -> None:
    gap = check.value - best.value
    if abs(gap) > max(AGREEMENT, 4 * math.hypot(check.std_error, best.std_error)):
        warnings.warn(
            f"{check.method} gives log Z {gap:+.3f} nats from {best.method} ({check.std_error:.3f} and "
            f"{best.std_error:.3f} standard errors): modes may be missed. Forward annealing misses deep narrow modes, "
            "reverse annealing all modes that its chains do not know; where bridge sampling converged, trust it, "
            "else raise its sweeps.",
            AnnealingDisagreementWarning,
            stacklevel=3,
        )


def quick_log_partition(
    energy: BoltzmannMachine, *, num_chains: int, num_temperatures: int, max_enumerated: int, seed: int = 0
) -> LogPartition:
    """log Z in a second: exact for few units or no weights, else annealed; for display along a training run."""
    found = quick_exact_log_partition(energy, max_enumerated)
    if found is not None:
        return found
    return annealed_log_partition(energy, num_chains=num_chains, num_temperatures=num_temperatures, seed=seed)


def comparable_log_partition(
    energy: BoltzmannMachine,
    *,
    chains: Tensor,
    max_enumerated: int = 16,
    std_error: float = 0.02,
    max_sweeps: int = 2000,
    num_chains: int = 100,
    annealing: tuple[int, int] = (200, 300),
    seed: int = 0,
    report: Callable[[int, LogPartition], None] | None = None,
) -> LogPartition:
    """log Z with an error that can be relied on, in seconds: for comparing the bounds of two models.

    Exact for few units or no weights, else by bridge sampling, half of it from the chains. Where that does not
    converge, its own error may miss what separates the modes. Then annealing is a second opinion, and the distance of
    the two counts as an error, in quadrature with both of theirs.

    Arguments are those of `estimate_log_partition`, with the chains of bridge sampling, and the chains and temperatures
    of annealing.
    """
    exact = quick_exact_log_partition(energy, max_enumerated)
    if exact is not None:
        return exact
    from discrete_vae.log_partition.bridge import sample_bridge

    found = sample_bridge(
        energy,
        std_error=std_error,
        num_chains=num_chains,
        max_sweeps=max_sweeps,
        start=chains,
        seed=seed,
        report=report,
    ).estimate
    if found.converged:
        return found
    other = annealed_log_partition(energy, num_chains=annealing[0], num_temperatures=annealing[1], seed=seed)
    error = math.hypot(found.std_error, other.std_error, other.value - found.value)
    return replace(found, std_error=error)


# Annealed importance sampling.


@torch.no_grad()
def annealed_log_partition(
    energy: BoltzmannMachine,
    *,
    num_chains: int = 1000,
    num_temperatures: int = 1000,
    start: Tensor | None = None,
    seed: int = 0,
) -> LogPartition:
    """log Z by annealing between the uniform distribution and p^t, t from 0 to 1, one sweep per temperature.

    Forward (the default) the chains go from t = 0 to 1: the mean weight is unbiased for Z, so log Z is on average
    too low. In reverse, from states of p itself, the mean weight is unbiased for 1/Z and log Z on average too high.
    The first block is summed out of every weight. Where both agree the estimate is good for the modes that the
    reverse chains know; forward chains alone can miss a far mode by nats with a tiny spread. The standard error is that
    of the mean weight over chains, by the delta method.

    Source: Neal 2001; Salakhutdinov & Murray 2008; reverse annealing, Burda, Grosse & Salakhutdinov 2015.

    Args:
        energy: The machine.
        num_chains: Independent forward chains, at least 2; in reverse the number of start states counts.
        num_temperatures: Steps of the ladder, equally spaced in t, at least 1.
        start: (chain, unit) states of p at t = 1, which makes the chains go in reverse.
        seed: Integer from 0 to 2^64 - 1.

    Examples:
        >>> from discrete_vae import RBM
        >>> print(annealed_log_partition(RBM(2, 2), num_chains=10, num_temperatures=5))  # 4 log 2
        log Z = 2.7726 nats (± 0.0000, annealed forward)
    """
    check_energy(energy)
    check_positive_int("num_temperatures", num_temperatures)
    check_positive_int("num_chains", num_chains)
    check_logits(energy)
    reverse = start is not None
    # the word after the seed keeps these streams apart from each other and from the training chains
    key = key_to_seed(seed, 0x616973, int(reverse))
    if start is None:
        z = fair_coins(num_chains, energy.num_units, key=key, device=energy.bias.device)
    else:
        z = check_binary("start", check_tensor("start", start, ("chain", energy.num_units)))
        z, num_chains = z.to(energy.bias.device), len(z)
    if num_chains < 2:
        name, rule = (
            ("start", "must hold at least 2 states") if reverse else ("num_chains", "must be at least 2")
        )
        raise InvalidInputError(name, rule, num_chains, "Their spread is the error.")
    ladder = torch.linspace(0, 1, num_temperatures + 1, dtype=torch.float64, device="cpu").tolist()
    log_weight = annealed_weights(energy, z, ladder[::-1] if reverse else ladder, key=key)
    log_mean = torch.logsumexp(log_weight, 0) - math.log(num_chains)
    relative = torch.exp(log_weight - log_mean)
    uniform = energy.num_units * math.log(2)
    return LogPartition(
        value=uniform - float(log_mean) if reverse else uniform + float(log_mean),
        std_error=float(relative.std()) / math.sqrt(num_chains),
        method="annealed reverse" if reverse else "annealed forward",
        num_samples=num_chains,
    )


@torch.no_grad()
def annealed_weights(energy: BoltzmannMachine, z: Tensor, ladder: Sequence[float], *, key: int) -> Tensor:
    """Logarithms of the chains' weights, (chain,) float64, nats; they wait for no accelerator.

    States z are at the first temperature of the way, the ladder in its order; ``key`` is the Philox key of the chains.
    """
    from discrete_vae.log_partition.bridge import tempered_work

    log_weight = torch.zeros(len(z), dtype=torch.float64, device=z.device)
    for sweep, (here, there) in enumerate(pairwise(ladder), start=1):
        # A sweep draws the first block before it reads it, so it acts on the other blocks alone and leaves their
        # marginal law invariant. The weight must be that of the same marginal: another block's would be biased.
        log_weight -= tempered_work(energy, z, 0, (here, there))[0]
        scale = torch.full((len(z),), there, dtype=torch.float32, device=z.device)
        z = run_sweeps(energy, z, 1, key=key, first_sweep=sweep, inverse_temperature=scale)
    return log_weight


# The exact value, and the gradient from samples.

_LARGEST_SUM = 1e300  # sums of weights stay finite in float64 below this


def exact_log_partition(energy: BoltzmannMachine) -> LogPartition:
    """log Z by enumerating all blocks but the largest, which is summed out; float64, in chunks.

    The machine has at most 24 units outside its largest block: an RBM with one side of at most 24. Where no two units
    interact, as in an RBM whose weights are all zero, it is a sum over units instead. ``std_error`` is 0.

    Examples:
        >>> from discrete_vae import RBM
        >>> print(exact_log_partition(RBM(3, 40)))  # 43 log 2
        log Z = 29.8053 nats (exact, enumeration)
    """
    check_parameters(check_energy(energy), below=_LARGEST_SUM)
    with torch.no_grad():
        if energy.is_factorial():
            none = torch.zeros(energy.num_units, dtype=torch.float64, device=energy.bias.device)
            logits = [energy.compute_block_logits(none, block) for block in range(len(energy.blocks))]
            return LogPartition(float(softplus(torch.cat(logits)).sum()), 0.0, "enumeration", 1)
        value = float(enumerate_log_partition(energy))
    return LogPartition(value, 0.0, "enumeration", 1 << num_enumerated_units(energy))


def quick_exact_log_partition(energy: BoltzmannMachine, max_enumerated: int) -> LogPartition | None:
    """`exact_log_partition` where it enumerates no more units than given, at most 24; None elsewhere."""
    if num_enumerated_units(energy) <= max_enumerated or energy.is_factorial():
        return exact_log_partition(energy)
    return None


def log_partition_surrogate(energy: BoltzmannMachine, z: Tensor, value: float = math.nan) -> Tensor:
    """A scalar whose gradient, -E_p[dE/dtheta], is that of log Z: the negative phase of samples.

    The last block of the energy is summed out, which lowers the variance. The gradient is unbiased where the samples
    z, (chain, unit), are from p; the value, log Z in nats if it is known, has no effect on it.

    Source: Rolfe 2017, eq. RBM-grad.

    Examples:
        >>> import torch
        >>> from discrete_vae import RBM
        >>> rbm, z = RBM(1, 1), torch.tensor([[0.0, 1.0], [1.0, 1.0]])
        >>> log_partition_surrogate(rbm, z).backward()
        >>> rbm.bias.grad  # of the left unit's mean, and of the right one's given the left
        tensor([0.5000, 0.5000])
    """
    z = check_chains("z", z, energy)
    return energy.compute_negative_phase(z.detach()) + value
