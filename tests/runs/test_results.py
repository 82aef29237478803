"""Results that are kept, and files that a user names for arrays: which file each goes to, whole or not at all."""

import csv
import io
import itertools
import os
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from discrete_vae.runs.io import Schema, read_json, write_json
from discrete_vae.runs.results import OutputFile, ResultStore, digest
from tests.refusals import refused, refused_argument


class Result(Schema):
    n: int
    by: int = 0


def store(folder):
    """Results with a size n, settings "by" and a value."""
    return ResultStore(
        folder / "result.json",
        folder / "results",
        Result,
        name=lambda fields: f"n-{fields['n']}-by-{fields['by']}",
        completeness=lambda fields: (fields["n"],),
    )


@pytest.fixture
def kept(tmp_path):
    return store(tmp_path)


def result(n, by=0, value=0.0):
    return {"n": n, "by": by, "value": value}


def without_sum(fields):
    return {name: value for name, value in fields.items() if name != "sha256"}


def contents(kept):
    return {path.name: without_sum(read_json(path)) for path in sorted(kept.folder.iterdir())}


def test_no_order_of_adding_loses_a_result_or_hides_the_most_complete(tmp_path):
    for number, order in enumerate(itertools.permutations([result(1), result(5), result(3)])):
        folder = tmp_path / str(number)
        folder.mkdir()
        kept = store(folder)
        for fields in order:
            kept.add(fields)
        assert list(contents(kept).values()) == [result(1), result(3), result(5)]
        assert without_sum(kept.most_complete()) == result(5)


def test_what_another_process_adds_meanwhile_is_not_hidden(kept, tmp_path):
    others = iter([result(9), result(7)])

    def completeness(fields):
        for other in others:
            store(tmp_path).add(other)
        return (fields["n"],)

    slow = ResultStore(
        kept.most_complete_path, kept.folder, Result, name=lambda fields: "own", completeness=completeness
    )
    slow.add(result(1))
    assert without_sum(kept.most_complete()) == result(9)


def test_the_same_settings_replace_their_own_file_alone(kept):
    kept.add(result(5, value=1.0))
    kept.add(result(5, by=1, value=2.0))
    assert kept.add(result(5, value=3.0)) == [kept.folder / "n-5-by-0.json", kept.most_complete_path]
    assert contents(kept) == {
        "n-5-by-0.json": result(5, value=3.0),
        "n-5-by-1.json": result(5, by=1, value=2.0),
    }
    assert without_sum(kept.most_complete()) == result(5, value=3.0)


def test_of_equals_the_one_kept_last_stays_the_most_complete(kept):
    for by in (2, 0, 1):
        kept.add(result(5, by=by))
    assert without_sum(kept.most_complete()) == result(5, by=1)
    assert kept.add(result(2)) == [kept.folder / "n-2-by-0.json"]
    assert without_sum(kept.most_complete()) == result(5, by=1)


def test_what_an_earlier_version_left_is_kept(kept):
    write_json(kept.most_complete_path, result(9, value=-67.4))
    kept.add(result(1))
    assert contents(kept) == {"n-1-by-0.json": result(1), "n-9-by-0.json": result(9, value=-67.4)}
    assert without_sum(kept.most_complete()) == result(9, value=-67.4)


def test_a_damaged_result_is_found_first_and_stays(kept):
    kept.add(result(1))
    path = kept.folder / "n-1-by-0.json"
    for text in ("{", '{"by": 0}', '{"n": "1"}', path.read_text().replace("0.0", "0.5")):
        path.write_text(text)
        assert path.name in refused_argument(kept.check)
        assert path.read_text() == text


def test_a_disk_that_refuses_is_one_error_and_loses_nothing(kept, monkeypatch):
    kept.add(result(1))
    full = OSError(28, "No space left on device")
    monkeypatch.setattr("discrete_vae.runs.results.write_json", Mock(side_effect=full))
    assert "n-2-by-0.json" in refused_argument(kept.add, result(2))
    assert without_sum(kept.most_complete()) == result(1)


def test_the_digest_does_not_depend_on_the_order_of_settings():
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})


# Files that a user names.


ARRAYS = {"bits": np.array([[0, 1], [1, 1]], np.uint8), "score": np.array([-1.5, np.nan])}
COLUMNS = {"first": ARRAYS["bits"][:, 0], 'se"cond, ζ': np.array([0.1, 1e-10], np.float32)}


