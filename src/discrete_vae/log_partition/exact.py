"""log Z by enumeration, and its gradient from samples."""

from __future__ import annotations

import math
from typing import Any, SupportsFloat

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from discrete_vae.boltzmann.base import BoltzmannMachine, LogPartition, check_energy, check_parameters
from discrete_vae.checks import check_log_partition, check_states
from discrete_vae.errors import InvalidInputError
from discrete_vae.numerics import softplus

MAX_ENUMERATED_UNITS = 24
"""Units outside the largest block up to which log Z is enumerated at all: seconds, and longer with a gradient."""

MAX_SILENTLY_ENUMERATED_UNITS = 12
"""Such units up to which it is enumerated unasked: milliseconds."""

_CHUNK_BITS = 14
_LARGEST_CHUNK = 1 << 23  # units of all states; with their logits in float64 some 300 MB
_LARGEST_SUM = 1e300  # sums of weights stay finite in float64 below this


def num_enumerated_units(energy: BoltzmannMachine) -> int:
    """Units that `exact_log_partition` enumerates: all but the largest block, which is summed out analytically."""
    return energy.num_units - max(len(block) for block in energy.blocks)


def exact_log_partition(energy: BoltzmannMachine) -> LogPartition:
    """log Z by enumerating all blocks but the largest, which is summed out; float64, in chunks.

    The machine has at most 24 units outside its largest block: an RBM with one side of at most 24. Where no two units
    interact, as in an RBM whose weights are all zero, it is a sum over units instead. ``std_error`` is 0.

    Examples:
        >>> from discrete_vae import RBM
        >>> print(exact_log_partition(RBM(3, 40)))  # 43 log 2
        log Z = 29.8053 nats (exact, enumeration)
    """
    check_parameters(check_energy(energy), below=_LARGEST_SUM)
    with torch.no_grad():
        if energy.is_factorial():
            none = torch.zeros(energy.num_units, dtype=torch.float64, device=energy.bias.device)
            logits = [energy.compute_block_logits(none, block) for block in range(len(energy.blocks))]
            return LogPartition(float(softplus(torch.cat(logits)).sum()), 0.0, "enumeration", 1)
        value = float(enumerate_log_partition(energy))
    return LogPartition(value, 0.0, "enumeration", 1 << num_enumerated_units(energy))


def quick_exact_log_partition(energy: BoltzmannMachine, max_enumerated: int) -> LogPartition | None:
    """`exact_log_partition` where it enumerates no more units than given, at most 24; None elsewhere."""
    if num_enumerated_units(energy) <= max_enumerated or energy.is_factorial():
        return exact_log_partition(energy)
    return None


def enumerate_log_partition(energy: BoltzmannMachine) -> Tensor:
    """`exact_log_partition` as a tensor, whose gradient is -E_p[dE/dtheta] exactly.

    It is a float64 scalar; pass it to `kl_to_boltzmann` to train a small prior without chains. The gradient recomputes
    each chunk, so its memory does not grow with the number of states.
    """
    enumerated = num_enumerated_units(energy)
    if enumerated > MAX_ENUMERATED_UNITS:
        rule = f"must have at most {MAX_ENUMERATED_UNITS} units outside its largest block"
        raise InvalidInputError("energy", rule, enumerated, "Estimate log Z by sampling instead.")
    sizes, device = [len(block) for block in energy.blocks], energy.bias.device
    largest = sizes.index(max(sizes))
    rest = [block for index, block in enumerate(energy.blocks) if index != largest]
    units = torch.cat(rest).to(device) if rest else torch.empty(0, dtype=torch.int64, device=device)
    places = torch.arange(enumerated, device=device)

    def of_chunk(first: int, count: int) -> Tensor:
        codes = torch.arange(first, first + count, device=device)
        states = torch.zeros(count, energy.num_units, dtype=torch.float64, device=device)
        states[:, units] = ((codes[:, None] >> places) & 1).double()
        return torch.logsumexp(-energy.compute_free_energy(states, largest), 0)

    total = 1 << enumerated
    rows = max(1, _LARGEST_CHUNK // energy.num_units)
    count = min(total, 1 << min(_CHUNK_BITS, rows.bit_length() - 1))  # powers of 2 divide each other
    parts = [
        checkpoint(of_chunk, first, count, use_reentrant=False, preserve_rng_state=False)
        for first in range(0, total, count)
    ]
    return torch.logsumexp(torch.stack(parts), 0)


# The gradient of log Z from samples.


def log_partition_surrogate(energy: BoltzmannMachine, z: Tensor, value: float = math.nan) -> Tensor:
    """A scalar whose gradient, -E_p[dE/dtheta], is that of log Z: the negative phase of samples.

    The last block of the energy is summed out, which lowers the variance. The gradient is unbiased where the samples
    z, (chain, unit), are from p; the value, log Z in nats if it is known, has no effect on it.

    Source: Rolfe 2017, eq. RBM-grad.

    Examples:
        >>> import torch
        >>> from discrete_vae import RBM
        >>> rbm, z = RBM(1, 1), torch.tensor([[0.0, 1.0], [1.0, 1.0]])
        >>> log_partition_surrogate(rbm, z).backward()
        >>> rbm.bias.grad  # of the left unit's mean, and of the right one's given the left
        tensor([0.5000, 0.5000])
    """
    z = _check_chains("z", z, energy)
    return energy.compute_negative_phase(z.detach()) + value


def _check_chains(name: str, z: object, energy: BoltzmannMachine) -> Tensor:
    states = check_states(name, z, ("chain", energy.num_units))
    if len(states) == 0:
        raise InvalidInputError(name, "must hold at least one state", 0, "Draw some: chains.step(30).")
    return states


def gradient_and_value(
    energy: BoltzmannMachine, negative_phase: Tensor | None, log_partition: Tensor | SupportsFloat | None
) -> tuple[Tensor | None, Tensor | float | None]:
    """The gradient of log Z, as that of a scalar of value 0, and its value; None for what is not known.

    Samples give the gradient, and so does a value that carries one. Where neither is given, log Z is enumerated if at
    most 12 units lie outside the energy's largest block.
    """
    if negative_phase is None and log_partition is None:
        if num_enumerated_units(energy) > MAX_SILENTLY_ENUMERATED_UNITS:
            return None, None
        log_partition = enumerate_log_partition(energy)
    value = None if log_partition is None else check_log_partition(log_partition)
    gradient = None
    if negative_phase is not None:
        states = _check_chains("negative_phase", negative_phase, energy)
        gradient = energy.compute_negative_phase(states.detach())
    if isinstance(value, Tensor) and value.requires_grad:
        if gradient is not None:
            repair = "Give the negative phase, or a log Z that carries a gradient, not both."
            raise InvalidInputError("log_partition", "must carry no gradient here", "one that does", repair)
        value, gradient = value.detach(), _GradientOf.apply(value)
    return gradient, value


class _GradientOf(torch.autograd.Function):
    """0, with the gradient of a scalar, whose own value may be unknown, NaN."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return torch.zeros_like(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradients[0]
