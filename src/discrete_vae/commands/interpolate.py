"""dvae interpolate: paths between examples in the latents of a trained model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discrete_vae.commands.options import one_of, option, whole_number
from discrete_vae.commands.pictures import PictureFile
from discrete_vae.commands.progress import examples_progress
from discrete_vae.commands.rows import AskedRows, feature_columns, headline, say_written, takes_rows
from discrete_vae.commands.trained import EXPLAINED, AskedRun
from discrete_vae.commands.verbs import verb
from discrete_vae.errors import InvalidInputError

if TYPE_CHECKING:
    from discrete_vae.data.rows import Rows
    from discrete_vae.inference.interpolate import LatentPath, PathKind

_STREAM = 0x70616972


@verb("interpolate", EXPLAINED)
@takes_rows
@option(
    "--from I", "number of the example to start at, from 0; default: random pairs", whole_number(at_least=0)
)
@option("--to J", "number of the example to end at", whole_number(at_least=0))
@option("--num-pairs N", "random pairs; default: 8", whole_number())
@option(
    "--path flips|straight",
    "flips: from code to code by single bits, in an order that keeps the energy low (default); straight: evenly "
    "through the smoothed latents",
    one_of("flips", "straight"),
    default="flips",
)
@option(
    "--num-steps K",
    "steps of a straight path, and images of a picture; default: 11",
    whole_number(2),
    default="11",
)
@option("--out FILE", "a row per step: pair, step, flipped unit, energy, and x; .npz, .csv, ...")
@option("--picture FILE", "the paths, of a run of images: .png, .pdf or .svg")
def run_interpolate(
    asked: AskedRun,
    rows: AskedRows,
    seed: int | None,
    to: int | None,
    num_pairs: int | None,
    path: PathKind,
    num_steps: int,
    out: str | None,
    picture: str | None,
    **more: int | None,
) -> int:
    """Interpolate between examples; returns the exit status."""
    from discrete_vae.commands.device import say_device
    from discrete_vae.figures.latent_paths import draw_latent_paths
    from discrete_vae.inference.interpolate import interpolate

    start = more["from"]
    if (start is None) != (to is None) or (start is not None and num_pairs is not None):
        received = f"{start}, {to} and {num_pairs}".replace("None", "nothing")
        rule = "and --to must be given together, and without --num-pairs"
        raise InvalidInputError("--from", rule, received, "Give both, or neither.")
    output, drawing = rows.output(asked, out), PictureFile.of(picture)
    loaded = asked.load()
    if drawing is not None and len(loaded.model.event_shape) != 3:
        rule, repair = "needs a run of images", "Write a table: --out FILE.csv."
        raise InvalidInputError("--picture", rule, "one of a table", repair)
    found = rows.read(asked, loaded)
    pairs = _pairs(found, start, to, num_pairs or 8, seed or 0)
    say_device(asked.device)
    paths = []
    with examples_progress(len(pairs), "interpolating") as progress:
        for done, (first, last) in enumerate(pairs, start=1):
            ends = found.x[first : first + 1], found.x[last : last + 1]
            paths.append(interpolate(loaded.model, *ends, path=path, num_steps=num_steps))
            progress(done)
    print(headline(asked, loaded, found))
    numbers = [(int(found.index[first]), int(found.index[last])) for first, last in pairs]
    for (first, last), way in zip(numbers, paths, strict=True):
        print(f"{first} to {last}: {_shown(way, path)}")
    if output is not None:
        arrays, columns = _arrays(found, numbers, paths)
        say_written(output.write(arrays, array=arrays["x"], columns=columns))
    if drawing is not None:
        ends = [(found.x[first], found.x[last]) for first, last in pairs]
        drawing.save(draw_latent_paths(paths, ends, numbers, num_frames=num_steps), loaded)
    return 0


def _pairs(rows: Rows, start: int | None, end: int | None, count: int, seed: int) -> list[tuple[int, int]]:
    """Places of the pairs' examples."""
    from discrete_vae.data.fixed_draws import fixed_permutation

    if start is not None and end is not None:
        places = [np.flatnonzero(rows.index == number) for number in (start, end)]
        for option_name, number, place in zip(("--from", "--to"), (start, end), places, strict=True):
            if len(place) == 0:
                rule = f"must be the number of one of the {len(rows)} examples, from {rows.index[0]}"
                raise InvalidInputError(option_name, rule, number, f"The last one is {rows.index[-1]}.")
        return [(int(places[0][0]), int(places[1][0]))]
    if 2 * count > len(rows):
        rule = f"must be at most {len(rows) // 2} for {len(rows)} examples"
        raise InvalidInputError("--num-pairs", rule, count, "Give fewer, or a pair by --from and --to.")
    order = fixed_permutation(len(rows), seed, _STREAM)
    return [(int(a), int(b)) for a, b in order[: 2 * count].reshape(-1, 2)]


def _shown(way: LatentPath, path: str) -> str:
    differ = int((way.bits[0] != way.bits[-1]).sum())
    bits = f"{differ} bit{'s' * (differ != 1)} differ{'s' * (differ == 1)}"
    if path == "straight":
        return bits
    return (
        f"{bits}, energies {way.energy[0]:.1f} and {way.energy[-1]:.1f} nats at the ends, "
        f"{way.energy.max():.1f} at most on the way"
    )


def _arrays(
    rows: Rows, numbers: list[tuple[int, int]], paths: list[LatentPath]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What a .npz file holds, and what a table does."""
    steps = [len(way.energy) for way in paths]
    along = {
        "from": np.repeat([first for first, _ in numbers], steps),
        "to": np.repeat([last for _, last in numbers], steps),
        "step": np.concatenate([np.arange(count) for count in steps]),
        "flipped": np.concatenate([way.flipped for way in paths]),
        "energy": np.concatenate([way.energy for way in paths]),
    }
    means = np.concatenate([way.mean for way in paths])
    arrays = along | {"bits": np.concatenate([way.bits for way in paths]), "x": means}
    arrays["zeta"] = np.concatenate([way.zeta for way in paths])
    if paths[0].continuous.shape[1]:
        arrays["continuous"] = np.concatenate([way.continuous for way in paths])
    return arrays, along | feature_columns(rows, means)
