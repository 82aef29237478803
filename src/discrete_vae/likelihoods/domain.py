"""The check that data lie in the domain of a likelihood."""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.checks import extremes
from discrete_vae.domains import Domain
from discrete_vae.errors import InvalidInputError


def check_observed(x: Tensor, observed: Tensor | None) -> None:
    """Check that a mask of observed entries is a bool tensor of x's shape; None is none.

    Raises:
        InvalidInputError: If it is anything else.
    """
    if observed is None:
        return
    fits = isinstance(observed, Tensor) and observed.dtype == torch.bool and observed.shape == x.shape
    if fits and (observed.layout is not torch.strided or observed.device.type != x.device.type):
        received = f"layout {observed.layout} on {observed.device}"
        repair = "Make it with ~x.isnan(), or move it there."
        raise InvalidInputError(
            "observed", f"must be a dense tensor on {x.device}, as x is", received, repair
        )
    if not fits:
        received = (
            f"{observed.dtype} of shape {tuple(observed.shape)}"
            if isinstance(observed, Tensor)
            else f"a {type(observed).__name__}"
        )
        rule = f"must be a bool tensor of x's shape {tuple(x.shape)}"
        raise InvalidInputError("observed", rule, received, "True marks the entries that were observed.")


def check_values(x: Tensor, observed: Tensor | None, domain: Domain) -> None:
    """Check that every observed entry of x lies in the domain, where its values can be read.

    Args:
        x: Any shape.
        observed: Bool, of x's shape. None: every entry that is not NaN is observed.
        domain: Where the entries must lie.

    Raises:
        InvalidInputError: If an observed entry lies outside; names the first one's value.
    """
    ends = extremes(x)
    # one pass settles most batches; NaN compares as outside
    if ends is None or (not domain.whole and domain.contains(ends[0]) and domain.contains(ends[1])):
        return
    inside = domain.contains(x)
    if bool(inside.all()):
        return
    outside = ~inside & (~x.isnan() if observed is None else observed)
    if not bool(outside.any()):
        return
    value = x[outside][0].item()
    if value != value:
        repair = "Mark it as not observed, or fill it."
        raise InvalidInputError("x", "must hold no NaN where observed is True", "NaN", repair)
    raise InvalidInputError("x", domain.rule, f"a value of {value:g}", domain.repair(value))
