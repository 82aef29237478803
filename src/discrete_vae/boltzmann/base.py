"""Energies of binary units: the base class of all machines, independent units, log Z, Ising models, temperatures."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from discrete_vae.checks import (
    DIVERGED,
    Axis,
    check_binary,
    check_finite,
    check_index,
    check_positive_int,
    check_states,
    check_tensor,
    extremes,
    values_are_known,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.numerics import guard_products, replace_gradient, softplus
from discrete_vae.records import ShowsShapes, ShowsTable, digits_of
from discrete_vae.system import allocating


class BoltzmannMachine(nn.Module, ABC):
    """A distribution p(z) = exp(-E(z)) / Z over z in {0,1}^n with at most pairwise terms.

    E(z) = -(sum_{i<j} W_ij z_i z_j + b^T z). States may be relaxed to [0, 1]. Results have the wider of the states'
    and the parameters' dtypes, float32 at least; those of `expected_energy` have that of the probabilities. Neither
    autocast nor TF32 reaches the methods that compute, a subclass's own included.

    A machine of your own defines `compute_energy`, `compute_block_logits`, `pair_order` and `expected_energy`, which
    trust their arguments; inner loops call them. The methods without "compute" check theirs first.

    Source: Rolfe 2017, eq. RBM-distribution. Deviation: the paper's W is triangular, here each pair has one entry.

    Attributes:
        num_units: n.
        blocks: Disjoint index tensors (int64) that cover all units; units of one block are independent given all
            others. Block Gibbs samples the blocks in this order. They are buffers and so move with the machine, but
            belong to the constructor's arguments, not to the state.
    """

    num_units: int
    bias: nn.Parameter
    _num_blocks: int

    def __init_subclass__(cls, **keywords: object) -> None:
        """Guard the precision of what the subclass computes."""
        super().__init_subclass__(**keywords)
        guard_products(cls, _COMPUTING)

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Guard forks before the first machine, made or unpickled: threaded work of the library needs a machine."""
        _guard_forks()
        return super().__new__(cls)

    @property
    def blocks(self) -> tuple[Tensor, ...]:
        """The blocks, on the machine's device. A machine of your own sets them once, after `nn.Module.__init__`."""
        return tuple(self.get_buffer(f"_block_{index}") for index in range(self._num_blocks))

    @blocks.setter
    def blocks(self, blocks: Sequence[Tensor]) -> None:
        self._num_blocks = len(blocks)
        for index, block in enumerate(blocks):
            self.register_buffer(f"_block_{index}", block, persistent=False)

    def block_place(self, block: int) -> slice | Tensor:
        """The units of a block as an index of the last axis: a slice where they are neighbors, which saves copies."""
        return getattr(self, f"_block_{block}")

    def is_factorial(self) -> bool:
        """True if the units are known to be independent, so that log Z = sum_i softplus(b_i); looks at the weights.

        A machine of your own that can tell says so; until then only one with a single block is known to be.
        """
        return self._num_blocks == 1

    def energy(self, z: Tensor) -> Tensor:
        """E(z), (...), nats, of states z, (..., unit), in {0,1}, or relaxed."""
        return self.compute_energy(check_states("z", z, (..., self.num_units)))

    def block_logits(self, z: Tensor, block: int) -> Tensor:
        """Log-odds of a block's units given all the others, (..., unit of the block), nats; ``block`` is an index.

        States z are (..., unit), in {0,1}, or relaxed; the entries of the block itself are ignored.
        """
        check_states("z", z, (..., self.num_units))
        return self.compute_block_logits(z, self._check_block(block))

    def free_energy(
        self, z: Tensor, /, block: int | None = None, inverse_temperature: float | Tensor = 1.0
    ) -> Tensor:
        """Free energy of all units but one block, -log sum over the block's states of exp(-t E(z)), (...), nats.

        Its gradient at t = 1 is the Rao-Blackwellized gradient of the energy: averaged over z ~ p it is
        E_p[dE/dtheta] = -d log Z / dtheta (eq. RBM-grad), with less variance than the gradient of E(z).

        States and block are as in `block_logits`; None is the last block, and that is summed out. The inverse
        temperature t is a number or a tensor (...) that fits the leading axes of z.
        """
        check_states("z", z, (..., self.num_units))
        t = check_temperature(inverse_temperature, z)
        return self.compute_free_energy(z, None if block is None else self._check_block(block), t)

    def forward(self, z: Tensor) -> Tensor:
        return self.energy(z)

    @abstractmethod
    def compute_energy(self, z: Tensor) -> Tensor:
        """`energy` of checked states."""

    @abstractmethod
    def compute_block_logits(self, z: Tensor, block: int) -> Tensor:
        """`block_logits` of checked arguments."""

    @abstractmethod
    def pair_order(self, group_of_unit: Tensor) -> nn.Module:
        """Constants that `expected_energy` needs of a posterior: which unit of each pair is sampled earlier.

        ``group_of_unit``, (unit,) int64, is the position of each unit's group in the order of sampling.
        """

    @abstractmethod
    def expected_energy(self, bits: Tensor, probabilities: Tensor, order: nn.Module) -> Tensor:
        """An unbiased value of E[E(z)], (...), nats, under a posterior that samples groups of units one after another.

        A linear term takes the probability of its unit. A pair takes the bit of the unit that is sampled earlier
        and the probability of the later one; two units of one group take both probabilities.

        ``bits``, (..., unit), are sampled bits or posterior means of z, carrying the gradient of `Smoothing.bits`;
        ``probabilities``, (..., unit), q(z = 1) given everything sampled earlier; ``order`` is of `pair_order`.
        """

    def sum_pairs(self, z: Tensor) -> Tensor:
        """Sums of z_i z_j over the chains of z, (..., chain, unit), for the pairs whose moments `RunningMoments` keeps.

        Those are units i of the first block and all j outside it, (..., unit, other unit); a machine with fewer weights
        has one sum per weight.
        """
        others = torch.cat(self.blocks)[len(self.blocks[0]) :]
        return z[..., self.block_place(0)].mT @ z[..., others]

    def compute_free_energy(
        self, z: Tensor, block: int | None = None, inverse_temperature: float | Tensor = 1.0
    ) -> Tensor:
        """`free_energy` of checked arguments."""
        z = self._widen(z)
        block = self._num_blocks - 1 if block is None else block
        t = inverse_temperature.to(z) if isinstance(inverse_temperature, Tensor) else inverse_temperature
        logits, energy = self.compute_block_logits(z, block), self.compute_energy_without(z, block)
        if isinstance(t, Tensor) or t != 1.0:
            logits, energy = logits * (t[..., None] if isinstance(t, Tensor) else t), t * energy
        return energy - softplus(logits).sum(-1)

    def compute_negative_phase(self, z: Tensor) -> Tensor:
        """A scalar of value 0 with the gradient -E_p[dE/dtheta] of log Z for checked samples z, (chain, unit).

        The last block is summed out.
        """
        surrogate = -self.compute_free_energy(z).mean()
        return replace_gradient(torch.zeros_like(surrogate), surrogate)

    def compute_energy_without(self, z: Tensor, block: int) -> Tensor:
        """E of checked states with the units of one block set to 0."""
        z = self._widen(z)
        keep = torch.ones(self.num_units, dtype=z.dtype, device=z.device)
        # an assignment may copy the 0 from the host, and wait for it
        keep.index_fill_(0, self.blocks[block], 0)
        return self.compute_energy(z * keep)

    def _widen(self, z: Tensor) -> Tensor:
        """z in float32 or wider: in bfloat16 an energy is rounded to whole nats."""
        return z.to(torch.promote_types(torch.promote_types(z.dtype, self.bias.dtype), torch.float32))

    def _check_block(self, block: int) -> int:
        repair = "It is an index into the machine's blocks; of an RBM, 0 is the left side and 1 the right."
        return check_index("block", block, len(self.blocks), repair=repair)


