"""An experiment for data of one's own."""

from __future__ import annotations

from pathlib import Path

from discrete_vae.config import (
    BetaBoundConfig,
    BlockGibbsConfig,
    EvaluationConfig,
    ExperimentConfig,
    FileDataConfig,
    HierarchicalPosteriorConfig,
    MLPDecoderConfig,
    ModelConfig,
    RBMConfig,
    TrainingConfig,
    WarmUpConfig,
)

_STEPS = {"smoke": 200, "short": 8_000, "paper": 100_000}
_WIDTHS = {"smoke": 50, "short": 200, "paper": 1000}
_UNITS = {"smoke": 8, "short": 24, "paper": 64}


def own_data(path: Path, num_features: int, num_train: int, size: str) -> ExperimentConfig:
    """An RBM prior, four groups and one hidden layer a network, for binary data in a .npy or .npz file.

    Command: dvae train --data FILE. The default size trains 8,000 steps, a few minutes on two cores; 24 + 24 units
    keep log Z exact. What it reaches depends on the data.

    Args:
        path: The file.
        num_features: Features of an example.
        num_train: Examples of its training part.
        size: "smoke", "short" or "paper".
    """
    batch_size = min(100, num_train)
    steps_per_epoch = num_train // batch_size
    num_epochs = max(1, _STEPS[size] // steps_per_epoch)
    width, units = _WIDTHS[size], _UNITS[size]
    return ExperimentConfig(
        name="own-data",
        size=size,
        data=FileDataConfig(path=path),
        model=ModelConfig(
            num_features=num_features,
            prior=RBMConfig(num_left=units, num_right=units),
            posterior=HierarchicalPosteriorConfig(groups=4, hidden=(width,)),
            decoder=MLPDecoderConfig(hidden=(width,)),
        ),
        training=TrainingConfig(
            num_epochs=num_epochs,
            batch_size=batch_size,
            warm_up=WarmUpConfig(epochs=0.05 * num_epochs, prior_epochs=0.1 * num_epochs),
            beta_bound=BetaBoundConfig(start=3.0, slope=3.0 / num_epochs),
            sampler=BlockGibbsConfig(num_chains=500),
            num_sweeps=20,
            validate_every=min(500, _STEPS[size] // 2),
        ),
        evaluation=EvaluationConfig(num_samples=1000),
    )
