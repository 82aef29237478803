"""Files of a run: read with care, written whole or not at all, JSON checked against schemas; models of the library."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from discrete_vae.config.base import rule_of
from discrete_vae.errors import InvalidInputError, not_one_of

RESTORE = "Restore the file from a copy."


# Reading: regular files alone, so that a pipe is refused instead of waited for.


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file, or a link to one, for reading; a folder, a pipe or a device is an OSError."""
    no_wait = getattr(os, "O_NONBLOCK", 0)  # of a pipe for its writer; Windows has no such flag
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | no_wait))  # noqa: SIM115 (Path.open takes no opener)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def read_regular(path: Path) -> bytes:
    """Read a file that `open_regular` opens."""
    with open_regular(path) as file:
        return file.read()


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's content in hexadecimal; safetensors loads a flipped bit without a word."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_bytes(content: bytes) -> str:
    """SHA-256 of bytes in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


# Writing: a file or folder is complete or absent, whatever moment the process or the machine stops at.


TEMPORARY_PREFIX = ".tmp-"
_ABANDONED_SECONDS = 24 * 3600.0  # a write takes seconds
_REPLACED = "-replaced"
_LONGEST = 200  # bytes of a name, of the 255 that systems allow: the rest of a temporary's needs room
_NAME = re.compile(
    rf"{re.escape(TEMPORARY_PREFIX)}(.*)-([0-9a-f]{{8}})-(\d{{1,9}})-[0-9a-f]{{16}}({_REPLACED})?", re.DOTALL
)


def is_temporary(path: Path) -> bool:
    """True for what an interrupted write left behind."""
    return path.name.startswith(TEMPORARY_PREFIX)


def write_stream(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that readers see the old content or the new one, never a part.

    The content goes to a temporary file of the same folder, which is synced and renamed over the target. What killed
    processes left in that folder is removed first. An OSError names the file and leaves the old content.
    """
    temporary = _temporary_beside(path)
    with naming(path):
        try:
            with temporary.open("xb") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file as `write_stream` does."""
    write_stream(path, lambda file: file.write(content))


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8 as `write_stream` does."""
    write_bytes(path, text.encode())


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors of the system name a file; those of writing and syncing name none."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def publish_directory(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Fill a temporary folder, then sync it and rename it to its final name; it is removed if the block raises.

    A folder of that name that gives way exchanges its name with the new one, so that at every moment one of them has
    it. Where the system cannot, a kill between two renames leaves neither, and `remove_temporaries` brings it back.
    """
    temporary = _temporary_beside(path)
    temporary.mkdir()
    try:
        yield temporary
        for entry in temporary.rglob("*"):
            if entry.is_file():
                with entry.open("rb+") as file:
                    os.fsync(file.fileno())
            else:
                sync_directory(entry)
        sync_directory(temporary)
        if not (replace and path.exists()):
            temporary.rename(path)
        elif _exchange(temporary, path):
            _remove(temporary)
        else:
            aside = path.with_name(f"{temporary.name}{_REPLACED}")
            path.rename(aside)
            try:
                temporary.rename(path)
            except BaseException:
                aside.rename(path)
                raise
            _remove(aside)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_directory(path.parent)


def remove_temporaries(folder: Path, *, of_others: bool) -> None:
    """Remove what interrupted writes left in a folder, if there is one, but not in folders below it.

    A folder that was to be replaced gets its name back if nothing else has it. Where other processes may be writing,
    only that goes whose writer, a process of this machine, has ended, or that is older than a day.
    """
    if not folder.is_dir():
        return
    for entry in [entry for entry in folder.iterdir() if is_temporary(entry)]:
        if of_others and not _is_abandoned(entry):
            continue
        found = _NAME.fullmatch(entry.name)
        with suppress(OSError):  # that of another user, say
            if found is not None and found[4] and not os.path.lexists(folder / found[1]):
                entry.rename(folder / found[1])
            else:
                _remove(entry)


_SYNCS_NO_FOLDER = {errno.EINVAL, errno.EBADF, errno.ENOTSUP}  # as some file systems of shares say it


def sync_directory(folder: Path) -> None:
    """Store a folder's entries on the disk, so that a rename survives a power cut."""
    if os.name == "nt":  # Windows cannot open folders, and stores renames by itself
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _SYNCS_NO_FOLDER:
            raise
    finally:
        os.close(descriptor)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange the names of two folders in one operation; returns whether the system can."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):  # an older libc, or another system
        return False
    here, exchange = ctypes.c_int(-100), ctypes.c_uint(2)  # AT_FDCWD and RENAME_EXCHANGE of Linux
    return rename(here, os.fsencode(first), here, os.fsencode(second), exchange) == 0


