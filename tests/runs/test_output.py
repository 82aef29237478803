"""Files that a user names for arrays: by ending, whole or not at all, never over what is read."""

import csv
import io
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.results import OutputFile

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
        with pytest.raises(InvalidInputError, match="--out"):
            OutputFile(name)
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "link.csv").symlink_to("a.csv")
    for name in ("a.csv", "c/../a.csv", "link.csv", "b.csv"):  # there is no b.csv yet
        with pytest.raises(InvalidInputError, match="--out"):
            OutputFile(tmp_path / name, others=[Path("b.csv"), Path("a.csv")])
    OutputFile(tmp_path / "c.csv", others=[Path("b.csv"), Path("a.csv")])


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
        with pytest.raises(InvalidInputError, match=r"a\.csv"):
            OutputFile(tmp_path / name)


def test_a_failure_leaves_the_old_file(tmp_path):
    file = OutputFile(tmp_path / "a.csv")
    file.write({"a": np.arange(2)})
    with pytest.raises(ValueError, match="zip"):
        file.write({"a": np.arange(2), "b": np.arange(3)})
    assert file.path.read_text() == "a\n0\n1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InvalidInputError, match="--out .*pyarrow"):
        OutputFile(tmp_path / "a.parquet")
