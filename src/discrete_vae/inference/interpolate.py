"""Paths between examples in the latents of a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

from discrete_vae.boltzmann.base import BoltzmannMachine
from discrete_vae.checks import check_examples, check_positive_int, check_states
from discrete_vae.errors import InvalidInputError
from discrete_vae.inference.encode import Latents, most_probable
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.evaluation_mode import eval_mode
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import DrawnNoise

# From one code to another, a bit at a time, without climbing higher than needed.


_WIDTH = 64


@torch.no_grad()
def order_of_flips(
    machine: BoltzmannMachine, start: Tensor, end: Tensor, *, width: int = _WIDTH
) -> tuple[list[int], np.ndarray]:
    """An order in which to flip the bits that two states differ in, whose highest energy is low.

    Of the orders the one with the lowest highest energy is sought, among equals that with the lowest mean energy, by
    a beam search: of the sets of flipped bits of each size the best are kept. It is exact where the sets of any size
    are no more than are kept, up to 8 bits with 70 of them.

    Args:
        machine: The prior.
        start: The first state, (unit,), in {0,1}.
        end: The last state, (unit,), in {0,1}.
        width: How many sets of each size are kept.

    Returns:
        The units in the order of their flips, and the energies of the states on the way, both ends included.

    Raises:
        InvalidInputError: If a state is none of the machine's, or width is no positive integer.

    Examples:
        >>> from discrete_vae import FactorialBernoulli
        >>> machine = FactorialBernoulli(3)
        >>> with torch.no_grad():
        ...     _ = machine.bias.copy_(torch.tensor([-1.0, 2.0, 0.5]))
        >>> order_of_flips(machine, torch.zeros(3), torch.ones(3))  # the probable bits first
        ([1, 2, 0], array([ 0. , -2. , -2.5, -1.5]))
    """
    check_positive_int("width", width)
    first, last = (
        check_states(name, z[None], ("state", machine.num_units))[0].to(machine.bias.dtype)
        for name, z in (("start", start), ("end", end))
    )
    units = (first != last).nonzero().flatten()
    masks = np.zeros((1, len(units)), bool)  # (set, bit that differs): which are flipped
    begin = machine.compute_energy(first[None]).double().cpu().numpy()
    peak, total, parents, energies = begin, begin, [], [begin]
    for _ in range(len(units)):
        owner, bit = np.nonzero(~masks)
        grown = masks[owner]
        grown[np.arange(len(owner)), bit] = True
        _, unique = np.unique(np.packbits(grown, axis=1), axis=0, return_inverse=True)
        states = first.repeat(len(grown), 1)
        states[:, units] = torch.where(torch.from_numpy(grown).to(first.device), last[units], first[units])
        energy = machine.compute_energy(states).double().cpu().numpy()
        new_peak, new_total = np.maximum(peak[owner], energy), total[owner] + energy
        best = np.lexsort((new_total, new_peak))
        _, firsts = np.unique(unique.ravel()[best], return_index=True)  # each set by its best way
        kept = best[np.sort(firsts)][:width]
        parents.append((owner[kept], bit[kept]))
        energies.append(energy[kept])
        masks, peak, total = grown[kept], new_peak[kept], new_total[kept]
    order, along, place = [], [energies[-1][0]], 0
    for step in range(len(units) - 1, -1, -1):
        owner, bit = parents[step]
        order.append(int(units[bit[place]]))
        place = owner[place]
        along.append(energies[step][place])
    return order[::-1], np.array(along[::-1]) + 0.0  # no negative zero


# Between two examples: a path of codes, and what the model makes of each.


PathKind: TypeAlias = Literal["flips", "straight"]


@dataclass(frozen=True, eq=False, repr=False)
class LatentPath(ShowsShapes):
    """A path between two examples.

    Attributes:
        mean: E[x | zeta, h], (step, *event) float32; the first and the last are the examples' reconstructions.
        zeta: (step, unit) float32.
        continuous: The Gaussian layers, (step, layer, unit) float32.
        bits: The codes, (step, unit) uint8; those of a straight path are the nearer end's.
        flipped: The unit that was flipped last, (step,) int64; -1 for the first step, and along a straight path.
        energy: Energy of the code under the prior, -log p(z) - log Z, (step,) float64, nats.
    """

    mean: np.ndarray
    zeta: np.ndarray
    continuous: np.ndarray
    bits: np.ndarray
    flipped: np.ndarray
    energy: np.ndarray

    @property
    def barrier(self) -> float:
        """By how much the highest energy on the way exceeds that of the higher end, nats."""
        return float(self.energy.max() - max(self.energy[0], self.energy[-1]))


@torch.no_grad()
def interpolate(
    model: DiscreteVAE, start: Tensor, end: Tensor, *, path: PathKind = "flips", num_steps: int = 11
) -> LatentPath:
    """A path of latents from one example to another, and the means of x along it.

    Halves of bits mean nothing, so the path goes from code to code by flips of single bits. Their order decides
    whether the codes between are ones that the prior knows: that order is taken whose highest energy is lowest, as far
    as a beam search finds it (`order_of_flips`). Each code has the medians of r(zeta|z) as
    its zeta. Gaussian layers keep their place in p(h | zeta): the ends' h are turned into the standard normal numbers
    that p(h | zeta) makes them of, direction and length of these go evenly from one to the other, and h is made of them
    anew for the zeta of each step.

    A straight path goes evenly from the one zeta to the other, through values that the model has hardly seen.

    Args:
        model: The model.
        start: The first example, (1, feature) or (1, *event).
        end: The last example.
        path: "flips", with as many steps as bits differ, and the first; or "straight".
        num_steps: Steps of a straight path, both ends included, and of one between examples of the same code; at least
            2.

    Raises:
        InvalidInputError: If the model refuses an example, or an argument breaks its rule.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> found = interpolate(model, torch.zeros(1, 6), torch.ones(1, 6), path="straight", num_steps=5)
        >>> found.mean.shape
        (5, 6)
    """
    if not isinstance(path, str) or path not in get_args(PathKind):
        raise InvalidInputError("path", "must be 'flips' or 'straight'", f"{path!r}"[:80], "Take flips.")
    if check_positive_int("num_steps", num_steps) < 2:
        raise InvalidInputError("num_steps", "must be at least 2", num_steps, "Both ends are steps.")
    with eval_mode(model) as model:
        ends = first, last = _end(model, "start", start), _end(model, "end", end)
        order = order_of_flips(model.prior, first.z[0], last.z[0])[0] if path == "flips" else []
        bits, zeta = _codes(first, last, order, num_steps)
        h = _layers(model, ends, zeta)
        mean = model.likelihood.mean(model.parameters_of(model.hierarchy.decoder_input(zeta, h)))
        energy = model.prior.compute_energy(bits.to(model.prior.bias.dtype)).double()
    shown = model._check_finite("the decoder's mean", mean)
    return LatentPath(
        mean=shown.float().cpu().numpy(),
        zeta=zeta.float().cpu().numpy(),
        continuous=h.float().cpu().numpy(),
        bits=bits.to(torch.uint8).cpu().numpy(),
        flipped=np.array([-1, *order] if order else [-1] * num_steps, np.int64),
        energy=energy.cpu().numpy(),
    )


def _end(model: DiscreteVAE, name: str, x: Tensor) -> Latents:
    """The most probable code of the one example."""
    examples = check_examples(name, x)
    opened, observed = model.preprocess(examples.to(model.prior.bias.device), None)
    if len(opened) != 1:
        raise InvalidInputError(name, "must be one example, (1, ...)", f"{len(opened)}", "Give x[:1].")
    return most_probable(model, model.read(opened, observed))


def _codes(first: Latents, last: Latents, order: Sequence[int], num_steps: int) -> tuple[Tensor, Tensor]:
    """Codes, and their zeta, (step, unit): those of flips in an order, or evenly from end to end where there is none.

    A unit that flips has the zeta of the end whose bit it has.
    """
    steps = len(order) + 1 if order else num_steps
    at = torch.linspace(0, 1, steps, dtype=first.zeta.dtype, device=first.zeta.device)[:, None]
    even = first.zeta + at * (last.zeta - first.zeta)
    if not order:
        return torch.where(at < 0.5, first.z, last.z), even
    flipped = torch.zeros(steps, first.z.shape[1], dtype=torch.bool, device=first.z.device)
    for step, unit in enumerate(order, start=1):
        flipped[step:, unit] = True
    # what does not flip goes evenly too, for transformations whose r(zeta|z) depends on x
    zeta = torch.where(first.z == last.z, even, torch.where(flipped, last.zeta, first.zeta))
    return torch.where(flipped, last.z, first.z), zeta


def _layers(model: DiscreteVAE, ends: Sequence[Latents], zeta: Tensor) -> Tensor:
    """The Gaussian layers at each step, (step, layer, unit)."""
    if model.hierarchy.num_layers == 0:
        return model.hierarchy.sample(zeta)
    laws = [each.layers_given_zeta for each in ends]
    first, last = ((each.h - law.mean) / law.log_std.exp() for each, law in zip(ends, laws, strict=True))
    noise: Any = DrawnNoise(list(_evenly(first, last, len(zeta)).unbind(-2)))
    return model.hierarchy.sample(zeta, generator=noise)


def _evenly(start: Tensor, end: Tensor, steps: int) -> Tensor:
    """From one vector to another, (1, layer, unit) each, with even steps of angle and of length."""
    a, b = start.flatten().double(), end.flatten().double()
    at = torch.linspace(0, 1, steps, dtype=a.dtype, device=a.device)[:, None]
    lengths = a.norm(), b.norm()
    straight = a + at * (b - a)
    if min(lengths) > 0:
        angle = torch.arccos((a @ b / (lengths[0] * lengths[1])).clamp(-1, 1))
        if 1e-4 < angle < torch.pi - 1e-4:
            weights = torch.sin((1 - at) * angle), torch.sin(at * angle)
            turned = (weights[0] * a / lengths[0] + weights[1] * b / lengths[1]) / torch.sin(angle)
            straight = turned * (lengths[0] + at * (lengths[1] - lengths[0]))
    return straight.to(start.dtype).reshape(steps, *start.shape[1:])
