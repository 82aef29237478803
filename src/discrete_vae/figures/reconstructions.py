"""Examples beside what the model makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from discrete_vae.checks import check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.image_grid import GridText, draw_image_grid
from discrete_vae.figures.ink import ink_for
from discrete_vae.figures.pixels import MAX_WIDTH, cell_shape
from discrete_vae.figures.request import Drawing
from discrete_vae.model import DiscreteVAE
from discrete_vae.noise import keyed_generator

if TYPE_CHECKING:
    from discrete_vae.figures.picture import Picture
    from discrete_vae.figures.request import FigureRequest

_STREAM = 0x7265636F
_DEFAULT_EXAMPLES = 100
_MAX_COLUMNS, _MIN_SCALE, _STRIP_ROWS = 20, 2, 20
_STRIPS = 20  # of a run, in one column, each with its label


@dataclass(frozen=True, eq=False)
class ReconstructionTable:
    """Examples and their reconstructions.

    Attributes:
        examples: (example, feature); NaN marks missing values.
        means: E[x | zeta] for one draw of zeta from the posterior of each example, (example, feature).
        indices: Where the examples stood in what they were taken from, (example,) int64.
    """

    examples: Tensor
    means: Tensor
    indices: Tensor

    def columns(self) -> dict[str, np.ndarray]:
        """A row per example: its index, its values x_0 and so on, and their means mean_0 and so on."""
        columns = {"index": self.indices.numpy()}
        for name, values in (("x", self.examples.numpy()), ("mean", self.means.numpy())):
            columns |= {f"{name}_{feature}": values[:, feature] for feature in range(values.shape[1])}
        return columns


def reconstructions_table(
    model: DiscreteVAE, x: Tensor, *, num_examples: int | None = None, seed: int = 0
) -> ReconstructionTable:
    """Encode examples and decode them again.

    Args:
        model: The model; its networks use their running statistics.
        x: (example, feature) or (example, *event), for example the test part of a data set.
        num_examples: How many of them to take, evenly spaced, so that sorted data show all of their kinds;
            None means 100, or all where there are fewer.
        seed: Seed of the posterior's noise.

    Returns:
        The table, on the CPU.

    Raises:
        InvalidInputError: If x breaks the rules of `DiscreteVAE.encode`, or holds fewer examples than asked for.

    Examples:
        >>> from discrete_vae import DiscreteVAE
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> reconstructions_table(model, torch.zeros(50, 6), num_examples=5).indices
        tensor([ 0, 10, 20, 30, 40])
    """
    count = min(_DEFAULT_EXAMPLES, len(x)) if num_examples is None else num_examples
    if check_positive_int("num_examples", count) > len(x):
        rule = f"must be at most {len(x)}, the number of examples in x"
        raise InvalidInputError("num_examples", rule, count, "Ask for fewer, or give more.")
    indices = torch.arange(count) * len(x) // count
    examples = x[indices.to(x.device)]
    means = model.reconstruct(examples, generator=keyed_generator(seed, _STREAM, device=x.device))
    return ReconstructionTable(examples.flatten(1).cpu(), means.flatten(1).cpu(), indices)


def draw_reconstructions(table: ReconstructionTable, image_shape: tuple[int, int] | None = None) -> Picture:
    """Draw pairs: each example with its reconstruction below it.

    Args:
        table: What `reconstructions_table` returned.
        image_shape: (height, width) of an example, as a data set gives it; None draws strips.

    Returns:
        The figure.

    Raises:
        InvalidInputError: If the image shape does not fit the examples.
    """
    num_examples, num_features = table.examples.shape
    _, width = cell_shape(num_features, image_shape)
    # Strips are flat and wide: they fill rows of the grid before columns.
    wanted = -(-num_examples // _STRIP_ROWS) if image_shape is None else num_examples
    columns = min(_MAX_COLUMNS, wanted, max(1, MAX_WIDTH // (_MIN_SCALE * width)))
    num_rows = -(-num_examples // columns)
    ink = ink_for(table.examples, per_feature=image_shape is None)
    pairs = torch.stack([ink(table.examples), ink(table.means.to(table.examples.dtype))], 1)
    empty = pairs.new_full((num_rows * columns - num_examples, 2, num_features), torch.nan)
    grid = torch.cat([pairs, empty]).reshape(num_rows, columns, 2, num_features)
    gaps = " Tinted places of an input are missing values." if bool(table.examples.isnan().any()) else ""
    kind = "strip" if image_shape is None else "image"
    text = GridText(
        caption=f"Examples and their reconstructions: the upper {kind} of a pair is the input x, the lower one the "
        f"mean E[x | ζ] for one ζ drawn from its posterior; {ink.words}.{gaps}",
        row_labels=["input", "reconstruction"] * num_rows,
    )
    return draw_image_grid(grid, image_shape, text=text, stacked=True)


def make_reconstructions(request: FigureRequest) -> Drawing:
    """The figure of a run: test examples, as many as fit a picture."""
    run = request.run
    model, dataset = run.loaded.model, run.dataset
    shown = min(_STRIPS, len(dataset.test)) if dataset.image_shape is None else None
    x = dataset.test.to(model.prior.bias.device)
    table = reconstructions_table(model, x, num_examples=shown, seed=request.seed)
    return Drawing(table, draw_reconstructions(table, dataset.image_shape), run.loaded.note)
