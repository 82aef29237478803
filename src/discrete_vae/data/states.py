"""States of a prior in a file."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from discrete_vae.data.read_arrays import read_npy
from discrete_vae.errors import InvalidInputError
from discrete_vae.memory import allocating


def read_states(path: Path, num_units: int, *, argument: str = "path") -> Tensor:
    """Read states of binary units, for chains that start at them.

    Args:
        path: A .npy file with an array (chain, unit) in {0,1} of any type of numbers.
        num_units: Units of the machine.
        argument: Name of the argument that gave the path, for messages.

    Returns:
        (chain, unit) float32.

    Raises:
        InvalidInputError: If the file cannot be read, or holds something else.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/z.npy", np.array([[True, False]]))
        ...     read_states(Path(folder, "z.npy"), 2)
        tensor([[1., 0.]])
    """
    states = read_npy(path)
    received = f"shape {states.shape} of {states.dtype} in {path}"
    fits = states.dtype.kind in "buif" and states.ndim == 2 and states.shape[1] == num_units
    if fits and not bool(((states == 0) | (states == 1)).all()):
        fits, received = False, f"other values in {path}"
    if not fits or len(states) == 0:
        rule = f"must hold states of the prior, (chain, {num_units} units) in {{0,1}}"
        raise InvalidInputError(argument, rule, received, "Save such an array with numpy.save.")
    with allocating(argument, "Give fewer chains."):
        return torch.from_numpy(states.astype("float32"))  # whatever its width and byte order
