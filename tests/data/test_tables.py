"""Tables in text and Parquet files, and tables filled with every other byte as it was."""

import csv
import sys

import numpy as np
import pytest

from discrete_vae.config import GaussianLikelihoodConfig, ModelConfig
from discrete_vae.data.rows import load_file, read_label_file, read_rows
from discrete_vae.data.tables import ColumnRoles, check_columns, filled_csv, read_csv, read_parquet
from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.output import OutputFile


def write(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "x.csv"
    path.write_bytes(text.encode(encoding))
    return path


def test_no_name_or_label_is_computed_and_all_come_back(tmp_path):
    names = ["=1+1", "+a", "-b", "@sum(1)", "-1.5", "'=c", "''-c", "'d'", "-", "\uff1de", "f=1"]
    shown = ["'=1+1", "'+a", "'-b", "'@sum(1)", "-1.5", "''=c", "'''-c", "'d'", "-", "'\uff1de", "f=1"]
    labels = np.array(["=cmd|' /C calc'!A1", "-", "+1e3", "a,=b", "'=c"])
    values = np.array([-1.5, 2.0, -0.0, 1e-10, -3e20])
    path = OutputFile(tmp_path / "x.csv").write({"kind": labels} | dict.fromkeys(names, values))
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["kind", *shown]
    assert [row[0] for row in rows] == ["'=cmd|' /C calc'!A1", "-", "+1e3", "a,=b", "''=c"]
    assert [row[1] for row in rows] == ["-1.5", "2.0", "-0.0", "1e-10", "-3e+20"]
    found = read_csv(path, ColumnRoles("kind"))
    assert found.columns == tuple(names)
    assert found.labels is not None
    assert found.labels.tolist() == labels.tolist()
    np.testing.assert_array_equal(found.values, np.stack([values] * len(names), 1))
    OutputFile(path).write(dict.fromkeys(names, values))
    nines = np.full((len(values), len(names)), "9")
    filled = filled_csv(path, names, np.ones(nines.shape, bool), nines).splitlines()
    assert filled == [",".join(shown), *[",".join("9" * len(names))] * len(values)]
    OutputFile(path).write({"kind": labels})
    assert read_label_file(path).tolist() == labels.tolist()


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
    table = read_csv(write(tmp_path, '"a, b";"two\nlines"\n1;2\n'))
    assert table.columns == ("a, b", "two\nlines")
    with pytest.raises(InvalidInputError, match="in line 4"):
        read_csv(write(tmp_path, 'a,"two\nlines"\n1,2\n3,x\n'))


def test_truth_and_gaps_in_words_are_read(tmp_path):
    table = read_csv(write(tmp_path, "a,b\nTrue,FALSE\n#N/A,<NA>\n"))
    np.testing.assert_array_equal(table.values, [[1, 0], [np.nan, np.nan]])


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("1,2\n3,4\n", "x.csv .*; received '1', '2'"),
        ("", "x.csv "),
        ("1,1\n3,4\n", "x.csv "),
        ("made today\na,b\n1,2\n", "x.csv, line 2, .*; received 2"),
        (",a\n0,1\n", "x.csv .*; received none for column 1"),
        ("a,b,a\n1,2,3\n", "x.csv .*; received 'a' more than once"),
        ("a,b\n1,2\n3\n", "x.csv, line 3, .*; received 1"),
        ("a,b\n1,2\n\n3,4,5\n", "x.csv, line 4, .*; received 3"),
        ("a,kind\n1,red\n", "x.csv, column 'kind', .*; received 'red' in line 2.*--data.ignored-columns"),
        ("a;b\n1;2,5\n", "x.csv, column 'b', .*; received '2,5' in line 2. Write decimals with a point"),
        ("a,b\n1,1_000\n", "x.csv, column 'b', .*; received '1_000'"),
        ('a,b\n1,"2\n', "x.csv "),
        ('a,b\n"1"5,2\n', "x.csv "),
    ],
)
def test_what_is_no_table_is_refused_by_place(tmp_path, text, place):
    with pytest.raises(InvalidInputError, match=place):
        read_csv(write(tmp_path, text))


def test_other_encodings_and_missing_files_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="in UTF-8; received other bytes"):
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


@pytest.fixture
def parquet(tmp_path):
    """Writes columns as a Parquet file."""
    module = pytest.importorskip("pyarrow.parquet", reason="pyarrow is in the extra 'tables'")
    import pyarrow

    def write(columns, **options):
        module.write_table(pyarrow.table(columns), tmp_path / "x.parquet", **options)
        return tmp_path / "x.parquet"

    return write


def test_parquet(parquet):
    table = read_parquet(parquet(COLUMNS))
    assert table.columns == ("a", "b", "c")
    np.testing.assert_array_equal(table.values, [[1, 0.5, 1], [2, np.nan, np.nan], [3, 2, 0]])


