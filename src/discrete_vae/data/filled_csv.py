"""A table in a text file with some of its cells replaced and every other byte as it was."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from discrete_vae.data.csv_table import read_header
from discrete_vae.errors import InvalidInputError

_MARK = "\ufeff"  # the byte order mark that some programs put first
_CELL = r'("(?:[^"]|"")*"|[^{0}\r\n]*)({0}|\r\n|\r|\n|\Z)'


def filled_csv(path: Path, columns: Sequence[str], replaced: np.ndarray, words: np.ndarray) -> str:
    r"""The text of a table that `discrete_vae.data.csv_table.read_csv` reads, with new words in some cells.

    Args:
        path: The file.
        columns: Names of the columns that the arrays speak of, in their order; others stay as they are.
        replaced: (row, column) bool, which cells.
        words: (row, column) text, what they hold then.

    Returns:
        The text; its line ends are those of the file.

    Raises:
        InvalidInputError: If the file has changed since it was read: it has other columns, or another number of rows.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "x.csv")
        ...     _ = path.write_text('width;"my height"\n1.50;\n\n;2\n')
        ...     gaps = np.array([[False, True], [True, False]])
        ...     filled_csv(path, ["width", "my height"], gaps, np.array([["", "0.5"], ["7", ""]]))
        'width;"my height"\n1.50;0.5\n\n7;2\n'
    """
    with path.open(encoding="utf-8", newline="") as file:
        whole = file.read()
    text = whole.removeprefix(_MARK)
    separator, names, _ = read_header(io.StringIO(text, newline=""))
    rule, repair = "must be as it was when it was read", "Run it again."
    there, place_of = set(names), {name: place for place, name in enumerate(columns)}
    if missing := [column for column in columns if column not in there]:
        raise InvalidInputError(str(path), rule, f"no column {missing[0][:40]!r}", repair)
    places = [place_of.get(name) for name in names]
    pieces = [_MARK] if text != whole else []
    row = -2  # the header, row -1, comes first
    for cells in _records(text, separator):
        if len(cells) == 1 and not cells[0][0]:  # a blank line
            pieces.append(cells[0][1])
            continue
        row += 1
        if row < 0:
            pieces += [part for cell in cells for part in cell]
            continue
        if row >= len(replaced) or len(cells) != len(places):
            raise InvalidInputError(str(path), rule, f"other rows from row {row}", repair)
        for place, (cell, end) in zip(places, cells, strict=True):
            new = place is not None and replaced[row, place]
            pieces += [str(words[row, place]) if new else cell, end]
    if row + 1 != len(replaced):
        raise InvalidInputError(str(path), rule, f"{row + 1} rows", repair)
    return "".join(pieces)


def _records(text: str, separator: str) -> Iterator[list[tuple[str, str]]]:
    """The cells of each line, each with what ends it."""
    cells: list[tuple[str, str]] = []
    for found in re.finditer(_CELL.format(re.escape(separator)), text):
        cell, end = found.groups()
        if not end and not cell and not cells:  # behind the last line's end
            return
        cells.append((cell, end))
        if end != separator:
            yield cells
            cells = []
