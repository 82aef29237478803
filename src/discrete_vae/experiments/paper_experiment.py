"""What the experiments with continuous layers share: the paper's settings, and one choice where it has none."""

from __future__ import annotations

from typing import NamedTuple

from discrete_vae.config import (
    BetaBoundConfig,
    BlockGibbsConfig,
    DataConfig,
    EvaluationConfig,
    ExperimentConfig,
    GaussianHierarchyConfig,
    HierarchicalPosteriorConfig,
    MLPDecoderConfig,
    ModelConfig,
    OptimizerConfig,
    RBMConfig,
    SharingConfig,
    TrainingConfig,
    WarmUpConfig,
)

_BATCH_SIZES = {"smoke": 100, "short": 400, "cpu": 400, "paper": 100}
_LEARNING_RATES = {"smoke": 1e-3, "short": 4e-3, "cpu": 4e-3, "paper": 1e-3}
# widths of all posterior networks
_WIDTHS = {"smoke": (100, 100), "short": (400, 400), "cpu": (400, 400), "paper": (2000, 2000)}
_PAPERS_WARM_UP = WarmUpConfig(strength=20.0, epochs=5, prior_strength=2.0, prior_epochs=20)


class CpuChoices(NamedTuple):
    """What validation data prefer in size cpu of one data set (docs/results.md).

    Attributes:
        warm_up_epochs: Of the layers; the prior's own are three times as many. None: as many steps as in size short.
        num_importance_samples: In the last quarter of the run.
        decoder_weight_decay: Of the decoder's matrices.
    """

    warm_up_epochs: int | None = None
    num_importance_samples: int = 5
    decoder_weight_decay: float = 0.0


_AS_SHORT = CpuChoices()


def paper_experiment(
    name: str,
    size: str,
    *,
    data: DataConfig,
    layers: dict[str, tuple[int, int, int]],
    sharing: SharingConfig,
    num_epochs: dict[str, int],
    num_training: int,
    decoder_hidden: dict[str, tuple[int, ...]] | None = None,
    batch_sizes: dict[str, int] = _BATCH_SIZES,
    cpu: CpuChoices = _AS_SHORT,
) -> ExperimentConfig:
    """An experiment on 28x28 images with an RBM of 64 + 64 units, four groups and Gaussian layers below.

    Args:
        name: Its name.
        size: "smoke", "short", "cpu" or "paper".
        data: Its data set.
        layers: By size: number of layers, units of each, width of the prior's one hidden layer.
        sharing: How the prior's networks share parameters.
        num_epochs: By size.
        num_training: Training examples, which set how often to validate.
        decoder_hidden: Widths of the decoder's hidden layers by size; None makes it linear.
        batch_sizes: Of the minibatches, by size.
        cpu: What size cpu has of its own.
    """
    num_layers, num_units, prior_width = layers[size]
    return ExperimentConfig(
        name=name,
        size=size,
        data=data,
        model=ModelConfig(
            event_shape=(1, 28, 28),
            prior=RBMConfig(num_left=64, num_right=64),
            posterior=HierarchicalPosteriorConfig(groups=4, hidden=_WIDTHS[size]),
            hierarchy=GaussianHierarchyConfig(
                num_layers=num_layers,
                num_units=num_units,
                posterior_hidden=_WIDTHS[size],
                prior_hidden=(prior_width,),
                sharing=sharing,
            ),
            decoder=MLPDecoderConfig(hidden=() if decoder_hidden is None else decoder_hidden[size]),
        ),
        training=_training(
            size,
            num_epochs[size],
            num_training,
            batch_sizes[size],
            cpu if size == "cpu" else _AS_SHORT,
        ),
        evaluation=_evaluation(size),
    )


def _training(
    size: str, num_epochs: int, num_training: int, batch_size: int, choices: CpuChoices
) -> TrainingConfig:
    """Training as in the paper's section architecture, with fewer sweeps in the small sizes.

    The paper's: Adam with a decaying step size, 100 sweeps per step of 20 persistent chains per example of the batch, a
    trained beta under a bound that rises with the epoch, warm-up of strength 20 over 5 epochs and a further one of
    strength 2 over 20 epochs on the RBM alone. Ours, as the paper is silent: minibatches of 100, a step size that falls
    as half a cosine from 1e-3 to 3e-5 (short and cpu: from 4e-3 to 1.2e-4), a bound of beta from 3 to 8 (above 8, rare
    draws carry most of beta's gradient), and no early stopping but that the best checkpoint by validation bound is the
    one evaluated.

    Sizes short and cpu have what paid in measurements (docs/results.md) and is not the paper's: minibatches of 400
    (Caltech-101 Silhouettes 200), for which the step size first rises over 3 % of the run (without, the Gaussian layers
    of wide models died), other warm-ups, and five importance samples in the last quarter of the run, where nothing else
    was chosen.

    Args:
        size: "smoke", "short", "cpu" or "paper".
        num_epochs: Epochs.
        num_training: Training examples, which set how often to validate.
        batch_size: Examples of a minibatch.
        choices: Of sizes short and cpu.
    """
    validations = {"smoke": 2, "short": 25, "cpu": 50, "paper": 100}[size]
    in_minutes = size in ("short", "cpu")
    return TrainingConfig(
        num_epochs=num_epochs,
        batch_size=batch_size,
        optimizer=OptimizerConfig(
            learning_rate=_LEARNING_RATES[size],
            rise=0.03 if in_minutes else 0.0,
            decoder_weight_decay=choices.decoder_weight_decay,
        ),
        num_importance_samples=choices.num_importance_samples if in_minutes else 1,
        warm_up=_warm_up(batch_size, choices.warm_up_epochs) if in_minutes else _PAPERS_WARM_UP,
        beta_bound=BetaBoundConfig(start=3.0, slope=5.0 / num_epochs),
        sampler=BlockGibbsConfig(num_chains=2000),
        num_sweeps={"smoke": 10, "short": 30, "cpu": 30, "paper": 100}[size],
        log_every=100,
        validate_every=max(1, num_epochs * (num_training // batch_size) // validations),
    )


def _warm_up(batch_size: int, epochs: int | None) -> WarmUpConfig:
    """So many epochs, the prior's own three times as many; None: the steps of 1 and 3 epochs of minibatches of 100.

    Fewer leave the binary latents unused. Long runs have time for more, and where eight or more Gaussian layers compete
    for what there is to code, the binary latents need them (docs/results.md).
    """
    epochs = batch_size // 100 if epochs is None else epochs
    return WarmUpConfig(epochs=epochs, prior_epochs=3 * epochs)


def smoke_evaluation() -> EvaluationConfig:
    """An evaluation in seconds: few samples of few examples, and log Z to 0.05 nats."""
    return EvaluationConfig(
        num_samples=100,
        num_examples=100,
        log_partition_std_error=0.05,
        num_annealed_chains=100,
        num_temperatures=300,
        num_chain_sweeps=200,
    )


def _evaluation(size: str) -> EvaluationConfig:
    """10^4 importance samples on the whole test part; 10^3 on 1,000 examples in size short, fewer in smoke.

    Size cpu takes them in bfloat16 where that is faster, which moved no mean in measurements (docs/results.md).
    """
    if size == "smoke":
        return smoke_evaluation()
    few = 1000 if size == "short" else None
    precision = "auto" if size == "cpu" else "float32"
    return EvaluationConfig(num_samples=few or 10_000, num_examples=few, precision=precision)
