"""The .npz file that the data folder keeps of a published data set: found there and checked, or made."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from discrete_vae.data.download import Mirror, fetch_files
from discrete_vae.data.folder import data_folder
from discrete_vae.data.read_arrays import read_npz
from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.atomic import write_bytes
from discrete_vae.runs.checksums import sha256_file


@dataclass(frozen=True)
class ArrayRule:
    """What an array of an archive must look like.

    Attributes:
        dtype: Name of its dtype; "str" for any text.
        shape: Length of each axis; several if more than one version is in use.
        highest: Largest value allowed; None for no bound.
        optional: Whether the array may be missing.
    """

    dtype: str
    shape: tuple[int | tuple[int, ...], ...]
    highest: int | None = None
    optional: bool = False


@dataclass(frozen=True)
class Archive:
    """A data set as the data folder keeps it, and how to make it.

    Attributes:
        file_name: Name of the .npz file.
        arrays: Rules of the arrays that are used, by key.
        mirror: Where the originals are.
        convert: Turns the originals, by file name, into the arrays.
    """

    file_name: str
    arrays: Mapping[str, ArrayRule]
    mirror: Mirror
    convert: Callable[[Mapping[str, Path]], dict[str, np.ndarray]]


@dataclass(frozen=True, eq=False)
class StoredArrays:
    """What an archive holds.

    Attributes:
        arrays: The arrays by key, checked.
        sha256: Sum of the file.
    """

    arrays: dict[str, np.ndarray]
    sha256: str


def fetch_archive(archive: Archive, data_dir: str | Path | None = None) -> StoredArrays:
    """Read an archive from the data folder; download the originals and make it if it is not there.

    Args:
        archive: Which one.
        data_dir: The folder; None means ``DISCRETE_VAE_DATA`` or the user's cache.

    Returns:
        Its arrays, checked.

    Raises:
        InvalidInputError: If the folder does not exist, or the file there is damaged or of another form.
        DownloadError: If an original cannot be downloaded or has the wrong checksum; nothing is left behind.
    """
    folder = data_folder(data_dir)
    path = folder / archive.file_name
    if not path.exists():
        _make(archive, folder)
    repair = "Remove the file to have it downloaded and made anew, or copy it again."
    try:
        arrays = read_npz(path, archive.arrays)
    except InvalidInputError as error:
        raise InvalidInputError(error.argument, error.rule, error.received, repair) from None
    _check(arrays, archive, str(path), repair)
    return StoredArrays(arrays, sha256_file(path))


def _make(archive: Archive, folder: Path) -> None:
    name = archive.file_name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A folder of its own: several processes may do this at once, and none sees another's half.
        with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as into:
            originals = fetch_files(
                archive.mirror, destination=Path(into), manual_folder=folder, made_file=name
            )
            arrays = archive.convert(originals)
        _check(arrays, archive, f"the converted {name}", "Report it: the originals had the right checksums.")
        content = io.BytesIO()
        np.savez_compressed(content, allow_pickle=False, **arrays)
        write_bytes(folder / name, content.getvalue())
    except InvalidInputError:
        raise
    except OSError as error:
        repair = "Free space, check permissions, or name another folder."
        raise InvalidInputError(
            str(folder), f"must be a folder where {name} can be written", str(error), repair
        ) from None


def _check(arrays: Mapping[str, np.ndarray], archive: Archive, name: str, repair: str) -> None:
    missing = [key for key, rule in archive.arrays.items() if key not in arrays and not rule.optional]
    if missing:
        raise InvalidInputError(
            name,
            f"must hold the arrays {', '.join(missing)}",
            f"only {', '.join(arrays) or 'others'}",
            repair,
        )
    for key, rule in archive.arrays.items():
        if key in arrays:
            _check_array(arrays[key], rule, f"{name}, array {key!r},", repair)


def _check_array(array: np.ndarray, rule: ArrayRule, name: str, repair: str) -> None:
    if array.dtype.name != rule.dtype and not (rule.dtype == "str" and array.dtype.kind == "U"):
        raise InvalidInputError(name, f"must have the dtype {rule.dtype}", array.dtype.name, repair)
    fits = array.ndim == len(rule.shape) and all(
        have in (want if isinstance(want, tuple) else (want,))
        for have, want in zip(array.shape, rule.shape, strict=True)
    )
    if not fits:
        wanted = " x ".join(" or ".join(map(str, w)) if isinstance(w, tuple) else str(w) for w in rule.shape)
        raise InvalidInputError(
            name, f"must have the shape {wanted}", " x ".join(map(str, array.shape)), repair
        )
    if rule.highest is not None and array.size > 0 and array.max() > rule.highest:
        raise InvalidInputError(name, f"must hold values from 0 to {rule.highest}", array.max(), repair)
