"""dvae sample: pictures of what a trained model generates."""

from __future__ import annotations

import warnings
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from discrete_vae.commands.evaluate import parse_checkpoint, picture_note
from discrete_vae.commands.shown_chains import shown_chains
from discrete_vae.commands.suggestions import open_run
from discrete_vae.config import instantiate
from discrete_vae.figures.saving import check_picture_path, noting
from discrete_vae.memory import check_memory
from discrete_vae.paths import user_path
from discrete_vae.runs.writable import check_writable

if TYPE_CHECKING:
    from torch import Tensor

    from discrete_vae.config import ExperimentConfig
    from discrete_vae.data.dataset import DataSplits
    from discrete_vae.figures.evolution import EvolutionTable
    from discrete_vae.runs.run_directory import RunDirectory
    from discrete_vae.training.load import LoadedRun

_PICTURES = ("samples.png", "reconstructions.png", "training.png")
_FRESH_TABLE_CHAINS = 200
_TABLE_EXAMPLES = 20  # strips in one column, each with its label
_MAX_VALUES = 20_000_000  # of samples of a table, 80 MB


def run_sample(arguments: Namespace, overrides: list[str]) -> int:
    """Draw samples along the chains and, unless a file is named, reconstructions and the course of training."""
    if arguments.out is not None:
        check_picture_path(arguments.out)
    from discrete_vae.training.load import load_run

    run = open_run(arguments.run)
    loaded = load_run(
        run,
        parse_checkpoint(arguments.checkpoint),
        accept_changed_config=arguments.accept_changed_config,
    )
    with noting(picture_note(loaded)):
        _draw(run, loaded, arguments)
    return 0


def _draw(run: RunDirectory, loaded: LoadedRun, arguments: Namespace) -> None:
    from torch import Tensor

    from discrete_vae.figures.evolution import draw_evolution
    from discrete_vae.figures.ink import ink_for
    from discrete_vae.figures.reconstructions import draw_reconstructions, reconstructions
    from discrete_vae.figures.table_statistics import draw_table_statistics, table_statistics
    from discrete_vae.figures.training_curves import draw_training_curves, training_curves

    records = run.metrics().read() if arguments.out is None else []  # damage is found before all drawing
    dataset = instantiate(loaded.config.data, data_dir=arguments.data_dir)
    out = None if arguments.out is None else user_path("--out", arguments.out)
    samples, pairs, curves = (run.figures_path / name if out is None else out for name in _PICTURES)
    is_table, title = dataset.image_shape is None, _title(loaded.config, dataset)

    table = _samples(loaded, dataset, arguments, [samples] if out else [samples, pairs, curves])
    if out is None:
        run.figures_path.mkdir(exist_ok=True)
    if isinstance(table, Tensor):
        draw_table_statistics(table_statistics(dataset.test, table), samples, name=title)
        print(f"Samples against the data: {samples}")
    else:
        draw_evolution(table, dataset.image_shape, samples, ink=ink_for(dataset.test, per_feature=False))
        print(f"Samples along the chains: {samples}")
    if out is not None:
        return
    num_examples = min(_TABLE_EXAMPLES, len(dataset.test)) if is_table else None
    found = reconstructions(loaded.model, dataset.test, num_examples=num_examples, seed=arguments.seed or 0)
    draw_reconstructions(found, dataset.image_shape, pairs)
    print(f"Reconstructions:          {pairs}")
    if any("elbo" in record for record in records):
        draw_training_curves(training_curves(records), curves, name=title)
        print(f"Course of training:       {curves}")
    else:
        warnings.warn(
            f"{run.metrics_path} holds no training ELBO: the course of training is not drawn.", stacklevel=2
        )


def _samples(
    loaded: LoadedRun, dataset: DataSplits, arguments: Namespace, paths: list[Path]
) -> EvolutionTable | Tensor:
    """Images along a few chains; for a table draws of x, of as many chains as there are and memory holds.

    What cannot be written, or does not fit the memory, is found before the chains move.
    """
    from discrete_vae.figures.evolution import DEFAULT_CHAINS, evolution
    from discrete_vae.figures.image_grid import check_grid
    from discrete_vae.figures.table_samples import table_samples

    num_rows, num_features = arguments.num_rows, dataset.num_features
    if dataset.image_shape is None:
        chains, burn_in = shown_chains(loaded, arguments, _FRESH_TABLE_CHAINS)
        room = max(1, _MAX_VALUES // (num_rows * num_features))
        num_chains, num_draws = arguments.num_chains or min(chains.num_chains, room), None
        check_memory("--num-rows", 4 * num_rows * num_chains * num_features, "Ask for fewer rows or chains.")
    else:
        num_chains, num_draws = arguments.num_chains or DEFAULT_CHAINS, arguments.num_draws
        check_grid((num_rows, num_chains, num_draws, num_features), dataset.image_shape)
        chains, burn_in = shown_chains(loaded, arguments, DEFAULT_CHAINS)
        num_chains = arguments.num_chains
    for path in paths:
        check_writable(path, repair="Give another place for the samples: --out FILE.png.")
    if burn_in:
        chains.step(burn_in)
    if num_draws is None:
        return table_samples(
            loaded.model,
            chains,
            num_rows=num_rows,
            num_chains=num_chains,
            num_sweeps=arguments.num_sweeps,
            seed=arguments.seed or 0,
        )
    return evolution(
        loaded.model,
        chains,
        num_rows=num_rows,
        num_chains=num_chains,
        num_draws=num_draws,
        num_sweeps=arguments.num_sweeps,
        seed=arguments.seed or 0,
    )


def _title(config: ExperimentConfig, dataset: DataSplits) -> str:
    """What was trained: the experiment, its data where they have another name, size and seed."""
    of = config.name if config.name == dataset.name else f"{config.name} on {dataset.name}"
    return f"{of}, size {config.size}, seed {config.seed}"
