"""dvae encode: codes of examples."""

from __future__ import annotations

import numpy as np

from discrete_vae.commands.options import one_of, option
from discrete_vae.commands.progress import examples_progress
from discrete_vae.commands.rows import AskedRows, headline, identity, say_written, takes_rows
from discrete_vae.commands.trained import EXPLAINED, AskedRun
from discrete_vae.commands.verbs import verb

_ARRAYS = ("bits", "probabilities", "zeta", "packed", "continuous")


@verb("encode", EXPLAINED, divides=True)
@takes_rows
@option(
    "--out FILE",
    "where the codes go: .npz holds all of bits, packed, probabilities, zeta and, where there are layers, continuous; "
    ".npy, .csv and .parquet one of them",
    required=True,
)
@option(
    "--what bits|probabilities|zeta|packed|continuous",
    "which of them a .npy, .csv or .parquet file holds; default: bits",
    one_of(*_ARRAYS),
    default="bits",
)
@option("--draw", "draw codes from the posterior; without it the most probable one, group after group")
@option(
    "--picture FILE", "a picture of what the units say of each label, or of each example: .png, .pdf or .svg"
)
def run_encode(
    asked: AskedRun, rows: AskedRows, seed: int | None, out: str, what: str, draw: bool, picture: str | None
) -> int:
    """Write the codes of examples; returns the exit status."""
    from discrete_vae.commands.device import say_device
    from discrete_vae.commands.pictures import PictureFile
    from discrete_vae.distributed import rank
    from discrete_vae.errors import InvalidInputError
    from discrete_vae.figures.codes import draw_codes
    from discrete_vae.inference.encode import encode_rows

    output, drawing = rows.output(asked, out), PictureFile.of(picture)
    loaded = asked.load()
    if what == "continuous" and loaded.model.hierarchy.num_layers == 0:
        raise InvalidInputError(
            "--what", "must be an array of this run, which has no layers", what, "Take zeta."
        )
    found = rows.read(asked, loaded)
    say_device(asked.device)
    with examples_progress(len(found), "encoding") as progress:
        codes = encode_rows(
            loaded.model, found.x, draw=draw, seed=seed or 0, numbers=found.index, report=progress
        )
    if rank() > 0:
        return 0
    print(headline(asked, loaded, found))
    num_units, active = codes.bits.shape[1], codes.bits.mean()
    distinct = len(np.unique(codes.packed, axis=0))
    print(f"{num_units} units, {100 * active:.0f} % of them on; {distinct} different codes")
    arrays = codes.arrays()
    chosen = arrays[what].reshape(len(found), -1)
    table = {f"{_word(what)}_{number}": column for number, column in enumerate(chosen.T)}
    assert output is not None
    say_written(output.write(identity(found) | arrays, array=arrays[what], columns=identity(found) | table))
    if drawing is not None:
        drawing.save(draw_codes(codes, found.labels), loaded)
    return 0


def _word(what: str) -> str:
    """What a column of an array is called."""
    return {"bits": "bit", "probabilities": "probability", "packed": "byte"}.get(what, what)
