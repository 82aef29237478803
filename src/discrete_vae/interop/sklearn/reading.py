"""What the scikit-learn estimators read: arrays, sparse matrices, data frames of mixed columns, and weights of rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy import sparse

from discrete_vae.config.columns import raw_column
from discrete_vae.data.schema import TableSchema, infer_schema
from discrete_vae.data.splits import DataSplits, check_weights
from discrete_vae.errors import InvalidInputError
from discrete_vae.system import check_memory

_ROWS = 4096  # that are dense at a time
_MOST_COPIES = 100  # of a row, on average


def check_readable(X: Any) -> None:  # noqa: N803 (scikit-learn's name)
    """Refuse objects that hold rows but are no rows, and say what of them to give."""
    is_masked = isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X)
    is_rows = isinstance(X, np.ndarray) or sparse.issparse(X) or is_frame(X)  # also of a view of AnnData
    if is_rows and not is_masked:
        return
    kind, package = type(X).__name__, type(X).__module__.partition(".")[0]
    repair = None
    if is_masked:
        repair = "Give X.astype(float).filled(numpy.nan): gaps are NaN."
    elif package in ("anndata", "mudata") or all(hasattr(X, name) for name in ("obs", "var", "layers")):
        repair = "Give adata.X, or a layer such as adata.layers['counts'], in memory: a row for each cell."
    elif isinstance(X, DataSplits):
        repair = "Give X.train.numpy(); the estimators split their rows themselves."
    elif isinstance(X, Mapping):
        repair = "Give pandas.DataFrame(X)."
    elif isinstance(X, str | bytes | Path):
        repair = "Read the file first, with numpy.load or pandas.read_csv."
    elif package == "torch" and hasattr(X, "__getitem__") and not hasattr(X, "shape"):
        repair = "Give all of its rows as one array."
    if repair is not None:
        rule = "must be an array, a sparse matrix or a data frame of rows"
        raise InvalidInputError("X", rule, f"an object of type {kind}", repair)


@contextmanager
def naming_x(argument: str | None = None) -> Iterator[None]:
    """Name X, in place of one argument or of all, and the parameters of the estimator, not options of commands."""
    try:
        yield
    except InvalidInputError as error:
        name = "X" if argument in (None, error.argument) else error.argument
        if name == error.argument and "--data." not in error.repair:
            raise
        rule, repair = (text.replace("--model.", "") for text in (error.rule, error.repair))
        if "--data." in repair:
            repair = (
                "Make its cells numbers, with None for gaps, or name its kind: kinds={'COLUMN': 'category'}."
            )
        raise InvalidInputError(name, rule, error.received, repair) from None


def dense_blocks(rows: Any) -> Iterator[np.ndarray]:
    """Blocks of some thousand rows of an array or a sparse matrix, as arrays."""
    for first in range(0, rows.shape[0], _ROWS):
        block = rows[first : first + _ROWS]
        yield block.toarray() if sparse.issparse(block) else block


def dense(rows: Any) -> np.ndarray:
    """The whole array, of a sparse matrix where the memory has room for it."""
    if not sparse.issparse(rows):
        return np.asarray(rows)
    repair = "Give fewer rows or columns: training reads all of them as an array."
    check_memory("X", rows.shape[0] * rows.shape[1] * rows.dtype.itemsize, repair, what="for its rows")
    return rows.toarray()


# Weights of rows.


def weighted_rows(rows: np.ndarray, sample_weight: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Rows in an order of their own, with their weights above 0; None where there are none.

    Whole numbers count copies, which are made. Their dtype must be one of integers: of floating-point numbers the
    ratios alone count. Either way a row of weight 0 is left out. The order is that of the rows' values, so that a fit
    depends on which rows there are and how often, not on where they stand.
    """
    kept, weights = weighted_places(sample_weight, len(rows))
    rows = rows[kept]
    if weights is not None:  # of equal rows the lightest first
        lightest = weights.argsort(kind="stable")
        rows, weights = rows[lightest], weights[lightest]
    # one zero of both, and one NaN of all; of equal rows the bytes are then equal
    values = np.ascontiguousarray(
        np.where(np.isnan(rows), rows.dtype.type(np.nan), rows + rows.dtype.type(0))
    )
    order = values.view(np.dtype((np.void, values[0].nbytes))).ravel().argsort(kind="stable")
    return values[order], None if weights is None else weights[order]


def quantile(values: np.ndarray, share: float, sample_weight: Any) -> float:
    """The quantile of values, (row,), as `numpy.quantile` gives it; weights are read as `weighted_rows` does."""
    kept, weights = weighted_places(sample_weight, len(values))
    if weights is None or bool((weights == weights[0]).all()):
        return float(np.quantile(values[kept], share))
    return float(np.quantile(values[kept], share, weights=weights, method="inverted_cdf"))


