"""Downloads of public files, each refused and removed unless its size and its checksum are right."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from discrete_vae.errors import InvalidInputError

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
