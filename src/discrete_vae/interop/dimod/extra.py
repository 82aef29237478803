"""The libraries of the extra "dwave", imported when they are needed."""

from __future__ import annotations

import importlib
from types import ModuleType

from discrete_vae.errors import InvalidInputError

REPAIR = "Install it: pip install 'discrete-vae[dwave]'."


def library(name: str, *, repair: str = REPAIR) -> ModuleType:
    """Import a module of another library.

    Args:
        name: Of the module, "dwave.samplers".
        repair: What an error says is to be done.

    Raises:
        InvalidInputError: If it is not installed.

    Examples:
        >>> library("no.such.library")
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: the library no.such.library must be installed; received ...
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        received = f"{type(error).__name__}: {error}"
        raise InvalidInputError(f"the library {name}", "must be installed", received, repair) from None
