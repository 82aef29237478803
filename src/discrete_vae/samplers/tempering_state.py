"""Checks of a saved state of parallel tempering."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from discrete_vae.errors import InvalidInputError
from discrete_vae.samplers.ladder import check_ladder

_STATE_TENSORS = {"z": torch.uint8, "order": torch.int64, "last_end": torch.uint8, "round_trips": torch.int64}
_STATE_KEYS = (*_STATE_TENSORS, "inverse_temperatures", "swap_sum", "num_units", "sweep", "seed", "measured")


def check_tempering_state(state: dict[str, Any], num_chains: int, num_units: int) -> None:
    """Refuse a state that does not fit a sampler.

    Args:
        state: What `ParallelTempering.state_dict` gave.
        num_chains: Chains of the sampler.
        num_units: Units of its machine.

    Raises:
        InvalidInputError: If an entry is missing or damaged, or made for other numbers of units or chains.
    """
    repair = "Load the right file, for a sampler with these numbers of chains and units."
    missing = [key for key in _STATE_KEYS if key not in state]
    if missing:
        raise InvalidInputError("state", f"must have the keys {_STATE_KEYS}", f"none of {missing}", repair)
    if state["num_units"] != num_units:
        raise InvalidInputError(
            "state['num_units']", f"must be the energy's {num_units}", state["num_units"], repair
        )
    replicas = len(check_ladder(state["inverse_temperatures"]))
    shapes = {
        "z": (num_chains * replicas, (num_units + 7) // 8),
        "order": (num_chains, replicas),
        "last_end": (num_chains, replicas),
        "round_trips": (num_chains,),
    }
    for name, dtype in _STATE_TENSORS.items():
        value = state[name]
        received = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        if received != f"{dtype} {shapes[name]}":
            rule = f"must be {dtype} of shape {shapes[name]}"
            raise InvalidInputError(f"state['{name}']", rule, received, repair)
    if not torch.equal(state["order"].sort(1).values.cpu(), torch.arange(replicas).repeat(num_chains, 1)):
        raise InvalidInputError("state['order']", "must hold permutations", "something else", repair)
    for name in ("sweep", "measured"):
        value = state[name]
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**64:
            raise InvalidInputError(
                f"state['{name}']", "must be an integer from 0 to 2^64 - 1", repr(value), repair
            )
    if not isinstance(state["swap_sum"], Tensor) or tuple(state["swap_sum"].shape) != (replicas - 1,):
        rule = f"must be a tensor of shape ({replicas - 1},)"
        raise InvalidInputError("state['swap_sum']", rule, repr(state["swap_sum"])[:80], repair)
