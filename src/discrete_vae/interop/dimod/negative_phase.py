"""Any dimod sampler as the negative phase of training and as a source of samples."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from discrete_vae.boltzmann.effective_temperature import fit_inverse_temperature
from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.checks import check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.interop.dimod.ask import Solver, ask, open_solver
from discrete_vae.interop.dimod.bqm_form import BQMForm
from discrete_vae.noise import key_to_seed
from discrete_vae.samplers.block_gibbs import BlockGibbs
from discrete_vae.samplers.chains import MarkovChains, check_entry, one_at_a_time
from discrete_vae.samplers.kernels.philox import fair_coins
from discrete_vae.samplers.kernels.sweeps import run_sweeps
from discrete_vae.samplers.packing import pack_bits, unpack_bits

if TYPE_CHECKING:
    from dimod import Sampler

_SWEEP_STREAM = 0x64776176
_UNKNOWN, _DRIFT = (
    1.0,
    0.02,
)  # standard deviations of the logarithm of the solver's temperature: at first, a call
_ALARMING_BREAKS = 0.1


class DimodSampler(MarkovChains):
    """Samples of a machine from a dimod sampler, corrected for its temperature.

    Each step hands the solver a model with the machine's present weights and takes one read per chain. A solver that
    draws exp(-c E_bqm), c unknown, is given E / c; c is estimated from the samples of each step
    (`fit_inverse_temperature`) and followed by a scalar Kalman filter, which believes an estimate as far as its
    standard error allows. The correction is thus that of the steps before, and of single flips: which share of the
    samples each mode has stays the solver's. Sweeps of block Gibbs after the solver bring samples nearer to the
    machine, at the cost of those sweeps.

    Reads are independent of those of the step before, unless the solver itself remembers. A solver that takes a seed is
    given one of (seed, step, part), so that a run can go on bit for bit; one that takes none, such as a quantum
    annealer, says so with a warning, and a resumed run is then another one with the same law.

    It is a module that does not own the energy: see `MarkovChains`. The solver is opened at the first step, and is no
    part of a copy or of what is pickled.

    Args:
        energy: An RBM, a GraphBoltzmann or a FactorialBernoulli. A solver with a graph of its own needs one of which
            every unit is a node and every pair an edge, see `GraphBoltzmann.nodes`: nothing is embedded.
        num_chains: Reads per step.
        solver: A name of `solver_names`, or the sampler itself.
        parameters: Keywords for the solver's ``sample``, on top of those that its name stands for.
        correct_temperature: Whether c is followed; otherwise it stays 1 and is merely measured.
        num_gibbs_sweeps: Sweeps of block Gibbs that each sample makes after the solver.
        seed: Integer from 0 to 2^64 - 1.

    Attributes:
        energy: The machine; its parameters are read anew at every step.
        num_chains: Number of reads.
        seed: The seed.
        sweep: Number of sweeps asked for so far.
        calls: Number of steps so far.
        sampled_at: The inverse temperature that the last samples had, before the sweeps after; NaN where it could not
            be told. 1 is right.
        chain_break_fraction: Mean share of broken chains of the last samples, as an embedding composite reports it;
            None where it does not.

    Raises:
        InvalidInputError: If a number is out of its range, or the solver's name is unknown.

    Warns:
        UserWarning: If the solver takes no seed, more than a tenth of the chains are broken, or its samples prefer high
            energies.

    Examples:
        >>> from discrete_vae import RBM
        >>> chains = DimodSampler(RBM(3, 2), num_chains=4, seed=0)
        >>> chains.step(10).shape  # simulated annealing in 10 sweeps
        torch.Size([4, 5])
    """

    _packed: Tensor
    _filter: Tensor

    def __init__(
        self,
        energy: BoltzmannMachine,
        num_chains: int,
        *,
        solver: str | Sampler = "simulated-annealing",
        parameters: Mapping[str, Any] | None = None,
        correct_temperature: bool = True,
        num_gibbs_sweeps: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__(energy, num_chains, seed)
        self.solver, self.parameters_given = solver, dict(parameters or {})
        self.correct_temperature = correct_temperature
        if num_gibbs_sweeps != 0:
            check_positive_int("num_gibbs_sweeps", num_gibbs_sweeps)
        self.num_gibbs_sweeps = num_gibbs_sweeps
        self.calls = 0
        self.sampled_at = math.nan
        self.chain_break_fraction: float | None = None
        self._opened: _Opened | None = None
        self._warned: set[str] = set()
        z = fair_coins(num_chains, energy.num_units, key=self._key, device=energy.bias.device)
        self.register_buffer("_packed", pack_bits(z), persistent=False)
        start = torch.tensor([0.0, _UNKNOWN**2], dtype=torch.float64, device="cpu")
        self.register_buffer("_filter", start, persistent=False)

    @property
    def z(self) -> Tensor:
        """A copy of the last samples, (chain, unit) float32 in {0,1}; fair coins before the first step."""
        self._follow()
        return unpack_bits(self._packed, self.energy.num_units)

    @property
    def solver_inverse_temperature(self) -> float:
        """c: the solver draws exp(-c E_bqm), as far as it is known."""
        return math.exp(float(self._filter[0]))

    def connect(self) -> None:
        """Open the solver, unless it is open, and check by one read that it can draw from the machine.

        Raises:
            InvalidInputError: If its library is missing, it refuses a parameter, or its graph lacks a unit or a pair
                of the machine.
        """
        opened = self._open()
        ask(opened.solver, opened.form.fill(1.0), opened.form.labels, 1, num_sweeps=2, seed=0)

    @one_at_a_time
    def step(self, num_sweeps: int) -> Tensor:
        """Ask the solver for a sample per chain.

        Args:
            num_sweeps: What a solver with a parameter of that name is given; others have their own measure of effort.

        Returns:
            A copy of the samples, (chain, unit) float32 in {0,1}, without gradient.

        Raises:
            InvalidInputError: If num_sweeps is not a positive integer, a parameter of the energy is not finite, or the
                solver cannot be opened or returns something else than the reads that it was asked for.
        """
        check_positive_int("num_sweeps", num_sweeps)
        opened = self._open()
        bqm = opened.form.fill(1 / self.solver_inverse_temperature)
        seed = key_to_seed(self.seed, self.calls)
        reads = ask(opened.solver, bqm, opened.form.labels, self.num_chains, num_sweeps=num_sweeps, seed=seed)
        z = reads.z.to(self.energy.bias.device)
        self._report_breaks(reads.chain_break_fraction)
        self._measure(z)
        if self.num_gibbs_sweeps:
            key = key_to_seed(self.seed, _SWEEP_STREAM, self.calls)
            z = run_sweeps(self.energy, z, self.num_gibbs_sweeps, key=key, first_sweep=1)
        self.calls, self.sweep = self.calls + 1, self.sweep + num_sweeps
        self._packed = pack_bits(z)
        return z

    def metrics(self) -> dict[str, float]:
        """How the solver does, for the log of a run."""
        found = {"solver_inverse_temperature": self.solver_inverse_temperature}
        if math.isfinite(self.sampled_at):
            found["sampled_at_inverse_temperature"] = self.sampled_at
        if self.chain_break_fraction is not None:
            found["chain_break_fraction"] = self.chain_break_fraction
        return found

    def local_chains(self) -> BlockGibbs:
        """Chains of the library's own that start at the last samples and need no solver."""
        return BlockGibbs(self.energy, self.num_chains, seed=self.seed, start=self.z)

    def _open(self) -> _Opened:
        if self._opened is None:
            solver = open_solver(self.solver, self.parameters_given)
            form = BQMForm(self.energy, vartype="SPIN")
            solver.check_graph(form)
            if not solver.takes_seed:
                self._warn(
                    "seed",
                    f"the solver {solver.name} takes no seed: a run that is resumed goes on with other samples, not "
                    "bit for bit as one without interruption.",
                )
            self._opened = _Opened(solver, form)
        return self._opened

    def _measure(self, z: Tensor) -> None:
        """Estimate the temperature of samples and bring c up to date."""
        found = fit_inverse_temperature(self.energy, z)
        self.sampled_at = found.value if math.isfinite(found.std_error) else math.nan
        if found.value + 5 * found.std_error < 0:
            self._warn(
                "sign",
                f"the solver's samples have an inverse temperature of {found.value:.2f} +- {found.std_error:.2f}: they "
                "prefer high energies. Look for a reversed sign; a dimod sampler draws exp(-E_bqm).",
            )
        level, variance = self._filter.tolist()
        variance += _DRIFT**2
        if self.correct_temperature and found.value > 2 * found.std_error:
            gain = variance / (variance + (found.std_error / found.value) ** 2)
            level, variance = level + gain * math.log(found.value), (1 - gain) * variance
        self._filter = self._filter.new_tensor([level, min(variance, _UNKNOWN**2)])

    def _report_breaks(self, fraction: float | None) -> None:
        self.chain_break_fraction = fraction
        if fraction is not None and fraction > _ALARMING_BREAKS:
            self._warn(
                "breaks",
                f"{fraction:.0%} of the chains of qubits are broken: majority votes over them follow no Boltzmann law. "
                "Raise the composite's chain_strength, or train on the solver's own graph, which needs no chains.",
            )

    def _warn(self, what: str, message: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            warnings.warn(message, stacklevel=3)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_opened": None}

    def extra_repr(self) -> str:
        """The sizes."""
        name = self.solver if isinstance(self.solver, str) else type(self.solver).__name__
        return f"{super().extra_repr()}, by {name}"

    def _integers(self) -> dict[str, int]:
        return super()._integers() | {"calls": self.calls}

    def _take_integers(self, values: Mapping[str, int]) -> None:
        super()._take_integers(values)
        self.calls = values["calls"]

    def _state(self) -> dict[str, Tensor]:
        return {"z": self._packed.clone(), "temperature": self._filter.clone()}

    def _check_state(self, state: Mapping[str, Any], name: Callable[[str], str]) -> None:
        check_entry(name("z"), state["z"], torch.uint8, tuple(self._packed.shape))
        temperature = check_entry(name("temperature"), state["temperature"], torch.float64, (2,))
        if (
            not bool(temperature.isfinite().all())
            or float(temperature[0].abs()) > 100
            or float(temperature[1]) < 0
        ):
            repair = "Restore the checkpoint from a copy."
            raise InvalidInputError(
                name("temperature"), "must be a logarithm and a variance", temperature.tolist(), repair
            )

    def _take_state(self, state: Mapping[str, Tensor]) -> None:
        self._packed = state["z"].to(self._packed.device, copy=True)
        self._filter = state["temperature"].to(self._filter.device, copy=True)


@dataclass(frozen=True)
class _Opened:
    """The solver, and the machine in its form."""

    solver: Solver
    form: BQMForm