def weighted_places(sample_weight: Any, num_rows: int) -> tuple[np.ndarray | slice, np.ndarray | None]:
    """Places of the rows that have a weight, of counts each as often as it counts; and the weights, None of counts."""
    if sample_weight is None:
        return slice(None), None
    found = check_weights("sample_weight", sample_weight, num_rows)
    if np.asarray(sample_weight).dtype.kind not in "bui":
        kept = np.flatnonzero(found)
        return kept, found[kept]
    total = found.sum()
    if total > _MOST_COPIES * len(found):
        rule = f"of whole numbers counts copies of rows, at most {_MOST_COPIES} of each on average"
        repair = "Give floating-point numbers, whose ratios alone count: sample_weight.astype(float)."
        raise InvalidInputError("sample_weight", rule, f"{total:.3g} copies of {len(found)} rows", repair)
    return np.repeat(np.arange(num_rows), found.astype(np.int64)), None


# Data frames of mixed columns.


def has_words(X: Any) -> bool:  # noqa: N803
    """Whether X is a data frame with a column that holds other values than numbers, truth values and gaps."""
    if not is_frame(X):
        return False
    others = [each for each in X.items() if getattr(each[1].dtype, "kind", "O") not in "buifc"]
    return any(raw_column(str(name), column).words for name, column in others)


def numbers_of(X: Any) -> Any:  # noqa: N803
    """X, of a data frame with the numbers and gaps of its columns of objects, where they hold nothing else."""
    if not is_frame(X):
        return X
    found = X.copy(deep=False)
    for place, (name, column) in enumerate(X.items()):
        if getattr(column.dtype, "kind", "O") == "O" and not (cells := raw_column(str(name), column)).words:
            found.isetitem(place, cells.numbers)
    return found


def is_frame(X: Any) -> bool:  # noqa: N803
    """Whether X is a data frame, as pandas has them."""
    return all(hasattr(X, name) for name in ("columns", "dtypes", "items"))


@dataclass(frozen=True, eq=False)
class FrameColumns:
    """How a data frame becomes a model's numbers, and numbers a frame of the same names, words and dtypes."""

    schema: TableSchema  # the kinds of its columns
    names: tuple[Hashable, ...]  # the frame's own, of the columns that the model reads
    dtypes: tuple[Any, ...]  # theirs
    cells: tuple[np.ndarray | None, ...]  # that stand for each code of a column; None of numbers

    @classmethod
    def of(cls, frame: Any, kinds: Mapping[str, str] | None) -> Self:
        """Infer the kinds of a frame's columns, see `discrete_vae.data.infer_schema`."""
        _check_frame(frame)
        with naming_x("table"):
            schema = infer_schema(frame, kinds)
        names = {str(name): name for name in frame.columns}
        own = tuple(names[column.name] for column in schema.columns)
        cells = tuple(_cells(column, frame[name]) for name, column in zip(own, schema.columns, strict=True))
        return cls(schema, own, tuple(frame[name].dtype for name in own), cells)

    def encode(self, frame: Any, *, fitted: bool) -> np.ndarray:
        """Values as the model reads them, (row, column) float32, found by the names of columns."""
        _check_frame(frame)
        with naming_x("table"):
            return self.schema.encode(frame, fitted=fitted).numpy()

    def decode(self, values: np.ndarray, index: Any = None) -> Any:
        """A data frame of values, (row, column), that a row can have; without gaps."""
        import pandas

        parts = enumerate(zip(self.schema.columns, values.T, self.dtypes, self.cells, strict=True))
        found = pandas.DataFrame({place: _column(*part) for place, part in parts})
        found = found.set_axis(pandas.Index(self.names), axis=1)
        return found if index is None else found.set_axis(index)


def _check_frame(frame: Any) -> None:
    if not is_frame(frame):
        repair = "Give a pandas DataFrame, whose columns are found by their names."
        rule = "must be a data frame to be read as a table"
        raise InvalidInputError("X", rule, f"an object of type {type(frame).__name__}", repair)


def _cells(config: Any, column: Any) -> np.ndarray | None:
    """The cell of each code of a column, (code,) objects; of codes that the frame lacks the word."""
    if not hasattr(config, "values"):
        return None
    found = np.array(config.values, object)
    if hasattr(column.dtype, "categories"):
        seen = type(column)(column.dtype.categories, dtype=column.dtype)
    elif column.dtype.kind == "b":
        seen = type(column)([False, True], dtype=column.dtype)
    else:
        seen = column.dropna().drop_duplicates()
    known = set(config.values)
    for cell in seen:
        # of a truth alone a column declares both
        more = () if isinstance(cell, bool | np.bool_) else raw_column(config.name, [cell]).values()
        for word in (str(cell).strip(), *more):
            if word in known:
                found[config.values.index(word)] = cell
    return found


def _column(config: Any, values: np.ndarray, dtype: Any, cells: np.ndarray | None) -> Any:
    import pandas

    if cells is not None:
        codes = np.clip(np.rint(values), 0, len(cells) - 1).astype(int)
        return pandas.Series(cells[codes], dtype=dtype)
    numbers = config.decode(values)
    if dtype.kind in "ui":
        of_column = getattr(dtype, "numpy_dtype", getattr(dtype, "subtype", dtype))  # of sparse ones, too
        limits = np.iinfo(of_column)
        numbers = np.clip(np.round(numbers), limits.min, limits.max)
    return pandas.Series(numbers).astype(dtype)
