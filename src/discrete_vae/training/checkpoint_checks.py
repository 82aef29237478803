"""Checks of what a checkpoint holds, beside weights, against the model and the chains that it is for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from discrete_vae.checks import check_number
from discrete_vae.errors import InvalidInputError
from discrete_vae.nets.saved_weights import OTHER_MODEL, check_like, check_weights, described
from discrete_vae.training.averaging import RAW_PREFIX

MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def check_moments(
    parameters: Iterable[tuple[str, nn.Parameter]], tensors: Mapping[str, Tensor], *, step: int
) -> None:
    """Check Adam's moments: all three for each trained parameter, none before the first step.

    The optimizer's fused kernel trusts their sizes and would write beyond the end of smaller ones.

    Raises:
        InvalidInputError: If one is missing or foreign, has another shape or type, or is not finite.
    """
    wanted: dict[str, Tensor] = {}
    for name, parameter in parameters:
        if step > 0 and parameter.requires_grad:
            for moment in MOMENTS:
                like = torch.zeros(()) if moment == "step" else parameter
                wanted[f"optimizer/{name}/{moment}"] = like
    saved = {name: value for name, value in tensors.items() if name.startswith("optimizer/")}
    for name in sorted(wanted.keys() | saved.keys()):
        check_like(name, saved.get(name), wanted.get(name))
        if not bool(saved[name].isfinite().all()):
            raise InvalidInputError(name, "must be finite", "NaN or an infinity", OTHER_MODEL)


def check_raw_weights(model: nn.Module, tensors: Mapping[str, Tensor], *, averaged: bool) -> None:
    """Check the weights that train where the saved model is their average, and that there are none where it is not.

    Raises:
        InvalidInputError: If one is missing or foreign, has another shape or type, or is not finite.
    """
    if averaged:
        check_weights(model, tensors, prefix=RAW_PREFIX)
    elif foreign := sorted(name for name in tensors if name.startswith(RAW_PREFIX)):
        repair = "The run was trained with averaged weights: put training.averaging.decay back."
        raise InvalidInputError(foreign[0], "must not be there", described(tensors[foreign[0]]), repair)


def check_step(meta: Mapping[str, Any]) -> int:
    """Check the number of steps done.

    Raises:
        InvalidInputError: If it is none.
    """
    step = meta.get("step")
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < 2**63:
        raise InvalidInputError("step", "must be a whole number of at least 0", f"{step!r}"[:80], OTHER_MODEL)
    return step


def check_log_partition(meta: Mapping[str, Any]) -> tuple[float, float]:
    """Check log Z and its standard error.

    Raises:
        InvalidInputError: If they are no finite numbers, or the error is negative.
    """
    value, error = meta.get("log_partition"), meta.get("log_partition_std_error")
    return (
        check_number("log_partition", value, repair=OTHER_MODEL),
        check_number("log_partition_std_error", error, at_least=0, repair=OTHER_MODEL),
    )
