import shutil
from collections import namedtuple

import pytest

from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.io import check_writable


def test_what_can_be_written_is_left_as_it_is(tmp_path):
    (tmp_path / "old.json").write_text("old")
    before = tmp_path.stat().st_mtime_ns
    for path in ("old.json", "new.json", "new folder/deeper/new.json"):
        check_writable(tmp_path / path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["old.json"]
    assert tmp_path.stat().st_mtime_ns == before


def test_what_is_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "a.json").mkdir()
    with pytest.raises(
        InvalidInputError, match=r"file/a\.json must be writable; received .*file, which is no folder"
    ):
        check_writable(tmp_path / "file" / "a.json")
    with pytest.raises(InvalidInputError, match=r"a\.json must be writable; received a folder of that name"):
        check_writable(tmp_path / "a.json")


def test_a_folder_of_someone_else(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda folder, mode: False)
    with pytest.raises(InvalidInputError, match="where nothing may be written"):
        check_writable(tmp_path / "a.json")


def test_a_full_disk(tmp_path, monkeypatch):
    usage = namedtuple("Usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(10, 10, 0))
    with pytest.raises(InvalidInputError, match=r"whose disk is full. Give another"):
        check_writable(tmp_path / "a.json", repair="Give another --out.")
