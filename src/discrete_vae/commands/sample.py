"""dvae sample: pictures of what a trained model generates."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discrete_vae.commands.options import data_dir_option, option, whole_number
from discrete_vae.commands.trained import EXPLAINED, AskedRun, takes_run
from discrete_vae.commands.verbs import verb
from discrete_vae.errors import InvalidInputError
from discrete_vae.memory import allocating, check_memory
from discrete_vae.paths import user_path
from discrete_vae.runs.writable import check_writable

if TYPE_CHECKING:
    from discrete_vae.figures import Drawing, FigureRequest, FigureRun
    from discrete_vae.samplers.protocol import Sampler
    from discrete_vae.training.load import LoadedRun

_STARTS = ("training", "fresh")
_PICTURES = ("samples.png", "reconstructions.png", "training.png")
_FRESH_TABLE_CHAINS, _FRESH_SWEEPS = 200, 10_000
_BYTES = 16  # per unit, while chains are made


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


def _start(name: str, word: str) -> str:
    """Read where chains start; what is neither a word nor a file may be a word misspelt.

    Raises:
        InvalidInputError: If it is none of them.
    """
    if word in _STARTS or word.endswith(".npy") or user_path(name, word).exists():
        return word
    close = get_close_matches(word, _STARTS, n=1)
    repair = f"Did you mean {close[0]}?" if close else "Leave it out for where training left them."
    raise InvalidInputError(name, "must be training, fresh or a .npy file", repr(word)[:80], repair)


@verb("sample", EXPLAINED)
@takes_run
@option(
    "--out FILE",
    "write the samples alone to this .png, .pdf or .svg, which takes no data where they are images; default: all to "
    "RUN/figures, with --pretrained the samples alone to NAME-samples.png here",
)
@option(
    "--start training|fresh|FILE.npy",
    "where the chains start: where training left them (default), at random, or at states (chain, unit)",
    _start,
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
    from discrete_vae import figures
    from discrete_vae.figures.reconstructions import make_reconstructions
    from discrete_vae.figures.saving import picture_file
    from discrete_vae.figures.training_curves import make_training_curves

    run, shown = asked.directory, Shown(seed=seed or 0, **numbers)
    place = None if out is None else picture_file(out, argument="--out").path
    if place is None and asked.pretrained is not None:
        place = asked.place(run.figures_path / _PICTURES[0])
    source = figures.FigureRun(run, asked.load, data_dir=data_dir)
    request = figures.FigureRequest(runs=(source,), seed=shown.seed)
    is_table = source.recorded.image_shape is None
    if place is None or is_table:  # what is missing, or damaged, is found before all drawing
        _read_data(source, is_table)
    records = run.metrics().read() if place is None else []
    samples, pairs, curves = (
        asked.place(run.figures_path / name) if place is None else place for name in _PICTURES
    )
    drawing = _samples(asked, request, [samples, pairs, curves], shown)

    def save(what: str, drawing: Drawing, path: Path) -> None:
        print(f"{what} {figures.save_figure(drawing.picture, path, note=request.run.loaded.note)}")

    save("Samples against the data:" if is_table else "Samples along the chains:", drawing, samples)
    if place is not None:
        return 0
    save("Reconstructions:         ", make_reconstructions(request), pairs)
    if any("elbo" in record for record in records):
        save("Course of training:      ", make_training_curves(request), curves)
    else:
        warnings.warn(
            f"{run.metrics_path} holds no training ELBO: the course of training is not drawn.", stacklevel=2
        )
    return 0


def _read_data(source: FigureRun, is_table: bool) -> None:
    """Read what samples of a table are compared with, and what is reconstructed.

    Raises:
        InvalidInputError: If the data are missing or damaged; says what takes none.
    """
    try:
        source.dataset  # noqa: B018 (kept there)
    except InvalidInputError as error:
        if is_table:
            raise
        repair = f"{error.repair} Samples alone take no data: --out FILE.png."
        raise InvalidInputError(error.argument, error.rule, error.received, repair) from None


def _samples(asked: AskedRun, request: FigureRequest, paths: list[Path], shown: Shown) -> Drawing:
    """Images along a few chains; of a table draws of x, of as many chains as there are and memory holds.

    What cannot be written, or does not fit the memory, is found before the chains move.
    """
    from discrete_vae.commands.device import say_device
    from discrete_vae.figures.evolution import DEFAULT_CHAINS, make_evolution
    from discrete_vae.figures.feature_statistics import make_feature_statistics
    from discrete_vae.figures.generated import num_chains_that_fit
    from discrete_vae.figures.pixels import check_grid

    loaded, recorded = request.run.loaded, request.run.recorded
    num_rows, num_features, num_chains = shown.num_rows, recorded.num_features, shown.num_chains
    if recorded.image_shape is None:
        chains = _chains(loaded, shown, _FRESH_TABLE_CHAINS)
        num_chains = num_chains or num_chains_that_fit(chains.num_chains, num_features, num_rows)
        check_memory("--num-rows", 4 * num_rows * num_chains * num_features, "Ask for fewer rows or chains.")
    else:
        shape = (num_rows, num_chains or DEFAULT_CHAINS, shown.num_draws, num_features)
        check_grid(shape, recorded.image_shape)
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
    sizes: dict[str, Any] = {"num_rows": num_rows, "num_sweeps": shown.num_sweeps, "num_chains": num_chains}
    if recorded.image_shape is None:
        return make_feature_statistics(request, chains, **sizes)
    return make_evolution(request, chains, num_draws=shown.num_draws, **sizes)


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
