import ctypes
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from discrete_vae.runs.io import is_temporary, publish_directory, remove_temporaries, write_bytes, write_text


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


def cannot_exchange(*_):
    raise OSError


def test_a_failed_replacement_puts_the_old_folder_back(tmp_path, monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", cannot_exchange)
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


KILLED = """
import ctypes, os, signal, sys
from pathlib import Path
from discrete_vae.runs.io import publish_directory, write_text

def hook(event, arguments):
    global left
    if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir") and str(folder) in str(arguments):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

folder, left = Path(sys.argv[1]), int(sys.argv[2])
if sys.argv[3] == "renames":
    ctypes.CDLL = None  # nothing exchanges two names, as on other systems than Linux
else:
    ctypes.CDLL(None)
sys.addaudithook(hook)
write_text(folder / "a.txt", "new")
with publish_directory(folder / "model", replace=True) as temporary:
    write_text(temporary / "weights", "new")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot exchange the names of two folders")
@pytest.mark.parametrize("how", ["exchange", "renames"])
def test_a_killed_replacement_leaves_one_of_both_and_what_it_leaves_besides_goes_with_the_next(tmp_path, how):
    for moment in range(1, 100):
        folder = tmp_path / f"{how} {moment}"
        (folder / "model").mkdir(parents=True)
        (folder / "model" / "weights").write_text("old")
        command = [sys.executable, "-c", KILLED, str(folder), str(moment), how]
        status = subprocess.run(command, check=False).returncode
        assert status in (0, -signal.SIGKILL)
        if how == "renames":
            remove_temporaries(folder, of_others=True)
        assert (folder / "model" / "weights").read_text() in ("old", "new")
        write_text(folder / "a.txt", "last")
        assert names(folder) == ["a.txt", "model"]
        if status == 0:
            break
    assert moment > 12


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
