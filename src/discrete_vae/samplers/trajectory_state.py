"""The saved state of trajectory tempering."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from discrete_vae.errors import InvalidInputError
from discrete_vae.samplers.chains import check_entry
from discrete_vae.samplers.rungs import SETS


def check_trajectory_state(
    state: Mapping[str, Any], name: Callable[[str], str], *, num_chains: int, num_units: int, like: Tensor
) -> None:
    """Check that a state is one of chains of a machine of this size and of its past.

    Args:
        state: Its entries.
        name: What messages call an entry.
        num_chains: Chains.
        num_units: Units of the machine.
        like: Parameters of rungs, (any rung, parameter).

    Raises:
        InvalidInputError: If an entry has another shape or type, or holds what is not finite.
    """
    parameters = state["rung_parameters_of"]
    rungs = max(1, len(parameters)) if isinstance(parameters, Tensor) and parameters.ndim == 2 else 1
    num_bytes, members = (num_units + 7) // 8, SETS * num_chains
    for entry, dtype, shape in (
        ("z", torch.uint8, (num_chains, num_bytes)),
        ("free", torch.float64, (num_chains,)),
        ("reservoir", torch.uint8, (members, num_bytes)),
        ("reservoir_free", torch.float64, (members,)),
        ("numbers", torch.float64, (2,)),
        ("rung_parameters_of", like.dtype, (rungs, like.shape[1])),
        ("rung_walkers", torch.uint8, (rungs, num_chains, num_bytes)),
        ("rung_guess", torch.float64, (rungs - 1,)),
        ("rung_of_lower", torch.float64, (num_chains, rungs - 1)),
        ("rung_of_upper", torch.float64, (num_chains, rungs - 1)),
    ):
        value = check_entry(name(entry), state[entry], dtype, shape)
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise InvalidInputError(
                name(entry), "must be finite", "NaN or an infinity", "Load the right file."
            )
