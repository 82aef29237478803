"""Published data sets as the data folder keeps them, and the downloads that they are made of."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from discrete_vae.data.arrays import read_npz
from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.io import sha256_file, write_bytes
from discrete_vae.system import check_data_dir

ENVIRONMENT_VARIABLE = "DISCRETE_VAE_DATA"
_TIMEOUT_S, _BLOCK = 60, 1 << 16


class DownloadError(InvalidInputError):
    """A public file could not be downloaded, or has the wrong checksum."""


@dataclass(frozen=True)
class RemoteFile:
    """A public file."""

    name: str  # which completes the address
    # "sha256:...", or where that is not known "git-blob:...", the SHA-1 of "blob SIZE", a zero byte and the content
    checksum: str
    max_size: int  # bytes that it has at most; a download ends there


@dataclass(frozen=True)
class ArrayRule:
    """Form of an array in an archive."""

    dtype: str  # its name; "str" for any text
    shape: tuple[int | tuple[int, ...], ...]  # an axis has several lengths if more than one version is in use
    highest: int | None = None  # largest value allowed; None for no bound
    optional: bool = False  # whether the array may be missing


@dataclass(frozen=True)
class Archive:
    """The .npz file that the data folder keeps of a published data set, and how to make it."""

    file_name: str
    arrays: Mapping[str, ArrayRule]  # of those that are used, by key
    addresses: tuple[str, ...]  # base addresses of the originals, each ending in a slash, tried in this order
    files: tuple[RemoteFile, ...]  # the originals
    # turns the originals, paths by file name, into the arrays
    convert: Callable[[Mapping[str, Path]], dict[str, np.ndarray]]


def data_folder(data_dir: str | Path | None = None) -> Path:
    """Find the folder of the data sets: the argument, else ``DISCRETE_VAE_DATA``, else the user's cache.

    A folder that is named must exist; the one in the user's cache may not exist yet.
    """
    variable = os.environ.get(ENVIRONMENT_VARIABLE) or None
    named = check_data_dir(data_dir) or check_data_dir(variable, argument=ENVIRONMENT_VARIABLE)
    if named is not None:
        return named
    import pooch  # here, since it costs time and a machine without it can still use its own files

    return Path(pooch.os_cache("discrete-vae"))


def fetch_archive(archive: Archive, data_dir: str | Path | None = None) -> tuple[dict[str, np.ndarray], str]:
    """Read an archive from the folder that `data_folder` finds; download the originals and make it if it is not there.

    Returns:
        Its arrays by key, checked, and the SHA-256 of the file.
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
    _check_arrays(arrays, archive, str(path), repair)
    return arrays, sha256_file(path)


def _make(archive: Archive, folder: Path) -> None:
    name = archive.file_name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A folder of its own: several processes may do this at once, and none sees another's half.
        with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as into:
            originals = {file.name: _fetch_file(archive, file, Path(into), folder) for file in archive.files}
            arrays = archive.convert(originals)
        repair = "Report it: the originals had the right checksums."
        _check_arrays(arrays, archive, f"the converted {name}", repair)
        content = io.BytesIO()
        np.savez_compressed(content, allow_pickle=False, **arrays)
        write_bytes(folder / name, content.getvalue())
    except OSError as error:
        rule = f"must be a folder where {name} can be written"
        repair = "Free space, check permissions, or name another folder."
        raise InvalidInputError(str(folder), rule, str(error), repair) from None


def _fetch_file(archive: Archive, file: RemoteFile, into: Path, folder: Path) -> Path:
    """Path of an original whose content was checked: the user's own in the data folder, else a download.

    A wrong download is removed, a wrong file of the user's is left alone.
    """
    urls = [address + file.name for address in archive.addresses]
    path = folder / file.name
    if path.exists():
        if (fault := _fault(path, file)) is None:
            return path
        repair = f"Remove it, or download it again from {' or '.join(urls)}."
        raise DownloadError(str(path), f"must have the checksum {file.checksum}", fault, repair)
    path, faults = into / file.name, []
    for url in urls:
        try:
            _download(url, path, file.max_size)
            fault = _fault(path, file)
        except (OSError, ValueError) as error:
            fault = f"{type(error).__name__}: {_reason(error)}"
        if fault is None:
            return path
        path.unlink(missing_ok=True)
        faults.append(f"{url}: {fault}")
    repair = f"Check the network, or put it ({file.checksum}), or a ready {archive.file_name}, into {folder} by hand."
    raise DownloadError(file.name, "must be downloadable, with its checksum", "; ".join(faults), repair)


def _download(url: str, path: Path, max_size: int) -> None:
    import pooch  # here, since it costs time and a machine without it can still use its own files
    from rich.progress import Progress

    from discrete_vae.runs.progress import standard_error

    # pooch's own downloader does not fit the protocol that pooch declares
    download: Any = pooch.HTTPDownloader(timeout=_TIMEOUT_S, chunk_size=_BLOCK)
    with path.open("wb") as file, Progress(console=standard_error()) as progress:
        task = progress.add_task(path.name, total=max_size)

        def write(block: bytes) -> None:
            if file.tell() + len(block) > max_size:
                raise ValueError("it is larger than the file should be")
            progress.advance(task, file.write(block))

        download(url, SimpleNamespace(write=write, flush=file.flush), None)


def _reason(error: Exception) -> str:
    # requests wraps the one line that matters into several that repeat the address; a name for it in the caller would
    # keep the connection open with the error that is raised
    return str(getattr(error.args[0], "reason", error) if error.args else error)


def _fault(path: Path, file: RemoteFile) -> str | None:
    """Size or checksum of a file that has another than it should; None if it has neither."""
    size = path.stat().st_size
    if size > file.max_size:
        return f"a file of {size} bytes, which has {file.max_size} at most"
    found = f"sha256:{sha256_file(path)}"
    if file.checksum.startswith("git-blob:"):
        content = b"blob %d\0" % size + path.read_bytes()
        found = f"git-blob:{hashlib.sha1(content, usedforsecurity=False).hexdigest()}"
    return None if found == file.checksum else f"a file of {size} bytes with {found}"


def _check_arrays(arrays: Mapping[str, np.ndarray], archive: Archive, name: str, repair: str) -> None:
    missing = [key for key, rule in archive.arrays.items() if key not in arrays and not rule.optional]
    if missing:
        rule = f"must hold the arrays {', '.join(missing)}"
        raise InvalidInputError(name, rule, f"only {', '.join(arrays) or 'others'}", repair)
    for key, rule in archive.arrays.items():
        if key in arrays and (fault := _array_fault(arrays[key], rule)) is not None:
            raise InvalidInputError(f"{name}, array {key!r},", *fault, repair)


def _array_fault(array: np.ndarray, rule: ArrayRule) -> tuple[str, object] | None:
    """The rule that an array breaks, and what it is instead."""
    if array.dtype.name != rule.dtype and not (rule.dtype == "str" and array.dtype.kind == "U"):
        return f"must have the dtype {rule.dtype}", array.dtype.name
    lengths = [length if isinstance(length, tuple) else (length,) for length in rule.shape]
    if array.shape not in product(*lengths):
        wanted = " x ".join(" or ".join(map(str, of)) for of in lengths)
        return f"must have the shape {wanted}", " x ".join(map(str, array.shape))
    if rule.highest is not None and array.size > 0 and array.max() > rule.highest:
        return f"must hold values from 0 to {rule.highest}", array.max()
    return None
