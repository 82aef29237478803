"""Tables in text and Parquet files, and tables filled with every other byte as it was."""

import csv
import gzip
import io
import sys

import numpy as np
import pytest

from discrete_vae.config import GaussianLikelihoodConfig, ModelConfig
from discrete_vae.data.rows import read_label_file, read_rows
from discrete_vae.data.schema import infer_columns
from discrete_vae.data.tables import (
    ColumnRoles,
    TextFormat,
    filled_parquet,
    filled_text,
    label_words,
    read_table,
)
from discrete_vae.runs.results import OutputFile
from tests.refusals import refused, refused_argument


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
    found = read_table(path, ColumnRoles("kind"))
    assert found.names == tuple(names)
    assert found.labels is not None
    assert found.labels.tolist() == labels.tolist()
    np.testing.assert_array_equal(found.numbers("x"), np.stack([values] * len(names), 1))
    OutputFile(path).write(dict.fromkeys(names, values))
    nines = np.full((len(values), len(names)), "9")
    filled = filled_text(path, names, np.ones(nines.shape, bool), nines).splitlines()
    assert filled == [",".join(shown), *[",".join("9" * len(names))] * len(values)]
    OutputFile(path).write({"kind": labels})
    assert read_label_file(path).tolist() == labels.tolist()


@pytest.mark.parametrize(
    ("separator", "end", "encoding"),
    [(",", "\r\n", "utf-8"), (";", "\n", "utf-8-sig"), ("\t", "\n", "utf-8")],
)
def test_numbers_gaps_and_names_are_read(tmp_path, separator, end, encoding):
    lines = ["a,the ünit", "1,2.5", ",NA", "", "-1e3, nan", "null,4", '"7",N/A', "True,FALSE", "#N/A,<NA>"]
    text = end.join(line.replace(",", separator) for line in lines) + end
    table = read_table(write(tmp_path, text, encoding))
    assert table.names == ("a", "the ünit")
    nan = np.nan
    values = [[1, 2.5], [nan, nan], [-1000, nan], [nan, 4], [7, nan], [1, 0], [nan, nan]]
    np.testing.assert_array_equal(table.numbers("x"), values)


def test_a_table_longer_than_a_block_is_whole(tmp_path):
    values = np.arange(1000.0)[:, None] * np.linspace(-1, 1, 100)
    lines = [",".join(f"x{column}" for column in range(99)) + ",kind"]
    lines += [",".join(map(repr, row[:99].tolist())) + f",{number}" for number, row in enumerate(values)]
    table = read_table(write(tmp_path, "\n".join(lines)), ColumnRoles("kind"))
    np.testing.assert_array_equal(table.numbers("x"), values[:, :99])
    np.testing.assert_array_equal(table.labels, np.arange(1000))
    path = write(tmp_path, "\n".join([*lines[:899], "0,0,0,no" + ",0" * 96]))
    error = refused(read_table(path, ColumnRoles("kind")).numbers, "x.csv")
    assert ("'x3'" in error.argument, "line 900" in str(error)) == (True, True)


def test_names_may_hold_separators_and_lines(tmp_path):
    for text, names in (
        ('"a, b",c\n1,2\n', ("a, b", "c")),
        ('"a, b";"c\nd"\n1;2\n', ("a, b", "c\nd")),
        ('"a, b\nc";d\n1;2\n', ("a, b\nc", "d")),
        ('length 5",width\n1,2\n', ('length 5"', "width")),
        ('a,"b"" c",d",e\n1,2,3,4\n', ("a", 'b" c', 'd"', "e")),
        ("a\x0cb,c\u2028d\n1,2\n", ("a\x0cb", "c\u2028d")),
    ):
        found = read_table(write(tmp_path, text))
        assert (found.names, found.num_rows) == (names, 1)
    table = read_table(write(tmp_path, 'a,"two\nlines"\n1,2\n3,x\n'))
    assert "in line 4" in str(refused(table.numbers, "x.csv"))


NO_TABLES = {
    "x.csv": ["1,2\n3,4\n", "", ",a\n0,1\n", "a,a\n1,2\n", 'a,b\n1,"2\n', 'a,b\n"1"5,2\n', "ö,b\n1,2\n"],
    "line 2,": ["made today\na,b\n1,2\n"],
    "line 3,": ["a,b\n1,2\n3\n"],
    "line 4,": ["a,b\n1,2\n\n3,4,5\n"],
    "column 'kind',": ["a,kind\n1,red\n"],
    "column 'b',": ["a;b\n1;2,5\n", "a,b\n1,1_000\n"],
}


