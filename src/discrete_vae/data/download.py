"""Downloads of public files, each refused unless its size and checksum are right, and the folder for them."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from discrete_vae.data.arrays import read_npz
from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.io import sha256_file, write_bytes
from discrete_vae.system import user_path

# Downloads of public files, each refused and removed unless its size and its checksum are right.


_TIMEOUT_S = 60


class DownloadError(InvalidInputError):
    """A public file could not be downloaded, or has the wrong checksum."""


@dataclass(frozen=True)
class RemoteFile:
    """A file that a public mirror keeps.

    Attributes:
        name: Its name, which completes the address.
        checksum: ``sha256:...``, or ``git-blob:...`` where that is not known: git's id of the content, which is
            SHA-1 of ``blob SIZE``, a zero byte and the content.
        max_size: Bytes that it has at most; a download ends there.
    """

    name: str
    checksum: str
    max_size: int


@dataclass(frozen=True)
class Mirror:
    """Where the files of a data set are.

    Attributes:
        addresses: Base addresses, each ending in a slash, tried in this order.
        files: The files, the same at each address.
    """

    addresses: tuple[str, ...]
    files: tuple[RemoteFile, ...]


def fetch_files(mirror: Mirror, *, destination: Path, manual_folder: Path, made_file: str) -> dict[str, Path]:
    """Bring all files of a mirror to this machine; those that the user has put into a folder are taken from there.

    Args:
        mirror: Where the files are.
        destination: Folder for the downloads.
        manual_folder: Folder where the user may have put files of the same names.
        made_file: Name of the file that is made of them, for the messages.

    Returns:
        Paths by file name; the content of each has been checked.

    Raises:
        DownloadError: If a file cannot be downloaded or has the wrong checksum; names the addresses and what
            to do by hand. A wrong download is removed, a wrong file of the user's is left alone.
    """
    paths = {}
    for file in mirror.files:
        own = manual_folder / file.name
        if own.exists():
            if (fault := _fault(own, file)) is not None:
                repair = f"Remove it, or download it again from {_list(mirror, file)}."
                raise DownloadError(str(own), f"must have the checksum {file.checksum}", fault, repair)
            paths[file.name] = own
        else:
            paths[file.name] = _download(mirror, file, destination, manual_folder, made_file)
    return paths


def git_blob_id(path: Path) -> str:
    r"""Git's id of a file's content: SHA-1 of ``blob SIZE``, a zero byte and the content.

    Args:
        path: The file.

    Returns:
        40 hexadecimal digits.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a").write_bytes(b"hello\n")
        ...     git_blob_id(Path(folder, "a"))
        'ce013625030ba8dba906f756967f9e9ca394464a'
    """
    total = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            total.update(block)
    return total.hexdigest()


def _download(
    mirror: Mirror, file: RemoteFile, destination: Path, manual_folder: Path, made_file: str
) -> Path:
    import pooch  # here, since it costs time and a machine without it can still use its own files

    # pooch's own downloader does not fit the protocol that pooch declares
    fetch: Any = pooch.HTTPDownloader(timeout=_TIMEOUT_S, chunk_size=1 << 16)

    def fetch_limited(url: str, path: Any, pooch: Any) -> None:
        with Path(path).open("wb") as content:
            fetch(url, _Limited(content, file.max_size), pooch)

    known = None if file.checksum.startswith("git-blob:") else file.checksum  # pooch does not know git's ids
    faults = []
    for address in mirror.addresses:
        try:
            fetched = pooch.retrieve(
                address + file.name,
                known,
                file.name,
                destination,
                downloader=fetch_limited,  # pyright: ignore[reportArgumentType] (pooch asks for more than it uses)
            )
        except (OSError, ValueError) as error:
            faults.append(f"{address}{file.name}: {type(error).__name__}: {_reason(error)}")
            continue
        path = Path(fetched)
        if (fault := _fault(path, file)) is None:
            return path
        path.unlink()
        faults.append(f"{address}{file.name}: {fault} instead of {file.checksum}")
    repair = (
        f"Check the network and try again, or download {_list(mirror, file)} by hand and put it into {manual_folder} "
        f"({file.checksum}); or put a ready {made_file} there."
    )
    raise DownloadError(
        file.name, "must be downloadable and have the right checksum", "; ".join(faults), repair
    )


class _Limited:
    """A file to write at most so many bytes into."""

    def __init__(self, file: IO[bytes], max_size: int) -> None:
        self._file, self._left, self.flush = file, max_size, file.flush

    def write(self, content: bytes) -> None:
        self._left -= len(content)
        if self._left < 0:
            raise ValueError("it is larger than the file should be")
        self._file.write(content)


def _fault(path: Path, file: RemoteFile) -> str | None:
    if path.stat().st_size > file.max_size:
        return f"a file of {path.stat().st_size} bytes, which has {file.max_size} at most"
    algorithm, _, expected = file.checksum.partition(":")
    if algorithm == "git-blob":
        found = git_blob_id(path)
    else:
        with path.open("rb") as content:
            found = hashlib.file_digest(content, algorithm).hexdigest()
    if found != expected:
        return f"a file of {path.stat().st_size} bytes with {algorithm}:{found}"
    return None


def _reason(error: Exception) -> object:
    # requests wraps the one line that matters into several that repeat the address.
    return getattr(error.args[0], "reason", error) if error.args else error


def _list(mirror: Mirror, file: RemoteFile) -> str:
    return " or ".join(address + file.name for address in mirror.addresses)


# The folder that holds the data sets.


ENVIRONMENT_VARIABLE = "DISCRETE_VAE_DATA"


def check_data_dir(data_dir: str | Path | None) -> Path | None:
    """Return a folder that the user named, if it exists; None stays None.

    Args:
        data_dir: The folder; ``~`` is the home directory.

    Raises:
        InvalidInputError: If it is not a folder. Nothing is created: a typing error must not start a
            download.
    """
    return None if data_dir is None else _existing("data_dir", data_dir)


def data_folder(data_dir: str | Path | None = None) -> Path:
    """Find the folder of the data sets: the argument, else ``DISCRETE_VAE_DATA``, else the user's cache.

    Args:
        data_dir: The folder; ``~`` is the home directory.

    Returns:
        The folder. Only the one in the user's cache may not exist yet.

    Raises:
        InvalidInputError: If the argument or the variable names something that is not a folder.

    Examples:
        >>> data_folder("no/such/folder")
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: data_dir must be an existing folder; received no/such/folder.
        ...
    """
    if data_dir is not None:
        return _existing("data_dir", data_dir)
    named = os.environ.get(ENVIRONMENT_VARIABLE, "")
    if named:
        return _existing(ENVIRONMENT_VARIABLE, named)
    import pooch  # here, since it costs time and a machine without it can still use its own files

    return Path(pooch.os_cache("discrete-vae"))


def _existing(name: str, folder: str | Path) -> Path:
    path = user_path(name, folder)
    if not path.is_dir():
        raise InvalidInputError(
            name, "must be an existing folder", str(folder), "Create it, or correct the path."
        )
    return path


# The .npz file that the data folder keeps of a published data set: found there and checked, or made.


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
