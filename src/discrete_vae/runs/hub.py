"""Trained models by name: those that come with the library, and snapshots of the Hugging Face hub; without torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from discrete_vae.errors import InvalidInputError, not_one_of

_PACKAGE = Path(__file__).resolve().parents[1]
FOLDERS = (_PACKAGE / "models", _PACKAGE.parents[1] / "reproduction" / "models")
"""Places of the library's models, a folder each: in an installed package, and in a checkout."""


def pretrained_names() -> tuple[str, ...]:
    """Names of the trained models that come with the library, for `load_pretrained` and `dvae VERB --pretrained`."""
    folder = next((each for each in FOLDERS if each.is_dir()), None)
    names = [] if folder is None else [path.parent.name for path in folder.glob("*/config.json")]
    return tuple(sorted(name for name in names if not name.startswith(".")))  # as a killed export leaves them


def shipped_folder(name: str, *, argument: str = "name") -> Path:
    """The folder of a model that comes with the library, a run in which nothing may be written."""
    names = pretrained_names()
    if name not in names:
        known = names or ["the models of the library, of which there are none"]
        raise not_one_of(argument, known, name, "See dvae list.")
    return next(each / name for each in FOLDERS if (each / name).is_dir())


EXTRA = "pip install 'discrete-vae[hub]'"
_LONGEST = 200  # characters; the hub allows 96 and an owner
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_hub_name(path: object) -> bool:
    """True for a possible name of a model of the hub: OWNER/NAME, where there is no folder OWNER here."""
    if not isinstance(path, str) or len(path) > _LONGEST or _NAME.fullmatch(path) is None:
        return False
    return not Path(path).parent.exists()


def fetch_snapshot(name: str, files: Sequence[str], *, revision: str | None = None) -> Path:
    """Folder of a model of the hub in the hub's own cache: its newest files, or without the network those there."""
    rule = "must be an existing folder, or a model of the hub as OWNER/NAME"
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        repair = f"Check the path; for the hub install huggingface_hub: {EXTRA}."
        raise InvalidInputError("path", rule, name, repair) from None
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))
    except Exception as error:  # the hub's own, or its HTTP client's
        repair = "Check the name, the network and, for a private model, the login."
        raise InvalidInputError("path", rule, refusal(name, error), repair) from None


def refusal(name: str, error: Exception) -> str:
    """An error of the hub for messages: its first line."""
    line = str(error).strip().partition("\n")[0]  # a client's error may have no text
    return f"{name} ({type(error).__name__}: {line[:200]})"
