"""From an array in memory to a trained model, by the library's own training."""

from __future__ import annotations

import io
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from discrete_vae.config import (
    BetaBoundConfig,
    BlockGibbsConfig,
    ExperimentConfig,
    FileDataConfig,
    HierarchicalPosteriorConfig,
    MLPDecoderConfig,
    NoHierarchyConfig,
    OptimizerConfig,
    RBMConfig,
    TrainingConfig,
    WarmUpConfig,
)
from discrete_vae.data.binarized import binarized
from discrete_vae.data.dataset import DatasetDescription, DataSplits
from discrete_vae.errors import InvalidInputError
from discrete_vae.experiments.own_experiment import own_experiment_of
from discrete_vae.interop.sklearn import arguments
from discrete_vae.model import DiscreteVAE
from discrete_vae.records import ShowsShapes
from discrete_vae.training.load import load_run
from discrete_vae.training.progress import TrainingProgress
from discrete_vae.training.run import train

_GROUPS = 4
_LEAST_BETWEEN_VALIDATIONS, _VALIDATIONS = 100, 5
_CHAINS, _SWEEPS = 200, 10


@dataclass(frozen=True)
class Settings:
    """What an estimator says of its model and its training, checked.

    Attributes:
        num_left: Units of the left side of the prior.
        num_right: Units of the right side.
        hidden: Widths of the hidden layers of posterior and decoder.
        likelihood: How values are read, or "auto".
        num_epochs: Passes over the training rows.
        batch_size: Rows per step, at most.
        learning_rate: Step size of Adam.
        validation_fraction: Share of the rows that choose the best checkpoint.
        seed: Seed of the split, the first weights and all noise.
        shows: Whether to print the course.
    """

    num_left: int
    num_right: int
    hidden: tuple[int, ...]
    likelihood: str
    num_epochs: int
    batch_size: int
    learning_rate: float
    validation_fraction: float
    seed: int
    shows: bool


@dataclass(frozen=True, eq=False, repr=False)
class Trained(ShowsShapes):
    """What training leaves.

    Attributes:
        model: The best checkpoint, in evaluation mode.
        likelihood: How values were read.
        states: (chain, unit), where the prior's chains ended.
        elbo: Validation ELBO of the model, nats.
    """

    model: DiscreteVAE
    likelihood: str
    states: Tensor
    elbo: float


def fit_model(rows: np.ndarray, settings: Settings) -> Trained:
    """Train a model of an array in a temporary folder.

    Args:
        rows: (row, feature) float32; NaN is a missing value.
        settings: The model and its training.

    Raises:
        InvalidInputError: If the values cannot be read by the likelihood.
        NonFiniteLossError: If training diverges.
    """
    dataset = _split(rows, settings)
    with arguments.in_words_of_estimators():
        config = _config(dataset, settings)
    if isinstance(config.data, FileDataConfig) and config.data.binarize:
        dataset = binarized(dataset, seed=settings.seed)
    num_steps = config.training.num_epochs * (len(dataset.train) // config.training.batch_size)
    console = None if settings.shows else Console(file=io.StringIO())
    with tempfile.TemporaryDirectory(prefix="discrete-vae-") as folder:
        result = train(config, dataset, folder, progress=TrainingProgress(0, num_steps, console))
        run = load_run(folder)
    assert result.best_elbo is not None  # the last step validates
    # in float64 a row's result does not depend on the rows beside it, to more digits than anybody compares
    model = run.model.double()
    return Trained(model, config.model.likelihood.kind, run.chains.z, result.best_elbo)


def read_as(rows: np.ndarray) -> str:
    """The likelihood that values suggest: bits, counts, or real numbers.

    Args:
        rows: (row, feature); NaN is a missing value.

    Examples:
        >>> [read_as(np.array(values)) for values in ([0, 1], [0, 7], [0.5, 1.0], [-1, 1], [0.5, np.nan, 3])]
        ['bernoulli', 'negative-binomial', 'gaussian', 'gaussian', 'gaussian']
    """
    seen = rows[~np.isnan(rows)]
    if bool(((seen == 0) | (seen == 1)).all()):
        return "bernoulli"
    return "negative-binomial" if seen.min() >= 0 and bool((seen == np.trunc(seen)).all()) else "gaussian"


def _split(rows: np.ndarray, settings: Settings) -> DataSplits:
    """The rows by part; the test part, of which training makes nothing, is the one for validation."""
    num_valid = max(1, int(len(rows) * settings.validation_fraction))
    if len(rows) - num_valid < 2:
        rule = "must leave at least 2 rows to train on"
        received = f"{settings.validation_fraction:g} of {len(rows)}"
        raise InvalidInputError("validation_fraction", rule, received, "Make it smaller, or give more rows.")
    order = np.random.default_rng(settings.seed).permutation(len(rows))
    train_rows, valid = (torch.from_numpy(rows[part]) for part in np.split(order, [len(rows) - num_valid]))
    words = f"{len(train_rows)}/{num_valid} after a shuffle with seed {settings.seed}"
    description = DatasetDescription("X", "an array in memory", words, "as in the array", None)
    return DataSplits("X", train_rows, valid, valid, (rows.shape[1],), False, description)


def _config(dataset: DataSplits, settings: Settings) -> ExperimentConfig:
    """`own_experiment` of these data, with the settings in place of the size's."""
    likelihood = settings.likelihood
    if likelihood == "auto":
        likelihood = read_as(np.concatenate([dataset.train.numpy(), dataset.valid.numpy()]))
    base = own_experiment_of(dataset, Path("X.npy"), likelihood=likelihood, size="short")
    batch_size = min(settings.batch_size, len(dataset.train))
    num_steps = settings.num_epochs * (len(dataset.train) // batch_size)
    every = max(_LEAST_BETWEEN_VALIDATIONS, math.ceil(num_steps / _VALIDATIONS))
    num_units = settings.num_left + settings.num_right
    model = {
        "prior": RBMConfig(num_left=settings.num_left, num_right=settings.num_right),
        "hierarchy": NoHierarchyConfig(),  # a code is all that a row is given back from
        "posterior": HierarchicalPosteriorConfig(groups=min(_GROUPS, num_units), hidden=settings.hidden),
        "decoder": MLPDecoderConfig(hidden=settings.hidden),
    }
    training = TrainingConfig(
        num_epochs=settings.num_epochs,
        batch_size=batch_size,
        optimizer=OptimizerConfig(learning_rate=settings.learning_rate),
        warm_up=WarmUpConfig(epochs=0.05 * settings.num_epochs, prior_epochs=0.1 * settings.num_epochs),
        beta_bound=BetaBoundConfig(start=3.0, slope=3.0 / settings.num_epochs),
        sampler=BlockGibbsConfig(num_chains=_CHAINS),
        num_sweeps=_SWEEPS,
        log_every=every,  # a line takes an estimate of log Z
        validate_every=every,
    )
    changed = {"seed": settings.seed, "model": base.model.model_copy(update=model), "training": training}
    return base.model_copy(update=changed)
