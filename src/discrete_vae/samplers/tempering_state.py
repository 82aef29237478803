"""The saved state of parallel tempering."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from discrete_vae.errors import InvalidInputError
from discrete_vae.samplers.chains import check_entry
from discrete_vae.samplers.ladder import check_ladder


def check_tempering_state(
    state: Mapping[str, Any], name: Callable[[str], str], *, num_chains: int, num_units: int
) -> None:
    """Check that a state is one of tempered chains of a machine of this size.

    Args:
        state: Its entries.
        name: What messages call an entry.
        num_chains: Chains.
        num_units: Units of the machine.

    Raises:
        InvalidInputError: If an entry has another shape or type, the ladder breaks its rule, or the order of the
            walkers is no permutation.
    """
    ladder = state["inverse_temperatures"]
    replicas = len(ladder) if isinstance(ladder, Tensor) and ladder.ndim == 1 else 1
    num_bytes = (num_units + 7) // 8
    for entry, dtype, shape in (
        ("inverse_temperatures", torch.float64, (replicas,)),
        ("z", torch.uint8, (num_chains * replicas, num_bytes)),
        ("order", torch.int64, (num_chains, replicas)),
        ("last_end", torch.uint8, (num_chains, replicas)),
        ("round_trips", torch.int64, (num_chains,)),
        ("swap_sum", torch.float64, (replicas - 1,)),
    ):
        check_entry(name(entry), state[entry], dtype, shape)
    check_ladder(ladder)
    if not torch.equal(state["order"].sort(1).values.cpu(), torch.arange(replicas).repeat(num_chains, 1)):
        raise InvalidInputError(name("order"), "must hold permutations", "others", "Load the right file.")
