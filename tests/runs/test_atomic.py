import errno
import os
from pathlib import Path

import pytest

from discrete_vae.runs.atomic import (
    is_temporary,
    publish_directory,
    remove_temporaries,
    write_bytes,
    write_text,
)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_write_replaces_the_whole_content(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "first and long")
    write_text(path, "ζ")
    assert path.read_text(encoding="utf-8") == "ζ"
    assert names(tmp_path) == ["a.txt"]


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    write_bytes(path, b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]


def test_a_folder_appears_only_when_complete(tmp_path):
    final = tmp_path / "step-1"
    with publish_directory(final) as temporary:
        (temporary / "inner").mkdir()
        (temporary / "inner" / "state").write_text("1")
        assert not final.exists()
        assert is_temporary(temporary)
    assert (final / "inner" / "state").read_text() == "1"
    assert names(tmp_path) == ["step-1"]


def test_an_interrupted_folder_leaves_nothing(tmp_path):
    def interrupted():
        with publish_directory(tmp_path / "step-1") as temporary:
            (temporary / "state").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert names(tmp_path) == []


def test_a_taken_name_is_kept_unless_it_may_be_replaced(tmp_path):
    final = tmp_path / "step-1"
    final.mkdir()
    (final / "state").write_text("old")
    with pytest.raises(OSError, match="not empty"), publish_directory(final) as temporary:
        (temporary / "state").write_text("new")
    assert (final / "state").read_text() == "old"
    with publish_directory(final, replace=True) as temporary:
        (temporary / "state").write_text("new")
    assert (final / "state").read_text() == "new"
    assert names(tmp_path) == ["step-1"]


def test_a_failed_replacement_puts_the_old_folder_back(tmp_path, monkeypatch):
    final = tmp_path / "step-1"
    final.mkdir()
    (final / "state").write_text("old")
    rename = Path.rename

    def refuse_the_new_one(self, target):
        if (self / "state").read_text() == "new":
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse_the_new_one)
    with pytest.raises(OSError, match="Input/output"), publish_directory(final, replace=True) as temporary:
        (temporary / "state").write_text("new")
    assert (final / "state").read_text() == "old"
    assert names(tmp_path) == ["step-1"]


def test_leftovers_are_removed_and_nothing_else(tmp_path):
    (tmp_path / ".tmp-step-2-ab" / "deep").mkdir(parents=True)
    (tmp_path / ".tmp-config.json-cd").touch()
    (tmp_path / "step-1").mkdir()
    remove_temporaries(tmp_path, of_others=False)
    assert names(tmp_path) == ["step-1"]


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_bytes(tmp_path / "config.json", b"{}")
    assert caught.value.filename == str(tmp_path / "config.json")
    assert list(tmp_path.iterdir()) == []