_COMPUTING = (
    "compute_energy",
    "compute_energy_without",
    "compute_block_logits",
    "compute_free_energy",
    "compute_negative_phase",
    "expected_energy",
)

guard_products(BoltzmannMachine, _COMPUTING)


class FactorialBernoulli(BoltzmannMachine):
    """p(z) = prod_i Bernoulli(z_i; sigmoid(b_i)), so E(z) = -b^T z and log Z = sum_i softplus(b_i).

    All units form one block: one sweep of block Gibbs draws independent samples, and the marginal energy is the
    constant -log Z, whose gradient is exact.

    Source: Rolfe 2017, section supplementary-results (the prior without lateral connections).

    Args:
        num_units: Number of units, at least 1.

    Attributes:
        bias: (unit,), the log-odds; zero at the start.

    Examples:
        >>> FactorialBernoulli(3).free_energy(torch.zeros(1, 3)).item()  # -3 log 2
        -2.0794...
    """

    def __init__(self, num_units: int) -> None:
        super().__init__()
        self.num_units = check_positive_int("num_units", num_units)
        with allocating("num_units", "Use fewer units."):
            self.bias = nn.Parameter(torch.zeros(num_units))
            self.blocks = (torch.arange(num_units),)

    def extra_repr(self) -> str:
        return f"num_units={self.num_units}"

    def compute_energy(self, z: Tensor) -> Tensor:
        z = self._widen(z)
        return -(z @ self.bias.to(z.dtype))

    def block_place(self, block: int) -> slice:
        return slice(self.num_units)

    def compute_energy_without(self, z: Tensor, block: int) -> Tensor:
        return self._widen(z).new_zeros(z.shape[:-1])

    def compute_block_logits(self, z: Tensor, block: int) -> Tensor:
        z = self._widen(z)
        return self.bias.to(z.dtype).expand(z.shape)

    def pair_order(self, group_of_unit: Tensor) -> nn.Module:
        return nn.Identity()

    def expected_energy(self, bits: Tensor, probabilities: Tensor, order: nn.Module) -> Tensor:
        return -(probabilities @ self.bias.to(probabilities.dtype))


