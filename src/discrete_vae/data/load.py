"""A data set by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from discrete_vae.config import DataConfig, instantiate, members
from discrete_vae.data.dataset import DataSplits
from discrete_vae.errors import InvalidInputError


def load_dataset(name: str, *, data_dir: str | Path | None = None, **settings: Any) -> DataSplits:
    """Load a data set.

    Published data sets are read from the data folder, after a download if they are not there yet. The names
    are ``digits`` (comes with scikit-learn), ``mnist-dynamic``, ``mnist-static``, ``omniglot``,
    ``caltech101-silhouettes`` and, with ``path=``, ``file`` for an array of one's own.

    Args:
        name: The data set's name.
        data_dir: Folder of the data sets; None means ``DISCRETE_VAE_DATA`` or the user's cache.
        settings: Fields of the data set's config, for example ``num_valid``.

    Returns:
        Train, validation and test parts, (example, feature) float32 in [0, 1], and what is known about them.

    Raises:
        InvalidInputError: If the name or a setting is unknown, the folder does not exist, or the data set is
            damaged or cannot be downloaded.

    Examples:
        >>> digits = load_dataset("digits", num_valid=100)
        >>> digits.valid.shape, digits.image_shape, digits.dynamic
        (torch.Size([100, 64]), (8, 8), True)
    """
    configs = {config.model_fields["kind"].default: config for config in members(DataConfig)}
    if not isinstance(name, str) or name not in configs:
        known = ", ".join(configs)
        repair = "For a file of your own: load_dataset('file', path=...)."
        raise InvalidInputError("name", f"must be one of {known}", repr(name), repair)
    return instantiate(configs[name](**settings), data_dir=data_dir)
