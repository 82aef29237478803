"""Ready experiments, one per file: functions of the size that return a config. Nothing here imports torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, get_args

from discrete_vae.config import ExperimentConfig
from discrete_vae.errors import InvalidInputError

Size = Literal["smoke", "short", "cpu", "paper"]
SIZES: tuple[str, ...] = get_args(Size)

_MODULES = {
    "digits": "digits",
    "mnist-dynamic": "mnist_dynamic",
    "mnist-static": "mnist_static",
    "omniglot": "omniglot",
    "caltech101-silhouettes": "caltech101_silhouettes",
    "mnist-static-rbm128": "mnist_static_rbm128",
    "mnist-static-rbm200": "mnist_static_rbm200",
    "mnist-static-rbm128-linear": "mnist_static_rbm128_linear",
    "mnist-static-rbm200-linear": "mnist_static_rbm200_linear",
    "mnist-static-factorial-prior": "mnist_static_factorial_prior",
    "mnist-static-factorial": "mnist_static_factorial",
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
        rule = f"must be one of {', '.join(_MODULES)}"
        raise InvalidInputError("experiment", rule, repr(name), _meant(str(name)))
    module = importlib.import_module(f"discrete_vae.experiments.{_MODULES[name]}")
    return getattr(module, _MODULES[name])


def _meant(word: str) -> str:
    """What to do about a word that is no experiment's name; a file is recognized as one."""
    close = [name for name in _MODULES if name.startswith(word)]
    close = close or get_close_matches(word, _MODULES, n=1)
    if Path(word).suffix in {".npy", ".npz", ".csv", ".parquet"}:
        return f"Did you mean --data {word}?"
    if close and word:
        return f"Did you mean {' or '.join(close[:3])}?"
    return "dvae list shows what they are; for data of your own: --data FILE."


def load_experiment(name: str, size: Size = "short") -> ExperimentConfig:
    """The config of a ready experiment.

    Args:
        name: See `experiment_names`.
        size: "smoke" (under a minute), "short" (minutes to an hour on two cores), "cpu" (an hour or two on two cores)
            or "paper".

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
