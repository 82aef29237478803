"""What the decoder makes of a flip of each binary unit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.checks import check_examples, check_tensor
from discrete_vae.model import DiscreteVAE
from discrete_vae.noise import keyed_generator
from discrete_vae.records import ShowsShapes

_CODES, _FLIPS, _LAYERS = 0x666C6970, 0x666C7A65, 0x666C6C61


@dataclass(frozen=True, eq=False, repr=False)
class FlipEffects(ShowsShapes):
    """What switching each unit on changes in the mean of x, over the codes of examples.

    Attributes:
        change: Mean over codes of E[x | unit on] - E[x | unit off], (unit, feature) float64.
        std_error: Its standard error over codes, (unit, feature) float64; NaN of one code.
        size: Mean over codes of the sum over features of the absolute change, (unit,) float64.
        size_std_error: Its standard error over codes, (unit,) float64; NaN of one code.
        num_codes: Codes.
    """

    change: Tensor
    std_error: Tensor
    size: Tensor
    size_std_error: Tensor
    num_codes: int

    @property
    def order(self) -> list[int]:
        """Units, those with the largest size first."""
        return self.size.argsort(descending=True, stable=True).tolist()


@torch.no_grad()
def flip_effects(
    model: DiscreteVAE,
    x: Tensor,
    *,
    scale: Tensor | None = None,
    seed: int = 0,
    report: Callable[[int], None] | None = None,
) -> FlipEffects:
    """Flip each unit in the codes of examples and decode.

    A code is a draw of z and zeta from the posterior of an example. Of a flipped unit zeta is drawn anew from
    r(zeta|z), the other units keep theirs. Gaussian layers follow: they are drawn from p(h | zeta), with the same noise
    before and after the flip, so that their part of the change is the flip's and not the noise's.

    Args:
        model: The model; its networks use their running statistics.
        x: (example, feature) or in the event's shape; some hundred examples suffice.
        scale: What counts as a change of 1, (feature,), positive; None is 1. The standard deviations of real features,
            for example.
        seed: Seed of all noise.
        report: Called after each unit with the number done.

    Returns:
        The effects, in units of `scale`.

    Raises:
        InvalidInputError: If `DiscreteVAE.encode` refuses x, or scale has another shape.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> effects = flip_effects(model, torch.zeros(50, 6))
        >>> effects.change.shape, len(effects.order)
        (torch.Size([4, 6]), 4)
    """
    device, num_codes = check_examples("x", x).device, len(x)
    unit = torch.ones(model.likelihood.num_features, dtype=torch.float64, device=device)
    if scale is not None:
        unit = check_tensor("scale", scale, (model.likelihood.num_features,)).to(unit)
    code = model.encode(x, generator=keyed_generator(seed, _CODES, device=device))

    def decoded(zeta: Tensor) -> Tensor:
        layers = keyed_generator(seed, _LAYERS, device=device)
        return model.decode(zeta, generator=layers).flatten(1).double() / unit

    before = decoded(code.zeta)
    rows = []
    for index in range(model.prior.num_units):
        z = code.z.clone()
        z[:, index] = 1 - z[:, index]
        drawn = model.smoothing.sample_zeta(z, generator=keyed_generator(seed, _FLIPS, index, device=device))
        zeta = code.zeta.clone()
        zeta[:, index] = drawn[:, index]
        change = (decoded(zeta) - before) * (2 * z[:, index, None].double() - 1)
        size = change.abs().sum(1)
        rows.append((change.mean(0), _std_error(change), size.mean(), _std_error(size)))
        if report is not None:
            report(index + 1)
    change, error, size, size_error = (torch.stack(list(part)).cpu() for part in zip(*rows, strict=True))
    return FlipEffects(change, error, size, size_error, num_codes)


def _std_error(values: Tensor) -> Tensor:
    """Of the mean over the first axis; NaN where there is one value alone."""
    if len(values) < 2:
        return torch.full_like(values[0], math.nan)
    return values.std(0) / math.sqrt(len(values))