@dataclass(frozen=True)
class LogPartition(ShowsTable):
    """An estimate of log Z.

    Attributes:
        value: log Z in nats.
        std_error: Standard error of value in nats; 0 where it is exact.
        method: Such as "bridge sampling".
        num_samples: States enumerated or drawn.
        inverse_temperatures: The ladder of the replicas; None where there is none.
        swap_rates: Exchange rates of its neighbors.
        round_trips: Trips of replicas from the hottest temperature to the coldest and back, per chain.
        effective_samples: Independent states per replica that would give the same error.
        num_sweeps: Sweeps of each replica, those that were dropped included.
        seconds: Time it took.
        converged: True if chains that mix reached the error that was asked for; None where nothing was asked.
    """

    value: float
    std_error: float
    method: str
    num_samples: int
    inverse_temperatures: tuple[float, ...] | None = None
    swap_rates: tuple[float, ...] | None = None
    round_trips: float | None = None
    effective_samples: float | None = None
    num_sweeps: int | None = None
    seconds: float | None = None
    converged: bool | None = None

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        digits = digits_of(self.std_error, 4)
        error = "exact" if self.method == "enumeration" else f"± {self.std_error:.{digits}f}"
        return f"log Z = {self.value:.{digits}f} nats ({error}, {self.method})"


# log Z by enumeration.

MAX_ENUMERATED_UNITS = 24
"""Units outside the largest block up to which log Z is enumerated at all: seconds, and longer with a gradient."""

_CHUNK_BITS = 14
_LARGEST_CHUNK = 1 << 23  # units of all states; with their logits in float64 some 300 MB


def num_enumerated_units(energy: BoltzmannMachine) -> int:
    """Units that `exact_log_partition` enumerates: all but the largest block, which is summed out analytically."""
    return energy.num_units - max(len(block) for block in energy.blocks)


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


# Checks of arguments.


def check_energy(value: object) -> BoltzmannMachine:
    """Return value if it is a BoltzmannMachine."""
    if not isinstance(value, BoltzmannMachine):
        received = f"a {type(value).__name__}"
        raise InvalidInputError("energy", "must be a BoltzmannMachine", received, "Give an RBM, for example.")
    return value


def check_chains(name: str, z: object, energy: BoltzmannMachine) -> Tensor:
    """Check states of chains, (chain, unit), of which there is at least one."""
    states = check_states(name, z, ("chain", energy.num_units))
    if len(states) == 0:
        raise InvalidInputError(name, "must hold at least one state", 0, "Draw some: chains.step(30).")
    return states