def test_each_ending_has_its_form(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is in the extra 'tables'")
    folder = tmp_path / "new"
    for ending in (".npz", ".npy", ".csv", ".parquet", ".CSV"):
        OutputFile(folder / f"a{ending}").write(ARRAYS, array=ARRAYS["bits"], columns=COLUMNS)
    with np.load(folder / "a.npz") as found:
        assert {name: found[name].dtype for name in found} == {n: a.dtype for n, a in ARRAYS.items()}
        np.testing.assert_array_equal(found["bits"], ARRAYS["bits"])
    np.testing.assert_array_equal(np.load(folder / "a.npy"), ARRAYS["bits"])
    for name in ("a.csv", "a.CSV"):
        assert (folder / name).read_text() == 'first,"se""cond, ζ"\n0,0.1\n1,1e-10\n'
    assert parquet.read_table(folder / "a.parquet").to_pydict()["first"] == [0, 1]


def test_columns_alone_make_a_table_and_an_array_side_by_side(tmp_path):
    values = np.arange(10_000)  # more than are text at the same time
    path = OutputFile(tmp_path / "a.csv").write({"a": values, "b": -values})
    assert path.read_text().splitlines()[1:] == [f"{value},{-value}" for value in values]
    path = OutputFile(tmp_path / "a.npy").write({"a": np.arange(2), "b": np.array([0.5, 1.0])})
    np.testing.assert_array_equal(np.load(path), [[0, 0.5], [1, 1]])


def test_words_with_ends_of_lines_stay_whole_in_a_table(tmp_path):
    words = ["c\rd", "a\r\n", "\n", 'q"', "plain"]
    path = OutputFile(tmp_path / "a.csv").write({"a": np.array(words), "b": np.arange(5)})
    text = path.read_bytes().decode()
    assert list(csv.DictReader(io.StringIO(text, newline=""))) == [
        {"a": word, "b": str(place)} for place, word in enumerate(words)
    ]
    assert text.endswith("\nplain,4\n")


def test_other_endings_and_what_is_read_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "a", "a.npz.bak", ".npz"):
        assert refused_argument(OutputFile, name) == "--out"
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "link.csv").symlink_to("a.csv")
    others = [Path("b.csv"), Path("a.csv")]
    for name in ("a.csv", "c/../a.csv", "link.csv", "b.csv"):  # there is no b.csv yet
        assert refused_argument(OutputFile, tmp_path / name, others=others) == "--out"
    OutputFile(tmp_path / "c.csv", others=others)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
@pytest.mark.parametrize("ending", [".npz", ".npy", ".csv", ".parquet"])
def test_a_pipe_is_written_through_and_stays(tmp_path, ending):
    if ending == ".parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is in the extra 'tables'")
    pipe = tmp_path / f"a{ending}"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (pipe, tmp_path / f"b{ending}"):
        OutputFile(path).write(ARRAYS, array=ARRAYS["bits"], columns=COLUMNS)
    read = os.read(reader, 1 << 20)
    os.close(reader)
    assert pipe.is_fifo()
    if ending in (".npy", ".csv"):
        assert read == (tmp_path / f"b{ending}").read_bytes()
    elif ending == ".npz":
        with np.load(io.BytesIO(read)) as found:
            np.testing.assert_array_equal(found["bits"], ARRAYS["bits"])
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [f"a{ending}", f"b{ending}"]


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="the system has no such device")
def test_a_device_takes_a_table_or_the_first_ending(capfd):
    print("before")
    OutputFile("/dev/stdout").write(ARRAYS, columns=COLUMNS)
    print("after")
    OutputFile("/dev/stdout", endings=(".json", ".html")).write_bytes(b"{}\n")
    assert capfd.readouterr().out == 'before\nfirst,"se""cond, ζ"\n0,0.1\n1,1e-10\nafter\n{}\n'
    assert OutputFile("/dev/null").write(ARRAYS, columns=COLUMNS) == Path("/dev/null")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_its_file_is_replaced(tmp_path, there):
    (tmp_path / "far").mkdir()
    if there:
        (tmp_path / "far" / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("far/real.csv")
    OutputFile(tmp_path / "link.csv").write({"a": np.arange(2)})
    assert (tmp_path / "link.csv").readlink() == Path("far/real.csv")
    assert (tmp_path / "far" / "real.csv").read_text() == "a\n0\n1\n"
    assert [entry.name for entry in (tmp_path / "far").iterdir()] == ["real.csv"]


def test_a_loop_of_links_is_refused(tmp_path):
    (tmp_path / "a.csv").symlink_to("b.csv")
    (tmp_path / "b.csv").symlink_to("a.csv")
    (tmp_path / "folder").symlink_to("folder")
    (tmp_path / "file").touch()
    for name in ("a.csv", "folder/a.csv", "file/a.csv"):
        assert refused_argument(OutputFile, tmp_path / name) == str(tmp_path / name)


def test_a_failure_leaves_the_old_file(tmp_path):
    file = OutputFile(tmp_path / "a.csv")
    file.write({"a": np.arange(2)})
    with pytest.raises(ValueError, match="zip"):
        file.write({"a": np.arange(2), "b": np.arange(3)})
    assert file.path.read_text() == "a\n0\n1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    error = refused(OutputFile, tmp_path / "a.parquet")
    assert (error.argument, "pyarrow" in str(error)) == ("--out", True)
