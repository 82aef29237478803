"""Examples freed of noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from discrete_vae.checks import check_number, check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.inference.batches import Report, in_batches
from discrete_vae.inference.latents import drawn
from discrete_vae.inference.row_noise import RowNoise
from discrete_vae.likelihoods.bernoulli import BernoulliLikelihood
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.eval_mode import eval_mode
from discrete_vae.noise import open_uniform

_STREAM, _FLIPS = 0x64656E6F, 0x666C6970
_REPAIR = "Give the share of bits that are flipped, 0.1 say."


def flip_bits(x: Tensor, share: float, *, seed: int = 0, numbers: Sequence[int] | None = None) -> Tensor:
    """Flip each bit with a probability; missing values stay missing.

    Args:
        x: (row, feature), bits.
        share: The probability, from 0 to 1/2.
        seed: Seed of the noise.
        numbers: Numbers of the rows, which key it; None means from 0.

    Raises:
        InvalidInputError: If the probability is none.

    Examples:
        >>> flip_bits(torch.zeros(1, 5), 0.0)
        tensor([[0., 0., 0., 0., 0.]])
    """
    check_number("share", share, at_least=0.0, at_most=0.5, repair=_REPAIR)
    rows = range(len(x)) if numbers is None else [int(number) for number in numbers]
    noise = RowNoise(rows, seed, _FLIPS)
    flipped = open_uniform(x, generator=noise) < share  # pyright: ignore[reportArgumentType]
    return torch.where(flipped, 1 - x, x)


def denoise_rows(
    model: DiscreteVAE,
    x: Tensor,
    *,
    noise: float | None = None,
    num_draws: int = 20,
    seed: int = 0,
    numbers: Sequence[int] | np.ndarray | None = None,
    batch_size: int | None = None,
    report: Report | None = None,
) -> np.ndarray:
    """The mean of clean examples given noisy ones.

    Without a probability of flips it is E[x | zeta, h], averaged over draws of the latents from the posterior of the
    noisy example: the reconstruction, which is the cleaner the less the posterior heeds the noise.

    With one it is Bayes' rule for bits y_i = x_i that were each flipped with probability f. Draws are weighted by
    p(y | zeta, h) p(z, h | zeta) / q(z, h | zeta, y), where p(y_i | zeta, h) has the flips in it, and each gives
    E[x_i | y_i, zeta, h]: what the latents say of a bit, and what was seen of it, each by its reliability.

    Args:
        model: The model.
        x: Noisy examples, (row, feature) or (row, *event), in the likelihood's domain; NaN marks missing values.
        noise: Probability f that a bit is flipped, above 0 and at most 1/2; None does not know it.
        num_draws: Draws of the latents per example.
        seed: Seed of the draws.
        numbers: As in `discrete_vae.inference.batches.in_batches`.
        batch_size: Likewise.
        report: Likewise.

    Returns:
        (row, *event) float32.

    Raises:
        InvalidInputError: If the model refuses x or a number breaks its rule; if noise is given for a model of other
            values than bits.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> denoise_rows(model, torch.eye(6), noise=0.1).shape
        (6, 6)
    """
    check_positive_int("num_draws", num_draws)
    if noise is not None:
        check_flips(model, noise)
    with eval_mode(model) as model:

        def compute(batch: Tensor, rows: Sequence[int]) -> dict[str, Tensor]:
            opened, observed = model._open(batch, None, exact=noise is not None)
            features = model.read(opened, observed)
            means, weights = [], []
            for number in range(num_draws):
                latents = drawn(model, features, RowNoise(rows, seed, _STREAM, number))
                mean = model.likelihood.mean(model.parameters_of(latents.decoder_input))
                weight = torch.zeros(len(opened), dtype=torch.float64, device=opened.device)
                if noise is not None:
                    mean, of_noisy = _clean(mean, opened, observed, noise)
                    of_latents = latents.log_ratio - model.prior.compute_energy(latents.z)
                    weight = of_noisy.double() + of_latents.double()
                means.append(model._finite("the decoder's mean", mean).float())
                weights.append(weight)
            shares = torch.stack(weights).softmax(0).float()
            shares = shares.reshape(*shares.shape, *[1] * len(model.event_shape))
            return {"x": (shares * torch.stack(means)).sum(0)}

        return in_batches(model, x, compute, numbers=numbers, batch_size=batch_size, report=report)["x"]


def check_flips(model: DiscreteVAE, share: float, *, argument: str = "noise") -> None:
    """Check the probability of flips for a model.

    Raises:
        InvalidInputError: If it is none, or the model is one of other values than bits.
    """
    check_number(argument, share, above=0.0, at_most=0.5, repair=_REPAIR)
    if not isinstance(model.likelihood, BernoulliLikelihood):
        rule = "must be left out for a model of other values than bits"
        raise InvalidInputError(argument, rule, f"{share:g}", "Give noisy examples alone.")


def _clean(mean: Tensor, y: Tensor, observed: Tensor | None, flips: float) -> tuple[Tensor, Tensor]:
    """E[x_i | y_i, zeta, h] and log p(y | zeta, h) over the observed bits."""
    seen = y if observed is None else torch.where(observed, y, 0.0)
    if_one = torch.where(seen == 1, 1 - flips, flips)  # p(y_i | x_i = 1)
    of_bit = mean * if_one + (1 - mean) * (1 - if_one)
    cleaned, logs = mean * if_one / of_bit, of_bit.log()
    if observed is not None:
        cleaned, logs = torch.where(observed, cleaned, mean), logs.masked_fill(~observed, 0.0)
    return cleaned, logs.flatten(1).sum(1)
