"""Sizes of the reproductions: those of the ready experiments, and one more of the four main runs, `large`."""

from __future__ import annotations

from typing import Literal, get_args

from discrete_vae.config import ExperimentConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.config.overrides import apply_overrides
from discrete_vae.presets import load_experiment

Size = Literal["smoke", "short", "cpu", "large", "paper"]
SIZES: tuple[Size, ...] = get_args(Size)

WITH_LARGE: tuple[Size, ...] = ("cpu", "smoke", "short", "large", "paper")
"""Sizes of what is made of the four main runs alone, the default first."""

LARGE: dict[str, dict[str, tuple[object, ...]]] = {
    "mnist-dynamic": {
        "model.hierarchy.num-layers": (10,),
        "model.hierarchy.prior-hidden": (300,),
        "model.decoder": ("convolutional",),
        "model.decoder.widths": (32, 64),
        "training.num-epochs": (640,),
        "training.batch-size": (200,),
        "training.optimizer.learning-rate": (0.003,),
        "training.optimizer.rise": (0.01,),
        "training.importance-start": (0.92,),
        "training.warm-up.epochs": (10,),
        "training.warm-up.prior-epochs": (30,),
        "training.beta-bound.slope": (5 / 640,),
        "training.log-every": (500,),
        "training.validate-every": (500,),
    },
    "mnist-static": {},
    "omniglot": {},
    "caltech101-silhouettes": {},
}
"""What size `large` changes of size `cpu`, by experiment and option: about ten hours of one quiet thread per run.

Settings are those that screens on validation data chose, see LARGE.md.
"""


def load_sized(experiment: str, size: Size) -> ExperimentConfig:
    """The config of a ready experiment in a size.

    Raises:
        InvalidInputError: If the experiment does not have the size.
    """
    if size != "large":
        return load_experiment(experiment, size)
    if experiment not in LARGE:
        rule = f"must be one of {', '.join(LARGE)} in size large"
        raise InvalidInputError("experiment", rule, repr(experiment), "Take size cpu for others.")
    settings = [(path, [str(value) for value in values]) for path, values in LARGE[experiment].items()]
    config = apply_overrides(load_experiment(experiment, "cpu"), settings)
    return config.model_copy(update={"size": "large"})