@pytest.mark.parametrize(
    ("name", "column"),
    [("kind", np.array(["red", "blue", None], dtype=object)), ("day", np.zeros(3, "M8[s]"))],
)
def test_words_and_dates_in_parquet_are_refused_by_column(parquet, name, column):
    with pytest.raises(InvalidInputError, match=f"column '{name}', must hold numbers"):
        read_parquet(parquet(COLUMNS | {name: column}))


def test_parquet_without_its_library_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InvalidInputError, match=r"needs pyarrow.*discrete-vae\[tables\]"):
        read_parquet(tmp_path / "x.parquet")


def test_damaged_parquet_is_refused(parquet):
    path = parquet(COLUMNS)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InvalidInputError, match="must be a readable Parquet file"):
        read_parquet(path)


def test_a_page_that_its_checksum_does_not_fit_is_refused(parquet):
    values = np.linspace(1.0, 2.0, 40)
    path = parquet({"a": values}, use_dictionary=False, compression="NONE", write_page_checksum=True)
    np.testing.assert_array_equal(read_parquet(path).values[:, 0], values)
    data = bytearray(path.read_bytes())
    data[data.index(values[7].tobytes())] ^= 1
    path.write_bytes(data)
    with pytest.raises(InvalidInputError, match="must be a readable Parquet file"):
        read_parquet(path)


@pytest.mark.parametrize(
    ("words", "labels"),
    [
        (("3", "1"), [3, 1]),
        (("cat", "3"), ["cat", "3"]),
        (("", "dog"), ["", "dog"]),
        (("1.5", "2"), ["1.5", "2"]),
    ],
)
def test_a_column_of_labels_is_no_feature(tmp_path, words, labels):
    path = write(tmp_path, f"a,kind,b\n1,{words[0]},2\n3,{words[1]},\n")
    table = read_csv(path, ColumnRoles("kind"))
    assert table.columns == ("a", "b")
    np.testing.assert_array_equal(table.values, [[1, 2], [3, np.nan]])
    assert table.labels.tolist() == labels


def test_labels_of_a_table_stay_with_their_examples(tmp_path):
    path = write(tmp_path, "\n".join(["row,kind,x", *(f"{row},row {row},0.5" for row in range(40))]))
    data = load_file(path=path, label_column="kind")
    assert data.event_shape == (2,)
    assert data.description.columns == ("row", "x")
    for part in ("train", "valid", "test"):
        rows = getattr(data, part)[:, 0]
        assert data.labels[part].tolist() == [f"row {int(row)}" for row in rows]


@pytest.mark.parametrize(
    ("name", "label", "message"),
    [
        (
            "x.csv",
            "knd",
            "label_column must be the name of a column of .*x.csv; received 'knd'. Its columns are 'a', 'kind'",
        ),
        ("x.npy", "kind", "label_column needs a .csv or .parquet file; received .*x.npy"),
    ],
)
def test_labels_that_are_not_there_are_refused(tmp_path, name, label, message):
    write(tmp_path, "a,kind\n1,red\n")
    np.save(tmp_path / "x.npy", np.zeros((30, 2)))
    with pytest.raises(InvalidInputError, match=message):
        load_file(path=tmp_path / name, label_column=label)


def test_a_table_of_labels_alone_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="must hold at least one example and feature"):
        load_file(path=write(tmp_path, "kind\nred\n"), label_column="kind")


def test_columns_that_are_ignored_are_not_read(tmp_path):
    path = write(tmp_path, "id,a,day,kind,b\nx1,1,May 3,cat,2\nx2,3,,dog,\n")
    table = read_csv(path, ColumnRoles("kind", ("day", "id")))
    assert table.columns == ("a", "b")
    np.testing.assert_array_equal(table.values, [[1, 2], [3, np.nan]])
    assert table.labels.tolist() == ["cat", "dog"]
    with pytest.raises(InvalidInputError, match="ignored_columns .*received 'no'. Its columns"):
        read_csv(path, ColumnRoles(ignored=("id", "no")))
    with pytest.raises(InvalidInputError, match="column 'day', .*--data.ignored-columns"):
        read_csv(path, ColumnRoles("kind", ("id", "no"), optional=frozenset({"no"})))
    np.save(tmp_path / "x.npy", np.zeros((30, 2)))
    with pytest.raises(InvalidInputError, match="ignored_columns needs a .csv or .parquet file"):
        load_file(path=tmp_path / "x.npy", ignored_columns=("id",))


@pytest.fixture
def pandas():
    return pytest.importorskip("pandas", reason="pandas is in the extra 'tables'")


