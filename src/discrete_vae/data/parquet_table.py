"""Tables in Parquet files, read by pyarrow or pandas where one of them is installed."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from discrete_vae.data.read_arrays import check_is_file
from discrete_vae.data.table import NO_FEATURE_REPAIR, NoFeatures, Table, check_columns, read_labels
from discrete_vae.errors import InvalidInputError

Columns = Iterable[tuple[str, np.ndarray]]

_INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls an index without a name


def read_parquet(path: Path, without: NoFeatures | None = None) -> Table:
    """Read a table of numbers; nulls and NaN are missing values.

    An index without a name that pandas wrote is not read.

    Args:
        path: The file.
        without: Which columns are no features; None means all are.

    Raises:
        InvalidInputError: If there is no such column, neither pyarrow nor pandas is installed, the file cannot be
            read, or a column holds something else than numbers or booleans.
    """
    check_is_file(path)
    try:
        found = list(_reader(path)(path))
    except InvalidInputError:
        raise
    except ImportError:  # pandas alone lacks what reads the format
        raise _no_library(path, "pandas without such an engine") from None
    except Exception as error:  # the libraries raise many kinds on damage
        received = " ".join(f"{type(error).__name__}: {error}".split())[:200].rstrip(".")
        repair = "The file is damaged or of another format: copy or write it again."
        raise InvalidInputError(str(path), "must be a readable Parquet file", received, repair) from None
    named = check_columns(path, tuple(name for name, _ in found))
    label, places = (without or NoFeatures()).places(path, named)
    labels = None if label is None else _labels(found[label][1])
    values = [_numbers(path, *found[place]) for place in places]
    stacked = np.stack(values, axis=1) if values else np.empty((0, 0))
    return Table(tuple(named[place] for place in places), stacked, labels)


def _reader(path: Path) -> Callable[[Path], Columns]:
    for module, read in _READERS:
        try:
            library = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        return lambda file: read(library, file)
    raise _no_library(path, "neither is installed")


def _no_library(path: Path, received: str) -> InvalidInputError:
    repair = "Install it: pip install 'discrete-vae[tables]'; or save the table as CSV."
    return InvalidInputError(
        str(path), "needs pyarrow, or pandas with an engine, to be read", received, repair
    )


def _with_pyarrow(library: Any, path: Path) -> Columns:
    # one thread: for many columns the library's threads take longer to start than to read
    table = library.read_table(path, page_checksum_verification=True, use_threads=False)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if not _INDEX.fullmatch(str(name)):
            yield str(name), column.to_numpy()


def _with_pandas(library: Any, path: Path) -> Columns:
    frame = library.read_parquet(path)
    for name in frame.columns:
        yield str(name), frame[name].to_numpy()


def _numbers(path: Path, name: str, column: np.ndarray) -> np.ndarray:
    if column.dtype.kind in "buif":
        return column.astype(np.float64)
    if column.dtype == object and all(_is_real(value) for value in column):  # booleans or numbers with gaps
        return np.array([np.nan if value is None else float(value) for value in column])
    received = next((repr(value) for value in column if not _is_real(value)), str(column.dtype))
    raise InvalidInputError(
        f"{path}, column {name!r},", "must hold numbers", received[:40], NO_FEATURE_REPAIR
    )


def _labels(column: np.ndarray) -> np.ndarray:
    if column.dtype.kind in "bui":
        return column
    return read_labels([value if isinstance(value, str) else _word(value) for value in column])


def _word(value: object) -> str:
    word = str(value)
    return "" if word in ("None", "nan", "<NA>", "NaT") else word


def _is_real(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating))


_READERS: tuple[tuple[str, Callable[[Any, Path], Columns]], ...] = (
    ("pyarrow.parquet", _with_pyarrow),
    ("pandas", _with_pandas),
)
