"""Results of a run of which none replaces another: one file per settings, and one file with the fullest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.checksums import sha256_bytes
from discrete_vae.runs.json_files import Schema, read_json, to_json, write_json
from discrete_vae.runs.writable import check_writable, unwritable

Fields = Mapping[str, Any]


class KeptResults:
    """A folder with one result per settings, and beside it a copy of the fullest.

    The same settings give the same name, so repeating a computation replaces its own file and no other. Of results
    that are equally full the one kept last is copied. A result is kept with the SHA-256 of its own values, and is
    refused when they are others; those of earlier versions have none.

    Attributes:
        fullest_path: The copy, FOLDER/evaluation.json for example.
        folder: All results, FOLDER/evaluations for example.

    Args:
        fullest_path: Where the copy goes.
        folder: Where all results go.
        schema: What a result must hold.
        name: The name of a result's file without its ending, made from the settings in it.
        fullness: What results are compared by; the greatest is copied.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as path:
        ...     rules = {"name": lambda fields: f"n-{fields['n']}", "fullness": lambda fields: (fields["n"],)}
        ...     kept = KeptResults(Path(path, "best.json"), Path(path, "all"), Schema, **rules)
        ...     for n in (10, 2):
        ...         _ = kept.add({"n": n})
        ...     sorted(file.name for file in kept.folder.iterdir()), kept.fullest()["n"]
        (['n-10.json', 'n-2.json'], 10)
    """

    def __init__(
        self,
        fullest_path: Path,
        folder: Path,
        schema: type[Schema],
        *,
        name: Callable[[Fields], str],
        fullness: Callable[[Fields], tuple[Any, ...]],
    ) -> None:
        self.fullest_path, self.folder = fullest_path, folder
        self._schema, self._name, self._fullness = schema, name, fullness

    def path_of(self, fields: Fields) -> Path:
        """Where a result goes."""
        return self.folder / f"{self._name(fields)}.json"

    def check(self) -> None:
        """Check, before the work, that a result can be added.

        Raises:
            InvalidInputError: If a file cannot be written, or a result that is there is damaged; names it.
        """
        repair = "Free space or check permissions, or write elsewhere: --out FILE.json."
        for path in (self.fullest_path, self.folder / "result.json"):
            check_writable(path, repair=repair)
        self._read()

    def add(self, fields: Fields) -> list[Path]:
        """Keep a result.

        Args:
            fields: Its settings and values, as JSON can express them.

        Returns:
            Its own file and, where it is the fullest, the copy.

        Raises:
            InvalidInputError: If a file cannot be written, which the message names.
        """
        fields = {**fields, "sha256": _sum_of(fields)}
        path, found = self.path_of(fields), self._read()
        latest = found.pop(self.fullest_path, None)
        if latest is not None:
            own = self.path_of(latest)
            if own != path and own not in found:  # what an earlier version left has no file of its own yet
                _write(own, latest)
            found = {own: latest} | found  # before its equals
        found.pop(path, None)
        _write(path, fields)
        fullest = max([fields, *found.values()], key=self._fullness)
        _write(self.fullest_path, fullest)
        return [path, self.fullest_path] if fullest is fields else [path]

    def _read(self) -> dict[Path, Fields]:
        """All results by file."""
        paths = sorted(self.folder.glob("*.json")) if self.folder.is_dir() else []
        if self.fullest_path.exists():
            paths.append(self.fullest_path)
        return {path: read_result(path, self._schema) for path in paths}

    def fullest(self) -> dict[str, Any] | None:
        """The fullest result; None if there is none.

        Raises:
            InvalidInputError: If it is damaged; names it.
        """
        return read_result(self.fullest_path, self._schema) if self.fullest_path.exists() else None


def read_result(path: Path, schema: type[Schema]) -> dict[str, Any]:
    """Read a result.

    Raises:
        InvalidInputError: If it is missing, lacks what it must hold, or holds other values than were kept.
    """
    repair = "Move the file out of the run."
    fields = read_json(path, schema, repair=repair)
    if fields.get("sha256") not in (None, _sum_of(fields)):
        raise InvalidInputError(str(path), "must hold what was kept", "other values", repair)
    return fields


def _sum_of(fields: Fields) -> str:
    """SHA-256 of a result's values."""
    rest = {name: value for name, value in sorted(fields.items()) if name != "sha256"}
    return sha256_bytes(to_json("result", rest).encode())


def digest(fields: Fields) -> str:
    """Eight letters that tell settings apart which a file's name does not spell out.

    Examples:
        >>> digest({"sha256": None}) == digest({"sha256": None}) != digest({"sha256": "1"})
        True
    """
    return sha256_bytes(to_json("settings", dict(sorted(fields.items()))).encode())[:8]


def _write(path: Path, fields: Fields) -> None:
    try:
        path.parent.mkdir(exist_ok=True)
        write_json(path, fields)
    except OSError as error:
        repair = (
            "Free space or check permissions; what was printed stands, and --out FILE.json writes elsewhere."
        )
        raise unwritable(path, error, repair) from None