def test_what_is_no_table_is_refused_by_place(tmp_path):
    for place, texts in NO_TABLES.items():
        for text in texts:
            path = write(tmp_path, text, "latin-1")
            found = refused_argument(lambda path: read_table(path).numbers("x.csv"), path)
            assert found.endswith(place), text


COLUMNS = {"a": np.arange(1, 4), "b": np.array([0.5, np.nan, 2]), "c": np.array([True, None, False], object)}


@pytest.fixture
def parquet(tmp_path):
    """Writes columns as a Parquet file."""
    module = pytest.importorskip("pyarrow.parquet", reason="pyarrow is in the extra 'tables'")
    import pyarrow

    def write(columns, **options):
        module.write_table(pyarrow.table(columns), tmp_path / "x.parquet", **options)
        return tmp_path / "x.parquet"

    return write


def test_parquet(parquet, monkeypatch):
    table = read_table(path := parquet(COLUMNS))
    assert table.names == ("a", "b", "c")
    np.testing.assert_array_equal(table.numbers("x"), [[1, 0.5, 1], [2, np.nan, np.nan], [3, 2, 0]])
    for column in (np.array(["red", "1", None], dtype=object), np.zeros(3, "M8[s]")):
        numbers = read_table(parquet(COLUMNS | {"kind": column})).numbers
        assert "column 'kind'" in refused_argument(numbers, "x.parquet")
    words = pytest.importorskip("pyarrow").array(["x", "y", "x"])
    path = parquet(COLUMNS | {"kind": words.dictionary_encode()})
    for library in ("pandas", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, library, None)
        error = refused(read_table, path)
        assert (f"needs {library[:6]}" in error.rule, "discrete-vae[tables]" in error.repair) == (True, True)


def test_damaged_parquet_is_refused(parquet):
    values = np.linspace(1.0, 2.0, 40)
    path = parquet({"a": values}, use_dictionary=False, compression="NONE", write_page_checksum=True)
    np.testing.assert_array_equal(read_table(path).numbers("x")[:, 0], values)
    data = bytearray(path.read_bytes())
    data[data.index(values[7].tobytes())] ^= 1
    for damaged in (data, data[:-9]):
        path.write_bytes(damaged)
        assert "x.parquet" in refused_argument(read_table, path)


def test_labels_and_columns_that_are_ignored_are_no_features(tmp_path):
    for words in (("3", "1"), ("cat", "3"), ("", "dog"), ("1.5", "2")):
        path = write(tmp_path, f"id,a,day,kind,b\nx1,1,May 3,{words[0]},2\nx2,3,,{words[1]},\n")
        table = read_table(path, ColumnRoles("kind", ("day", "id")))
        assert table.names == ("a", "b")
        np.testing.assert_array_equal(table.numbers("x"), [[1, 2], [3, np.nan]])
        assert table.labels.tolist() == ([3, 1] if words == ("3", "1") else [*words])
    error = refused(read_table, path, ColumnRoles(ignored=("id", "no")))
    assert (error.argument, "'no'" in error.received) == ("ignored_columns", True)
    table = read_table(path, ColumnRoles("kind", ("id", "no"), optional=frozenset({"no"})))
    assert "column 'day'" in refused_argument(table.numbers, "x")


@pytest.fixture
def pandas():
    return pytest.importorskip("pandas", reason="pandas is in the extra 'tables'")


def test_what_pandas_writes_as_parquet_is_read(tmp_path, pandas):
    pytest.importorskip("pyarrow", reason="pyarrow is in the extra 'tables'")
    frame = pandas.DataFrame({"a": [1.5, None, 3.0], "b": [True, None, False], "kind": ["x", None, "z"]})
    frame.index = [7, 3, 5]  # as of rows that were chosen; it has no name, and is no feature
    frame.to_parquet(tmp_path / "x.parquet")
    table = read_table(tmp_path / "x.parquet", ColumnRoles("kind"))
    np.testing.assert_array_equal(table.numbers("x"), [[1.5, 1], [np.nan, np.nan], [3, 0]])
    assert table.labels.tolist() == ["x", "", "z"]
    pandas.DataFrame({"a": [1, 2], "y": [7.0, None]}).to_parquet(tmp_path / "gaps.parquet")
    assert read_table(tmp_path / "gaps.parquet", ColumnRoles("y")).labels.tolist() == ["7", ""]
    pandas.DataFrame(np.eye(2), columns=["0", "1"]).to_parquet(tmp_path / "numbers.parquet")
    assert read_table(tmp_path / "numbers.parquet").names == ("0", "1")


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
    assert ColumnRoles(names[3], tuple(names[700:])).places(path, tuple(names))[0] == 3
    assert read_rows(path, model, columns=names[::-1]).x.shape == (1, count)
    assert filled_text(path, names, np.zeros((1, count), bool), np.full((1, count), "")) == path.read_text()
    assert CountedName.comparisons < 20 * count


