"""Models of the Hugging Face hub, fetched into the hub's own cache."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from discrete_vae.errors import InvalidInputError

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
