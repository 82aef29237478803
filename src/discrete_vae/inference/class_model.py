"""What class an example is of, read off its latents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from discrete_vae.errors import InvalidInputError
from discrete_vae.records import ShowsShapes

_REGULARIZATION = 0.1  # inverse strength, in units of standardized latents
_HELD_OUT = 0.2


@dataclass(frozen=True, eq=False, repr=False)
class ClassModel(ShowsShapes):
    """p(class | latents) = softmax(W latents + b), a multinomial logistic regression.

    Attributes:
        classes: Labels in ascending order, (class,).
        weight: W, (class, latent) float32.
        bias: b, (class,) float32.
        accuracy: Share of labeled examples that were held out whose class it finds.
    """

    classes: np.ndarray
    weight: Tensor
    bias: Tensor
    accuracy: float

    def probabilities(self, latents: Tensor) -> Tensor:
        """p(class | latents), (row, class).

        Args:
            latents: (row, latent).
        """
        weight, bias = self.weight.to(latents), self.bias.to(latents)
        return torch.softmax(latents @ weight.T + bias, 1)


def place_of(label: str, classes: np.ndarray) -> int:
    """The place of a class among all.

    Args:
        label: As a command line has it, "3".
        classes: Labels, each once.

    Raises:
        InvalidInputError: If there is no such class.
    """
    words = [str(name) for name in classes]
    if label not in words:
        shown = ", ".join(words[:20]) + ", ..." * (len(words) > 20)
        rule = f"must be among the labels, {shown}"
        raise InvalidInputError("--label", rule, repr(label)[:80], "Give one.")
    return words.index(label)


def fit_class_model(latents: np.ndarray, labels: np.ndarray, *, seed: int = 0) -> ClassModel:
    """Fit classes to latents of labeled examples.

    A fifth of the examples, chosen at random, is held out and tells the accuracy; the others are fitted.

    Args:
        latents: (row, latent), draws from the posterior: states of the prior are alike.
        labels: (row,) numbers or words.
        seed: Seed of the choice.

    Raises:
        InvalidInputError: If there is not a label per row, or the examples that are fitted are all of one class.

    Examples:
        >>> codes = np.repeat(np.eye(2), 50, axis=0)
        >>> fitted = fit_class_model(codes, np.repeat(["cat", "dog"], 50))
        >>> fitted.classes.tolist(), fitted.accuracy
        (['cat', 'dog'], 1.0)
    """
    from sklearn.linear_model import LogisticRegression

    if labels.shape != (len(latents),):
        rule = f"must be a label for each of the {len(latents)} examples"
        raise InvalidInputError("labels", rule, f"shape {labels.shape}", "Give one per example.")
    order = np.random.default_rng(seed).permutation(len(labels))
    held_out, fitted = np.split(order, [max(1, int(_HELD_OUT * len(labels)))])
    if len(np.unique(labels[fitted])) < 2:
        rule, repair = "must name at least two classes", "Give labels of several classes."
        raise InvalidInputError("labels", rule, f"{len(np.unique(labels))} in {len(labels)} examples", repair)
    mean, scale = latents.mean(0), np.maximum(latents.std(0), 1e-3)
    model = LogisticRegression(C=_REGULARIZATION, max_iter=1000)
    model.fit((latents[fitted] - mean) / scale, labels[fitted])
    accuracy = model.score((latents[held_out] - mean) / scale, labels[held_out])
    weight, bias = model.coef_ / scale, model.intercept_ - model.coef_ @ (mean / scale)
    if len(weight) == 1:  # two classes: the log-odds of the second
        weight, bias = np.concatenate([0 * weight, weight]), np.concatenate([0 * bias, bias])
    tensors = (torch.from_numpy(values.astype(np.float32)) for values in (weight, bias))
    return ClassModel(model.classes_, *tensors, accuracy=float(accuracy))
