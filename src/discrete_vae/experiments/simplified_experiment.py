"""What the simplified models of the supplement share: static MNIST, binary latents alone."""

from __future__ import annotations

from discrete_vae.config import (
    BetaBoundConfig,
    BlockGibbsConfig,
    EvaluationConfig,
    ExperimentConfig,
    FactorialBernoulliConfig,
    HierarchicalPosteriorConfig,
    MLPDecoderConfig,
    MNISTStaticConfig,
    ModelConfig,
    OptimizerConfig,
    PriorConfig,
    TrainingConfig,
    WarmUpConfig,
)
from discrete_vae.experiments.paper_experiment import smoke_evaluation

_WIDTHS = {"smoke": 100, "short": 500, "cpu": 500, "paper": 2000}
_NUM_EPOCHS = {"smoke": 1, "short": 80, "cpu": 960, "paper": 1000}


def simplified_experiment(
    name: str, size: str, *, prior: PriorConfig, groups: int = 4, linear: bool = False
) -> ExperimentConfig:
    """An experiment without Gaussian layers, whose posterior networks have two hidden layers.

    Source: Rolfe 2017, section supplementary-results, which says neither widths nor lengths: those of size paper are
    the other experiments'. Size cpu has minibatches of 400, for which the step size first rises, a shorter warm-up, and
    decay of a decoder with a hidden layer; in equal time these are ahead of minibatches of 100 (docs/results.md). The
    smoothing of independent units becomes less sharp, for which both their bounds are higher (same page).

    Args:
        name: Its name.
        size: "smoke", "short", "cpu" or "paper".
        prior: Of the binary latents.
        groups: Groups of the posterior; 1 is the factorial posterior.
        linear: Whether the decoder is a linear map of zeta; otherwise it has one hidden layer.
    """
    width, num_epochs = _WIDTHS[size], _NUM_EPOCHS[size]
    first, last = (1.5, 3.5) if isinstance(prior, FactorialBernoulliConfig) else (3.0, 8.0)
    large = size == "cpu"
    return ExperimentConfig(
        name=name,
        size=size,
        data=MNISTStaticConfig(),
        model=ModelConfig(
            event_shape=(1, 28, 28),
            prior=prior,
            posterior=HierarchicalPosteriorConfig(groups=groups, hidden=(width, width)),
            decoder=MLPDecoderConfig(hidden=() if linear else (width,)),
        ),
        training=TrainingConfig(
            num_epochs=num_epochs,
            batch_size=400 if large else 100,
            optimizer=OptimizerConfig(
                learning_rate=4e-3 if large else 3e-3,
                rise=0.03 if large else 0.0,
                decoder_weight_decay=0.1 if large and not linear else 0.0,
            ),
            warm_up=WarmUpConfig(epochs=4, prior_epochs=12) if large else WarmUpConfig(),
            beta_bound=BetaBoundConfig(start=first, slope=(last - first) / num_epochs),
            sampler=BlockGibbsConfig(num_chains=2000),
            num_sweeps={"smoke": 10, "short": 30, "cpu": 30, "paper": 100}[size],
            log_every=500 if large else 100,  # log Z in a line takes as long as ten steps
            validate_every={"smoke": 250, "short": 1000, "cpu": 2400, "paper": 5000}[size],
        ),
        evaluation=(
            smoke_evaluation()
            if size == "smoke"
            else EvaluationConfig(num_samples=10_000, precision="auto" if size == "cpu" else "float32")
        ),
    )
