"""Results of a run of which none replaces another: one file per settings, and one file with the fullest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.json_files import read_json, to_json, write_json
from discrete_vae.runs.writable import check_writable, unwritable

Fields = Mapping[str, Any]


class KeptResults:
    """A folder with one result per settings, and beside it a copy of the fullest.

    The same settings give the same name, so repeating a computation replaces its own file and no other. Of results
    that are equally full the one kept last is copied.

    Attributes:
        fullest_path: The copy, FOLDER/evaluation.json for example.
        folder: All results, FOLDER/evaluations for example.

    Args:
        fullest_path: Where the copy goes.
        folder: Where all results go.
        name: The name of a result's file without its ending, made from the settings in it.
        fullness: What results are compared by; the greatest is copied.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as path:
        ...     rules = {"name": lambda fields: f"n-{fields['n']}", "fullness": lambda fields: (fields["n"],)}
        ...     kept = KeptResults(Path(path, "best.json"), Path(path, "all"), **rules)
        ...     for n in (10, 2):
        ...         _ = kept.add({"n": n})
        ...     sorted(file.name for file in kept.folder.iterdir()), read_json(kept.fullest_path)
        (['n-10.json', 'n-2.json'], {'n': 10})
    """

    def __init__(
        self,
        fullest_path: Path,
        folder: Path,
        *,
        name: Callable[[Fields], str],
        fullness: Callable[[Fields], tuple[Any, ...]],
    ) -> None:
        self.fullest_path, self.folder = fullest_path, folder
        self._name, self._fullness = name, fullness

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
        found: dict[Path, Fields] = {}
        for path in paths:
            fields = read_json(path, repair="Move the file out of the run.")
            try:
                for read in (self._name, self._fullness):
                    read(fields)
            except (KeyError, TypeError, AttributeError):
                rule, repair = "must hold a result of this run", "Move the file out of the run."
                raise InvalidInputError(str(path), rule, "other fields", repair) from None
            found[path] = fields
        return found


def digest(fields: Fields) -> str:
    """Eight letters that tell settings apart which a file's name does not spell out.

    Examples:
        >>> digest({"sha256": None}) == digest({"sha256": None}) != digest({"sha256": "1"})
        True
    """
    return sha256(to_json("settings", dict(sorted(fields.items()))).encode()).hexdigest()[:8]


def _write(path: Path, fields: Fields) -> None:
    try:
        path.parent.mkdir(exist_ok=True)
        write_json(path, fields)
    except OSError as error:
        repair = (
            "Free space or check permissions; what was printed stands, and --out FILE.json writes elsewhere."
        )
        raise unwritable(path, error, repair) from None