TABLES = {
    "commas": "a,b,c\n1,,3.50\nna, 2 ,\n",
    "no last line end": "a,b,c\n1,,3.50\nna, 2 ,",
    "quotes": 'a,"b",c\r\n"1","",3\r\n"NaN",2,null\r\n',
    "semicolons and a mark": "\ufeffa;b;c\n1;;3\n;2;\n",
    "tabs and blank lines": "a\tb\tc\n\n1\t\t3\n\n\nNone\t2\t\n\n",
    "old line ends": "a,b,c\r1,,3\r,2,\r",
}
GAPS = np.array([[False, True, False], [True, False, True]])


@pytest.mark.parametrize("name", TABLES)
def test_only_gaps_change(name, tmp_path):
    path, again = tmp_path / "x.csv", tmp_path / "y.csv"
    path.write_bytes(TABLES[name].encode())
    table = read_table(path)
    assert (np.isnan(table.numbers("x")) == GAPS).all()
    words = np.array([["", "0.25", ""], ["7", "", "8"]], dtype=object)
    filled = filled_text(path, table.names, GAPS, words)
    again.write_bytes(filled.encode())
    assert (read_table(again).numbers("x") == [[1, 0.25, table.numbers("x")[0, 2]], [7, 2, 8]]).all()
    assert filled_text(path, table.names, np.zeros_like(GAPS), words).encode() == path.read_bytes()
    for new in ("0.25", "7", "8"):
        assert new in filled
        filled = filled.replace(new, "", 1)
    gone = TABLES[name]
    for word in ("na,", '"NaN"', "null", "None", '"",'):
        gone = gone.replace(word, word[len(word.rstrip(",")) :])
    assert filled == gone


def test_columns_in_another_order_and_labels(tmp_path):
    path = write(tmp_path, 'kind,b,a\n"one, two",,1\nx,2,\n')
    gaps, words = np.array([[False, True], [True, False]]), np.array([["", "5"], ["6", ""]])
    assert filled_text(path, ["a", "b"], gaps, words) == 'kind,b,a\n"one, two",5,1\nx,2,6\n'


def test_a_word_that_a_spreadsheet_would_compute_is_marked_where_the_file_has_none(tmp_path):
    path = write(tmp_path, "kind,b\n-x,1\n,2\n,3\n")
    gaps, words = np.array([[False], [True], [True]]), np.array([[""], ["-x"], ["=y"]])
    assert filled_text(path, ["kind"], gaps, words) == "kind,b\n-x,1\n-x,2\n'=y,3\n"


def test_a_file_that_has_changed_is_refused(tmp_path):
    path = tmp_path / "x.csv"
    gaps, words = np.zeros((2, 2), bool), np.full((2, 2), "")
    for text in ("a,c\n1,2\n3,4\n", "a,b\n1,2\n", "a,b\n1,2\n3,4\n5,6\n", "a,b\n1,2,3\n4,5,6\n", ""):
        path.write_text(text)
        assert "x.csv" in refused_argument(filled_text, path, ["a", "b"], gaps, words)


