"""Whether Markov chains mix: autocorrelation, R-hat and effective samples of what they visit."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from arviz_stats.base.array import array_stats
from torch import Tensor

from discrete_vae.errors import InvalidInputError
from discrete_vae.records import ShowsTable
from discrete_vae.samplers.protocol import Sampler

_HIGH_R_HAT = 1.05


class ChainHealthWarning(UserWarning):
    """Chains do not mix; the message has the numbers and what to do."""


@dataclass(frozen=True)
class ChainHealth(ShowsTable):
    """The health of chains, by the energy of their states.

    Attributes:
        r_hat: Rank-normalized split R-hat; near 1 where all chains visit the same energies.
        autocorrelation_time: Sweeps that a chain takes for one effective sample.
        effective_samples: Effective samples of all chains together.
        num_chains: Chains.
        num_sweeps: Sweeps looked at.
    """

    r_hat: float
    autocorrelation_time: float
    effective_samples: float
    num_chains: int
    num_sweeps: int

    def __str__(self) -> str:
        return (
            f"{self.num_chains}, {self.num_sweeps} sweeps of each looked at: autocorrelation time "
            f"{self.autocorrelation_time:.1f} sweeps, R-hat {self.r_hat:.3f}, "
            f"{self.effective_samples:.0f} effective samples"
        )


def chain_health(sampler: Sampler, *, num_sweeps: int = 500) -> ChainHealth:
    """Advance persistent chains and look at the energies on their way.

    One number a state is looked at: chains stuck in modes of equal energy look healthy here. Round trips of parallel
    tempering see those.

    Source: Vehtari, Gelman, Simpson, Carpenter & Buerkner 2021, by arviz-stats.

    Args:
        sampler: The chains; they advance.
        num_sweeps: Sweeps to look at, at least 20.

    Returns:
        The measures of health.

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
    r_hat, effective = _r_hat_and_effective_samples(series.cpu())
    health = ChainHealth(
        r_hat=r_hat,
        autocorrelation_time=series.numel() / effective,
        effective_samples=effective,
        num_chains=len(series),
        num_sweeps=num_sweeps,
    )
    if health.r_hat > _HIGH_R_HAT:
        warnings.warn(
            f"R-hat of the chains' energies is {health.r_hat:.3f}, above {_HIGH_R_HAT}: the chains visit "
            "different regions. Run more sweeps per step, or draw from parallel tempering "
            "(--training.sampler parallel-tempering).",
            ChainHealthWarning,
            stacklevel=2,
        )
    return health


def _r_hat_and_effective_samples(series: Tensor) -> tuple[float, float]:
    """Rank-normalized split R-hat and bulk effective samples of (chain, draw), as Vehtari et al. 2021 define them."""
    if bool((series == series[0, 0]).all()):
        return 1.0, float(series.numel())
    if len(series) == 1:  # R-hat compares chains; the halves of one are two
        series = series[:, : series.shape[1] // 2 * 2].view(2, -1)
    r_hat, effective = (
        np.asarray(measure(series.numpy(), chain_axis=0, draw_axis=1)).item()
        for measure in (array_stats.rhat, array_stats.ess)
    )
    return r_hat, effective
