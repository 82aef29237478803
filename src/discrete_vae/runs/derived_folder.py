"""The folder of a run that is made of another one, which stays as it is."""

from __future__ import annotations

from pathlib import Path

from discrete_vae.errors import InvalidInputError
from discrete_vae.paths import unicode_path
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.runs.writable import check_writable

OUT, REPAIR = "--out", "Free space or check permissions, or give another --out."


def check_derived_folder(out: str | Path, run: RunDirectory) -> Path:
    """The folder that a run made of another may be written to; touches nothing.

    Args:
        out: A new or empty folder; ``~`` is the home directory.
        run: The run that it is made of, which is to stay as it is.

    Raises:
        InvalidInputError: If the path holds anything, lies in the run, or cannot be written.
    """
    folder = unicode_path(OUT, out)
    RunDirectory.check_new(folder, argument=OUT)
    if folder.resolve().is_relative_to(run.path.resolve()):
        rule, repair = f"must lie outside the run {run.path}", "Give a folder beside it."
        raise InvalidInputError(OUT, rule, str(folder), repair)
    check_writable(folder / "config.json", repair=REPAIR)
    return folder