def _remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)


def _temporary_beside(path: Path) -> Path:
    with suppress(OSError):  # of a folder that may be written and not listed
        remove_temporaries(path.parent, of_others=True)
    name = os.fsencode(path.name)[:_LONGEST].decode(errors="ignore")
    # not from `tempfile`, whose files are private; the name says who writes, since a process that lives may rename it
    return path.with_name(f"{TEMPORARY_PREFIX}{name}-{_machine()}-{os.getpid()}-{secrets.token_hex(8)}")


def _is_abandoned(temporary: Path) -> bool:
    found = _NAME.fullmatch(temporary.name)
    if found is None:
        return False
    if found[2] == _machine() and os.name != "nt":  # where signal 0 ends a process
        try:
            os.kill(int(found[3]), 0)
        except ProcessLookupError:
            return True
        except (PermissionError, OverflowError):
            pass
    # a process of another machine or container cannot be asked, and a number may have been given out again
    with suppress(FileNotFoundError):
        return time.time() - temporary.lstat().st_mtime > _ABANDONED_SECONDS
    return False


def _machine() -> str:
    """A short name of this machine or container: process ids are unique within one only."""
    return hashlib.sha256(platform.node().encode(errors="replace")).hexdigest()[:8]


# JSON: strict, written atomically, refused as `InvalidInputError`.


