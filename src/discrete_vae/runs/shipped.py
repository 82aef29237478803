"""The trained models that come with the library, by name. Nothing here imports torch."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from discrete_vae.errors import InvalidInputError

_PACKAGE = Path(__file__).resolve().parents[1]
FOLDERS = (_PACKAGE / "models", _PACKAGE.parents[1] / "reproductions" / "models")
"""Where they may lie, a folder each: in an installed package, and in a checkout."""


def pretrained_names() -> tuple[str, ...]:
    """Names of the trained models that come with the library, for `load_pretrained` and `dvae VERB --pretrained`.

    Examples:
        >>> "digits" in pretrained_names()
        True
    """
    folder = next((each for each in FOLDERS if each.is_dir()), None)
    names = [] if folder is None else [path.parent.name for path in folder.glob("*/config.json")]
    return tuple(sorted(name for name in names if not name.startswith(".")))  # what a killed release leaves


def shipped_folder(name: str, *, argument: str = "name") -> Path:
    """The folder of a model that comes with the library; it is a run like any other, in which nothing may be written.

    Args:
        name: One of `pretrained_names`.
        argument: What messages call it.

    Raises:
        InvalidInputError: If there is no such model; lists those there are.
    """
    names = pretrained_names()
    if name not in names:
        rule = (
            f"must be one of {', '.join(names)}" if names else "must name a model that comes with the library"
        )
        close = get_close_matches(str(name), names, n=1)
        repair = f"Did you mean {close[0]}?" if close else "See dvae list."
        raise InvalidInputError(argument, rule, f"{name!r}"[:80], repair)
    return next(each / name for each in FOLDERS if (each / name).is_dir())
