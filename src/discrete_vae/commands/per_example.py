"""The file of dvae evaluate --per-example: the log-likelihood of each example."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

from discrete_vae.errors import InvalidInputError
from discrete_vae.paths import user_path
from discrete_vae.runs.atomic import write_bytes
from discrete_vae.runs.writable import check_writable, unwritable

if TYPE_CHECKING:
    import numpy as np

    from discrete_vae.evaluation.evaluate import Evaluation

_ENDINGS = (".csv", ".npz")
_REPAIR = "Free space, check permissions, or give another --per-example."


def check_per_example_path(text: str) -> Path:
    """Return the path of the file if it can be written.

    Raises:
        InvalidInputError: If it has another ending or cannot be written.
    """
    path = user_path("--per-example", text)
    if path.suffix.lower() not in _ENDINGS:
        rule = f"must end in one of {', '.join(_ENDINGS)}"
        raise InvalidInputError("--per-example", rule, repr(text), "Add .csv to it.")
    check_writable(path, repair=_REPAIR)
    return path


def per_example_columns(result: Evaluation) -> dict[str, np.ndarray]:
    """The columns by name: index, log_likelihood, std_error, ess; those of the sharp limit with limit_ before them.

    log_likelihood and std_error are in nats. `statistics.fmean` of log_likelihood is the printed value.
    """
    columns: dict[str, np.ndarray] = {}
    for prefix, estimate in (("", result.log_likelihood), ("limit_", result.log_likelihood_limit)):
        rows = None if estimate is None else estimate.examples
        if rows is None:
            continue
        columns.setdefault("index", rows.index.numpy())
        columns[f"{prefix}log_likelihood"] = rows.value.numpy()
        columns[f"{prefix}std_error"] = rows.std_error.numpy()
        columns[f"{prefix}ess"] = rows.ess.numpy()
    return columns


def write_per_example(text: str, result: Evaluation) -> Path:
    """Write the columns to a path; numbers in a .csv have all of their digits.

    Raises:
        InvalidInputError: If the file cannot be written.
    """
    import numpy as np

    path, columns = user_path("--per-example", text), per_example_columns(result)
    if path.suffix.lower() == ".npz":
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **columns)
        data = content.getvalue()
    else:
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
        data = table.getvalue().encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data)
    except OSError as error:
        raise unwritable(path, error, _REPAIR) from None
    return path
