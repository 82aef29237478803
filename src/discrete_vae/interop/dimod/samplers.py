"""The library's chains as dimod samplers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from discrete_vae.boltzmann.base import BoltzmannMachine, FactorialBernoulli
from discrete_vae.checks import check_positive_int
from discrete_vae.interop.dimod.conversion import from_bqm
from discrete_vae.rng import draw_key, key_to_seed
from discrete_vae.samplers.gibbs import BlockGibbs
from discrete_vae.samplers.tempering import ParallelTempering

try:
    import dimod
except ImportError as error:  # the classes are dimod's
    raise ImportError("dimod must be installed: pip install 'discrete-vae[dwave]'") from error

_TUNINGS = 4  # of a ladder, at least
_MIN_DENSITY = 0.5  # of the pairs of two sides: above it whole sides are drawn faster than along edges


class ChainSampler(dimod.Sampler, dimod.Initialized):
    """Draws p ~ exp(-t E_bqm) by Markov chains, one independent chain for each read.

    A bipartite model with at least half of all pairs is sampled as an RBM, any other block by block of a coloring of
    its graph, with compiled kernels.
    """

    @property
    def parameters(self) -> dict[str, Any]:
        """The keywords of `sample`, as dimod wants them; none depends on a property."""
        return {name: [] for name in inspect.signature(self.sample).parameters if name != "bqm"}

    @property
    def properties(self) -> dict[str, Any]:
        return {}

    def _sample(
        self,
        draw: Callable[[BoltzmannMachine, int, int, Tensor | None], Tensor],
        bqm: dimod.BinaryQuadraticModel,
        num_reads: int | None,
        num_sweeps: int,
        inverse_temperature: float,
        seed: int | None,
        initial_states: Any,
        initial_states_generator: Any,
    ) -> dimod.SampleSet:
        """Reads of a model; ``draw`` gives (read, unit) in {0,1} for a machine, a number, a seed and a start."""
        check_positive_int("num_sweeps", num_sweeps)
        seed = draw_key() if seed is None else seed
        key_to_seed(seed)  # refuses what is none
        start = None
        if initial_states is not None:
            start = self.parse_initial_states(
                bqm, initial_states, initial_states_generator, num_reads, seed=seed & 0xFFFFFFFF
            ).initial_states
            num_reads = len(start)
        num_reads = check_positive_int("num_reads", 1 if num_reads is None else num_reads)
        info = {"inverse_temperature": inverse_temperature, "num_sweeps": num_sweeps, "seed": seed}
        if not bqm.num_variables:
            return dimod.SampleSet.from_samples_bqm((np.empty((num_reads, 0), np.int8), []), bqm, info=info)
        found = from_bqm(bqm, inverse_temperature=inverse_temperature, min_density=_MIN_DENSITY)
        states = None
        if start is not None:
            columns = [start.variables.index(label) for label in found.labels]
            states = torch.from_numpy((start.record.sample[:, columns] > 0).astype(np.float32))
        if isinstance(found.energy, FactorialBernoulli):  # one sweep draws independent units
            z = BlockGibbs(found.energy, num_reads, seed=seed).step(1)
        else:
            z = draw(found.energy, num_reads, seed, states)
        samples = z.to("cpu", torch.int8).numpy()
        if bqm.vartype is dimod.SPIN:
            samples = 2 * samples - 1
        return dimod.SampleSet.from_samples_bqm((samples, found.labels), bqm, info=info)


class BlockGibbsSampler(ChainSampler):
    """Block Gibbs with dimod's interface: sampling at one temperature, not optimization.

    Examples:
        >>> import dimod
        >>> bqm = dimod.BinaryQuadraticModel({"a": 2.0}, {("a", "b"): -1.0}, 0.0, "SPIN")
        >>> found = BlockGibbsSampler().sample(bqm, num_reads=1000, num_sweeps=20, seed=0)
        >>> abs(float(found.record.sample[:, 0].mean()) + 0.964) < 0.03  # of the spin a: -tanh(2) = -0.964
        True
    """

    def sample(  # pyright: ignore[reportIncompatibleMethodOverride]  # dimod's own samplers name their parameters too
        self,
        bqm: dimod.BinaryQuadraticModel,
        *,
        num_reads: int | None = None,
        num_sweeps: int = 1000,
        inverse_temperature: float = 1.0,
        seed: int | None = None,
        initial_states: Any = None,
        initial_states_generator: Any = "random",
    ) -> dimod.SampleSet:
        """Draw from p ~ exp(-t E_bqm).

        Args:
            bqm: The model, of bits or spins.
            num_reads: Reads, each from a chain of its own; None means one for each initial state, or one.
            num_sweeps: Sweeps of each chain; of a model with distant modes no number of them may be enough.
            inverse_temperature: t, what annealers call beta.
            seed: Integer from 0 to 2^64 - 1; None draws one from torch's global generator.
            initial_states: Starts of the chains, in any form that dimod reads; None means fair coins.
            initial_states_generator: For starts that are fewer than the reads, as in dimod: "random", "tile" or "none".
        """

        def draw(energy: BoltzmannMachine, num_reads: int, seed: int, start: Tensor | None) -> Tensor:
            return BlockGibbs(energy, num_reads, seed=seed, start=start).step(num_sweeps)

        rest = inverse_temperature, seed, initial_states, initial_states_generator
        return self._sample(draw, bqm, num_reads, num_sweeps, *rest)


class ParallelTemperingSampler(ChainSampler):
    """Parallel tempering with dimod's interface: each read is the coldest replica of a ladder of its own.

    Replicas cross between modes where a single temperature stays in one. A ladder that is not given is tuned in the
    first half of the sweeps and stands still in the second.

    Examples:
        >>> import dimod
        >>> ring = dimod.BinaryQuadraticModel({}, {(0, 1): -3.0, (1, 2): -3.0, (2, 0): -3.0}, 0.0, "SPIN")
        >>> found = ParallelTemperingSampler().sample(ring, num_reads=200, num_sweeps=100, seed=0)
        >>> abs(float(found.record.sample.mean())) < 0.3  # both modes, all spins up and all down
        True
    """

    def sample(  # pyright: ignore[reportIncompatibleMethodOverride]  # dimod's own samplers name their parameters too
        self,
        bqm: dimod.BinaryQuadraticModel,
        *,
        num_reads: int | None = None,
        num_sweeps: int = 100,
        inverse_temperature: float = 1.0,
        inverse_temperatures: Sequence[float] | None = None,
        seed: int | None = None,
        initial_states: Any = None,
        initial_states_generator: Any = "random",
    ) -> dimod.SampleSet:
        """Draw from p ~ exp(-t E_bqm); arguments as in `BlockGibbsSampler.sample`, with t that of the coldest replica.

        ``inverse_temperatures`` is the ladder as shares of t, rising to exactly 1; None tunes one that starts at 0.
        A sweep of all replicas costs about ten of block Gibbs. All replicas of a read start in its initial state.
        """

        def draw(energy: BoltzmannMachine, num_reads: int, seed: int, start: Tensor | None) -> Tensor:
            chains = ParallelTempering(energy, num_reads, inverse_temperatures, seed=seed)
            if start is not None:
                chains.start_from(start)
            for part in np.array_split(np.arange(num_sweeps // 2), _TUNINGS):
                if len(part):
                    chains.step(len(part))
                if chains.adapting and chains.measured:  # the chains wait for more swaps than few reads have
                    chains.retune()
            chains.adapting = False
            return chains.step(num_sweeps - num_sweeps // 2)

        rest = inverse_temperature, seed, initial_states, initial_states_generator
        return self._sample(draw, bqm, num_reads, num_sweeps, *rest)
