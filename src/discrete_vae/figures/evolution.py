"""Samples of a model along the Markov chains of its prior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from discrete_vae.figures.image_grid import GridText, draw_image_grid
from discrete_vae.figures.ink import Ink, ink_for
from discrete_vae.figures.prior_chains import check_prior_chains
from discrete_vae.figures.request import Drawing
from discrete_vae.model import DiscreteVAE
from discrete_vae.noise import keyed_generator
from discrete_vae.samplers.protocol import Sampler

if TYPE_CHECKING:
    from discrete_vae.figures.picture import Picture
    from discrete_vae.figures.request import FigureRequest

_STREAM = 0x65766F6C
DEFAULT_CHAINS = 5


@dataclass(frozen=True, eq=False)
class EvolutionTable:
    """Samples along chains.

    Attributes:
        means: E[x | zeta, h] of each draw, (row, chain, draw, feature).
        z: The chains' states, (row, chain, unit), in {0,1}; a row's draws share them.
        num_sweeps: Sweeps from one row to the next.
        varies: What the draws of a group differ in, in words.
    """

    means: Tensor
    z: Tensor
    num_sweeps: int
    varies: str = "their draw of ζ"

    def columns(self) -> dict[str, np.ndarray]:
        """A row per draw: its place in the picture, then its means, mean_0 and so on."""
        means = self.means.numpy()
        row, chain, draw = (index.ravel() for index in np.indices(means.shape[:3]))
        columns = {"row": row, "sweeps": row * self.num_sweeps, "chain": chain, "draw": draw}
        flat = means.reshape(len(row), -1)
        return columns | {f"mean_{feature}": flat[:, feature] for feature in range(flat.shape[1])}


@torch.no_grad()
def evolution_table(
    model: DiscreteVAE,
    chains: Sampler,
    *,
    num_rows: int = 20,
    num_sweeps: int = 100,
    num_draws: int = 5,
    num_chains: int | None = None,
    seed: int = 0,
) -> EvolutionTable:
    """Decode what the chains of a model's prior visit.

    For each row the chains take ``num_sweeps`` sweeps to a state z. The draws of that row share z and zeta and differ
    in their continuous layers; without such layers each takes a zeta of its own from r(zeta|z). Modes of the prior show
    as columns that keep their meaning over many rows, what the prior leaves to the layers below shows as differences
    inside a group.

    Source: Rolfe 2017, figure mnist-evolution and its three siblings.

    Args:
        model: The model; its networks use their running statistics.
        chains: Chains of the model's prior, which this call advances by ``num_rows * num_sweeps`` sweeps: fresh ones
            after as many sweeps as they need to forget their start, or those of training.
        num_rows: Rows.
        num_sweeps: Sweeps before each row.
        num_draws: Draws per state.
        num_chains: How many of the chains to show, from the first; None means five, or all where there are fewer.
        seed: Seed of zeta and of the continuous layers; the chains have their own.

    Returns:
        The table, on the CPU.

    Raises:
        InvalidInputError: If a number is not a positive integer, there are fewer chains than asked for, or the chains
            belong to another machine than the model's prior; the chains have not moved then.

    Examples:
        >>> from discrete_vae import BlockGibbs, DiscreteVAE
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> evolution_table(model, BlockGibbs(model.prior, 3, seed=0), num_rows=4).means.shape
        torch.Size([4, 3, 5, 6])
    """
    shown = min(DEFAULT_CHAINS, chains.num_chains) if num_chains is None else num_chains
    check_prior_chains(model, chains, shown, num_rows=num_rows, num_sweeps=num_sweeps, num_draws=num_draws)

    states, means = [], []
    for row in range(num_rows):
        z = chains.step(num_sweeps)[:shown]
        generator = keyed_generator(seed, _STREAM, row, device=z.device)
        # as in the paper, draws that differ in continuous layers share zeta too
        own = 1 if model.hierarchy.num_layers else num_draws
        zeta = model.smoothing.sample_zeta(z[:, None].expand(-1, own, -1), generator=generator)
        zeta = zeta.expand(-1, num_draws, -1)
        states.append(z.cpu())
        means.append(model.decode(zeta, generator=generator).flatten(2).cpu())
    varies = "their continuous layers" if model.hierarchy.num_layers else "their draw of ζ"
    return EvolutionTable(torch.stack(means), torch.stack(states), num_sweeps, varies)


def draw_evolution(
    table: EvolutionTable, image_shape: tuple[int, int] | None = None, *, ink: Ink | None = None
) -> Picture:
    """Draw samples along chains: time runs down, chains stand side by side.

    Args:
        table: What `evolution_table` returned.
        image_shape: (height, width) of an example, as a data set gives it; None draws strips.
        ink: The scale of gray, for example that of the data; None makes one for the means.

    Returns:
        The figure.

    Raises:
        InvalidInputError: If the image shape does not fit the examples.
    """
    num_rows, num_chains, num_draws, _ = table.means.shape
    kind = "strip" if image_shape is None else "image"
    ink = ink or ink_for(table.means.flatten(0, 2), per_feature=image_shape is None)
    caption = f"Samples along {num_chains} independent chain{'s' * (num_chains > 1)} of the prior"
    caption += f", {table.num_sweeps} sweeps from row to row. "
    if num_draws > 1:
        caption += f"The {num_draws} {kind}s of a group share the state z and differ in {table.varies}. "
    text = GridText(
        caption=caption
        + f"A{'n' * (kind == 'image')} {kind} is the mean of x given its latents; {ink.words}.",
        row_title="sweeps since the top row",
        row_labels=[f"{row * table.num_sweeps}" for row in range(num_rows)],
        group_labels=[f"chain {chain + 1}" for chain in range(num_chains)],
    )
    return draw_image_grid(ink(table.means), image_shape, text=text)


def make_evolution(request: FigureRequest, chains: Sampler | None = None, **sizes: int | None) -> Drawing:
    """The figure of a run.

    Args:
        request: Names the run.
        chains: Chains of its prior; None takes those of training, where they were left.
        sizes: Keywords of `evolution_table`.
    """
    run = request.run
    model, image_shape = run.loaded.model, run.recorded.image_shape
    table = evolution_table(model, chains or run.loaded.chains, seed=request.seed, **sizes)  # pyright: ignore[reportArgumentType]
    return Drawing(table, draw_evolution(table, image_shape, ink=run.ink), run.loaded.note)
