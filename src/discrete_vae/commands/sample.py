"""dvae sample: pictures of what a trained model generates."""

from __future__ import annotations

import warnings
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from discrete_vae.commands.evaluate import parse_checkpoint
from discrete_vae.config import instantiate
from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.saving import check_picture_path
from discrete_vae.memory import allocating, check_memory
from discrete_vae.paths import user_path
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.runs.writable import check_writable

if TYPE_CHECKING:
    from discrete_vae.samplers.protocol import Sampler
    from discrete_vae.training.load import LoadedRun

_FRESH_SWEEPS = 10_000
_PICTURES = ("samples.png", "reconstructions.png", "training.png")
_CHAIN_BYTES = 16  # per unit, while chains are made


def run_sample(arguments: Namespace, overrides: list[str]) -> int:
    """Draw samples along the chains and, unless a file is named, reconstructions and the course of training."""
    if arguments.out is not None:
        check_picture_path(arguments.out)
    from discrete_vae.figures.evolution import DEFAULT_CHAINS, draw_evolution, evolution
    from discrete_vae.figures.image_grid import check_grid
    from discrete_vae.figures.reconstructions import draw_reconstructions, reconstructions
    from discrete_vae.figures.training_curves import draw_training_curves, training_curves
    from discrete_vae.training.load import load_run

    run = RunDirectory.open(arguments.run)
    loaded = load_run(
        run,
        parse_checkpoint(arguments.checkpoint),
        accept_changed_config=arguments.accept_changed_config,
    )
    records = (
        run.metrics().read() if arguments.out is None else []
    )  # damage is found before anything is drawn
    dataset = instantiate(loaded.config.data, data_dir=arguments.data_dir)
    num_chains = arguments.num_chains or DEFAULT_CHAINS
    grid = (arguments.num_rows, num_chains, arguments.num_draws, dataset.num_features)
    check_grid(grid, dataset.image_shape)
    chains, burn_in = _chains(loaded, arguments)
    # what cannot be written is found before the drawing that it takes
    paths = [run.figure_path(name) for name in _PICTURES] if arguments.out is None else [Path(arguments.out)]
    for path in paths:
        check_writable(path.expanduser(), repair="Give another place for the samples: --out FILE.png.")
    if burn_in:
        chains.step(burn_in)
    table = evolution(
        loaded.model,
        chains,
        num_rows=arguments.num_rows,
        num_chains=arguments.num_chains,
        num_draws=arguments.num_draws,
        num_sweeps=arguments.num_sweeps,
        seed=arguments.seed or 0,
    )
    draw_evolution(table, dataset.image_shape, paths[0])
    print(f"Samples along the chains: {paths[0]}")
    if arguments.out is None:
        _, path, curves_path = paths
        draw_reconstructions(
            reconstructions(loaded.model, dataset.test, seed=arguments.seed or 0), dataset.image_shape, path
        )
        print(f"Reconstructions:          {path}")
        if any("elbo" in record for record in records):
            draw_training_curves(training_curves(records), curves_path, name=loaded.config.name)
            print(f"Course of training:       {curves_path}")
        else:
            warnings.warn(
                f"{run.metrics_path} holds no training ELBO: the course of training is not drawn.",
                stacklevel=2,
            )
    return 0


def _chains(loaded: LoadedRun, arguments: Namespace) -> tuple[Sampler, int]:
    """The chains to show, and the sweeps of their burn-in."""
    from discrete_vae.figures.evolution import DEFAULT_CHAINS
    from discrete_vae.samplers.block_gibbs import BlockGibbs

    prior, seed = loaded.model.prior, arguments.seed or 0
    burn_in = arguments.burn_in
    if arguments.start == "training":
        chains = loaded.chains
    elif arguments.start == "fresh":
        num_chains, repair = arguments.num_chains or DEFAULT_CHAINS, "Use fewer chains."
        check_memory("--num-chains", num_chains * prior.num_units * _CHAIN_BYTES, repair)
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
