"""Training batches as functions of (seed, step): nothing to save, and any step's batch can be made at once."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from discrete_vae.checks import check_count, check_positive_int
from discrete_vae.config import AugmentationConfig
from discrete_vae.data.splits import DataSplits, fixed_permutation, fixed_uniforms, summarize
from discrete_vae.errors import InvalidInputError
from discrete_vae.posterior import UNKNOWN
from discrete_vae.rng import keyed_generator

# Words that keep these streams apart from each other and from the model's noise of the same seed and step.
_ORDER_STREAM = 0x6F72646572
_WEIGHTED_STREAM, _START_STREAM = 0x77656967, 0x73746172
_BINARIZATION_STREAM = 0x62696E617279
_MOVE_STREAM = 0x6D6F7665


# Weights of examples.
#
# With weights w_i of N examples, W = sum w_i, the objective is sum_i w_i L_i / W. An epoch is N examples that are drawn
# so that example i comes c_i times, E[c_i] = N w_i / W, in a random order. Each place of the epoch then holds example i
# with probability w_i / W, so the plain mean over a batch, and its gradient, are unbiased for the objective: a step
# knows nothing of weights. Systematic resampling keeps c_i within 1 of its mean, which is the least that whole numbers
# can differ; with equal weights c_i = 1, the epochs without weights.


def epoch_order(num_examples: int, seed: int, epoch: int, weights: np.ndarray | None = None) -> np.ndarray:
    """The examples of an epoch in their order, (num_examples,) int64: each once, or in proportion to its weight."""
    order = fixed_permutation(num_examples, seed, _ORDER_STREAM, epoch)
    if weights is None or bool((weights == weights[0]).all()):
        return order
    mixed = fixed_permutation(num_examples, seed, _WEIGHTED_STREAM, epoch)
    start = float(fixed_uniforms(1, seed, _START_STREAM, epoch)[0])
    return mixed[systematic_resample(weights[mixed], start)][order]


def systematic_resample(weights: np.ndarray, start: float) -> np.ndarray:
    """Draw as many examples as there are, each floor or ceil of N w_i / sum w times, its mean over uniform starts.

    Weights are (example,), at least 0, and indices (example,) int64, ascending.

    Source: Madow 1949, "On the theory of systematic sampling, II".

    Examples:
        >>> systematic_resample(np.array([1.0, 3.0]), 0.2), systematic_resample(np.array([1.0, 3.0]), 0.7)
        (array([0, 1]), array([1, 1]))
    """
    ends = np.cumsum(weights, dtype=np.float64)
    places = (start + np.arange(len(weights))) * (ends[-1] / len(weights))
    # rounding must not reach beyond the last example that has a weight
    return np.searchsorted(ends, np.minimum(places, np.nextafter(ends[-1], 0)), side="right")


def binarize(
    probabilities: Tensor, *, missing: bool = False, generator: torch.Generator | None = None
) -> Tensor:
    """Draw bits, in the shape and dtype of the probabilities; NaN stays where it marks missing values.

    Examples:
        >>> binarize(torch.tensor([0.0, 0.5, 1.0]), generator=keyed_generator(0))
        tensor([0., 1., 1.])
    """
    # Always in float32: bfloat16 draws take so few values that the probabilities would be off.
    uniform = torch.rand(probabilities.shape, device=probabilities.device, generator=generator)
    bits = (uniform < probabilities).to(probabilities.dtype)
    return torch.where(probabilities.isnan(), torch.nan, bits) if missing else bits


def move_images(images: Tensor, uniforms: np.ndarray, augmentation: AugmentationConfig) -> Tensor:
    """Shift each image, (image, channel, row, column), by whole pixels, and mirror half of them if asked to.

    All shifts are as likely: the uniforms, (3, image), are of that of rows, of that of columns, and of the mirror.

    Examples:
        >>> image = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
        >>> move_images(image, np.array([[0.0], [0.5], [0.5]]), AugmentationConfig(max_shift=1))  # a row up
        tensor([[[[3., 4.],
                  [0., 0.]]]])
    """
    device, (count, channels, height, width) = images.device, images.shape
    if augmentation.horizontal_flip:
        mirrored = torch.from_numpy(uniforms[2] < 0.5).to(device)
        images = torch.where(mirrored[:, None, None, None], images.flip(3), images)
    if (largest := augmentation.max_shift) == 0:
        return images
    starts = 2 * largest - (torch.from_numpy(uniforms[:2]) * (2 * largest + 1)).long()  # in the wider image
    rows = (starts[0, :, None] + torch.arange(height, device="cpu")).to(device)
    columns = (starts[1, :, None] + torch.arange(width, device="cpu")).to(device)
    example, channel = torch.arange(count, device=device), torch.arange(channels, device=device)
    return F.pad(images, (largest,) * 4)[
        example[:, None, None, None], channel[:, None, None], rows[:, None, :, None], columns[:, None, None]
    ]


class TrainingBatches:
    """The training part of a data set, cut into batches; binarized afresh in each step if it is dynamic.

    Each epoch goes through the examples in an order of its own, with weights in proportion to these, see `epoch_order`.
    Its last, incomplete batch is dropped, since batch normalization and the learning rate count on full ones; other
    examples are left out in each epoch.

    Args:
        dataset: The data set.
        batch_size: Examples per step, at most the size of the training part.
        seed: Seed of the order and of the binarization.
        device: Where the batches are wanted; the training part is moved there once.
        share: The rows of each batch that are wanted; None means all.
        labels: Numbers of the classes of the training part, (example,), as `ModelConfig.label_numbers` gives them; None
            for a model without.
        augmentation: How images are moved, see `move_images`; None moves none.
        num_epochs: Epochs of the run, of which `augmentation.end` is a share.

    Attributes:
        steps_per_epoch: Full batches of an epoch.
        examples_per_label: Examples of the training part for each one whose label is known; 0 if none is.

    Examples:
        >>> from discrete_vae.data.datasets import load_dataset
        >>> batches = TrainingBatches(load_dataset("digits"), 100, seed=0)
        >>> batches.steps_per_epoch, batches.epoch(25), batches.batch(25).shape
        (12, 2, torch.Size([100, 64]))
    """

    def __init__(
        self,
        dataset: DataSplits,
        batch_size: int,
        *,
        seed: int,
        device: torch.device | str = "cpu",
        share: slice | None = None,
        labels: np.ndarray | None = None,
        augmentation: AugmentationConfig | None = None,
        num_epochs: int = 1,
    ) -> None:
        num_examples = len(dataset.train)
        if check_positive_int("batch_size", batch_size) > num_examples:
            rule = f"must be at most the {num_examples} training examples"
            raise InvalidInputError("batch_size", rule, batch_size, "Make the batch smaller.")
        self.steps_per_epoch = num_examples // batch_size
        self._augmentation = augmentation = augmentation or AugmentationConfig()
        self._event_shape, self._moved_steps = dataset.event_shape, 0.0
        if augmentation.moves:
            _check_images(dataset, augmentation)
            self._moved_steps = augmentation.end * num_epochs * self.steps_per_epoch
        self.batch_size = batch_size
        self.seed = seed
        self._dynamic = dataset.dynamic
        self._missing = dataset.dynamic and summarize(dataset.train).num_missing > 0
        self._train = dataset.train.to(device)
        self._weights = dataset.weights.get("train")
        condition = dataset.conditions.get("train")
        self._condition = None if condition is None else condition.to(device)
        self._labels, self.examples_per_label = None, 0.0
        if labels is not None:
            self._labels = torch.from_numpy(labels).to(device)
            shares = np.ones(len(labels)) if self._weights is None else self._weights
            known = float(shares[labels != UNKNOWN].sum())
            self.examples_per_label = float(shares.sum()) / known if known else 0.0
        self._share = slice(None) if share is None else share
        self._order_epoch = -1
        self._order = torch.empty(0, dtype=torch.int64)

    def epoch(self, step: int) -> int:
        """Number of the epoch, from 0, that a step belongs to."""
        return check_count("step", step, repair="Count steps from 0.") // self.steps_per_epoch

    def indices(self, step: int) -> Tensor:
        """Indices of the examples of a step, (batch,) int64, distinct unless there are weights, on the device."""
        epoch = self.epoch(step)
        if epoch != self._order_epoch:
            order = epoch_order(len(self._train), self.seed, epoch, self._weights)
            self._order, self._order_epoch = torch.from_numpy(order).to(self._train.device), epoch
        start = step % self.steps_per_epoch * self.batch_size
        return self._order[start : start + self.batch_size]

    def batch(self, step: int) -> Tensor:
        """The batch of a step, from 0, (batch, feature) float32.

        The bits of a dynamic data set depend on (seed, step) and, as torch's streams do, on the kind of device.
        """
        places, is_moved = self.indices(step), step < self._moved_steps
        if not self._dynamic and not is_moved:
            return self._train[places[self._share]]
        rows = self._train[places]  # all, so that the draws do not depend on who wants them
        if is_moved:
            uniforms = fixed_uniforms(3 * len(rows), self.seed, _MOVE_STREAM, step).reshape(3, -1)
            rows = move_images(rows.reshape(-1, *self._event_shape), uniforms, self._augmentation).flatten(1)
        if not self._dynamic:
            return rows[self._share]
        generator = keyed_generator(self.seed, _BINARIZATION_STREAM, step, device=self._train.device)
        return binarize(rows, missing=self._missing, generator=generator)[self._share]

    def condition(self, step: int) -> Tensor | None:
        """The condition of the examples of a step, (batch, column) float32; None for data without one."""
        return None if self._condition is None else self._condition[self.indices(step)[self._share]]

    def labels(self, step: int) -> Tensor | None:
        """The labels of the examples of a step, (batch,) int64, -1 for unknown; None for a model without classes."""
        return None if self._labels is None else self._labels[self.indices(step)[self._share]]


def _check_images(dataset: DataSplits, augmentation: AugmentationConfig) -> None:
    shift = augmentation.max_shift
    if len(dataset.event_shape) == 3 and isinstance(dataset.train, Tensor):
        if shift >= (smallest := min(dataset.event_shape[1:])):
            rule = f"must be less than the {smallest} pixels of an image's smaller side"
            raise InvalidInputError("training.augmentation.max_shift", rule, shift, "Give 1 or 2.")
        return
    name, unset = ("max_shift", 0) if shift else ("horizontal_flip", False)
    rule = f"must be {unset} for examples of shape {dataset.event_shape}, which are no images"
    received = getattr(augmentation, name)
    raise InvalidInputError(f"training.augmentation.{name}", rule, received, "Leave it out.")
