"""What changes along a run, as functions of the time in epochs."""

from __future__ import annotations

from dataclasses import dataclass

from discrete_vae.config import BetaBoundConfig, OptimizerConfig, WarmUpConfig


@dataclass(frozen=True)
class KLWeights:
    """Weights of the KL terms in the training loss.

    Attributes:
        discrete: Of the KL of the binary latents.
        continuous: Of the KL of the Gaussian layers.
    """

    discrete: float
    continuous: float


def kl_weights(config: WarmUpConfig, epoch: float) -> KLWeights:
    """The weights at a time.

    Every KL's weight rises linearly from 1 / strength to 1; the discrete KL's carries a further such factor.

    Source: Rolfe 2017, section architecture, which names strengths and epochs; the linear rise is ours.

    Examples:
        >>> kl_weights(WarmUpConfig(), 0.0)
        KLWeights(discrete=0.025, continuous=0.05)
    """
    common = _rise(1 / config.strength, config.epochs, epoch)
    return KLWeights(common * _rise(1 / config.prior_strength, config.prior_epochs, epoch), common)


def max_beta(config: BetaBoundConfig, epoch: float) -> float:
    """The upper bound of beta at a time: a line.

    Source: Rolfe 2017, section architecture.

    Examples:
        >>> max_beta(BetaBoundConfig(start=3.0, slope=0.5), 4.0)
        5.0
    """
    return config.start + config.slope * epoch


def learning_rate(config: OptimizerConfig, progress: float) -> float:
    """The step size after a share of the run, decaying geometrically.

    Args:
        config: Start and end.
        progress: Share of the run that is done, from 0 to 1.

    Examples:
        >>> learning_rate(OptimizerConfig(learning_rate=0.1, final_fraction=0.01), 0.5)
        0.010...
    """
    return config.learning_rate * config.final_fraction**progress


def _rise(start: float, epochs: float, epoch: float) -> float:
    if epoch >= epochs:
        return 1.0
    return start + (1 - start) * epoch / epochs
