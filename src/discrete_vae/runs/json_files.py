"""JSON objects in files: written atomically, read with mistakes reported as `InvalidInputError`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.atomic import write_text
from discrete_vae.runs.regular_files import read_regular


def to_json(name: str, fields: Mapping[str, Any], *, indent: int | None = None) -> str:
    """Serialize an object to strict JSON.

    Args:
        name: What it is, for the message.
        fields: Strings, booleans, None, finite numbers, and lists and mappings of these.
        indent: Spaces per level; None writes one line.

    Raises:
        InvalidInputError: If it holds NaN, an infinity or something else that JSON cannot express.

    Examples:
        >>> to_json("metrics", {"elbo": -81.5})
        '{"elbo": -81.5}'
    """
    try:
        return json.dumps(fields, indent=indent, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            name,
            "must hold only what JSON can express",
            str(error),
            "Convert the value, or check it for NaN first.",
        ) from None


def json_text(name: str, fields: Mapping[str, Any]) -> str:
    """An object as the text of a file: indented, with a line's end.

    Raises:
        InvalidInputError: See `to_json`.
    """
    return to_json(name, fields, indent=2) + "\n"


def write_json(path: Path, fields: Mapping[str, Any]) -> None:
    """Write an object as indented JSON, atomically.

    Raises:
        InvalidInputError: See `to_json`.
        OSError: If the file cannot be written.
    """
    write_text(path, json_text(path.name, fields))


def parse_json(content: bytes) -> Any:
    """Parse strict JSON in UTF-8.

    Args:
        content: The whole text.

    Raises:
        ValueError: If it is anything else: NaN, a number too long for Python, brackets nested too deeply, say.

    Examples:
        >>> parse_json(b'{"step": 3}')
        {'step': 3}
        >>> parse_json(b"[" * 100_000)
        Traceback (most recent call last):
        ValueError: brackets nested too deeply
    """
    try:
        return json.loads(content.decode("utf-8"), parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("brackets nested too deeply") from None


def read_json(path: Path, *, repair: str = "Restore the file from a copy.") -> dict[str, Any]:
    """Read a JSON object.

    Args:
        path: The file.
        repair: What the message recommends.

    Raises:
        InvalidInputError: If the file is missing, unreadable, or holds anything but one JSON object.
    """
    try:
        fields = parse_json(read_regular(path))
    except OSError as error:
        received = error.strerror or str(error)
        repair = "Check its permissions." if isinstance(error, PermissionError) else repair
        raise InvalidInputError(str(path), "must be a readable file", received, repair) from None
    except ValueError as error:  # broken UTF-8 and broken JSON both
        received = str(error).partition(";")[0]  # Python goes on with advice to programmers
        raise InvalidInputError(str(path), "must hold valid JSON", received, repair) from None
    if not isinstance(fields, dict):
        raise InvalidInputError(str(path), "must hold a JSON object", type(fields).__name__, repair)
    return fields


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no value of JSON")
