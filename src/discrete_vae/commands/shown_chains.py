"""Where the chains that dvae sample shows come from."""

from __future__ import annotations

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


def shown_chains(
    loaded: LoadedRun, num_fresh: int, *, start: str, burn_in: int | None, seed: int
) -> tuple[Sampler, int]:
    """The chains that --start names, and the sweeps of their burn-in.

    Args:
        loaded: The run.
        num_fresh: How many chains start at random, where they do.
        start: "training", "fresh" or a file of states.
        burn_in: Sweeps before the first row; None means as many as the start needs.
        seed: Seed of new chains.

    Raises:
        InvalidInputError: If they do not fit the memory, or a file holds no states of the prior.
    """
    from discrete_vae.samplers.block_gibbs import BlockGibbs

    prior = loaded.model.prior
    if start == "training":
        chains = loaded.chains
    elif start == "fresh":
        repair = "Use fewer chains."
        check_memory("--num-chains", num_fresh * prior.num_units * _BYTES, repair)
        with allocating("--num-chains", repair):
            chains = BlockGibbs(prior, num_fresh, seed=seed)
        burn_in = _FRESH_SWEEPS if burn_in is None else burn_in
    else:
        chains = _chains_from(user_path("--start", start), loaded, seed)
    return chains, burn_in or 0


def _chains_from(path: Path, loaded: LoadedRun, seed: int) -> Sampler:
    """Chains that start at the states in a file, (chain, unit) in {0,1}."""
    import torch

    from discrete_vae.data.read_arrays import read_npy
    from discrete_vae.samplers.block_gibbs import BlockGibbs
    from discrete_vae.samplers.packing import pack_bits

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
        chains = BlockGibbs(prior, len(states), seed=seed)
        z = torch.from_numpy(states.astype("float32"))  # whatever its width and byte order
        chains.load_state_dict(chains.state_dict() | {"z": pack_bits(z)})
    return chains
