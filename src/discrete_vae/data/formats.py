"""Files that libraries read: sparse matrices by SciPy, HDF5 by h5py, annotated matrices by anndata."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import mmread
from scipy.sparse import coo_array, csc_array, csr_array, issparse

from discrete_vae.config.columns import RawColumn, raw_column
from discrete_vae.data.arrays import check_is_file, library, narrowed, reading_errors, shown_key, silenced
from discrete_vae.data.tables import ColumnRoles, TextFormat, label_words, shown_names
from discrete_vae.errors import InvalidInputError
from discrete_vae.sparse import SparseRows
from discrete_vae.system import check_memory

_LAYOUTS: Mapping[str, Any] = {"csr": csr_array, "csc": csc_array, "coo": coo_array}


def is_sparse(arrays: Mapping[str, np.ndarray]) -> bool:
    """Whether the arrays of a .npz file are those of `scipy.sparse.save_npz`."""
    return {"format", "shape", "data"} <= arrays.keys()


def sparse_of(name: str, arrays: Mapping[str, np.ndarray]) -> SparseRows:
    """The matrix that `scipy.sparse.save_npz` wrote."""
    kind = arrays["format"].item() if arrays["format"].ndim == 0 else None
    kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
    places = ("indices", "indptr") if kind in ("csr", "csc") else ("row", "col")
    if kind not in _LAYOUTS or not {*places} <= arrays.keys() or arrays["shape"].shape != (2,):
        rule = f"must hold a sparse matrix in one of the layouts {', '.join(_LAYOUTS)}"
        raise InvalidInputError(name, rule, repr(kind)[:40], "Save it with scipy.sparse.save_npz(x.tocsr()).")
    data, *places = (arrays[key] for key in ("data", *places))
    with reading_errors(name, "sparse matrix"):
        given = (data, tuple(places)) if kind == "coo" else (data, *places)
        return sparse_rows(name, _LAYOUTS[kind](given, shape=tuple(map(int, arrays["shape"]))))


def sparse_rows(name: str, matrix: Any, columns: Sequence[str] = ()) -> SparseRows:
    """A SciPy matrix as float32, its indices checked, its duplicates added up."""
    if matrix.dtype.kind not in "buif":
        rule, repair = "must hold booleans or real numbers", "Convert it with .astype(float)."
        raise InvalidInputError(name, rule, f"dtype {matrix.dtype}", repair)
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)  # a wrong index would write outside of a dense row
    rows: Any = csr_array(matrix)
    if not rows.has_canonical_format:
        rows = rows.astype(np.float64)  # sums of small integers may need more digits
        rows.sum_duplicates()
    # rounding is not judged: the range of most features holds a 0, beside which no difference is lost
    values = narrowed(name, rows.data, rows.indices, columns)
    return SparseRows(csr_array((values, rows.indices, rows.indptr), shape=rows.shape))


def read_matrix_market(path: Path) -> np.ndarray | SparseRows:
    """Read a .mtx file, also packed as .mtx.gz; one that holds an array is dense."""
    check_is_file(path)
    with reading_errors(str(path), "Matrix Market file"):
        found = mmread(path)
        return sparse_rows(str(path), found) if issparse(found) else np.asarray(found)


def read_h5(path: Path) -> dict[str, np.ndarray]:
    """Read the data sets of an HDF5 file by name; needs h5py."""
    check_is_file(path)
    h5py = library("h5py", path)
    arrays: dict[str, np.ndarray] = {}
    with reading_errors(str(path), "HDF5 file"), h5py.File(path, "r") as file:
        for key in file:
            found, name = file[key], f"{path}, array {shown_key(key)},"
            if not isinstance(found, h5py.Dataset):
                repair = "Save arrays at the top of the file; name one that anndata wrote .h5ad."
                raise InvalidInputError(name, "must be an array", "a group", repair)
            check_memory(name, found.nbytes, "Use a smaller file, or a machine with more memory.")
            is_text = h5py.check_string_dtype(found.dtype) is not None
            arrays[key] = np.asarray(found.asstr()[...], dtype=np.str_) if is_text else np.asarray(found[...])
    return arrays


def read_h5ad(
    path: Path, roles: ColumnRoles, *, layer: str | None = None
) -> tuple[np.ndarray | SparseRows, np.ndarray | None, tuple[str, ...], dict[str, RawColumn]]:
    """Read a layer of an annotated matrix, or X; roles are those of variables, and of columns of obs. Needs anndata.

    Returns:
        Values, (example, feature); labels, (example,), or None; names of the variables, repeated ones numbered; and
        columns of obs that are read besides.
    """
    check_is_file(path)
    anndata = library("anndata", path)
    with reading_errors(str(path), ".h5ad file"), silenced():  # of names that repeat
        data = anndata.read_h5ad(path)
        data.var_names_make_unique()
    if layer is not None and layer not in data.layers:
        repair = f"Its layers are {shown_names(data.layers)}; training reads X without the setting."
        repair += f" A file for a trained model needs the same layer: adata.layers[{layer!r}] = adata.X, say."
        raise InvalidInputError("layer", f"must name a layer of {path}", repr(layer)[:80], repair)
    values = data.X if layer is None else data.layers[layer]
    name = f"{path}, X," if layer is None else f"{path}, layer {layer!r},"
    if values is None:
        repair = f"Name one: --data.layer, of {shown_names(data.layers)}." if len(data.layers) else "Write X."
        raise InvalidInputError(name, "must hold a matrix", "none", repair)
    columns = tuple(map(str, data.var_names))
    if issparse(values):
        with reading_errors(name, "sparse matrix"):
            values = sparse_rows(name, values, columns)
    _, kept = replace(roles, label=None, besides=()).places(path, columns)
    if len(kept) < len(columns):
        values = values.columns(kept) if isinstance(values, SparseRows) else values[:, kept]
        columns = tuple(columns[place] for place in kept)
    replace(roles, ignored=()).places(path, tuple(map(str, data.obs)))  # refuses what obs lacks
    besides = {name: raw_column(name, data.obs[name]) for name in roles.besides if name in data.obs}
    labels = None
    if roles.label in data.obs:
        labels = data.obs[roles.label].to_numpy()
        if labels.dtype.kind not in "biuf":
            labels = label_words(labels, TextFormat())  # "nan" is a gap that has become a word
    return values, labels, columns, besides


def with_annotations(
    path: Path, *, obsm: Mapping[str, np.ndarray] | None, obs: Mapping[str, np.ndarray]
) -> bytes:
    """The bytes of an annotated matrix in a file with more arrays (row, ...) in obsm, and columns (row,) in obs.

    Those of the same name are replaced. Needs anndata.
    """
    h5py, write_elem = library("h5py", path), library("anndata.io", path).write_elem
    content = io.BytesIO(path.read_bytes())
    with reading_errors(str(path), ".h5ad file"), h5py.File(content, "r+") as file:
        for key, values in (obsm or {}).items():
            write_elem(file.require_group("obsm"), key, values)
        for key, values in obs.items():
            write_elem(file["obs"], key, values)
        order = [name for name in file["obs"].attrs["column-order"] if name not in obs]
        file["obs"].attrs["column-order"] = np.array([*order, *obs], dtype=h5py.string_dtype())
    return content.getvalue()
