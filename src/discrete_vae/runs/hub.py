"""Trained models by name: those that come with the library, and snapshots of the Hugging Face hub."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from discrete_vae.errors import InvalidInputError

# The trained models that come with the library, by name. Nothing here imports torch.


_PACKAGE = Path(__file__).resolve().parents[1]
FOLDERS = (_PACKAGE / "models", _PACKAGE.parents[1] / "reproduction" / "models")
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


# Models of the Hugging Face hub, fetched into the hub's own cache.


EXTRA = "pip install 'discrete-vae[hub]'"
_LONGEST = 200  # characters; the hub allows 96 and an owner
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_hub_name(path: object) -> bool:
    """Whether words may name a model of the hub: OWNER/NAME, where there is no folder OWNER here.

    Examples:
        >>> [is_hub_name(each) for each in ("ada/digits", "digits", "./ada/digits", "a/b/c")]
        [True, False, False, False]
    """
    if not isinstance(path, str) or len(path) > _LONGEST or _NAME.fullmatch(path) is None:
        return False
    return not Path(path).parent.exists()


def fetch_snapshot(name: str, files: Sequence[str], *, revision: str | None = None) -> Path:
    """The folder of a model of the hub: its newest files, or without the network those in the hub's cache.

    Args:
        name: OWNER/NAME.
        files: Names of the files to fetch.
        revision: Branch, tag or commit; None is the main branch.

    Raises:
        InvalidInputError: If huggingface_hub is not installed, or the model cannot be fetched.
    """
    rule = "must be an existing folder, or a model of the hub as OWNER/NAME"
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        repair = f"Check the path; for the hub install huggingface_hub: {EXTRA}."
        raise InvalidInputError("path", rule, name, repair) from None
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))
    except (OSError, ValueError) as error:  # what the hub raises derives from these
        received = f"{name} ({type(error).__name__}: {str(error).strip().splitlines()[0][:200]})"
        repair = "Check the name, the network and, for a private model, the login."
        raise InvalidInputError("path", rule, received, repair) from None
