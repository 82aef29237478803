"""Whether Markov chains mix: autocorrelation, R-hat and effective samples of what they visit."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.checks import check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.samplers.protocol import Sampler

_HIGH_R_HAT = 1.05


class ChainHealthWarning(UserWarning):
    """Chains do not mix; the message has the figures and what to do."""


@dataclass(frozen=True)
class ChainHealth:
    """The health of chains, by the energy of their states.

    Attributes:
        r_hat: Split R-hat; near 1 where all chains visit the same energies.
        autocorrelation_time: Sweeps a chain takes for one effective sample.
        effective_samples: Effective samples of all chains together.
        num_chains: Chains.
        num_sweeps: Sweeps looked at.
    """

    r_hat: float
    autocorrelation_time: float
    effective_samples: float
    num_chains: int
    num_sweeps: int


def chain_health(sampler: Sampler, *, num_sweeps: int = 500) -> ChainHealth:
    """Advance persistent chains and look at the energies on their way.

    One number a state is looked at: chains stuck in modes of equal energy look healthy here. Round trips of parallel
    tempering see those.

    Args:
        sampler: The chains; they advance.
        num_sweeps: Sweeps to look at, at least 20.

    Returns:
        The figures.

    Raises:
        InvalidInputError: If there are too few sweeps.

    Warns:
        ChainHealthWarning: If R-hat is above 1.05.
    """
    if num_sweeps < 20:
        raise InvalidInputError(
            "num_sweeps", "must be at least 20", num_sweeps, "Look at some hundred sweeps."
        )
    with torch.no_grad():
        series = torch.stack([sampler.energy.energy(sampler.step(1)).double() for _ in range(num_sweeps)], 1)
    effective = effective_samples(series)
    health = ChainHealth(
        r_hat=split_r_hat(series),
        autocorrelation_time=series.numel() / effective,
        effective_samples=effective,
        num_chains=len(series),
        num_sweeps=num_sweeps,
    )
    if health.r_hat > _HIGH_R_HAT:
        warnings.warn(
            f"split R-hat of the chains' energies is {health.r_hat:.3f}, above {_HIGH_R_HAT}: the chains visit "
            "different regions. Run more sweeps a step, or draw from parallel tempering "
            "(--training.sampler parallel-tempering).",
            ChainHealthWarning,
            stacklevel=2,
        )
    return health


def split_r_hat(series: Tensor) -> float:
    """Split R-hat: sqrt of the variance over all halves of chains to that within them.

    Source: Gelman, Carlin, Stern, Dunson, Vehtari & Rubin 2013, section 11.4.

    Args:
        series: (chain, draw), at least 4 draws.

    Returns:
        About 1 for chains of one law; 1 where nothing varies.
    """
    halves = _halves(series)
    within = halves.var(1).mean()
    length = halves.shape[1]
    total = (length - 1) / length * within + halves.mean(1).var()
    return float((total / within).sqrt()) if float(within) > 0 else (1.0 if float(total) == 0 else math.inf)


def effective_samples(series: Tensor) -> float:
    """Effective number of independent draws for the mean, by Geyer's initial monotone sequence over split chains.

    Source: Geyer 1992; Gelman et al. 2013, section 11.5.

    Args:
        series: (chain, draw), at least 4 draws.

    Returns:
        From 1 to the number of draws times its logarithm (antithetic chains have more than draws).
    """
    halves = _halves(series)
    chains, length = halves.shape
    centred = halves - halves.mean(1, keepdim=True)
    spectrum = torch.fft.rfft(centred, 2 * length)
    covariance = torch.fft.irfft(spectrum.abs().square(), 2 * length)[:, :length].mean(0) / length
    within = halves.var(1).mean()
    total = (length - 1) / length * within + (halves.mean(1).var() if chains > 1 else 0.0)
    count = chains * length
    if not float(total) > 0:
        return float(count)
    correlation = 1 - (within - covariance * length / (length - 1)) / total
    correlation[0] = 1
    pairs = correlation[: length // 2 * 2].view(-1, 2).sum(1)
    positive = int((pairs <= 0).nonzero()[0]) if bool((pairs <= 0).any()) else len(pairs)
    time = float(2 * pairs[: max(positive, 1)].cummin(0).values.sum()) - 1
    return count / max(time, 1 / math.log10(count))


def _halves(series: Tensor) -> Tensor:
    """Each chain as two, (2 chain, draw / 2)."""
    check_tensor("series", series, ("chain", "draw"))
    if series.shape[1] < 4:
        raise InvalidInputError("series", "must have at least 4 draws", series.shape[1], "Run more sweeps.")
    length = series.shape[1] // 2
    return torch.cat([series[:, :length], series[:, -length:]]).double()
