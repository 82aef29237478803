"""The folder that holds the data sets."""

from __future__ import annotations

import os
from pathlib import Path

from discrete_vae.errors import InvalidInputError
from discrete_vae.paths import user_path

ENVIRONMENT_VARIABLE = "DISCRETE_VAE_DATA"


def check_data_dir(data_dir: str | Path | None) -> Path | None:
    """Return a folder that the user named, if it exists; None stays None.

    Args:
        data_dir: The folder; ``~`` is the home directory.

    Raises:
        InvalidInputError: If it is not a folder. Nothing is created: a typing error must not start a
            download.
    """
    return None if data_dir is None else _existing("data_dir", data_dir)


def data_folder(data_dir: str | Path | None = None) -> Path:
    """Find the folder of the data sets: the argument, else ``DISCRETE_VAE_DATA``, else the user's cache.

    Args:
        data_dir: The folder; ``~`` is the home directory.

    Returns:
        The folder. Only the one in the user's cache may not exist yet.

    Raises:
        InvalidInputError: If the argument or the variable names something that is not a folder.

    Examples:
        >>> data_folder("no/such/folder")
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: data_dir must be an existing folder; received no/such/folder.
        ...
    """
    if data_dir is not None:
        return _existing("data_dir", data_dir)
    named = os.environ.get(ENVIRONMENT_VARIABLE, "")
    if named:
        return _existing(ENVIRONMENT_VARIABLE, named)
    import pooch  # here, since it costs time and a machine without it can still use its own files

    return Path(pooch.os_cache("discrete-vae"))


def _existing(name: str, folder: str | Path) -> Path:
    path = user_path(name, folder)
    if not path.is_dir():
        raise InvalidInputError(
            name, "must be an existing folder", str(folder), "Create it, or correct the path."
        )
    return path
