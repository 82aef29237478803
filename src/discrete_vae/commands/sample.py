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
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.runs.writable import check_writable

if TYPE_CHECKING:
    from discrete_vae.samplers.protocol import Sampler
    from discrete_vae.training.load import LoadedRun

_FRESH_SWEEPS = 10_000
_PICTURES = ("samples.png", "reconstructions.png", "training.png")


def run_sample(arguments: Namespace, overrides: list[str]) -> int:
    """Draw samples along the chains and, unless a file is named, reconstructions and the course of training."""
    if arguments.out is not None:
        check_picture_path(arguments.out)
    from discrete_vae.figures.evolution import draw_evolution, evolution
    from discrete_vae.figures.reconstructions import draw_reconstructions, reconstructions
    from discrete_vae.figures.training_curves import draw_training_curves, training_curves
    from discrete_vae.training.load import load_run

    run = RunDirectory.open(arguments.run)
    # what cannot be written is found before the drawing that it takes
    paths = [run.figure_path(name) for name in _PICTURES] if arguments.out is None else [Path(arguments.out)]
    for path in paths:
        check_writable(path.expanduser(), repair="Give another place for the samples: --out FILE.png.")
    loaded = load_run(
        run,
        parse_checkpoint(arguments.checkpoint),
        accept_changed_config=arguments.accept_changed_config,
    )
    records = (
        run.metrics().read() if arguments.out is None else []
    )  # damage is found before anything is drawn
    dataset = instantiate(loaded.config.data, data_dir=arguments.data_dir)
    table = evolution(
        loaded.model,
        _chains(loaded, arguments),
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


def _chains(loaded: LoadedRun, arguments: Namespace) -> Sampler:
    """The chains to show, advanced by their burn-in."""
    from discrete_vae.samplers.block_gibbs import BlockGibbs

    prior, seed = loaded.model.prior, arguments.seed or 0
    burn_in = arguments.burn_in
    if arguments.start == "training":
        chains = loaded.chains
    elif arguments.start == "fresh":
        chains = BlockGibbs(prior, arguments.num_chains or 5, seed=seed)
        burn_in = _FRESH_SWEEPS if burn_in is None else burn_in
    else:
        chains = _chains_from(Path(arguments.start).expanduser(), loaded, seed)
    if burn_in:
        chains.step(burn_in)
    return chains


def _chains_from(path: Path, loaded: LoadedRun, seed: int) -> Sampler:
    """Chains that start at the states in a file, (chain, unit) in {0,1}."""
    import torch

    from discrete_vae.data.read_arrays import read_npy
    from discrete_vae.samplers.block_gibbs import BlockGibbs
    from discrete_vae.samplers.packing import pack_bits

    prior = loaded.model.prior
    states = torch.as_tensor(read_npy(path))
    is_binary = states.ndim == 2 and bool(((states == 0) | (states == 1)).all())
    if not is_binary or states.shape[1] != prior.num_units or len(states) == 0:
        rule = f"must hold states of the prior, (chain, {prior.num_units} units) in {{0,1}}"
        raise InvalidInputError(
            "--start", rule, f"shape {tuple(states.shape)} in {path}", "Save such an array with numpy.save."
        )
    chains = BlockGibbs(prior, len(states), seed=seed)
    chains.load_state_dict(chains.state_dict() | {"z": pack_bits(states.to(torch.float32))})
    return chains
