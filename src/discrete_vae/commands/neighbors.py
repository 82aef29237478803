"""dvae neighbors: examples with the nearest codes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from discrete_vae.commands.options import option, whole_number
from discrete_vae.commands.progress import examples_progress
from discrete_vae.commands.rows import AskedRows, headline, identity, say_written, takes_rows
from discrete_vae.commands.trained import EXPLAINED, AskedRun
from discrete_vae.commands.verbs import verb
from discrete_vae.errors import InvalidInputError

_PARTS = ("train", "valid", "test")


@verb(
    "neighbors",
    f"{EXPLAINED} Codes are the most probable ones of the posterior; the search is exact, and of codes equally far "
    "the one with the lower index comes first.",
    divides=True,
)
@takes_rows
@option(
    "--among FILE|train|valid|test",
    "examples that are searched: a file, or a part of the run's own data; default: train",
    default="train",
)
@option("-k K", "neighbors of each example; default: 10", whole_number(), default="10")
@option(
    "--others", "leave out the example of the same number, where --data and --among are the same examples"
)
@option(
    "--out FILE",
    "where they go: .npz holds neighbors and distances, .csv and .parquet a column for each, .npy the neighbors",
    required=True,
)
@option("--picture FILE", "the first examples beside their neighbors: .png, .pdf or .svg")
def run_neighbors(
    asked: AskedRun,
    rows: AskedRows,
    seed: int | None,
    among: str,
    k: int,
    others: bool,
    out: str,
    picture: str | None,
) -> int:
    """Find neighbors; returns the exit status."""
    from discrete_vae.commands.device import say_device
    from discrete_vae.commands.pictures import PictureFile
    from discrete_vae.distributed import rank
    from discrete_vae.inference.encode import encode_rows
    from discrete_vae.inference.neighbors import nearest_codes

    searched = replace(
        rows,
        data=None if among in _PARTS else among,
        part=among if among in _PARTS else None,
        label_column=rows.label_column if among not in _PARTS else None,
        num_examples=None,
        argument="--among",
    )
    output, drawing = rows.output(asked, out, among=among), PictureFile.of(picture)
    loaded = asked.load()
    queries, pool = rows.read(asked, loaded), searched.read(asked, loaded)
    most = len(pool) - others
    if k > most:
        raise InvalidInputError("-k", f"must be at most {most}, the examples searched", k, "Ask for fewer.")
    say_device(asked.device)
    codes = {}
    for name, examples, what in (("own", queries, "encoding"), ("pool", pool, "encoding those searched")):
        with examples_progress(len(examples), what) as progress:
            found = encode_rows(loaded.model, examples.x, numbers=examples.index, report=progress)
        codes[name] = found.packed
    if rank() > 0:
        return 0
    own = queries.index if others else None
    with examples_progress(len(pool), "searching") as progress:
        nearest = nearest_codes(codes["own"], codes["pool"], k, excluded=own, report=progress)
    print(headline(asked, loaded, queries))
    print(
        f"searched: {pool.name.rstrip(',')}, {len(pool)} examples; units that differ from the nearest: "
        f"median {np.median(nearest.distances[:, 0]):g}, from the last of {k}: {np.median(nearest.distances[:, -1]):g}"
    )
    if (same := _same_labels(queries.labels, pool.labels, nearest.indices)) is not None:
        print(f"{100 * same.mean():.1f} % of the neighbors have the label of their example")
    assert output is not None
    table = {f"neighbor_{place + 1}": column for place, column in enumerate(nearest.indices.T)}
    table |= {f"distance_{place + 1}": column for place, column in enumerate(nearest.distances.T)}
    arrays = {"neighbors": nearest.indices, "distances": nearest.distances}
    say_written(
        output.write(identity(queries) | arrays, array=nearest.indices, columns=identity(queries) | table)
    )
    if drawing is not None:
        from discrete_vae.figures.neighbors import draw_neighbors

        shape = loaded.model.event_shape
        image_shape = (shape[0] * shape[1], shape[2]) if len(shape) == 3 else None
        drawing.save(draw_neighbors(queries.x, pool.x, nearest, image_shape), loaded)
    return 0


def _same_labels(
    own: np.ndarray | None, of_pool: np.ndarray | None, neighbors: np.ndarray
) -> np.ndarray | None:
    """Which neighbors have their example's label, (row, neighbor); None where labels cannot be compared."""
    if own is None or of_pool is None or own.ndim != 1 or of_pool.ndim != 1:
        return None
    if (own.dtype.kind == "U") != (of_pool.dtype.kind == "U"):  # words, and numbers
        return None
    return of_pool[neighbors] == own[:, None]
