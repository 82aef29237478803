"""How the experiments with continuous layers are trained: the paper's settings, and one choice where it has none."""

from __future__ import annotations

from discrete_vae.config import (
    BetaBoundConfig,
    BlockGibbsConfig,
    EvaluationConfig,
    OptimiserConfig,
    TrainingConfig,
    WarmUpConfig,
)


def paper_training(size: str, num_epochs: int, steps_per_epoch: int) -> TrainingConfig:
    """Training as in the paper's section architecture, with fewer sweeps in the small sizes.

    The paper's: Adam with a decaying step size, 100 sweeps a step of 20 persistent chains per element of the minibatch,
    a trained beta under a bound that rises with the epoch, warm-up of strength 20 over 5 epochs and a further one of
    strength 2 over 20 epochs on the RBM alone. Ours, as the paper is silent: minibatches of 100, a step size from 1e-3
    down to 3e-5 geometrically, a bound of beta from 3 to 8 (above 8, rare draws carry most of beta's gradient),
    and no early stopping but that the checkpoint with the best validation ELBO is the one evaluated.

    Args:
        size: "smoke", "short" or "paper".
        num_epochs: Epochs.
        steps_per_epoch: Minibatches of an epoch, which set how often to validate.
    """
    validations = {"smoke": 2, "short": 25, "paper": 100}[size]
    return TrainingConfig(
        num_epochs=num_epochs,
        batch_size=100,
        optimiser=OptimiserConfig(learning_rate=1e-3, final_fraction=0.03),
        warm_up=WarmUpConfig(strength=20.0, epochs=5, prior_strength=2.0, prior_epochs=20),
        beta_bound=BetaBoundConfig(start=3.0, slope=5.0 / num_epochs),
        sampler=BlockGibbsConfig(num_chains=2000),
        num_sweeps={"smoke": 10, "short": 30, "paper": 100}[size],
        log_every=100,
        validate_every=max(1, num_epochs * steps_per_epoch // validations),
    )


def paper_evaluation(size: str) -> EvaluationConfig:
    """10^4 importance samples on the whole test part; 10^3 on 1,000 examples in size short, fewer in smoke."""
    num_samples = {"smoke": 100, "short": 1000, "paper": 10_000}[size]
    return EvaluationConfig(
        num_samples=num_samples, num_examples={"smoke": 100, "short": 1000, "paper": None}[size]
    )
