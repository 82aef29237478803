"""Parallel tempering: replicas at several inverse temperatures, their ladder, moves between modes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from scipy import special
from torch import Tensor, nn

from discrete_vae.boltzmann.base import BoltzmannMachine
from discrete_vae.checks import check_binary, check_positive_int, check_tensor, values_are_known
from discrete_vae.errors import InvalidInputError
from discrete_vae.kernels.gibbs import fair_coins, philox4x32, run_sweeps, uniforms
from discrete_vae.numerics import softplus_sum
from discrete_vae.rng import key_to_seed, keyed_generator
from discrete_vae.samplers.gibbs import MarkovChains, one_at_a_time, pack_bits, unpack_bits

_SWAP_STREAM = 0x73776170
_WINDOW_SWEEPS, _WINDOW_SWAPS = 20, 2000  # what a measurement of exchange rates takes at least
_SWEEPS_PER_JUMP = 4
_UNEVEN = 0.1  # rates this far from their mean ask for new places
_SWEEPS_A_DRAW = 16


class ParallelTempering(MarkovChains):
    """Chains of replicas at p^t, t rising to 1, that exchange states so that cold ones cross between modes.

    After each sweep, neighbors trade places with the probability of `swap_probabilities`, even and odd pairs in
    turn, which leaves the product of all p^t invariant; the replica at t = 1 samples p. All noise is keyed by
    (seed, chain, replica, sweep, unit). Chains are independent of each other.

    With ``inverse_temperatures=None`` the ladder runs from 0 to 1 and follows the machine: whenever exchange rates
    leave 0.5, the number of replicas and their places are chosen anew from the rates measured since (an adaptive
    chain: exact in law only while the ladder stands still; set ``adapting`` to False to hold it).

    It is a module that does not own the energy: see `MarkovChains`, also for its other attributes.

    Source: Rolfe 2017, section log-partition-function; Swendsen & Wang 1986.

    Args:
        energy: The machine to sample.
        num_chains: Number of independent chains, each with all replicas.
        inverse_temperatures: The ladder, rising to exactly 1; None to tune it.
        seed: Integer from 0 to 2^64 - 1.

    Attributes:
        adapting: True while the ladder is being tuned. Not part of the state.
        inverse_temperatures: (replica,) float64.
        round_trips: (chain,) int64, trips of states from the hottest temperature to the coldest and back since the
            last `reset_statistics` or `retune`, which tuning calls.
        measured: Sweeps since then.
        jumps: Moves between known modes, made every fourth sweep; None (the start) makes none. Not part of the state.
        jumped: Jumps of the coldest replicas, an int64 scalar.
        walkers: States that move along the ladder, (chain, walker, unit), not a copy; `replicas` has them in its order.
        order: The walker at each temperature, (chain, replica) int64.
        energies: E of the walkers after the last sweep, (chain, walker) float64; NaN before.

    Examples:
        >>> from discrete_vae import RBM
        >>> chains = ParallelTempering(RBM(3, 2), num_chains=4, inverse_temperatures=(0, 0.5, 1), seed=0)
        >>> chains.step(10).shape, chains.replicas.shape
        (torch.Size([4, 5]), torch.Size([4, 3, 5]))
    """

    inverse_temperatures: Tensor
    walkers: Tensor
    order: Tensor
    energies: Tensor
    round_trips: Tensor
    _last_end: Tensor
    _swap_sum: Tensor
    _entries: ClassVar = {
        buffer.lstrip("_"): buffer
        for buffer in ("inverse_temperatures", "order", "round_trips", "_last_end", "_swap_sum")
    }

    def __init__(
        self,
        energy: BoltzmannMachine,
        num_chains: int,
        inverse_temperatures: Sequence[float] | Tensor | None = None,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(energy, num_chains, seed)
        self.adapting = inverse_temperatures is None
        self.jumps: ModeJumps | None = None
        ladder = start_ladder() if inverse_temperatures is None else check_ladder(inverse_temperatures)
        self._check_memory(num_chains * len(ladder))
        device = energy.bias.device
        self.jumped = nn.Buffer(torch.zeros((), dtype=torch.int64, device=device), persistent=False)
        z = fair_coins(num_chains * len(ladder), energy.num_units, key=self._key, device=device)
        self._install(ladder, z.view(num_chains, len(ladder), -1))

    @property
    def num_replicas(self) -> int:
        """Replicas per chain."""
        return len(self.inverse_temperatures)

    @property
    @one_at_a_time
    def z(self) -> Tensor:
        """A copy of the states at t = 1, (chain, unit) float32 in {0,1}."""
        self._follow()
        return self.walkers[torch.arange(self.num_chains, device=self.order.device), self.order[:, -1]]

    @property
    @one_at_a_time
    def replicas(self) -> Tensor:
        """A copy of all states in the order of the ladder, (chain, replica, unit) float32 in {0,1}."""
        self._follow()
        return self.walkers.gather(1, self.order[:, :, None].expand(-1, -1, self.energy.num_units))

    @property
    def swap_rates(self) -> Tensor:
        """Mean exchange probability of neighbors since the last reset, (replica - 1,); NaN before a sweep."""
        return self._swap_sum / (self.num_chains * self.measured)

    @one_at_a_time
    def start_from(self, z: Tensor) -> None:
        """Put all replicas of a chain into a state: z is (chain, unit) in {0,1}, for the first chains."""
        check_binary("z", check_tensor("z", z, ("chain", self.energy.num_units)))
        if len(z) > self.num_chains:
            rule = f"must have at most {self.num_chains} rows"
            raise InvalidInputError("z", rule, len(z), "Give one state per chain.")
        self.walkers = self.walkers.clone()
        self.walkers[: len(z)] = z.detach().to(self.walkers)[:, None]
        self._last_end = self._last_end.clone()
        self._last_end[: len(z)] = 0  # the new states have not been anywhere

    @one_at_a_time
    def reset_statistics(self) -> None:
        """Forget the measured exchange rates and round trips."""
        self.measured, device = 0, self.jumped.device
        self._set(
            _swap_sum=torch.zeros(self.num_replicas - 1, dtype=torch.float64, device=device),
            round_trips=torch.zeros(self.num_chains, dtype=torch.int64, device=device),
            _last_end=torch.zeros(self.num_chains, self.num_replicas, dtype=torch.uint8, device=device),
        )

    @one_at_a_time
    def step(self, num_sweeps: int) -> Tensor:
        """Run sweeps on all replicas, with exchanges after each; returns `z`, the states at t = 1."""
        for _ in range(check_positive_int("num_sweeps", num_sweeps)):
            self._sweep_and_swap()
            if self.adapting and self.measured >= max(_WINDOW_SWEEPS, -(-_WINDOW_SWAPS // self.num_chains)):
                self.retune()
        return self.z

    @one_at_a_time
    def retune(self) -> bool:
        """Place the replicas anew from the rates of at least one sweep, and reset the statistics.

        Returns whether the ladder changed: another number of replicas, or uneven rates. One replica has no rates.
        """
        if not self.measured:
            raise InvalidInputError("retune()", "needs measured exchange rates", "none", "Call step first.")
        rates, before = self.swap_rates.cpu(), self.inverse_temperatures.cpu()
        ladder = retuned_ladder(before, rates) if len(rates) else before
        if len(ladder) == self.num_replicas and bool(((rates - rates.mean()).abs() < _UNEVEN).all()):
            self.reset_statistics()
            return False
        self._check_memory(self.num_chains * len(ladder))
        nearest = (ladder[:, None] - before).abs().argmin(1)
        self._install(ladder, self.replicas[:, nearest.to(self.walkers.device)])
        return True

    @torch.no_grad()
    def _sweep_and_swap(self) -> None:
        device, ladder = self._follow(), self.inverse_temperatures
        scale = torch.empty_like(self.order, dtype=torch.float32)
        scale.scatter_(1, self.order, ladder.float().expand(self.num_chains, -1))
        z = run_sweeps(
            self.energy,
            self.walkers.flatten(0, 1),
            1,
            key=self._key,
            first_sweep=self.sweep + 1,
            inverse_temperature=scale.flatten(),
        )
        self.sweep += 1
        if self.jumps is not None and self.sweep % _SWEEPS_PER_JUMP == 0:
            block = self.sweep // _SWEEPS_PER_JUMP % len(self.energy.blocks)
            z, jumped = self.jumps(z, scale.flatten(), sweep=self.sweep, block=block)
            self.jumped = self.jumped + jumped.view_as(self.order).gather(1, self.order[:, -1:]).sum()
        self.walkers = z.view_as(self.walkers)
        self.energies = self.energy.compute_energy(z).double().view(self.num_chains, -1)
        probabilities = swap_probabilities(self.energies.gather(1, self.order), ladder)
        accepted = self._swap_uniforms(device) < probabilities
        self.order = exchanged_order(self.order, accepted, self.sweep % 2)
        self._swap_sum = self._swap_sum + probabilities.sum(0)
        self.measured += 1
        if self.num_replicas > 1:
            trips, self._last_end = count_trips(self.order, self._last_end)
            self.round_trips = self.round_trips + trips

    def _install(self, ladder: Tensor, replicas: Tensor) -> None:
        order = torch.arange(len(ladder), device=ladder.device).repeat(self.num_chains, 1)
        energies = torch.full_like(order, torch.nan, dtype=torch.float64)
        self._set(inverse_temperatures=ladder, walkers=replicas, order=order, energies=energies)
        self._uniforms, self._drawn_sweeps = torch.empty(0, device="cpu"), range(0)
        self.reset_statistics()

    def _swap_uniforms(self, device: torch.device) -> Tensor:
        """Uniforms of this sweep's exchanges, (chain, pair), drawn for several sweeps at a time.

        They are drawn on the CPU and copied: elsewhere ten rounds of Philox are a hundred launches.
        """
        if self.sweep not in self._drawn_sweeps or self._uniforms.device != device:
            sweeps = self._drawn_sweeps = range(self.sweep, self.sweep + _SWEEPS_A_DRAW)
            key = key_to_seed(self.seed, _SWAP_STREAM)
            drawn = swap_uniforms(self.num_chains, self.num_replicas - 1, key=key, sweeps=sweeps)
            self._uniforms = drawn.to(device)
        return self._uniforms[self.sweep - self._drawn_sweeps.start]

    def _set(self, **buffers: Tensor) -> None:
        for name, value in buffers.items():
            self.register_buffer(name, value.to(self.jumped.device), persistent=False)

    def _integers(self) -> dict[str, int]:
        return super()._integers() | {"measured": self.measured}

    def _state(self) -> dict[str, Tensor]:
        return super()._state() | {"z": pack_bits(self.walkers.flatten(0, 1))}

    def _check_state(self, state: Mapping[str, Any], name: Callable[[str], str]) -> None:
        ladder, num_chains = state["inverse_temperatures"], self.num_chains
        replicas = len(ladder) if isinstance(ladder, Tensor) and ladder.ndim == 1 else 1
        self._check_entries(
            state,
            name,
            z=(num_chains * replicas, (self.energy.num_units + 7) // 8),
            inverse_temperatures=(replicas,),
            order=(num_chains, replicas),
            last_end=(num_chains, replicas),
            swap_sum=(replicas - 1,),
        )
        check_ladder(ladder)
        ranks = torch.arange(replicas, device="cpu").repeat(num_chains, 1)
        if not torch.equal(state["order"].sort(1).values.cpu(), ranks):
            raise InvalidInputError(name("order"), "must hold permutations", "others", "Load the right file.")

    def _take_integers(self, values: Mapping[str, int]) -> None:
        super()._take_integers(values)
        self.measured, self._drawn_sweeps = values["measured"], range(0)

    def _take_state(self, state: Mapping[str, Tensor]) -> None:
        z = unpack_bits(state["z"].to(self.jumped.device), self.energy.num_units)
        self._install(state["inverse_temperatures"], z.unflatten(0, (self.num_chains, -1)))
        super()._take_state(state)


# Replica exchange.


_HOT, _COLD = 1, 2


@torch.no_grad()
def reduced_energy(
    energy: BoltzmannMachine, z: Tensor, block: int = 0, inverse_temperature: Tensor | None = None
) -> Tensor:
    """F_t of the units outside a block, t E(z, block off) - sum_j softplus(t l_j), (...) float64, without gradient.

    A sweep draws the first block before it reads it, so it acts on the other units alone, and their law is the one that
    a move before a sweep has to keep. States z are (..., unit), t is (...); None is 1.
    """
    logits, off = energy.compute_block_logits(z, block), energy.compute_energy_without(z, block).double()
    if inverse_temperature is not None:
        logits, off = logits * inverse_temperature.to(z)[..., None], inverse_temperature.double() * off
    return off - softplus_sum(logits).double()


def exchange_probabilities(work_here: Tensor, work_there: Tensor | float) -> Tensor:
    """Probability that states x and y of two laws trade places, min(1, exp(w(x) - w(y))), w = F_here - F_there.

    It leaves the product of both laws invariant.
    """
    return (work_here - work_there).clamp(max=0).exp()


def swap_probabilities(energies: Tensor, inverse_temperatures: Tensor) -> Tensor:
    """Probability that neighbors r and r + 1 exchange their states, min(1, exp((t_{r+1} - t_r) (E_{r+1} - E_r))).

    The energies, (chain, replica), are those of whole states. Free energies, with one side of the machine summed out,
    would leave the law of that side alone invariant, and the other side is part of the state that moves.

    Source: Swendsen & Wang 1986; Rolfe 2017, section log-partition-function.
    """
    return exchange_probabilities(inverse_temperatures.diff() * energies.diff(dim=1), 0.0)


def exchanged_order(order: Tensor, accepted: Tensor, parity: int) -> Tensor:
    """Trade the entries of the accepted pairs, (chain, replica - 1) bool, among pairs (r, r + 1), r of one parity."""
    lower, upper = order[:, :-1][:, parity::2], order[:, 1:][:, parity::2]
    accepted = accepted[:, parity::2]
    after = order.clone()
    after[:, :-1][:, parity::2] = torch.where(accepted, upper, lower)
    after[:, 1:][:, parity::2] = torch.where(accepted, lower, upper)
    return after


def swap_uniforms(num_chains: int, num_pairs: int, *, key: int, sweeps: range) -> Tensor:
    """Uniforms of the exchanges after some sweeps, keyed by (key, sweep, chain, pair): (sweep, chain, pair) float32."""
    quads = torch.arange((num_pairs + 3) // 4, device="cpu")
    chains = torch.arange(num_chains, device="cpu")[:, None]
    low, high = (
        torch.tensor([word >> shift & 0xFFFFFFFF for word in sweeps], device="cpu")[:, None, None]
        for shift in (0, 32)
    )
    words = torch.broadcast_tensors(*philox4x32((quads, chains, low, high), key))
    return uniforms(torch.stack(words, -1).flatten(2)[..., :num_pairs])


def count_trips(order: Tensor, last_end: Tensor) -> tuple[Tensor, Tensor]:
    """Round trips that end now, (chain,), 0 or 1: of states that come back to the hottest replica from the coldest.

    ``order`` has the walker at each temperature, (chain, replica), at least 2 replicas. ``last_end`` has the end where
    each walker was last, (chain, walker) uint8, 0 before the first visit to the hottest; the second result has it now.
    """
    hot, cold = order[:, :1], order[:, -1:]
    back = (last_end.gather(1, hot) == _COLD).flatten()
    last_end = last_end.scatter(1, hot, _HOT)
    was_hot = last_end.gather(1, cold) != 0  # a trip starts at the hot end
    last_end = last_end.scatter(1, cold, torch.where(was_hot, _COLD, 0).to(torch.uint8))
    return back.to(torch.int64), last_end


# Ladders of inverse temperatures: the number of replicas and their places.


TARGET_RATE = 0.5
"""Exchange rate that neighboring replicas are tuned to (paper section log-partition-function)."""

MAX_REPLICAS = 256
_MIN_RATE = 0.01  # a rate below this says only that the gap is wide
_START = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def start_ladder() -> Tensor:
    """The ladder that tuning starts from, (replica,) float64 from 0 to 1, denser where machines change fastest."""
    return torch.tensor(_START, dtype=torch.float64, device="cpu")


def check_ladder(inverse_temperatures: object) -> Tensor:
    """Return a ladder as (replica,) float64 if it rises strictly, within [0, 1], and ends at 1."""
    try:
        ladder = torch.as_tensor(inverse_temperatures, dtype=torch.float64, device="cpu").detach().clone()
    except (TypeError, ValueError, RuntimeError):  # no numbers, or rows of several lengths
        ladder = torch.empty(0, dtype=torch.float64, device="cpu")
    if ladder.ndim == 1 and not values_are_known(ladder):
        return ladder
    rising = ladder.ndim == 1 and len(ladder) > 0 and bool((ladder.diff() > 0).all())
    if not (rising and float(ladder[0]) >= 0 and float(ladder[-1]) == 1):
        rule, received = "must rise strictly from 0 or more to exactly 1", repr(inverse_temperatures)[:80]
        repair = "Give for example (0, 0.25, 0.5, 1), or None to tune them."
        raise InvalidInputError("inverse_temperatures", rule, received, repair)
    return ladder


def retuned_ladder(inverse_temperatures: Tensor, swap_rates: Tensor) -> Tensor:
    """A ladder, (replica,) float64, whose neighbors exchange at the target rate, from rates measured on another one.

    Two neighbors whose energies are normal with deviation s / (difference of t) exchange at the rate
    erfc(s / 2), so s = 2 erfc^-1(rate) is the length of a gap; lengths add up over gaps. The new replicas divide
    the whole length equally, and there are as many, from 2 to 256, as bring each gap closest to the target.

    Source: Rolfe 2017, section log-partition-function (rates near 0.5); the additive length is that of
    Gelman & Meng 1998 and the equal division that of Syed, Bouchard-Cote, Deligiannidis & Doucet 2022.
    """
    lengths = _lengths(swap_rates)
    total = nn.functional.pad(lengths.cumsum(0), (1, 0))
    num_gaps = round(float(total[-1]) / float(_lengths(lengths.new_tensor([TARGET_RATE]))[0]))
    num_gaps = min(max(num_gaps, 1), MAX_REPLICAS - 1)
    wanted = torch.linspace(0, 1, num_gaps + 1, dtype=torch.float64, device="cpu") * total[-1]
    place = torch.searchsorted(total, wanted[1:-1].contiguous()).clamp(1, len(lengths))
    share = (wanted[1:-1] - total[place - 1]) / lengths[place - 1]
    inner = inverse_temperatures[place - 1] + share * inverse_temperatures.diff()[place - 1]
    return torch.cat([inverse_temperatures[:1], inner, inverse_temperatures[-1:]])


def _lengths(rates: Tensor) -> Tensor:
    rates = rates.double().clamp(_MIN_RATE, 1 - 1e-9)
    return 2 * torch.from_numpy(special.erfcinv(rates.numpy()))


# Local minima of the energy, and moves between them.


_DESCENT_STREAM, _JUMP_STREAM = 0x7175656E, 0x6A756D70
_MAX_DESCENT_SWEEPS, _DESCENT_STARTS = 50, 4000


@torch.no_grad()
def greedy_descent(energy: BoltzmannMachine, z: Tensor, *, order: Sequence[int] | None = None) -> Tensor:
    """Go from states (state, unit) in {0,1} to local minima of the energy, which are local maxima of p(z), float32.

    Each block in turn, or as ``order`` lists them, takes its most likely state given the others, until nothing changes
    or 50 sweeps are done.
    """
    z = z.float().clone()
    for _ in range(_MAX_DESCENT_SWEEPS):
        before = z.clone()
        for block in range(len(energy.blocks)) if order is None else order:
            z[:, energy.block_place(block)] = (energy.compute_block_logits(z, block) > 0).float()
        if torch.equal(before, z):
            break
    return z


@torch.no_grad()
def local_minima(energy: BoltzmannMachine, num_states: int, *, seed: int = 0) -> Tensor:
    """Local minima of the energy, (state, unit) float32, the lowest first, by greedy descent from random states.

    The starts go from nearly all off to nearly all on; one half of them descends in the order of the blocks, the
    other in reverse. Where fewer different minima are found than asked for, they come several times.
    """
    device = energy.bias.device
    generator = keyed_generator(seed, _DESCENT_STREAM, device=device)
    density = torch.linspace(0.02, 0.98, _DESCENT_STARTS // 2, device=device).repeat(2)[:, None]
    z = (torch.rand(len(density), energy.num_units, generator=generator, device=device) < density).float()
    order = range(len(energy.blocks))
    halves = zip(z.chunk(2), (order, order[::-1]), strict=True)
    z = torch.cat([greedy_descent(energy, half, order=blocks) for half, blocks in halves]).unique(dim=0)
    z = z[energy.compute_energy(z).argsort(stable=True)]
    return z[torch.arange(num_states, device=device) % min(len(z), num_states)]


class ModeJumps:
    """A Metropolis move that flips the units in which two known states differ, outside one block, then draws the block.

    Each chain takes one of the pairs of states at random and flips, where they differ, all units outside block b; the
    move is its own inverse, so it is accepted with the probability min(1, exp(F_t(before) - F_t(after))), F_t the free
    energy of the units outside the block. The block is then drawn given the others. p^t stays invariant whatever the
    states are; states in different modes make chains cross where sweeps do not. Summing a block out spares the move
    from having to find the block's states in the other mode.

    The modes are (state, unit) in {0,1}, local minima of the energy for example; ``masks``, (pair, unit) bool, is where
    pairs of them differ. Without rows there is nothing to flip.
    """

    def __init__(self, energy: BoltzmannMachine, modes: Tensor, *, seed: int = 0) -> None:
        check_binary("modes", check_tensor("modes", modes, ("state", energy.num_units)))
        self.energy = energy
        states = modes.bool()
        first, second = torch.combinations(torch.arange(len(states), device=states.device)).T
        differ = states[first] ^ states[second]
        self.masks = differ[differ.any(1)].unique(dim=0)
        # two streams: the units' uniforms must have no part in the choice of the move
        self._key, self._choice_key = key_to_seed(seed, _JUMP_STREAM), key_to_seed(seed, _JUMP_STREAM, 1)

    def __call__(
        self, z: Tensor, inverse_temperature: Tensor, *, sweep: int, block: int
    ) -> tuple[Tensor, Tensor]:
        """Make one move of each chain; returns the new states and which moves were accepted, (chain,) bool.

        States z are (chain, unit) float32 at the temperatures (chain,). ``sweep``, from 1, keys the noise; ``block`` is
        summed out.
        """
        if not len(self.masks):
            return z, torch.zeros(len(z), dtype=torch.bool, device=z.device)
        draws = swap_uniforms(len(z), 2, key=self._choice_key, sweeps=range(sweep, sweep + 1))[0].to(z.device)
        self.masks = self.masks.to(z.device)
        masks = self.masks[(draws[:, 0] * len(self.masks)).long()]
        masks[:, self.energy.block_place(block)] = False
        flipped = (z.bool() ^ masks).to(z.dtype)
        before, after = (
            reduced_energy(self.energy, states, block, inverse_temperature) for states in (z, flipped)
        )
        accepted = draws[:, 1] < exchange_probabilities(before, after)
        others = torch.ones(z.shape[1], dtype=torch.bool, device=z.device)
        others[self.energy.block_place(block)] = False
        drawn = run_sweeps(
            self.energy,
            torch.where(accepted[:, None], flipped, z),
            1,
            key=self._key,
            first_sweep=sweep,
            inverse_temperature=inverse_temperature,
            clamped=others,
        )
        return drawn, accepted & masks.any(1)
