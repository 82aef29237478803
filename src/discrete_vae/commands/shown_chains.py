"""Where the chains that dvae sample shows come from."""

from __future__ import annotations

from argparse import Namespace
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


def shown_chains(loaded: LoadedRun, arguments: Namespace, num_fresh: int) -> tuple[Sampler, int]:
    """The chains that --start names, and the sweeps of their burn-in.

    Args:
        loaded: The run.
        arguments: The options of dvae sample.
        num_fresh: How many chains start at random unless --num-chains says so.

    Raises:
        InvalidInputError: If they do not fit the memory, or a file holds no states of the prior.
    """
    from discrete_vae.samplers.block_gibbs import BlockGibbs

    prior, seed = loaded.model.prior, arguments.seed or 0
    burn_in = arguments.burn_in
    if arguments.start == "training":
        chains = loaded.chains
    elif arguments.start == "fresh":
        num_chains, repair = arguments.num_chains or num_fresh, "Use fewer chains."
        check_memory("--num-chains", num_chains * prior.num_units * _BYTES, repair)
        with allocating("--num-chains", repair):
            chains = BlockGibbs(prior, num_chains, seed=seed)
        burn_in = _FRESH_SWEEPS if burn_in is None else burn_in
    else:
        chains = _chains_from(user_path("--start", arguments.start), loaded, seed)
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