def check_parameters(energy: BoltzmannMachine, *, below: float) -> None:
    """Refuse parameters that are not finite or whose absolute values do not sum to less than a bound.

    Larger sums may overflow. The check waits for an accelerator.
    """
    for name, parameter in energy.named_parameters():
        if not values_are_known(parameter):
            continue
        total = float(parameter.detach().abs().sum(dtype=torch.float64))
        if not total < below:
            rule = f"must be finite, with absolute values that sum to less than {below:g}"
            raise InvalidInputError(f"energy.{name}", rule, f"a sum of {total:g}", DIVERGED)


def check_temperature(value: float | Tensor, z: Tensor) -> float | Tensor:
    """Return an inverse temperature if it is finite and does not enlarge the leading axes of z, (..., unit)."""
    lead = z.shape[:-1]
    rule = f"must be a number or a tensor that fits the leading axes {tuple(lead)} of z"
    try:
        t = torch.as_tensor(value, device=z.device)
        fits = not t.is_complex() and (t.shape in ((), lead) or torch.broadcast_shapes(t.shape, lead) == lead)
    except (TypeError, ValueError, RuntimeError):
        t, fits = z, False
    if not fits:
        received = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)[:80]
        repair = "Give one inverse temperature for each state."
        raise InvalidInputError("inverse_temperature", rule, received, repair)
    ends = (value,) if isinstance(value, float) else extremes(t) or ()
    for end in ends:
        if not math.isfinite(end):
            repair = "Give a number from 0 to 1."
            raise InvalidInputError("inverse_temperature", "must be finite", end, repair)
    return value if isinstance(value, float) else t


# Threads in forked children.


