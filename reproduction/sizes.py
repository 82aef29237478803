"""Sizes of the reproductions: those of the ready experiments, and one more of the four main runs, `large`."""

from __future__ import annotations

from typing import Literal, get_args

from discrete_vae.config import ExperimentConfig
from discrete_vae.config.overrides import apply_overrides
from discrete_vae.errors import InvalidInputError
from discrete_vae.presets import load_experiment

Size = Literal["smoke", "short", "cpu", "large", "paper"]
SIZES: tuple[Size, ...] = get_args(Size)

WITH_LARGE: tuple[Size, ...] = ("cpu", "smoke", "short", "large", "paper")
"""Sizes of what is made of the four main runs alone, the default first."""

_CONVOLUTIONAL: dict[str, tuple[object, ...]] = {
    "model.decoder": ("convolutional",),
    "model.decoder.widths": (32, 64),
    "training.batch-size": (200,),
    "training.optimizer.learning-rate": (0.003,),
    "training.optimizer.rise": (0.01,),
    "training.log-every": (500,),
    "training.validate-every": (1000,),
    "evaluation.sharp-limit": (False,),  # which would take as long again
}


def _epochs(count: int, warm_up: int, of_prior: int) -> dict[str, tuple[object, ...]]:
    """The length of a run, over which the bound of a trained beta rises by 5, and of its warm-up."""
    return {
        "training.num-epochs": (count,),
        "training.warm-up.epochs": (warm_up,),
        "training.warm-up.prior-epochs": (of_prior,),
        "training.beta-bound.slope": (5 / count,),
    }


LARGE: dict[str, dict[str, tuple[object, ...]]] = {
    "mnist-dynamic": _CONVOLUTIONAL
    | _epochs(200, 10, 30)
    | {
        "model.hierarchy.num-layers": (10,),
        "model.hierarchy.prior-hidden": (300,),
        "training.num-importance-samples": (1,),
    },
    "mnist-static": _CONVOLUTIONAL
    | _epochs(200, 10, 30)
    | {
        "training.optimizer.decoder-weight-decay": (0.2,),
        "training.augmentation.max-shift": (1,),
        "training.augmentation.end": (0.75,),
    },
    "omniglot": _CONVOLUTIONAL
    | _epochs(450, 22, 66)
    | {
        "training.num-importance-samples": (1,),
        "training.optimizer.decoder-weight-decay": (0.5,),
        "training.augmentation.max-shift": (1,),
        "training.augmentation.end": (0.8,),
    },
    "caltech101-silhouettes": _epochs(6400, 50, 150)
    | {
        "training.augmentation.max-shift": (1,),
        "training.augmentation.horizontal-flip": (True,),
        "training.augmentation.end": (0.9,),
    },
}
"""What size `large` changes of size `cpu`, by experiment and option; a run takes three to five hours with evaluation.

Settings are those that screens on validation data chose, or that such screens are to confirm, see LARGE.md.
"""


REFIT_STEPS = {"omniglot": 4000, "caltech101-silhouettes": 4000}
"""Steps by which the posterior of a large run is fitted anew before its evaluation, where it learns images by heart."""


def load_sized(experiment: str, size: Size) -> ExperimentConfig:
    """The config of a ready experiment in a size."""
    if size != "large":
        return load_experiment(experiment, size)
    if experiment not in LARGE:
        rule = f"must be one of {', '.join(LARGE)} in size large"
        raise InvalidInputError("experiment", rule, repr(experiment), "Take size cpu for others.")
    settings = [(path, [str(value) for value in values]) for path, values in LARGE[experiment].items()]
    config = apply_overrides(load_experiment(experiment, "cpu"), settings)
    return config.model_copy(update={"size": "large"})
