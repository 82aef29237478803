"""The folder of a run that is made of another one, which stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from discrete_vae.errors import InvalidInputError
from discrete_vae.paths import unicode_path, without_links
from discrete_vae.runs.atomic import remove_temporaries
from discrete_vae.runs.json_files import read_json
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.runs.writable import check_writable

OUT, REPAIR = "--out", "Free space or check permissions, or give another --out."

Made = TypeVar("Made")


def check_derived_folder(
    out: str | Path,
    run: RunDirectory,
    record: str,
    asked: Mapping[str, Any],
    read: Callable[[Mapping[str, Any]], Made],
) -> tuple[Path, Made | None]:
    """The folder that a run made of another may be written to, and the result if it is there.

    A command that is killed after its folder has got its name may be given again: the folder then holds what the
    command asks for. What the killed one left beside it is removed.

    Args:
        out: A new or empty folder, or one that the same request has filled; ``~`` is the home directory.
        run: The run that it is made of, which is to stay as it is.
        record: Name of the file in the folder that says what was asked for.
        asked: What it says if it was the same.
        read: Reads the result from it.

    Raises:
        InvalidInputError: If the path holds anything else, lies in the run, or cannot be written.
    """
    folder = without_links(OUT, unicode_path(OUT, out))
    if (folder / record).is_file() and (folder / "config.json").is_file():
        said = read_json(folder / record)
        if asked.items() <= said.items():
            try:
                made = read(said)
                remove_temporaries(folder.parent, of_others=True)
                return folder, made
            except (KeyError, TypeError):
                pass  # another version wrote it
    RunDirectory.check_new(folder, argument=OUT)
    if folder.resolve().is_relative_to(run.path.resolve()):
        rule, repair = f"must lie outside the run {run.path}", "Give a folder beside it."
        raise InvalidInputError(OUT, rule, str(folder), repair)
    check_writable(folder / "config.json", repair=REPAIR)
    return folder, None
