"""A prior: log Z repeated, the health of its chains, its modes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from arviz_stats.base.array import array_stats
from torch import Tensor

from discrete_vae.boltzmann.base import MAX_ENUMERATED_UNITS, BoltzmannMachine, LogPartition
from discrete_vae.checks import check_binary, check_positive_int, check_tensor
from discrete_vae.config import EvaluationConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.log_partition.bridge import bennett_log_partition
from discrete_vae.log_partition.estimate import quick_exact_log_partition
from discrete_vae.records import ShowsShapes, ShowsTable
from discrete_vae.rng import key_to_seed
from discrete_vae.samplers.gibbs import BlockGibbs, Sampler, pack_bits
from discrete_vae.samplers.tempering import greedy_descent

_HIGH_R_HAT = 1.05


class ChainHealthWarning(UserWarning):
    """Chains do not mix; the message has the numbers and what to do."""


@dataclass(frozen=True)
class ChainHealth(ShowsTable):
    """The health of chains, by the energy of their states."""

    r_hat: float  # rank-normalized split R-hat; near 1 where all chains visit the same energies
    autocorrelation_time: float  # sweeps that a chain takes for one effective sample
    effective_samples: float  # of all chains together
    num_chains: int
    num_sweeps: int  # looked at

    def __str__(self) -> str:
        return (
            f"{self.num_chains}, {self.num_sweeps} sweeps of each looked at: autocorrelation time "
            f"{self.autocorrelation_time:.1f} sweeps, R-hat {self.r_hat:.3f}, "
            f"{self.effective_samples:.0f} effective samples"
        )


def chain_health(sampler: Sampler, *, num_sweeps: int = 500) -> ChainHealth:
    """Advance persistent chains by at least 20 sweeps and look at the energies on their way.

    Chains stuck in modes of equal energy look healthy here; round trips of parallel tempering see those.

    Source: Vehtari, Gelman, Simpson, Carpenter & Buerkner 2021, by arviz-stats.

    Warns:
        ChainHealthWarning: If R-hat is above 1.05.
    """
    if check_positive_int("num_sweeps", num_sweeps) < 20:
        raise InvalidInputError("num_sweeps", "must be at least 20", num_sweeps, "Look at some hundred.")
    with torch.no_grad():
        energies = [sampler.energy.energy(sampler.step(1)).double() for _ in range(num_sweeps)]
    series = torch.stack(energies, 1).cpu()
    r_hat, effective = 1.0, float(series.numel())  # where all energies are one
    if bool((series != series[0, 0]).any()):
        # R-hat compares chains; the halves of one are two
        chains = series if len(series) > 1 else series[:, : num_sweeps // 2 * 2].view(2, -1)
        measures = (array_stats.rhat, array_stats.ess)
        found = (measure(chains.numpy(), chain_axis=0, draw_axis=1) for measure in measures)
        r_hat, effective = (np.asarray(value).item() for value in found)
    if r_hat > _HIGH_R_HAT:
        warnings.warn(
            f"R-hat of the chains' energies is {r_hat:.3f}, above {_HIGH_R_HAT}: the chains visit "
            "different regions. Run more sweeps per step, or draw from parallel tempering "
            "(--training.sampler parallel-tempering).",
            ChainHealthWarning,
            stacklevel=2,
        )
    return ChainHealth(r_hat, series.numel() / effective, effective, len(series), num_sweeps)


# The modes of a prior.


_MAX_MAXIMA = 400  # local maxima that are grouped, most visited first; the grouping takes the cube of them


@dataclass(frozen=True, eq=False, repr=False)
class PriorModes(ShowsShapes):
    """Groups of local maxima of p(z) that hold the chains, the most visited group first.

    Attributes:
        energy: The machine.
        maxima: Local maxima of p(z), the most visited first, (maximum, unit) float32 in {0,1}.
        mode_of_maximum: The group of each, (maximum,) int64.
        share: Share of the chains' states that lead to a mode, (mode,) float64.
        share_std_error: Its standard error, by the spread over chains, (mode,) float64.
        stay: Probability that a chain in a mode is in it a sweep later, (mode,) float64.
        modularity: Share of the moves inside modes less what it would be by chance, from 0 to 1.
        num_visited: Different local maxima that states led to; those beyond `maxima` belong to the nearest of these.
        num_states: States looked at.
    """

    energy: BoltzmannMachine
    maxima: Tensor
    mode_of_maximum: Tensor
    share: Tensor
    share_std_error: Tensor
    stay: Tensor
    modularity: float
    num_visited: int
    num_states: int

    def __len__(self) -> int:
        return len(self.share)

    @torch.no_grad()
    def assign(self, z: Tensor) -> Tensor:
        """The mode of states (state, unit): that of the local maximum that they lead to, or of the one nearest to it.

        It is (state,) int64, from 0 to one less than the number of modes, on the CPU.
        """
        check_binary("z", check_tensor("z", z, ("state", self.energy.num_units)))
        reached = greedy_descent(self.energy, z.to(self.energy.bias.device)).cpu()
        return self.mode_of_maximum[_nearest(reached, self.maxima)]


@torch.no_grad()
def find_prior_modes(
    energy: BoltzmannMachine, start: Tensor, *, num_sweeps: int = 40, max_chains: int = 1000, seed: int = 0
) -> PriorModes:
    """Follow block-Gibbs chains and group the local maxima of p(z) that they pass.

    Greedy descent in energy leads each state on the way to a local maximum of p(z). Maxima between which chains move
    within a sweep more often than chance are one mode (`communities`).

    Args:
        energy: The machine.
        start: States of it that are near its law, (chain, unit), for example of the chains of training.
        num_sweeps: Sweeps to follow.
        max_chains: States to start from, at most.
        seed: Seed of the chains.

    Examples:
        >>> from discrete_vae import RBM
        >>> rbm = RBM(4, 4)
        >>> with torch.no_grad():
        ...     _ = rbm.weight.fill_(3.0), rbm.bias.fill_(-6.0)  # all off, or all on
        >>> start = torch.tensor([[0.0], [1.0]]).expand(2, 8).repeat(50, 1)
        >>> modes = find_prior_modes(rbm, start)
        >>> len(modes), [round(share, 1) for share in modes.share.tolist()]
        (2, [0.5, 0.5])
    """
    check_binary("start", check_tensor("start", start, ("chain", energy.num_units)))
    check_positive_int("num_sweeps", num_sweeps)
    start = start[: check_positive_int("max_chains", max_chains)].to(energy.bias.device, torch.float32)
    chains = BlockGibbs(energy, len(start), seed=seed, start=start)
    states = [start] + [chains.step(1) for _ in range(num_sweeps)]
    reached = torch.cat([greedy_descent(energy, z).cpu() for z in states])
    found, place, visits = _distinct(reached)
    maxima = found[torch.from_numpy(np.argsort(-visits, kind="stable")[:_MAX_MAXIMA])]
    at = _nearest(found, maxima)[torch.from_numpy(place)].reshape(num_sweeps + 1, len(start)).numpy()
    counts = np.zeros((len(maxima), len(maxima)))
    np.add.at(counts, (at[:-1], at[1:]), 1)
    mode_of_maximum, modularity = communities(counts)
    mode, count = mode_of_maximum[at], int(mode_of_maximum.max()) + 1
    of_chain = (mode[..., None] == np.arange(count)).mean(0)  # (chain, mode)
    left = np.bincount(mode[:-1].ravel(), minlength=count)
    stayed = np.bincount(mode[:-1][mode[:-1] == mode[1:]], minlength=count)
    share = of_chain.mean(0)
    spread = of_chain.std(0, ddof=1) / np.sqrt(len(start)) if len(start) > 1 else np.full(count, np.nan)
    order = np.argsort(-share, kind="stable")
    return PriorModes(
        energy=energy,
        maxima=maxima,
        mode_of_maximum=torch.from_numpy(np.argsort(order)[mode_of_maximum]),
        share=torch.from_numpy(share[order]),
        share_std_error=torch.from_numpy(spread[order]),
        stay=torch.from_numpy((stayed / np.maximum(left, 1))[order]),
        modularity=modularity,
        num_visited=len(found),
        num_states=at.size,
    )


def _distinct(z: Tensor) -> tuple[Tensor, np.ndarray, np.ndarray]:
    """Different rows, the number of each row among them, and the count of each."""
    packed = np.ascontiguousarray(pack_bits(z).numpy())
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, place, count = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    return z[torch.from_numpy(first)], place.ravel(), count


def _nearest(z: Tensor, known: Tensor) -> Tensor:
    """For each row the known row that differs in the fewest units, the first of several."""
    agreement = z @ known.T + (1 - z) @ (1 - known).T
    return agreement.argmax(1)


_ROUNDING = 1e-12  # groups between which moves are as frequent as by chance are one


def communities(counts: np.ndarray) -> tuple[np.ndarray, float]:
    """Group states so that moves stay inside groups: greedy modularity.

    Each state starts as its own group; the two groups whose union raises the modularity most are merged, until every
    union would lower it. Two groups between which nothing ever moves are never merged.

    ``counts`` are (state, state), moves from the one to the other. Returns the group of each state, (state,) int64,
    numbered from the group with most moves; and the modularity: the share of moves inside groups less what it would be
    by chance.

    Source: Newman 2004, Fast algorithm for detecting community structure in networks; of moves of a Markov chain it is
    the stability of Delvenne, Yaliraki & Barahona 2010.
    """
    flow = np.asarray(counts, np.float64)
    flow = (flow + flow.T) / (2 * flow.sum())
    visits = flow.sum(1)
    gain = flow - np.outer(visits, visits)
    group = np.arange(len(flow))
    modularity = float(np.trace(gain))
    np.fill_diagonal(gain, -np.inf)
    while len(flow) > 1:
        into, out = np.unravel_index(gain.argmax(), gain.shape)
        if gain[into, out] < -_ROUNDING:
            break
        modularity += 2 * float(gain[into, out])
        gain[into] += gain[out]
        gain[:, into] = gain[into]
        gain[into, into] = gain[out] = gain[:, out] = -np.inf
        group[group == out] = into
    _, group = np.unique(group, return_inverse=True)
    order = np.argsort(-np.bincount(group, weights=visits), kind="stable")
    return np.argsort(order)[group], modularity


# log Z and the health of the chains together.


@dataclass(frozen=True)
class PriorEvaluation(ShowsTable):
    """Independent estimates of log Z, the exact value where there are few units, and the health of the chains."""

    estimates: tuple[LogPartition, ...]
    exact: LogPartition | None
    chains: ChainHealth

    def to_json(self) -> dict[str, Any]:
        """Plain values for log_partition.json."""
        return asdict(self) | {"exact": None if self.exact is None else self.exact.value}


def evaluate_prior(
    chains: Sampler,
    config: EvaluationConfig,
    *,
    repeats: int = 1,
    health_sweeps: int = 500,
    report: Callable[[int, LogPartition], None] | None = None,
) -> PriorEvaluation:
    """Estimate log Z of the machine that chains sample, and advance the chains to look at them.

    ``report`` is called with each estimate and its number from 1, before them with the exact value and 0.

    Warns:
        LogPartitionWarning: If bridge sampling did not reach the standard error, or its chains do not mix.
    """
    prior, std_error = chains.energy, config.log_partition_std_error
    start = chains.step(config.num_chain_sweeps)
    exact = quick_exact_log_partition(prior, MAX_ENUMERATED_UNITS)
    if exact is not None and report is not None:
        report(0, exact)

    def estimate(seed: int) -> LogPartition:
        return bennett_log_partition(
            prior, std_error=std_error, max_sweeps=config.max_tempered_sweeps, start=start, seed=seed
        )

    estimates = repeat_log_partition(estimate, repeats, seed=config.seed, report=report)
    return PriorEvaluation(estimates, exact, chain_health(chains, num_sweeps=health_sweeps))


_STREAM = 0x726570


def repeat_log_partition(
    estimate: Callable[[int], LogPartition],
    repeats: int,
    *,
    done: Sequence[LogPartition] = (),
    seed: int = 0,
    report: Callable[[int, LogPartition], None] | None = None,
) -> tuple[LogPartition, ...]:
    """Estimate log Z several times with unrelated seeds, tuning included.

    The first of them may be done, where an earlier call was stopped; ``report`` gets the number of each other, from 1.

    Source: Rolfe 2017, section log-partition-function (repeats of one model, a histogram of them).
    """
    check_positive_int("repeats", repeats)
    found = list(done[:repeats])
    for number in range(len(found) + 1, repeats + 1):
        found.append(estimate(key_to_seed(seed, _STREAM, number)))
        if report is not None:
            report(number, found[-1])
    return tuple(found)