@cache
def _guard_forks() -> None:
    """Let forked children of this process compute on one thread, from now on.

    A child has none of its parent's threads, but GNU OpenMP still counts on them: the first operation that torch
    divides among threads would wait for ever. torch's own data loaders do the same in their workers. A child that is
    not a fork (``spawn``, ``subprocess``) keeps its threads.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_use_one_thread)


def _use_one_thread() -> None:
    if torch.get_num_threads() > 1:
        torch.set_num_threads(1)


# Boltzmann machines over bits as Ising models over spins, and the temperature of samples.


Array = Tensor | np.ndarray | Sequence[float] | Sequence[Sequence[float]]


@dataclass(frozen=True, eq=False, repr=False)
class IsingModel(ShowsShapes):
    """Couplings J and fields h of spins s in {-1,+1}: E_ising(s) = -(sum_pairs J_ij s_i s_j + h^T s).

    It is the machine that it was made from, with z = (s + 1) / 2: E(z) = E_ising(s) + offset for every state, so both
    have one law p ~ exp(-E), and log Z = log Z_ising - offset. (Packages such as dimod minimize
    +(sum J_ij s_i s_j + h^T s): hand them -J and -h.)

    Attributes:
        couplings: J, in the shape of the machine's weight, float64, nats.
        fields: h, (unit,) float64, nats.
        offset: E(z) - E_ising(s), nats.
    """

    couplings: Tensor
    fields: Tensor
    offset: float


class PairMachine(BoltzmannMachine):
    """A machine with one weight per pair, which is an Ising model of spins.

    Attributes:
        weight: One number per pair, in the machine's own shape.
        bias: (unit,).
    """

    weight: nn.Parameter

    @abstractmethod
    def _pair_sums(self, values: Tensor) -> Tensor:
        """Sums over each unit's pairs, (unit,), of values in the weight's shape."""

    def is_factorial(self) -> bool:
        return not bool(self.weight.any())

    def to_ising(self) -> IsingModel:
        """The same law over spins, `IsingModel`: J = W / 4 and h_i = b_i / 2 + sum_j W_ij / 4."""
        couplings = self.weight.detach().double() / 4
        fields = self.bias.detach().double() / 2 + self._pair_sums(couplings)
        return IsingModel(couplings, fields, float(couplings.sum() - fields.sum()))

    @torch.no_grad()
    def _set_from_ising_(self, couplings: Array, fields: Array) -> Self:
        """W = 4 J and b_i = 2 h_i - 2 sum_j J_ij, computed in float64 and rounded once."""
        j = finite_numbers("couplings", couplings, self.weight.shape).to(self.weight.device)
        h = finite_numbers("fields", fields, self.bias.shape).to(self.bias.device)
        self.weight.copy_(4 * j)
        self.bias.copy_(2 * h - 2 * self._pair_sums(j))
        return self


def finite_numbers(name: str, value: Array, shape: Sequence[Axis]) -> Tensor:
    """Numbers of any kind as a float64 tensor of that shape, all finite."""
    try:
        if not isinstance(value, Tensor):
            # NumPy's arrays may have negative strides and bytes in either order, which torch does not take
            array = np.asarray(value)
            value = torch.from_numpy(array.astype(np.float64, order="C", casting="same_kind"))
        numbers = value.detach().double()
    except (TypeError, ValueError, RuntimeError):
        repair = "Give a tensor, an array or nested lists of equal lengths."
        raise InvalidInputError(name, "must hold numbers", f"a {type(value).__name__}", repair) from None
    repair = "Remove NaN and infinities."
    return check_finite(name, check_tensor(name, numbers, shape), repair=repair)


_LIMIT = 20.0
_LARGEST_MARGIN = 1e9  # of which the root's tolerance is a thousandth of a nat


@dataclass(frozen=True)
class InverseTemperature:
    """An estimate of the t of samples from p^t, renormalized.

    Attributes:
        value: t; NaN where the machine gives no state a preference, plus or minus 20 where the samples lie beyond.
        std_error: Its standard error over samples; infinite in both cases, and where all samples are the same.
    """

    value: float
    std_error: float


@torch.no_grad()
def fit_inverse_temperature(energy: BoltzmannMachine, z: Tensor) -> InverseTemperature:
    """The t whose conditionals sigmoid(t logit_i) make samples most probable (maximum pseudo-likelihood).

    It looks at each unit given all others, so it is the temperature of single flips: consistent for samples of p^t, and
    blind to what share of the samples each mode has. Of a sampler that is in equilibrium at no temperature it gives the
    local one.

    Source: Besag 1975 for the pseudo-likelihood; Raymond, Yarkoni & Andriyash 2016, "Global warming: temperature
    estimation in annealers", for its use.

    Samples z are (sample, unit) in {0,1}, at least 2, independent of each other. The (sandwich) standard error holds
    for a misspecified machine too.

    Examples:
        >>> from discrete_vae import RBM, BlockGibbs
        >>> rbm = RBM(3, 3)
        >>> with torch.no_grad():
        ...     _ = rbm.weight.fill_(1.0), rbm.bias.fill_(-1.0)
        >>> found = fit_inverse_temperature(rbm, BlockGibbs(rbm, 2000, inverse_temperature=0.7, seed=0).step(50))
        >>> abs(found.value - 0.7) < 4 * found.std_error, found.std_error < 0.04
        (True, True)
    """
    from scipy import optimize  # here, since it takes a while

    check_parameters(check_energy(energy), below=_LARGEST_MARGIN)
    z = check_binary("z", check_tensor("z", z, ("sample", energy.num_units))).double()
    if len(z) < 2:
        raise InvalidInputError("z", "must hold at least 2 samples", len(z), "Their spread is the error.")
    blocks = range(len(energy.blocks))
    logits = torch.cat([energy.compute_block_logits(z, block) for block in blocks], 1)
    signs = torch.cat([2 * z[:, energy.block_place(block)] - 1 for block in blocks], 1)
    margins = logits * signs  # of the states that were drawn over their flips, at t = 1
    if not bool((margins != 0).any()):
        return InverseTemperature(math.nan, math.inf)
    if bool((margins >= 0).all()) or _derivatives(margins, _LIMIT)[0] > 0:
        return InverseTemperature(_LIMIT, math.inf)
    if bool((margins <= 0).all()) or _derivatives(margins, -_LIMIT)[0] < 0:
        return InverseTemperature(-_LIMIT, math.inf)
    bracket = -_LIMIT, _LIMIT
    t = optimize.root_scalar(lambda t: _derivatives(margins, t)[0], bracket=bracket, xtol=1e-12).root
    if bool((z == z[0]).all()):
        return InverseTemperature(t, math.inf)
    scores = (margins * torch.sigmoid(-t * margins)).sum(1)
    return InverseTemperature(t, float(scores.square().sum().sqrt()) / _derivatives(margins, t)[1])


def _derivatives(margins: Tensor, t: float) -> tuple[float, float]:
    """The slope of the log-pseudo-likelihood at t, which falls, and minus its second derivative."""
    wrong = torch.sigmoid(-t * margins)
    return float((margins * wrong).sum()), float((margins.square() * wrong * (1 - wrong)).sum())
