"""Machines that stand still while another one is trained: their parameters as vectors, and what states cost in them."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.errors import InvalidInputError
from discrete_vae.numerics import softplus_sum


@torch.no_grad()
def parameter_vector(energy: BoltzmannMachine) -> Tensor:
    """A copy of all parameters of a machine, (parameter,), float32 or wider."""
    parts = [parameter.flatten() for parameter in energy.parameters()]
    return torch.cat(parts).to(torch.promote_types(energy.bias.dtype, torch.float32), copy=True)


@torch.no_grad()
def frozen_machine(energy: BoltzmannMachine, parameters: Tensor) -> BoltzmannMachine:
    """A machine of the kind of another one with parameters of its own, which take no gradient.

    Args:
        energy: The other one.
        parameters: As `parameter_vector` gives them.
    """
    machine = copy.deepcopy(energy).to(parameters.dtype).requires_grad_(False)
    taken = 0
    for parameter in machine.parameters():
        parameter.grad = None
        parameter.copy_(parameters[taken : taken + parameter.numel()].view_as(parameter))
        taken += parameter.numel()
    return machine


def flat_parameters(energy: BoltzmannMachine, z: Tensor) -> Tensor:
    """The parameters of a machine without energy, whose units are fair coins: 0.

    Args:
        energy: The machine.
        z: Some states, (state, unit) float32 in {0,1}.

    Returns:
        (parameter,), see `parameter_vector`.

    Raises:
        InvalidInputError: If these states have another energy than 0.
    """
    vector = torch.zeros_like(parameter_vector(energy))
    if bool((frozen_machine(energy, vector).compute_energy(z) != 0).any()):
        repair = "Write its energy as a sum of terms that its parameters multiply."
        raise InvalidInputError("energy", "must be 0 where all parameters are 0", "another energy", repair)
    return vector


@torch.no_grad()
def reduced_energy(machine: BoltzmannMachine, z: Tensor) -> Tensor:
    """F of the units outside the first block.

    A sweep draws the first block before it reads it, so it acts on the other units alone, and their law is the one that
    an exchange before a sweep has to keep.

    Args:
        machine: The machine.
        z: (..., unit), in {0,1}.

    Returns:
        (...) float64, nats.
    """
    off = machine.compute_energy_without(z, 0).double()
    return off - softplus_sum(machine.compute_block_logits(z, 0)).double()


def exchange_probabilities(work_here: Tensor, work_there: Tensor) -> Tensor:
    """Probability that states of two machines trade places, min(1, exp(w(x) - w(y))), w = F_here - F_there.

    It leaves the product of both machines' laws of the units outside the first block invariant.

    Args:
        work_here: w of the state x of the one machine, nats.
        work_there: w of the state y of the other.

    Examples:
        >>> exchange_probabilities(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
        tensor([1.0000, 0.3679])
    """
    return (work_here - work_there).clamp(max=0).exp()
