"""dvae reconstruct: examples as a trained model gives them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discrete_vae.commands.options import one_of, option, whole_number
from discrete_vae.commands.progress import examples_progress
from discrete_vae.commands.rows import AskedRows, headline, takes_rows, write_examples
from discrete_vae.commands.trained import EXPLAINED, AskedRun
from discrete_vae.commands.verbs import verb

if TYPE_CHECKING:
    from discrete_vae.generative import Statistic


@verb("reconstruct", EXPLAINED, divides=True)
@takes_rows
@option("--out FILE", "where they go: .npz, .npy, or a table with the features as columns, .csv or .parquet")
@option(
    "--statistic mean|mode|sample",
    "of p(x | latents): the mean (of bits the probabilities; default), the most probable values, or a draw",
    one_of("mean", "mode", "sample"),
    default="mean",
)
@option(
    "--num-draws K",
    "draws of the latents, over which means are averaged; default: 1",
    whole_number(),
    default="1",
)
@option("--code", "from the most probable code, as dvae encode gives it, and not from draws")
@option("--picture FILE", "examples and their reconstructions: .png, .pdf or .svg")
def run_reconstruct(
    asked: AskedRun,
    rows: AskedRows,
    seed: int | None,
    out: str | None,
    statistic: Statistic,
    num_draws: int,
    code: bool,
    picture: str | None,
) -> int:
    """Reconstruct examples; returns the exit status."""
    import torch

    from discrete_vae.commands.device import say_device
    from discrete_vae.commands.pictures import PictureFile
    from discrete_vae.data.dataset import picture_shape
    from discrete_vae.distributed import rank
    from discrete_vae.figures.reconstructions import ReconstructionTable, draw_reconstructions
    from discrete_vae.inference.guess_error import guess_error
    from discrete_vae.inference.reconstruct import check_reconstruction, reconstruct_rows

    check_reconstruction(statistic, num_draws, code, argument="--num-draws")
    output, drawing = rows.output(asked, out), PictureFile.of(picture)
    loaded = asked.load()
    found = rows.read(asked, loaded)
    say_device(asked.device)
    with examples_progress(len(found), "reconstructing") as progress:
        x = reconstruct_rows(
            loaded.model,
            found.x,
            statistic=statistic,
            num_draws=num_draws,
            code=code,
            seed=seed or 0,
            numbers=found.index,
            report=progress,
        )
    if rank() > 0:
        return 0
    print(headline(asked, loaded, found))
    kind = loaded.config.model.likelihood.kind
    if not bool(found.x.isnan().all()) and (kind, statistic) != ("categorical", "mean"):  # names have no mean
        print(f"Error: {guess_error(found.x.numpy(), x, is_share=kind in ('bernoulli', 'categorical'))}")
    write_examples(output, found, x, {"x": x})
    if drawing is not None:
        shown = np.arange(min(100, len(x))) * len(x) // min(100, len(x))
        means = torch.from_numpy(x.reshape(len(x), -1)[shown])
        table = ReconstructionTable(found.x[shown], means, torch.from_numpy(shown))
        drawing.save(draw_reconstructions(table, picture_shape(loaded.model.event_shape)), loaded)
    return 0
