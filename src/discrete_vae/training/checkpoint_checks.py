"""Checks of what a checkpoint holds against the model and the chains that it is for, before anything uses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from discrete_vae.checks import check_number
from discrete_vae.errors import InvalidInputError
from discrete_vae.samplers.protocol import Sampler

MOMENTS = ("exp_avg", "exp_avg_sq", "step")
_REPAIR = "It belongs to another model: check config.json."


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Put a checkpoint's name before the arguments that errors name.

    Examples:
        >>> with naming("runs/digits/checkpoints/step-10"):
        ...     check_step({"step": -1})
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: runs/digits/checkpoints/step-10: step must be a whole number ...
    """
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{source}: {error.argument}", error.rule, error.received, error.repair
        ) from None


def check_weights(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Check that a checkpoint's weights have a model's names, shapes and types, and that all are finite.

    Raises:
        InvalidInputError: If they do not; names the first weight that does not.
    """
    wanted = model.state_dict()
    saved = {
        name.removeprefix("model/"): value for name, value in tensors.items() if name.startswith("model/")
    }
    for name in sorted(wanted.keys() | saved.keys()):
        _check_like(f"model/{name}", saved.get(name), wanted.get(name))
    for name, value in saved.items():
        finite = value.isfinite()
        if not bool(finite.all()):
            repair = "The file was changed by other means than training: restore it from a copy."
            received = f"a value of {float(value[~finite].flatten()[0])}"
            raise InvalidInputError(f"model/{name}", "must hold finite weights", received, repair)


def check_moments(model: nn.Module, tensors: Mapping[str, Tensor], *, step: int) -> None:
    """Check Adam's moments: all three for each trained parameter, none before the first step.

    The optimiser's fused kernel trusts their sizes and would write beyond the end of smaller ones.

    Raises:
        InvalidInputError: If one is missing or foreign, or has another shape or type.
    """
    wanted: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if step > 0 and parameter.requires_grad:
            for moment in MOMENTS:
                like = torch.zeros(()) if moment == "step" else parameter
                wanted[f"optimiser/{name}/{moment}"] = like
    saved = {name: value for name, value in tensors.items() if name.startswith("optimiser/")}
    for name in sorted(wanted.keys() | saved.keys()):
        _check_like(name, saved.get(name), wanted.get(name))


def check_chains(chains: Sampler, state: Mapping[str, Any]) -> None:
    """Check that a saved state of chains has the entries and types of a sampler's; it checks sizes itself.

    Raises:
        InvalidInputError: If it does not.
    """
    for name, fresh in chains.state_dict().items():
        value, argument = state.get(name), f"chains/{name}"
        if isinstance(fresh, Tensor):
            if not isinstance(value, Tensor) or value.dtype != fresh.dtype or value.ndim != fresh.ndim:
                rule = f"must be {fresh.dtype} with {fresh.ndim} axes"
                raise InvalidInputError(argument, rule, _described(value), _REPAIR)
        elif type(value) is not type(fresh):
            rule = f"must be a value of type {type(fresh).__name__}"
            raise InvalidInputError(argument, rule, f"{value!r}"[:80], _REPAIR)


def check_step(meta: Mapping[str, Any]) -> int:
    """Check the number of steps done.

    Raises:
        InvalidInputError: If it is none.
    """
    step = meta.get("step")
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < 2**63:
        raise InvalidInputError("step", "must be a whole number of at least 0", f"{step!r}"[:80], _REPAIR)
    return step


def check_log_partition(meta: Mapping[str, Any]) -> tuple[float, float]:
    """Check log Z and its standard error.

    Raises:
        InvalidInputError: If they are no finite numbers, or the error is negative.
    """
    value, error = meta.get("log_partition"), meta.get("log_partition_std_error")
    return (
        check_number("log_partition", value, repair=_REPAIR),
        check_number("log_partition_std_error", error, at_least=0, repair=_REPAIR),
    )


def _check_like(name: str, saved: Tensor | None, wanted: Tensor | None) -> None:
    if wanted is None:
        raise InvalidInputError(name, "must not be there", _described(saved), _REPAIR)
    if saved is None or saved.shape != wanted.shape or saved.dtype != wanted.dtype:
        raise InvalidInputError(name, f"must be {_described(wanted)}", _described(saved), _REPAIR)


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    return "no such tensor" if value is None else f"{value!r}"[:80]