def test_only_gaps_of_parquet_change_and_types_stay_where_they_have_room(tmp_path, pandas):
    ranks = pandas.Categorical(["a", None, "b"], categories=["b", "a"], ordered=True)
    columns = {"name": ["x", "y", "z"], "rank": ranks, "at": [1, 2, 3]}
    columns |= {"true": pandas.array([True, None, False]), "word": ["p", None, "q"]}
    columns |= {"real": np.float32([1, np.nan, 2]), "whole": pandas.array([1, None, 3], dtype="Int64")}
    frame = pandas.DataFrame(columns, index=pandas.Index([5, 7, 9], name="key"))
    frame.to_parquet(path := tmp_path / "x.parquet")
    new = {"rank": "b", "true": True, "word": "new", "real": 0.1, "whole": 4.0}

    def filled(new):
        gaps = np.tile(np.array([False, True, False])[:, None], len(new))
        table = {name: np.array([None, value, "not read"], dtype=object) for name, value in new.items()}
        path.with_name("y.parquet").write_bytes(filled_parquet(path, table, gaps))
        return pandas.read_parquet(path.with_name("y.parquet"))

    wanted = frame.copy()
    wanted.loc[7, list(new)] = list(new.values())
    pandas.testing.assert_frame_equal(filled(new), wanted)
    mean = filled({"rank": "c", "true": 0.3, "whole": 2.5})
    assert mean[["rank", "true", "whole"]].to_numpy().tolist() == [["a", 1, 1], ["c", 0.3, 2.5], ["b", 0, 3]]
    assert "x.parquet" in refused_argument(filled, {"gone": 1})


# Text that is written in other ways, and words.


def test_what_is_not_written_as_said_is_a_word_and_contradictions_are_refused():
    for form, words in (
        ({}, ["1,000", "1,5", "1_000"]),
        ({"decimal": ","}, ["1.5"]),
        ({"thousands": ","}, ["1,00"]),
        ({"thousands": ",", "decimal": "."}, ["1,0000", "1234,567", ",234", "1.234,567"]),
        ({"thousands": ".", "decimal": ","}, ["1234.567", ".234"]),
    ):
        assert [TextFormat(**form).number(word) for word in words] == [None] * len(words)
    assert refused_argument(TextFormat, decimal=",", thousands=",") == "decimal"
    for argument, value in (("delimiter", "ab"), ("decimal", ""), ("encoding", "none"), ("encoding", "hex")):
        assert refused_argument(TextFormat, **{argument: value}) == argument


def test_no_break_spaces_group_digits_as_spaces_do():
    form = TextFormat(thousands=" ", decimal=",")
    assert [form.number(f"1{space}234,5") for space in (" ", "\u00a0", "\u202f")] == [1234.5] * 3


def test_codes_keep_their_zeros(tmp_path):
    cells = ["01", "2A", "", "1", "0", "0.5", "07", "10"]
    (column,) = read_table(write(tmp_path, "\n".join(["a", *(f'"{cell}"' for cell in cells)]))).columns
    assert column.values() == ("0", "0.5", "01", "07", "10", "2A")
    schema = infer_columns([column], {"a": "category"})
    coded = [schema.columns[0].values.index(word) for word in ("01", "01", "07")]
    assert schema.encode({"a": ["01", 1, 7]})[:, 0].tolist() == coded
    assert schema.decode(np.array([[coded[0]]]))["a"].tolist() == ["01"]
    numbers = read_table(write(tmp_path, "a\n01\n02\n03\n")).columns[0]
    (months,) = infer_columns([numbers], {}).columns
    assert (months.values, months.holds) == (("01", "02", "03"), "words")


def test_the_encoding_that_is_likely_is_named(tmp_path):
    for text, encoding in (("a;b\n1;€\n", "cp1252"), ("a\tb\n1\t2\n", "utf-16")):
        assert f"--data.encoding {encoding}" in str(refused(read_table, write(tmp_path, text, encoding)))


def test_compressed_and_tab_separated_files(tmp_path):
    text = b"a\tb\n1\tred\n\t2\n"
    for name, content in (("x.tsv", text), ("x.TSV.gz", gzip.compress(text)), ("x.txt", text)):
        (tmp_path / name).write_bytes(content)
        a, b = read_table(tmp_path / name).columns
        np.testing.assert_array_equal(a.numbers, [1, np.nan])
        assert (b.words, b.numbers[1]) == (("red",), 2)
    for damaged in (gzip.compress(text)[:-9], text, b"\x1f\x8b" + bytes(20)):
        (tmp_path / "x.csv.gz").write_bytes(damaged)
        assert "x.csv.gz" in refused_argument(read_table, tmp_path / "x.csv.gz")


def test_an_index_of_pandas_is_left_out_where_that_is_said(tmp_path):
    path = write(tmp_path, ",a\n0,1\n1,5\n")
    assert "ignored-columns" in str(refused(read_table, path))
    assert read_table(path, ColumnRoles(ignored=("",))).names == ("a",)
    assert read_table(write(tmp_path, "a,,\n0,,\n1,,\n"), ColumnRoles(ignored=("",))).names == ("a",)


