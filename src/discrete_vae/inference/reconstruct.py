"""Examples as the model gives them back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from discrete_vae.checks import check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.generative import Statistic, check_statistic
from discrete_vae.inference.batches import Report, in_batches
from discrete_vae.inference.latents import drawn, most_probable, read_out
from discrete_vae.inference.row_noise import RowNoise
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.eval_mode import eval_mode

_STREAM = 0x72656373


def reconstruct_rows(
    model: DiscreteVAE,
    x: Tensor,
    *,
    statistic: Statistic = "mean",
    num_draws: int = 1,
    code: bool = False,
    seed: int = 0,
    numbers: Sequence[int] | np.ndarray | None = None,
    batch_size: int | None = None,
    report: Report | None = None,
) -> np.ndarray:
    """E[x | zeta, h] of each example for latents of its own, or another statistic of p(x | zeta, h).

    Args:
        model: The model.
        x: (row, feature) or (row, *event), in the likelihood's domain; NaN marks missing values, which are filled.
        statistic: "mean", "mode" or "sample", see `discrete_vae.DiscreteVAE.decode`.
        num_draws: Draws of the latents, over which means are averaged; 1 for a mode or a sample.
        code: Whether the latents are those of the most probable code, as `encode_rows` gives them, and not drawn.
        seed: Seed of the draws.
        numbers: As in `discrete_vae.inference.batches.in_batches`.
        batch_size: Likewise.
        report: Likewise.

    Returns:
        (row, *event) float32.

    Raises:
        InvalidInputError: If the model refuses x, there is no such statistic, several draws are to be averaged for
            another one than the mean or a code, or a result is not finite.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> reconstruct_rows(model, torch.eye(6), num_draws=3).shape
        (6, 6)
    """
    check_reconstruction(statistic, num_draws, code)
    with eval_mode(model) as model:

        def compute(batch: Tensor, rows: Sequence[int]) -> dict[str, Tensor]:
            features = model.read(*model._open(batch, None))
            total = torch.zeros(())
            for number in range(num_draws):
                noise = RowNoise(rows, seed, _STREAM, number)
                latents = most_probable(model, features) if code else drawn(model, features, noise)
                parameters = model.parameters_of(latents.decoder_input)
                total = total + read_out(model, parameters, statistic, list(rows), seed).float()
            return {"x": total / num_draws}

        return in_batches(model, x, compute, numbers=numbers, batch_size=batch_size, report=report)["x"]


def check_reconstruction(
    statistic: object, num_draws: int, code: bool, *, argument: str = "num_draws"
) -> None:
    """Check what of `reconstruct_rows` can be checked without a model.

    Raises:
        InvalidInputError: If there is no such statistic, or what is not a mean of draws is to be averaged.
    """
    check_statistic(statistic)
    if check_positive_int(argument, num_draws) > 1 and (statistic != "mean" or code):
        what = "a code, which is not drawn" if code else f"a {statistic}: those of several draws have no mean"
        raise InvalidInputError(argument, f"must be 1 for {what}", num_draws, "Leave it out.")
