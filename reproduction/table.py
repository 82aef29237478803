"""A table of estimates: for a terminal, in Markdown and as .csv."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Value:
    """A number with its standard error.

    Attributes:
        value: The number, nats where nothing else is said.
        std_error: Its standard error; NaN where there is none.
    """

    value: float
    std_error: float = math.nan


Cell = str | int | float | Value | None


@dataclass(frozen=True)
class Column:
    """What stands in a column.

    Attributes:
        title: Its head in words.
        name: Its head in a .csv file.
        digits: Digits after the point, of numbers.
        signed: Whether positive numbers have a plus, as differences have.
    """

    title: str
    name: str
    digits: int = 2
    signed: bool = False

    def text(self, cell: Cell) -> str:
        """A cell in words.

        Examples:
            >>> Column("gap", "gap", signed=True).text(Value(0.5, 0.021))
            '+0.50 ± 0.02'
        """
        if isinstance(cell, Value):
            error = "" if math.isnan(cell.std_error) else f" ± {cell.std_error:.{self.digits}f}"
            return self._number(cell.value) + error
        if isinstance(cell, float):
            return self._number(cell)
        return "" if cell is None else str(cell)

    def _number(self, value: float) -> str:
        if math.isnan(value):
            return ""
        return f"{value:{'+' if self.signed else ''}.{self.digits}f}".replace("-", MINUS)


@dataclass(frozen=True)
class ResultTable:
    """Rows of a result.

    Attributes:
        columns: The columns; the first one says what the row is about.
        rows: A cell per column each.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def markdown(self) -> str:
        """The table in Markdown, numbers to the right."""
        lines = [f"| {' | '.join(column.title for column in self.columns)} |"]
        lines.append(f"| {' | '.join(['---'] + ['---:'] * (len(self.columns) - 1))} |")
        lines += [f"| {' | '.join(row)} |" for row in self._texts()]
        return "\n".join(lines)

    def csv(self) -> str:
        """The table with all digits; a standard error has a column of its own where any row has one."""
        with_error = [
            any(isinstance(row[place], Value) for row in self.rows) for place in range(len(self.columns))
        ]
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        heads: list[str] = []
        for column, errors in zip(self.columns, with_error, strict=True):
            heads += [column.name, f"{column.name}_std_error"] if errors else [column.name]
        writer.writerow(heads)
        for row in self.rows:
            cells: list[object] = []
            for cell, errors in zip(row, with_error, strict=True):
                value, error = (cell.value, cell.std_error) if isinstance(cell, Value) else (cell, None)
                cells += [_plain(value), _plain(error)] if errors else [_plain(value)]
            writer.writerow(cells)
        return out.getvalue()

    def terminal(self, width: int) -> str:
        """The table for so many columns of a terminal: side by side where it fits, else a block per row."""
        texts = self._texts()
        titles = [column.title for column in self.columns]
        sizes = [max(map(len, cells)) for cells in zip(titles, *texts, strict=True)]
        if sum(sizes) + 2 * (len(sizes) - 1) <= width:
            return "\n".join(_aligned(row, sizes) for row in [titles, *texts])
        longest, about = max(map(len, titles[1:])), titles[0]
        blocks = []
        for first, *rest in texts:
            lines = [
                f"  {title:{longest}}  {text}" for title, text in zip(titles[1:], rest, strict=True) if text
            ]
            blocks.append("\n".join([f"{about}: {first}", *lines]))
        return "\n".join(blocks)

    def _texts(self) -> list[list[str]]:
        return [
            [column.text(cell) for column, cell in zip(self.columns, row, strict=True)] for row in self.rows
        ]


def _aligned(row: Sequence[str], sizes: Sequence[int]) -> str:
    first, *rest = (
        f"{text:{size}}" if place == 0 else f"{text:>{size}}"
        for place, (text, size) in enumerate(zip(row, sizes, strict=True))
    )
    return "  ".join([first, *rest]).rstrip()


def _plain(cell: Cell) -> object:
    if isinstance(cell, float) and math.isnan(cell):
        return ""
    return "" if cell is None else cell
