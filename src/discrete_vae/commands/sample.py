"""dvae sample: pictures of what a trained model generates."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discrete_vae.commands.options import data_dir_option, option, whole_number
from discrete_vae.commands.trained import EXPLAINED, AskedRun, picture_note, takes_run
from discrete_vae.commands.verbs import verb
from discrete_vae.errors import InvalidInputError
from discrete_vae.memory import allocating, check_memory
from discrete_vae.paths import user_path
from discrete_vae.runs.writable import check_writable

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from discrete_vae.config import ExperimentConfig
    from discrete_vae.data.dataset import DataSplits
    from discrete_vae.figures import EvolutionTable
    from discrete_vae.samplers.protocol import Sampler
    from discrete_vae.training.load import LoadedRun

_PICTURES = ("samples.png", "reconstructions.png", "training.png")
_FRESH_TABLE_CHAINS, _FRESH_SWEEPS = 200, 10_000
_BYTES = 16  # per unit, while chains are made
_TABLE_EXAMPLES = 20  # strips in one column, each with its label
_MAX_VALUES = 20_000_000  # of samples of a table, 80 MB


@dataclass(frozen=True)
class Shown:
    """What is to be shown; the options say what each field is, and None is what suits the data."""

    start: str
    burn_in: int | None
    num_rows: int
    num_sweeps: int
    num_chains: int | None
    num_draws: int
    seed: int


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
    from torch import Tensor

    from discrete_vae import figures
    from discrete_vae.config import instantiate
    from discrete_vae.figures.ink import ink_for
    from discrete_vae.figures.saving import check_picture_path

    run, shown = asked.directory, Shown(seed=seed or 0, **numbers)
    place = None if out is None else check_picture_path(out)
    loaded = asked.load()
    dataset = instantiate(loaded.config.data, data_dir=data_dir)
    records = run.metrics().read() if place is None else []  # damage is found before all drawing
    samples, pairs, curves = (run.figures_path / name if place is None else place for name in _PICTURES)
    image_shape, title = dataset.image_shape, _title(loaded.config, dataset)

    table = _samples(asked, loaded, dataset, [samples, pairs, curves], shown)

    def save(what: str, figure: Figure, path: Path) -> None:
        print(f"{what} {figures.save_figure(figure, path, note=picture_note(loaded))}")

    if place is None:
        run.figures_path.mkdir(exist_ok=True)
    if isinstance(table, Tensor):
        compared = figures.feature_statistics_table(dataset.test, table)
        save("Samples against the data:", figures.draw_feature_statistics(compared, name=title), samples)
    else:
        ink = ink_for(dataset.test, per_feature=False)
        save("Samples along the chains:", figures.draw_evolution(table, image_shape, ink=ink), samples)
    if place is not None:
        return 0
    x, num_examples = dataset.test.to(asked.device), None
    if image_shape is None:
        num_examples = min(_TABLE_EXAMPLES, len(x))
    found = figures.reconstructions_table(loaded.model, x, num_examples=num_examples, seed=shown.seed)
    save("Reconstructions:         ", figures.draw_reconstructions(found, image_shape), pairs)
    if any("elbo" in record for record in records):
        drawn = figures.draw_training_curves(figures.training_curves_table(records), name=title)
        save("Course of training:      ", drawn, curves)
    else:
        warnings.warn(
            f"{run.metrics_path} holds no training ELBO: the course of training is not drawn.", stacklevel=2
        )
    return 0


def _samples(
    asked: AskedRun, loaded: LoadedRun, dataset: DataSplits, paths: list[Path], shown: Shown
) -> EvolutionTable | Tensor:
    """Images along a few chains; for a table draws of x, of as many chains as there are and memory holds.

    What cannot be written, or does not fit the memory, is found before the chains move.
    """
    from discrete_vae import figures
    from discrete_vae.commands.device import say_device
    from discrete_vae.figures.evolution import DEFAULT_CHAINS
    from discrete_vae.figures.pixels import check_grid

    num_rows, num_features, num_chains = shown.num_rows, dataset.num_features, shown.num_chains
    if dataset.image_shape is None:
        chains = _chains(loaded, shown, _FRESH_TABLE_CHAINS)
        room = max(1, _MAX_VALUES // (num_rows * num_features))
        num_chains = num_chains or min(chains.num_chains, room)
        check_memory("--num-rows", 4 * num_rows * num_chains * num_features, "Ask for fewer rows or chains.")
    else:
        shape = (num_rows, num_chains or DEFAULT_CHAINS, shown.num_draws, num_features)
        check_grid(shape, dataset.image_shape)
        chains = _chains(loaded, shown, DEFAULT_CHAINS)
    if num_chains is not None and num_chains > chains.num_chains:
        rule = f"must be at most {chains.num_chains}, the number of chains"
        raise InvalidInputError("--num-chains", rule, num_chains, "Leave it out, or add --start fresh.")
    for path in paths:
        check_writable(path, repair="Give another place for the samples: --out FILE.png.")
    say_device(asked.device)
    burn_in = shown.burn_in
    if burn_in is None:
        burn_in = _FRESH_SWEEPS if shown.start == "fresh" else 0
    if burn_in:
        chains.step(burn_in)
    sizes = {
        "num_rows": num_rows,
        "num_sweeps": shown.num_sweeps,
        "num_chains": num_chains,
        "seed": shown.seed,
    }
    if dataset.image_shape is None:
        return figures.generated_examples(loaded.model, chains, **sizes)
    return figures.evolution_table(loaded.model, chains, num_draws=shown.num_draws, **sizes)


def _chains(loaded: LoadedRun, shown: Shown, num_fresh: int) -> Sampler:
    """The chains of training, as many fresh ones, or those that start at the states of a file."""
    from discrete_vae.data.states import read_states
    from discrete_vae.samplers.block_gibbs import BlockGibbs

    if shown.start == "training":
        return loaded.chains
    prior, states = loaded.model.prior, None
    option, count, repair = "--num-chains", shown.num_chains or num_fresh, "Use fewer chains."
    if shown.start != "fresh":
        option, repair = "--start", "Give fewer chains."
        states = read_states(user_path(option, shown.start), prior.num_units, argument=option)
        count = len(states)
    check_memory(option, count * prior.num_units * _BYTES, repair)
    with allocating(option, repair):
        return BlockGibbs(prior, count, seed=shown.seed, start=states)


def _title(config: ExperimentConfig, dataset: DataSplits) -> str:
    """What was trained: the experiment, its data where they have another name, size and seed."""
    of = config.name if config.name == dataset.name else f"{config.name} on {dataset.name}"
    return f"{of}, size {config.size}, seed {config.seed}"
