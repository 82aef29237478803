"""Tables in text files and in Parquet files."""

import sys
import types

import numpy as np
import pytest

from discrete_vae.data.csv_table import read_csv
from discrete_vae.data.from_file import load_file
from discrete_vae.data.parquet_table import read_parquet
from discrete_vae.errors import InvalidInputError


def write(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "x.csv"
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_numbers_gaps_and_names_are_read(tmp_path, separator, end, encoding):
    lines = ["a,the ünit", "1,2.5", ",NA", "", "-1e3, nan", "null,4", '"7",N/A']
    text = end.join(line.replace(",", separator) for line in lines) + end
    table = read_csv(write(tmp_path, text, encoding))
    assert table.columns == ("a", "the ünit")
    nan = np.nan
    np.testing.assert_array_equal(table.values, [[1, 2.5], [nan, nan], [-1000, nan], [nan, 4], [7, nan]])


def test_names_may_hold_separators_and_lines_quotes(tmp_path):
    table = read_csv(write(tmp_path, '"a, b",c\n1,2\n'))
    assert table.columns == ("a, b", "c")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\n3,4\n", "must start with a line that names the columns; received '1', '2'"),
        ("", "must start with a line that names the columns"),
        (",a\n0,1\n", "must have a name for every column; received none for column 1.*index=False"),
        ("a,b,a\n1,2,3\n", "must have different names of columns; received 'a' more than once"),
        ("a,b\n1,2\n3\n", "line 3, must have 2 cells, as the header has; received 1"),
        ("a,b\n1,2\n3,4,5\n", "line 3, must have 2 cells"),
        (
            "a,kind\n1,red\n",
            "column 'kind', must hold numbers; received 'red' in line 2. Leave the column out",
        ),
        (
            "a;b\n1;2,5\n",
            "column 'b', must hold numbers; received '2,5' in line 2. Write decimals with a point",
        ),
        ("a,b\n1,1_000\n", "column 'b', must hold numbers; received '1_000'"),
        ('a,b\n1,"2\n', "must be a readable CSV file"),
    ],
)
def test_what_is_no_table_is_refused_by_place(tmp_path, text, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        read_csv(write(tmp_path, text))
    assert "x.csv" in str(caught.value)


def test_other_encodings_and_missing_files_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="must be text in UTF-8"):
        read_csv(write(tmp_path, "größe,b\n1,2\n", "latin-1"))
    with pytest.raises(InvalidInputError, match="must exist"):
        read_csv(tmp_path / "none.csv")


def test_a_table_without_examples_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="must hold at least one example and feature"):
        load_file(path=write(tmp_path, "a,b\n"))


def test_columns_are_kept_and_named_in_errors(tmp_path):
    lines = [f"{row},{1.7e9 + row % 7}" for row in range(40)]
    path = write(tmp_path, "\n".join(["width,seconds", *lines]))
    with pytest.raises(InvalidInputError, match="column 'seconds'"):
        load_file(path=path)
    lines = [f"{row},{row % 7}" for row in range(40)]
    data = load_file(path=write(tmp_path, "\n".join(["width,seconds", *lines])))
    assert data.description.columns == ("width", "seconds")
    assert data.event_shape == (2,)


COLUMNS = {
    "a": np.array([1, 2, 3]),
    "b": np.array([0.5, np.nan, 2.0]),
    "c": np.array([True, None, False], dtype=object),
}


class PyArrow(types.ModuleType):
    """What is used of pyarrow.parquet."""

    def __init__(self, columns):
        super().__init__("pyarrow.parquet")
        self.columns = columns

    def read_table(self, path):
        columns = [
            types.SimpleNamespace(to_numpy=lambda column=column: column) for column in self.columns.values()
        ]
        return types.SimpleNamespace(column_names=list(self.columns), columns=columns)


class Frame(dict):
    """Columns by name, with the list of names."""


class Pandas(types.ModuleType):
    """What is used of pandas."""

    def __init__(self, columns):
        super().__init__("pandas")
        self.columns = columns

    def read_parquet(self, path):
        cells = {
            name: types.SimpleNamespace(to_numpy=lambda column=column: column)
            for name, column in self.columns.items()
        }
        frame = Frame(cells)
        frame.columns = list(cells)
        return frame


@pytest.fixture
def parquet(tmp_path, monkeypatch):
    """A file, and a function that installs a library which reads given columns from it."""
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1")
    for name in ("pyarrow", "pyarrow.parquet", "pandas"):
        monkeypatch.setitem(sys.modules, name, None)

    def install(library):
        if library.__name__ == "pyarrow.parquet":
            monkeypatch.setitem(sys.modules, "pyarrow", types.ModuleType("pyarrow"))
        monkeypatch.setitem(sys.modules, library.__name__, library)

    return path, install


@pytest.mark.parametrize("library", [PyArrow, Pandas])
def test_parquet(parquet, library):
    path, install = parquet
    install(library(COLUMNS))
    table = read_parquet(path)
    assert table.columns == ("a", "b", "c")
    np.testing.assert_array_equal(table.values, [[1, 0.5, 1], [2, np.nan, np.nan], [3, 2, 0]])


@pytest.mark.parametrize("library", [PyArrow, Pandas])
def test_words_and_dates_in_parquet_are_refused_by_column(parquet, library):
    path, install = parquet
    install(library(COLUMNS | {"kind": np.array(["red", "blue", None], dtype=object)}))
    with pytest.raises(InvalidInputError, match="column 'kind', must hold numbers; received 'red'"):
        read_parquet(path)
    install(library(COLUMNS | {"day": np.zeros(3, "M8[s]")}))
    with pytest.raises(InvalidInputError, match="column 'day', must hold numbers"):
        read_parquet(path)


def test_parquet_without_a_library_names_the_extra(parquet):
    with pytest.raises(
        InvalidInputError, match=r"needs pyarrow.*neither is installed.*discrete-vae\[tables\]"
    ):
        read_parquet(parquet[0])


def test_pandas_without_an_engine_is_no_damage(parquet):
    path, install = parquet
    alone = Pandas(COLUMNS)

    def read_parquet_alone(_):
        raise ImportError("no engine")

    alone.read_parquet = read_parquet_alone
    install(alone)
    with pytest.raises(InvalidInputError, match="received pandas without such an engine"):
        read_parquet(path)


def test_damaged_parquet_is_refused(parquet):
    path, install = parquet
    broken = PyArrow(COLUMNS)
    broken.read_table = lambda _: 1 / 0
    install(broken)
    with pytest.raises(
        InvalidInputError, match="must be a readable Parquet file; received ZeroDivisionError"
    ):
        read_parquet(path)