def test_what_pandas_writes_as_csv_is_read(tmp_path, pandas):
    frame = pandas.DataFrame({"a": [1.5, None, 3.0], "b": [True, False, True], "kind": ["x", "y", "x"]})
    frame.to_csv(tmp_path / "x.csv", index=False)
    table = read_csv(tmp_path / "x.csv", ColumnRoles("kind"))
    np.testing.assert_array_equal(table.values, frame[["a", "b"]].to_numpy(float))
    assert table.labels.tolist() == ["x", "y", "x"]


def test_what_pandas_writes_as_parquet_is_read(tmp_path, pandas):
    pytest.importorskip("pyarrow", reason="pyarrow is in the extra 'tables'")
    frame = pandas.DataFrame({"a": [1.5, None, 3.0], "b": [True, None, False], "kind": ["x", None, "z"]})
    frame.index = [7, 3, 5]  # as of rows that were chosen; it has no name, and is no feature
    frame.to_parquet(tmp_path / "x.parquet")
    table = read_parquet(tmp_path / "x.parquet", ColumnRoles("kind"))
    np.testing.assert_array_equal(table.values, [[1.5, 1], [np.nan, np.nan], [3, 0]])
    assert table.labels.tolist() == ["x", "", "z"]
    pandas.DataFrame(np.eye(2), columns=["0", "1"]).to_parquet(tmp_path / "numbers.parquet")
    assert read_parquet(tmp_path / "numbers.parquet").columns == ("0", "1")


class CountedName(str):
    """A name that counts how often it is compared."""

    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        CountedName.comparisons += 1
        return str.__eq__(self, other)


def test_names_are_looked_up_in_linear_time(tmp_path, monkeypatch):
    count = 1500
    names = [CountedName(f"g{number}") for number in range(count)]
    path = write(tmp_path, ",".join(names) + "\n" + ",".join("1" * count) + "\n")
    model = ModelConfig(num_features=count, likelihood=GaussianLikelihoodConfig())
    monkeypatch.setattr(CountedName, "comparisons", 0)
    with pytest.raises(InvalidInputError, match="'g7'"):
        check_columns(path, (*names, CountedName("g7")))
    assert ColumnRoles(names[3], tuple(names[700:])).places(path, tuple(names))[0] == 3
    assert read_rows(path, model, columns=names[::-1]).x.shape == (1, count)
    assert filled_csv(path, names, np.zeros((1, count), bool), np.full((1, count), "")) == path.read_text()
    assert CountedName.comparisons < 20 * count


TABLES = {
    "commas": "a,b,c\n1,,3.50\nna, 2 ,\n",
    "no last line end": "a,b,c\n1,,3.50\nna, 2 ,",
    "quotes": 'a,"b",c\r\n"1","",3\r\n"NaN",2,null\r\n',
    "semicolons and a mark": "\ufeffa;b;c\n1;;3\n;2;\n",
    "tabs and blank lines": "a\tb\tc\n\n1\t\t3\n\n\nnone\t2\t\n\n",
    "old line ends": "a,b,c\r1,,3\r,2,\r",
}
GAPS = np.array([[False, True, False], [True, False, True]])


@pytest.mark.parametrize("name", TABLES)
def test_only_gaps_change(name, tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(TABLES[name].encode())
    table = read_csv(path)
    assert (np.isnan(table.values) == GAPS).all()
    words = np.array([["", "0.25", ""], ["7", "", "8"]], dtype=object)
    filled = filled_csv(path, table.columns, GAPS, words)
    again = tmp_path / "y.csv"
    again.write_bytes(filled.encode())
    assert (read_csv(again).values == [[1, 0.25, table.values[0, 2]], [7, 2, 8]]).all()
    assert filled_csv(path, table.columns, np.zeros_like(GAPS), words).encode() == path.read_bytes()
    for new in ("0.25", "7", "8"):
        assert new in filled
        filled = filled.replace(new, "", 1)
    gone = TABLES[name]
    for word in ("na,", '"NaN"', "null", "none", '"",'):
        gone = gone.replace(word, word[len(word.rstrip(",")) :])
    assert filled == gone


def test_columns_in_another_order_and_labels(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text('kind,b,a\n"one, two",,1\nx,2,\n')
    gaps, words = np.array([[False, True], [True, False]]), np.array([["", "5"], ["6", ""]])
    assert filled_csv(path, ["a", "b"], gaps, words) == 'kind,b,a\n"one, two",5,1\nx,2,6\n'


def test_a_file_that_has_changed_is_refused(tmp_path):
    path = tmp_path / "x.csv"
    gaps, words = np.zeros((2, 2), bool), np.full((2, 2), "")
    for text in ("a,c\n1,2\n3,4\n", "a,b\n1,2\n", "a,b\n1,2\n3,4\n5,6\n", "a,b\n1,2,3\n4,5,6\n", ""):
        path.write_text(text)
        with pytest.raises(InvalidInputError, match="must be as it was when it was read"):
            filled_csv(path, ["a", "b"], gaps, words)