def to_json(name: str, fields: Mapping[str, Any], *, indent: int | None = None) -> str:
    """Serialize an object to strict JSON; what else it holds, NaN and infinities included, is refused."""
    try:
        return json.dumps(fields, indent=indent, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        repair = "Convert the value, or check it for NaN first."
        raise InvalidInputError(name, "must hold only what JSON can express", error, repair) from None


def sha256_fields(name: str, fields: Mapping[str, Any]) -> str:
    """SHA-256 of an object's JSON; errors as of `to_json`."""
    return sha256_bytes(to_json(name, fields).encode())


def write_json(path: Path, fields: Mapping[str, Any]) -> None:
    """Write an object as indented JSON, atomically."""
    write_text(path, to_json(path.name, fields, indent=2) + "\n")


def parse_json(content: bytes) -> Any:
    """Parse strict JSON in UTF-8; all else, NaN and brackets nested too deeply included, is a ValueError."""
    try:
        return json.loads(content.decode("utf-8"), parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("brackets nested too deeply") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no value of JSON")


def read_json(path: Path, schema: type[Schema] | None = None, repair: str = RESTORE) -> dict[str, Any]:
    """Read a file that holds one JSON object, of a form if one is given."""
    try:
        fields = parse_json(read_regular(path))
    except OSError as error:
        raise unreadable(path, error, repair) from None
    except ValueError as error:  # broken UTF-8 and broken JSON both
        received = str(error).partition(";")[0]  # Python goes on with advice to programmers
        raise InvalidInputError(str(path), "must hold valid JSON", received, repair) from None
    if not isinstance(fields, dict):
        raise InvalidInputError(str(path), "must hold a JSON object", type(fields).__name__, repair)
    if schema is not None:
        check_fields(str(path), fields, schema, repair)
    return fields


def unreadable(path: Path, error: OSError, repair: str = RESTORE) -> InvalidInputError:
    """The error for a file that cannot be read; missing permissions are no damage."""
    repair = "Check its permissions." if isinstance(error, PermissionError) else repair
    return InvalidInputError(str(path), "must be a readable file", error.strerror or error, repair)


def check_fields(name: str, fields: Mapping[str, Any], schema: type[Schema], repair: str = RESTORE) -> None:
    """Check that an object has a form; the message names the first field that has not."""
    try:
        schema.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = f"{name}, field {'.'.join(map(str, first['loc']))!r},"
        rule, received = rule_of(first), f"{first['input']!r}"[:80]
        if first["type"] == "missing":
            rule, received = "must be there", "nothing"
        raise InvalidInputError(place, rule, received, repair) from None


_Step = Annotated[int, Field(ge=0, lt=2**63)]
_Number = Annotated[float, Field(ge=-1e100, le=1e100)]
_NonNegative = Annotated[float, Field(ge=0, le=1e100)]
_Count = Annotated[int, Field(ge=1, lt=2**63)]


class Schema(BaseModel):
    """The form of a JSON object, which may hold more."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, protected_namespaces=())


class MetricsSchema(Schema):
    """A line of ``metrics.jsonl``: its step, and numbers."""

    __pydantic_extra__: dict[str, _Number]  # pyright: ignore[reportIncompatibleVariableOverride]
    step: _Step


class _Estimate(Schema):
    value: _Number
    std_error: _NonNegative | None


class _Likelihood(_Estimate):
    num_examples: _Count
    num_samples: _Count


class _LogPartition(Schema):
    value: _Number
    std_error: _NonNegative
    method: str


class _Elbo(Schema):
    elbo: _Number
    elbo_std_error: _NonNegative | None
    reconstruction: _Number
    kl_discrete: _Number
    kl_continuous: _Number
    num_examples: _Count


class _LogPartitions(Schema):
    best: _LogPartition
    forward: _LogPartition | None = None
    reverse: _LogPartition | None = None


class _EvaluationSettings(Schema):
    num_samples: _Count
    num_examples: _Count | None
    seed: int


class ResultSchema(Schema):
    """The common part of a run's results."""

    step: _Step
    checkpoint_sha256: str | None = None
    sha256: str | None = None
    changed_config: dict[str, Any] | None = None


class EvaluationSchema(ResultSchema):
    """A result of `dvae evaluate`, as in ``evaluation.json`` and ``evaluations``."""

    data: str
    data_sha256: str | None = None
    config: _EvaluationSettings
    log_likelihood: _Likelihood
    log_likelihood_limit: _Likelihood | None = None
    elbo: _Elbo
    log_partition: _LogPartitions
    independent_features: _Estimate | None = None


class _LogPartitionSettings(Schema):
    std_error: _Number | None = None
    seed: int | None = None


class LogPartitionSchema(ResultSchema):
    """A result of `dvae log-partition`, as in ``log_partition.json`` and ``log_partitions``."""

    estimates: Annotated[list[_LogPartition], Field(min_length=1)]
    exact: _Number | None
    config: _LogPartitionSettings | None = None


def _check_axes(shape: list[int]) -> list[int]:
    if len(shape) not in (1, 3):
        raise ValueError("must have one or three axes")
    return shape


class _Picture(Schema):
    event_shape: Annotated[list[_Count], AfterValidator(_check_axes)]
    low: _Number
    high: _Number


class _Data(Schema):
    name: str | None = None
    source: str | None = None
    split: str | None = None
    sha256: str | None = None
    columns: list[str] | None = None
    picture: _Picture | None = None


class _Device(Schema):
    type: str | None = None
    name: str | None = None


class _Commit(Schema):
    hash: str | None = None
    modified: bool | None = None


class _Platform(Schema):
    torch_threads: _Count | None = None


class EnvironmentSchema(Schema):
    """``environment.json``; earlier versions leave out what has a default."""

    discrete_vae: str | None = None
    packages: dict[str, str] = {}
    commit: _Commit | None = None
    device: _Device = _Device()
    platform: _Platform = _Platform()
    data: _Data = _Data()
    precision: Literal["float32", "bfloat16"] = "float32"  # what runs had before there was a choice


# Places for results, checked before the work.


_MIN_FREE = 2**20  # bytes


def is_stream(path: Path) -> bool:
    """True for what is no file: a pipe, a device, or this process's own output, such as /dev/stdout."""
    try:
        found = path.stat()
    except OSError:
        return False
    return (not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode)) or _own(found) is not None


def write_through(path: Path, content: bytes) -> None:
    """Write to a pipe, a device or this process's own output, behind what was printed there."""
    own = _own(path.stat())
    if own is not None and sys.stdout is not None:
        sys.stdout.flush()
    with open(path if own is None else os.dup(own), "wb") as stream:  # noqa: PTH123 (a descriptor too)
        stream.write(content)


def _own(found: os.stat_result) -> int | None:
    """The descriptor, of standard output or standard error, that leads to a file; None if neither does."""
    for descriptor in (1, 2):
        with suppress(OSError):  # a closed one
            if os.path.samestat(found, os.fstat(descriptor)):
                return descriptor
    return None


def check_writable(
    path: Path, *, repair: str = "Give another place, or check permissions and space."
) -> None:
    """Check that a file, in folders that would be made, can be written, as far as can be known without touching it."""
    with writing(path, repair):
        with suppress(FileNotFoundError, NotADirectoryError):
            path.stat()  # a loop of links is said here
        folder = (Path(os.path.realpath(path)) if path.is_symlink() else path).parent
        while not folder.exists():
            folder = folder.parent
        if path.exists() and not path.is_dir() and not os.access(path, os.W_OK):
            reason = "a file that is protected from writing"
        elif is_stream(path):
            return
        elif not folder.is_dir():
            reason = f"{folder}, which is no folder"
        elif path.is_dir():
            reason = "a folder of that name"
        elif not os.access(folder, os.W_OK | os.X_OK):
            reason = f"{folder}, where nothing may be written"
        elif shutil.disk_usage(folder).free < _MIN_FREE:
            reason = f"{folder}, whose disk is full"
        else:
            return
    raise InvalidInputError(str(path), "must be writable", reason, repair)


def check_replaces_none(path: Path, others: Iterable[Path], *, argument: str) -> None:
    """Check that a file, by whatever name, is none of those that a command reads, or writes besides."""
    for other in others:
        try:
            same = path.samefile(other)
        except OSError:  # one of them is not there
            same = os.path.realpath(path) == os.path.realpath(other)
        if same:
            rule = "must be another file than those that are read, written besides, or belong to the run"
            raise InvalidInputError(argument, rule, repr(str(path)), "Give another name.")


@contextmanager
def writing(path: Path, repair: str) -> Iterator[None]:
    """Let errors of the system in the block say that a file or a folder cannot be written."""
    try:
        yield
    except OSError as error:
        raise InvalidInputError(str(path), "must be writable", error.strerror or error, repair) from None


# Models that come with the library, each the folder of a run in which nothing may be written.

_PACKAGE = Path(__file__).resolve().parents[1]
FOLDERS = (_PACKAGE / "models", _PACKAGE.parents[1] / "reproduction" / "models")
"""Places of the library's models, a folder each: in an installed package, and in a checkout."""


def pretrained_names() -> tuple[str, ...]:
    """Names of the trained models that come with the library, for `load_pretrained` and `dvae VERB --pretrained`."""
    folder = next((each for each in FOLDERS if each.is_dir()), None)
    names = [] if folder is None else [path.parent.name for path in folder.glob("*/config.json")]
    return tuple(sorted(name for name in names if not name.startswith(".")))  # as a killed export leaves them


def shipped_folder(name: str, *, argument: str = "name") -> Path:
    """The folder of a model that comes with the library."""
    names = pretrained_names()
    if name not in names:
        known = names or ["the models of the library, of which there are none"]
        raise not_one_of(argument, known, name, "See dvae list.")
    return next(each / name for each in FOLDERS if (each / name).is_dir())
