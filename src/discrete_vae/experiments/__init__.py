"""Ready experiments, one per file: functions of the size that return a config. Nothing here imports torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Literal, get_args

from discrete_vae.config import ExperimentConfig
from discrete_vae.errors import InvalidInputError

Size = Literal["smoke", "short", "paper"]
SIZES: tuple[str, ...] = get_args(Size)

_MODULES = {
    "digits": "digits",
    "mnist-dynamic": "mnist_dynamic",
    "mnist-static": "mnist_static",
    "omniglot": "omniglot",
    "caltech101-silhouettes": "caltech101_silhouettes",
    "mnist-static-rbm128": "mnist_static_rbm128",
}


def experiment_names() -> tuple[str, ...]:
    """The names that `load_experiment` knows."""
    return tuple(_MODULES)


def experiment_function(name: str) -> Callable[[Size], ExperimentConfig]:
    """The function behind a name; its docstring says command, expected value and time.

    Raises:
        InvalidInputError: If there is no such experiment.
    """
    if not isinstance(name, str) or name not in _MODULES:
        repair = "For data of your own: dvae train --data FILE."
        raise InvalidInputError("experiment", f"must be one of {', '.join(_MODULES)}", repr(name), repair)
    module = importlib.import_module(f"discrete_vae.experiments.{_MODULES[name]}")
    return getattr(module, _MODULES[name])


def load_experiment(name: str, size: Size = "short") -> ExperimentConfig:
    """The config of a ready experiment.

    Args:
        name: See `experiment_names`.
        size: "smoke" (under a minute), "short" (minutes to an hour on two cores) or "paper".

    Raises:
        InvalidInputError: If the name or the size is unknown.

    Examples:
        >>> load_experiment("digits").model.prior.num_units
        32
    """
    if size not in SIZES:
        raise InvalidInputError(
            "size", f"must be one of {', '.join(SIZES)}", repr(size), "Choose one of them."
        )
    return experiment_function(name)(size)
