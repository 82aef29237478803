"""Weights out of a file: checked against the module that they are for before anything changes."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from discrete_vae.errors import InvalidInputError

OTHER_MODEL = "It belongs to another model: check config.json."


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], *, prefix: str = "") -> None:
    """Copy weights into a model.

    Args:
        model: What they are for.
        tensors: Its state by name; other names than those with the prefix are left alone.
        prefix: What stands before each name.

    Raises:
        InvalidInputError: If they belong to another model or one is not finite; nothing is changed.

    Examples:
        >>> import torch
        >>> layer = nn.Linear(1, 1, bias=False)
        >>> load_weights(layer, {"weight": torch.zeros(2, 1)})
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: weight must be float32 of shape (1, 1); received ...
    """
    check_weights(model, tensors, prefix=prefix)
    model.load_state_dict({name: tensors[f"{prefix}{name}"] for name in model.state_dict()})


def check_weights(model: nn.Module, tensors: Mapping[str, Tensor], *, prefix: str = "") -> None:
    """Check that saved weights have a model's names, shapes and types, and that all are finite.

    Raises:
        InvalidInputError: If they do not; names the first weight that does not.
    """
    wanted = {f"{prefix}{name}": value for name, value in model.state_dict().items()}
    saved = {name: value for name, value in tensors.items() if name.startswith(prefix)}
    for name in sorted(wanted.keys() | saved.keys()):
        check_like(name, saved.get(name), wanted.get(name))
    for name, value in saved.items():
        finite = value.isfinite()
        if not bool(finite.all()):
            repair = "The file was changed by other means than training: restore it from a copy."
            received = f"a value of {float(value[~finite].flatten()[0])}"
            raise InvalidInputError(name, "must hold finite weights", received, repair)


def check_like(name: str, saved: Tensor | None, wanted: Tensor | None) -> None:
    """Check that a saved tensor is there, or not there, as wanted, with its shape and type.

    Raises:
        InvalidInputError: If it is not.
    """
    if wanted is None:
        raise InvalidInputError(name, "must not be there", described(saved), OTHER_MODEL)
    if saved is None or saved.shape != wanted.shape or saved.dtype != wanted.dtype:
        raise InvalidInputError(name, f"must be {described(wanted)}", described(saved), OTHER_MODEL)


def described(value: object) -> str:
    """A tensor's type and shape in words; of something else its beginning."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    return "no such tensor" if value is None else f"{value!r}"[:80]
