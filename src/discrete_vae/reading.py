"""What stands between x and the features that the posterior reads."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from discrete_vae.checks import check_tensor, extremes
from discrete_vae.config.model import Mask
from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.base import Likelihood
from discrete_vae.nets.eval_mode import eval_mode


def open_batch(
    x: object,
    observed: Tensor | None,
    likelihood: Likelihood,
    *,
    like: Tensor,
    missing: bool,
    exact: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Check a batch at the public door.

    Args:
        x: (batch, *event) or (batch, feature).
        observed: Bool, of x's shape; None: NaN says what is unobserved.
        likelihood: Whose x it is.
        like: A tensor on the model's device.
        missing: Whether entries may be unobserved.
        exact: As in `Likelihood.check`.

    Returns:
        x in the event's shape, and the mask of observed entries as `Likelihood.observed_mask` gives it.

    Raises:
        InvalidInputError: If the likelihood refuses x, or observed is given or NaN occur where nothing may be missing.
    """
    shape = likelihood.event_shape
    rows = isinstance(x, Tensor) and x.layout == torch.strided and x.dim() == 2  # others are refused below
    if isinstance(x, Tensor) and rows and x.shape[1] == math.prod(shape):
        flat = isinstance(observed, Tensor) and observed.layout == torch.strided and observed.shape == x.shape
        x = x.reshape(-1, *shape)
        observed = observed.reshape(x.shape) if flat and observed is not None else observed
    batch = check_tensor("x", x, ("batch", *shape))
    if batch.device.type != like.device.type:
        repair = f"Move it with x.to({str(like.device)!r})."
        raise InvalidInputError("x", f"must be on the model's device, {like.device}", batch.device, repair)
    likelihood.check(batch, observed, exact=exact)
    if not missing and (observed is not None or _has_nan(batch)):
        repair = "Build the model with missing=True: its encoder then reads which entries are observed."
        raise InvalidInputError("x", "must have no unobserved entries", "some", repair)
    return batch, likelihood.observed_mask(batch, observed, missing=missing)


def _has_nan(x: Tensor) -> bool:
    """Whether an entry is NaN, as far as values can be looked at."""
    ends = extremes(x)
    return ends is not None and ends[0] != ends[0]


def input_shape(likelihood: Likelihood, *, missing: bool) -> tuple[int, ...]:
    """Shape of what the encoder reads of one example: with missing entries a mask behind the values."""
    first, *rest = likelihood.input_shape
    return (first + likelihood.event_shape[0] if missing else first, *rest)


def network_input(
    likelihood: Likelihood, x: Tensor, observed: Tensor | None, *, missing: bool, mask: Mask = "gaps"
) -> Tensor:
    """What the encoder reads of an opened batch, (batch, *input_shape)."""
    read = likelihood.network_input(x, observed)
    if not missing:
        return read
    whole = torch.zeros_like(x) if mask == "gaps" else torch.ones_like(x)
    if observed is None:
        return torch.cat([read, whole], dim=1)
    return torch.cat([read, (~observed if mask == "gaps" else observed).to(x.dtype)], dim=1)


def count_features(encoder: nn.Module, shape: tuple[int, ...]) -> int:
    """Features that an encoder makes: its attribute num_features, or what it gives for one example.

    Args:
        encoder: The module.
        shape: Shape of what it reads of one example.
    """
    known = getattr(encoder, "num_features", None)
    if isinstance(known, int):
        return known
    weight = next(encoder.parameters(), torch.zeros(()))
    with torch.no_grad(), eval_mode(encoder) as still:
        return still(torch.zeros(1, *shape, dtype=weight.dtype, device=weight.device)).shape[-1]
