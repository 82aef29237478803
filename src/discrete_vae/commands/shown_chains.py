"""Where the chains that dvae sample shows come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from discrete_vae.errors import InvalidInputError
from discrete_vae.memory import allocating, check_memory
from discrete_vae.paths import user_path

if TYPE_CHECKING:
    from discrete_vae.samplers.protocol import Sampler
    from discrete_vae.training.load import LoadedRun

_FRESH_SWEEPS = 10_000
_BYTES = 16  # per unit, while chains are made


@dataclass(frozen=True)
class Shown:
    """What dvae sample is asked to show.

    Attributes:
        start: "training", "fresh" or a file of states.
        burn_in: Sweeps before the first row; None means as many as the start needs.
        num_rows: Rows.
        num_sweeps: Sweeps from row to row.
        num_chains: Chains side by side; None means as many as suit the data.
        num_draws: Images per state.
        seed: Seed of new chains and of what is drawn from their states.
    """

    start: str
    burn_in: int | None
    num_rows: int
    num_sweeps: int
    num_chains: int | None
    num_draws: int
    seed: int


def shown_chains(loaded: LoadedRun, shown: Shown, num_fresh: int) -> tuple[Sampler, int]:
    """The chains, and the sweeps of their burn-in.

    Args:
        loaded: The run.
        shown: What is asked for.
        num_fresh: How many chains start at random unless it says so.

    Raises:
        InvalidInputError: If they do not fit the memory, or a file holds no states of the prior.
    """
    from discrete_vae.samplers.block_gibbs import BlockGibbs

    prior, burn_in = loaded.model.prior, shown.burn_in
    if shown.start == "training":
        chains = loaded.chains
    elif shown.start == "fresh":
        num_chains, repair = shown.num_chains or num_fresh, "Use fewer chains."
        check_memory("--num-chains", num_chains * prior.num_units * _BYTES, repair)
        with allocating("--num-chains", repair):
            chains = BlockGibbs(prior, num_chains, seed=shown.seed)
        burn_in = _FRESH_SWEEPS if burn_in is None else burn_in
    else:
        chains = _chains_from(user_path("--start", shown.start), loaded, shown.seed)
    return chains, burn_in or 0


def _chains_from(path: Path, loaded: LoadedRun, seed: int) -> Sampler:
    """Chains that start at the states in a file, (chain, unit) in {0,1}."""
    import torch

    from discrete_vae.data.read_arrays import read_npy
    from discrete_vae.samplers.block_gibbs import BlockGibbs

    prior = loaded.model.prior
    states = read_npy(path)
    received = f"shape {states.shape} of {states.dtype} in {path}"
    fits = states.dtype.kind in "buif" and states.ndim == 2 and states.shape[1] == prior.num_units
    if fits and not bool(((states == 0) | (states == 1)).all()):
        fits, received = False, f"other values in {path}"
    if not fits or len(states) == 0:
        rule = f"must hold states of the prior, (chain, {prior.num_units} units) in {{0,1}}"
        raise InvalidInputError("--start", rule, received, "Save such an array with numpy.save.")
    with allocating("--start", "Give fewer chains."):
        z = torch.from_numpy(states.astype("float32"))  # whatever its width and byte order
        return BlockGibbs(prior, len(states), seed=seed, start=z)