def test_labels_are_words_unless_they_mean_a_gap():
    labels = np.array(["none", "mild", "", "NA", "None", "?", "2.0"])
    found = label_words(labels, TextFormat(missing=("?",)))
    assert found.tolist() == ["none", "mild", "", "", "", "", "2"]
    assert label_words(labels[:2], TextFormat(missing=("inf", "2"))).tolist() == ["none", "mild"]


def test_categories_of_parquet_keep_what_they_declare_and_what_the_user_names_alone_is_a_gap(parquet, pandas):
    sizes = pandas.Categorical(["S", "L", None], categories=["S", "M", "L"], ordered=True)
    frame = pandas.DataFrame({"size": sizes, "n": [1.5, None, -999.0], "word": ["?", "NA", "c"]})
    frame.to_parquet(path := parquet(COLUMNS))
    size, number, word = read_table(path, form=TextFormat(missing=("?", "-999"))).columns
    assert (size.words, size.codes.tolist(), size.ordered) == (("S", "M", "L"), [0, 2, -1], True)
    assert np.isnan(number.numbers).tolist() == [False, True, True]
    assert (word.words, word.codes.tolist()) == (("NA", "c"), [-1, 0, 1])


def random_table(random):
    """The text of a table, and how it is written."""
    forms = [(".", "", ","), (",", ".", ";"), (".", ",", "\t"), (",", "", "|")]
    decimal, thousands, delimiter = forms[random.integers(4)]
    encoding = ["utf-8", "latin-1", "utf-16"][random.integers(3)]
    num_rows, names = int(random.integers(1, 30)), [f"c{k} é" for k in range(random.integers(1, 6))]

    def number():
        value = round(float(random.normal() * 10.0 ** random.integers(-3, 8)), int(random.integers(0, 4)))
        text = f"{value:,}" if thousands and random.random() < 0.5 else str(value)
        return text.translate(str.maketrans({".": decimal, ",": thousands}))

    def cell(is_word):
        if random.random() < 0.1:
            return ["", "NA", "?"][random.integers(3)]
        word = ["rot", "it's", 'a "b" c', f"x{delimiter}y", "zwei\nZeilen"][random.integers(5)]
        return word if is_word else number()

    columns = [[cell(is_word) for _ in range(num_rows)] for is_word in random.random(len(names)) < 0.4]
    text = io.StringIO(newline="")
    quoting = [csv.QUOTE_MINIMAL, csv.QUOTE_ALL][random.integers(2)]
    writer = csv.writer(text, delimiter=delimiter, quoting=quoting)
    writer.writerows([names, *zip(*columns, strict=True)])
    form = {"delimiter": delimiter, "decimal": decimal, "thousands": thousands, "encoding": encoding}
    return text.getvalue(), form


def test_pandas_reads_the_same(tmp_path, pandas):
    """Numbers, words and gaps of random tables in text are those that pandas finds."""
    for seed in range(60):
        text, form = random_table(np.random.default_rng(seed))
        path = write(tmp_path, text, form["encoding"])
        how = {"sep": form["delimiter"], "decimal": form["decimal"], "thousands": form["thousands"] or None}
        wanted = pandas.read_csv(path, **how, encoding=form["encoding"], na_values=["?"])
        if len(wanted.columns) == 1:  # a line of one empty cell is blank to both, in quotes to one of them
            wanted = wanted.dropna(how="all")
        table = read_table(path, form=TextFormat(**form, missing=("?",)))
        assert table.names == tuple(wanted.columns)
        for column in table.columns:
            found = wanted[column.name]
            if column.codes is None:
                values = column.numbers[~column.missing] if len(wanted.columns) == 1 else column.numbers
                np.testing.assert_array_equal(values, found.to_numpy(float))
            else:
                words = np.array([*column.words, None], object)[column.codes]
                given = [word for word in words if word is not None or len(wanted.columns) > 1]
                assert given == [None if each != each else each for each in found]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_moves_on_a_terminal_alone_while_a_large_file_is_read(tmp_path, monkeypatch):
    large = "\n".join(["a,b", *(f"{number},{'x' * 100_000}" for number in range(350))])
    for text, is_large in ((large, True), ("a,b\n1,2\n", False)):
        path = write(tmp_path, text)
        for screen in (Terminal(), io.StringIO()):
            monkeypatch.setattr(sys, "stderr", screen)
            assert read_table(path).names == ("a", "b")
            assert bool(screen.getvalue()) == (is_large and screen.isatty())
