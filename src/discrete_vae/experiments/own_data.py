"""An experiment for data of one's own."""

from __future__ import annotations

from math import prod
from pathlib import Path

from discrete_vae.config import (
    BernoulliLikelihoodConfig,
    BetaBoundConfig,
    BlockGibbsConfig,
    EvaluationConfig,
    ExperimentConfig,
    FileDataConfig,
    GaussianHierarchyConfig,
    GaussianLikelihoodConfig,
    HierarchicalPosteriorConfig,
    LikelihoodConfig,
    MLPDecoderConfig,
    ModelConfig,
    NoHierarchyConfig,
    RBMConfig,
    TrainingConfig,
    WarmUpConfig,
)

_BATCH_SIZE = 100
_STEPS = {"smoke": 200, "short": 8_000, "cpu": 40_000, "paper": 100_000}
_WIDTHS = {"smoke": 50, "short": 200, "cpu": 400, "paper": 1000}
_UNITS = {"smoke": 8, "short": 24, "cpu": 32, "paper": 64}
_SMOKE_WORK, _MIN_SMOKE_STEPS = 2_000_000, 20  # work is steps x features
_MAX_SMOKE_EXAMPLES = 250  # of validation and of test


def own_data(
    path: Path,
    *,
    event_shape: tuple[int, ...],
    num_train: int,
    num_valid: int,
    num_test: int,
    size: str,
    likelihood: LikelihoodConfig | None = None,
    binarize: bool = False,
    missing: bool = False,
) -> ExperimentConfig:
    """An RBM prior, four groups and one hidden layer per network; for real values a Gaussian layer besides.

    Command: dvae train --data FILE, with --model.likelihood for other values than bits. The default size trains 8,000
    steps, a few minutes on two cores; 24 + 24 units keep log Z exact. What it reaches depends on the data. Real values
    vary within a class, and bits would have to spell that out: one layer of Gaussian latents tells it, so that the bits
    are left to the classes. On 5,000 rows of 45 columns in 8 clusters, within which four factors correlate the columns,
    the ELBO rose by 7 nats, and the different codes of these rows fell from 4,945 to 1,737. Size smoke
    takes a minute at most however large the file is: it sees a fixed random choice of the examples, and takes fewer
    steps where there are very many features.

    Args:
        path: The file.
        event_shape: Shape of an example, (feature,) or (channel, row, column).
        num_train: Examples of its training part.
        num_valid: Examples of its validation part.
        num_test: Examples of its test part.
        size: "smoke", "short", "cpu" or "paper".
        likelihood: How values are read; None is as bits.
        binarize: Whether values are probabilities of bits.
        missing: Whether values are missing.
    """
    num_features = prod(event_shape)
    num_steps, chosen, validated, tested = _STEPS[size], None, None, None
    batch_size = min(_BATCH_SIZE, num_train)
    if size == "smoke":
        num_steps = min(num_steps, max(_MIN_SMOKE_STEPS, _SMOKE_WORK // num_features))
        chosen = _fewer(num_train, num_steps * batch_size)
        validated, tested = _fewer(num_valid, _MAX_SMOKE_EXAMPLES), _fewer(num_test, _MAX_SMOKE_EXAMPLES)
    num_epochs = max(1, num_steps // ((chosen or num_train) // batch_size))
    width, units = _WIDTHS[size], _UNITS[size]
    likelihood = likelihood or BernoulliLikelihoodConfig()
    layer = GaussianHierarchyConfig(
        num_layers=1, num_units=units, posterior_hidden=(width,), prior_hidden=(-(-width // 2),)
    )
    is_table = len(event_shape) == 1
    return ExperimentConfig(
        name="own-data",
        size=size,
        data=FileDataConfig(path=path, binarize=binarize),
        model=ModelConfig(
            num_features=num_features if is_table else None,
            event_shape=None if is_table else event_shape,
            missing=missing,
            prior=RBMConfig(num_left=units, num_right=units),
            posterior=HierarchicalPosteriorConfig(groups=4, hidden=(width,)),
            hierarchy=layer if isinstance(likelihood, GaussianLikelihoodConfig) else NoHierarchyConfig(),
            decoder=MLPDecoderConfig(hidden=(width,)),
            likelihood=likelihood,
        ),
        training=TrainingConfig(
            num_epochs=num_epochs,
            batch_size=batch_size,
            num_examples=chosen,
            num_validation_examples=validated,
            warm_up=WarmUpConfig(epochs=0.05 * num_epochs, prior_epochs=0.1 * num_epochs),
            beta_bound=BetaBoundConfig(start=3.0, slope=3.0 / num_epochs),
            sampler=BlockGibbsConfig(num_chains=500),
            num_sweeps=20,
            validate_every=min(500, num_steps // 2),
        ),
        evaluation=EvaluationConfig(num_samples=200 if size == "smoke" else 1000, num_examples=tested),
    )


def _fewer(count: int, most: int) -> int | None:
    """The limit where it leaves some out, None for all."""
    return most if count > most else None
