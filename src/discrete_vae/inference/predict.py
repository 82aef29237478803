"""Classes of examples, p(y | x), by a model that has some; and how often they are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from discrete_vae.checks import check_positive_int
from discrete_vae.data.splits import effective_number
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import samples_in_memory, standard_error, weighted_mean
from discrete_vae.inference.rows import Report, in_batches
from discrete_vae.inference.score import share_error
from discrete_vae.model import DiscreteVAE
from discrete_vae.posterior import UNKNOWN
from discrete_vae.records import ShowsShapes, ShowsTable
from discrete_vae.rng import key_to_seed
from discrete_vae.sparse import Examples

_STREAM = 0x70726564
_LARGEST_BATCH = 32  # examples


@dataclass(frozen=True, eq=False, repr=False)
class Predictions(ShowsShapes):
    """p(y | x) of examples, a row each.

    Attributes:
        log_probabilities: log p(y | x), (row, class) float64, nats.
        std_error: Monte-Carlo standard error of p(y | x), (row, class) float64; NaN of one sample, and too small where
            ess is.
        ess: Effective number of samples of log p(x, y), (row, class) float64, between 1 and their number.
        approximate: q(y | x), by which the encoder classifies without sampling, (row, class) float64.
    """

    log_probabilities: np.ndarray
    std_error: np.ndarray
    ess: np.ndarray
    approximate: np.ndarray

    @property
    def probabilities(self) -> np.ndarray:
        """p(y | x), (row, class) float64."""
        return np.exp(self.log_probabilities)

    @property
    def predicted(self) -> np.ndarray:
        """The most probable class, (row,) int64."""
        return self.log_probabilities.argmax(1)


def predict_rows(
    model: DiscreteVAE,
    x: Examples,
    *,
    condition: Tensor | None = None,
    num_samples: int = 100,
    seed: int = 0,
    numbers: Sequence[int] | np.ndarray | None = None,
    batch_size: int | None = None,
    report: Report | None = None,
) -> Predictions:
    """p(y | x) of each class y by importance samples of p(x, y); see `discrete_vae.DiscreteVAE.predict`.

    An example's prediction depends on the seed and its number, not on the other examples.

    The arguments are those of `score_rows`, with ``num_samples`` importance samples per example and class, and the
    batches of `discrete_vae.inference.rows.in_batches`.

    Examples:
        >>> import torch
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> prior = RBMConfig(num_left=5, num_right=2)
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=prior, num_classes=3))
        >>> predict_rows(model, torch.eye(6), num_samples=5).probabilities.shape
        (6, 3)
    """
    check_positive_int("num_samples", num_samples)
    model.check_labels(None, 0)
    most = samples_in_memory(model)
    size = min(_LARGEST_BATCH, most) if batch_size is None else check_positive_int("batch_size", batch_size)

    def compute(batch: Tensor, rows: Sequence[int], c: Tensor | None) -> dict[str, Tensor]:
        keys = [key_to_seed(seed, _STREAM, row) for row in rows]
        found = model.predict(batch, num_samples, condition=c, chunk_size=max(1, most // size), keys=keys)
        return {
            "log_probabilities": found.log_value,
            "std_error": found.std_error,
            "ess": found.ess,
            "approximate": found.approximate.double(),
        }

    found = in_batches(
        model, x, compute, conditions=[condition], numbers=numbers, batch_size=size, report=report
    )
    return Predictions(**found)


@dataclass(frozen=True)
class ClassAccuracy(ShowsTable):
    """Predicted classes beside labels.

    Attributes:
        accuracy: Share of examples whose most probable class is their label.
        std_error: Its `share_error`.
        log_loss: Mean of -log p(label | x), nats.
        log_loss_std_error: Its standard error over examples; NaN of one.
        most_frequent: Share of the most frequent label: the accuracy of a guess that does not look at x.
        num_examples: Examples with a label.
        effective_examples: `effective_number` of them where shares and mean are weighted; None where all count alike.
    """

    accuracy: float
    std_error: float
    log_loss: float
    log_loss_std_error: float
    most_frequent: float
    num_examples: int
    effective_examples: float | None = None


def class_accuracy(
    log_probabilities: np.ndarray, labels: np.ndarray, weights: Tensor | None = None
) -> ClassAccuracy | None:
    """Compare predictions with labels; None where no label is known.

    Args:
        log_probabilities: log p(y | x), (row, class), nats.
        labels: Numbers of classes, (row,) integers; -1 for one that is not known.
        weights: How often the population has each row, (row,) above 0; None counts all alike.

    Examples:
        >>> class_accuracy(np.log([[0.5, 0.5], [0.2, 0.8]]), np.array([-1, 1])).accuracy
        1.0
    """
    if labels.shape != log_probabilities.shape[:1]:
        rule = f"must be one for each of {len(log_probabilities)} rows"
        raise InvalidInputError("labels", rule, f"shape {labels.shape}", "Give -1 for what is not known.")
    known = labels != UNKNOWN
    count = int(known.sum())
    if count == 0:
        return None
    own, labels = log_probabilities[known], labels[known]
    equal = torch.ones(count, dtype=torch.float64, device="cpu")
    given = equal if weights is None else weights[torch.from_numpy(known)]
    right = torch.from_numpy(own.argmax(1) == labels).double()
    losses = torch.from_numpy(-own[np.arange(count), labels])
    accuracy = float(weighted_mean(right, given))
    return ClassAccuracy(
        accuracy=accuracy,
        std_error=share_error(accuracy, effective_number(given)),
        log_loss=float(weighted_mean(losses, given)),
        log_loss_std_error=float(standard_error(losses, given)),
        most_frequent=float(np.bincount(labels, given.numpy()).max() / given.sum()),
        num_examples=count,
        effective_examples=None if weights is None else effective_number(given),
    )
