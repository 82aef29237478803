"""dvae sample: pictures of what a trained model generates."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discrete_vae.commands.options import data_dir_option, option, whole_number
from discrete_vae.commands.shown_chains import Shown, shown_chains
from discrete_vae.commands.trained import EXPLAINED, AskedRun, picture_note, takes_run
from discrete_vae.commands.verbs import verb
from discrete_vae.errors import InvalidInputError
from discrete_vae.memory import check_memory
from discrete_vae.paths import user_path
from discrete_vae.runs.writable import check_writable

if TYPE_CHECKING:
    from torch import Tensor

    from discrete_vae.config import ExperimentConfig
    from discrete_vae.data.dataset import DataSplits
    from discrete_vae.figures.evolution import EvolutionTable
    from discrete_vae.training.load import LoadedRun

_PICTURES = ("samples.png", "reconstructions.png", "training.png")
_FRESH_TABLE_CHAINS = 200
_TABLE_EXAMPLES = 20  # strips in one column, each with its label
_MAX_VALUES = 20_000_000  # of samples of a table, 80 MB


@verb("sample", EXPLAINED)
@takes_run
@option("--out FILE", "write the samples alone to this .png, .pdf or .svg; default: RUN/figures")
@option(
    "--start training|fresh|FILE.npy",
    "where the chains start: where training left them (default), at random, or at states (chain, unit)",
    default="training",
)
@option(
    "--burn-in N", "sweeps before the top row; default: 10,000 when fresh, else 0", whole_number(at_least=0)
)
@option("--num-rows N", "rows of the picture; default: 20", whole_number(), default="20")
@option("--num-sweeps N", "sweeps from row to row; default: 100", whole_number(), default="100")
@option("--num-chains N", "chains side by side; default: 5", whole_number())
@option("--num-draws N", "images per state; default: 5", whole_number(), default="5")
@data_dir_option
def run_sample(
    asked: AskedRun, out: str | None, data_dir: str | None, seed: int | None, **numbers: Any
) -> int:
    """Draw samples along the chains and, unless a file is named, reconstructions and the course of training."""
    from discrete_vae.config import instantiate
    from discrete_vae.figures.saving import check_picture_path, noting

    if out is not None:
        check_picture_path(out)
    loaded = asked.load()
    dataset = instantiate(loaded.config.data, data_dir=data_dir)
    with noting(picture_note(loaded)):
        _draw(asked, loaded, dataset, out, Shown(seed=seed or 0, **numbers))
    return 0


def _draw(asked: AskedRun, loaded: LoadedRun, dataset: DataSplits, out: str | None, shown: Shown) -> None:
    from torch import Tensor

    from discrete_vae.figures.evolution import draw_evolution
    from discrete_vae.figures.ink import ink_for
    from discrete_vae.figures.reconstructions import draw_reconstructions, reconstructions
    from discrete_vae.figures.table_statistics import draw_table_statistics, table_statistics
    from discrete_vae.figures.training_curves import draw_training_curves, training_curves

    run = asked.directory
    records = run.metrics().read() if out is None else []  # damage is found before all drawing
    place = None if out is None else user_path("--out", out)
    samples, pairs, curves = (run.figures_path / name if place is None else place for name in _PICTURES)
    is_table, title = dataset.image_shape is None, _title(loaded.config, dataset)

    table = _samples(asked, loaded, dataset, [samples, pairs, curves], shown)
    if place is None:
        run.figures_path.mkdir(exist_ok=True)
    if isinstance(table, Tensor):
        draw_table_statistics(table_statistics(dataset.test, table), samples, name=title)
        print(f"Samples against the data: {samples}")
    else:
        draw_evolution(table, dataset.image_shape, samples, ink=ink_for(dataset.test, per_feature=False))
        print(f"Samples along the chains: {samples}")
    if place is not None:
        return
    num_examples = min(_TABLE_EXAMPLES, len(dataset.test)) if is_table else None
    x = dataset.test.to(asked.device)
    found = reconstructions(loaded.model, x, num_examples=num_examples, seed=shown.seed)
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
    asked: AskedRun, loaded: LoadedRun, dataset: DataSplits, paths: list[Path], shown: Shown
) -> EvolutionTable | Tensor:
    """Images along a few chains; for a table draws of x, of as many chains as there are and memory holds.

    What cannot be written, or does not fit the memory, is found before the chains move.
    """
    from discrete_vae.commands.device import say_device
    from discrete_vae.figures.evolution import DEFAULT_CHAINS, evolution
    from discrete_vae.figures.image_grid import check_grid
    from discrete_vae.figures.table_samples import table_samples

    num_rows, num_features = shown.num_rows, dataset.num_features
    num_chains, num_draws = shown.num_chains, shown.num_draws
    if dataset.image_shape is None:
        chains, burn_in = shown_chains(loaded, shown, _FRESH_TABLE_CHAINS)
        room = max(1, _MAX_VALUES // (num_rows * num_features))
        num_chains, num_draws = num_chains or min(chains.num_chains, room), None
        check_memory("--num-rows", 4 * num_rows * num_chains * num_features, "Ask for fewer rows or chains.")
    else:
        check_grid((num_rows, num_chains or DEFAULT_CHAINS, num_draws, num_features), dataset.image_shape)
        chains, burn_in = shown_chains(loaded, shown, DEFAULT_CHAINS)
    if num_chains is not None and num_chains > chains.num_chains:
        rule = f"must be at most {chains.num_chains}, the number of chains"
        raise InvalidInputError("--num-chains", rule, num_chains, "Leave it out, or add --start fresh.")
    for path in paths:
        check_writable(path, repair="Give another place for the samples: --out FILE.png.")
    say_device(asked.device)
    if burn_in:
        chains.step(burn_in)
    sizes = {"num_rows": num_rows, "num_sweeps": shown.num_sweeps, "seed": shown.seed}
    if num_draws is None:
        return table_samples(loaded.model, chains, num_chains=num_chains, **sizes)
    return evolution(loaded.model, chains, num_chains=num_chains, num_draws=num_draws, **sizes)


def _title(config: ExperimentConfig, dataset: DataSplits) -> str:
    """What was trained: the experiment, its data where they have another name, size and seed."""
    of = config.name if config.name == dataset.name else f"{config.name} on {dataset.name}"
    return f"{of}, size {config.size}, seed {config.seed}"
