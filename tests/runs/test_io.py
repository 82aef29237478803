"""Files: whole or not at all, read with care, JSON with the right form, places that can be written."""

import ctypes
import errno
import os
import stat
import subprocess
import sys
from collections import namedtuple
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest

from discrete_vae.runs.io import (
    MetricsSchema,
    check_fields,
    check_writable,
    is_temporary,
    open_regular,
    publish_directory,
    read_json,
    remove_temporaries,
    write_bytes,
    write_json,
    write_text,
)
from tests.refusals import refused_argument


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_full_disk_is_named_and_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_text(path, "first and long")
    write_text(path, "ζ")
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=full))
    with pytest.raises(OSError, match="No space left") as caught:
        write_bytes(path, b"new")
    assert caught.value.filename == str(path)
    assert path.read_text(encoding="utf-8") == "ζ"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EIO])
def test_a_file_system_that_syncs_no_folder_is_written_to(tmp_path, monkeypatch, number):
    fsync = os.fsync

    def of_files(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", of_files)
    with pytest.raises(OSError, match=os.strerror(number)) if number == errno.EIO else nullcontext():
        publish(tmp_path / "step-1")
    assert names(tmp_path) == ([] if number == errno.EIO else ["step-1"])


@pytest.mark.parametrize("name", ["a" * 255, "数" * 85])
def test_names_may_be_as_long_as_the_system_allows(name, tmp_path):
    write_text(tmp_path / name, "first")
    write_text(tmp_path / name, "second")
    assert (tmp_path / name).read_text() == "second"
    (tmp_path / name).unlink()
    for replace in (False, True):
        with publish_directory(tmp_path / name, replace=replace):
            pass
    assert names(tmp_path) == [name]


def test_a_folder_appears_only_when_complete(tmp_path):
    final = tmp_path / "step-1"
    with pytest.raises(OSError, match="none"), publish_directory(final) as temporary:
        Path(temporary, "none", "state").write_text("no such folder")
    assert names(tmp_path) == []
    with publish_directory(final) as temporary:
        (temporary / "inner").mkdir()
        (temporary / "inner" / "state").write_text("1")
        assert not final.exists()
        assert is_temporary(temporary)
    assert (final / "inner" / "state").read_text() == "1"
    assert names(tmp_path) == ["step-1"]


@pytest.fixture
def final(tmp_path):
    """A folder that is there, with an old state."""
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / "state").write_text("old")
    return tmp_path / "step-1"


def publish(final, **settings):
    with publish_directory(final, **settings) as temporary:
        (temporary / "state").write_text("new")


def test_a_taken_name_is_kept_unless_it_may_be_replaced(final):
    with pytest.raises(OSError, match="not empty"):
        publish(final)
    assert (final / "state").read_text() == "old"
    publish(final, replace=True)
    assert (final / "state").read_text() == "new"
    assert names(final.parent) == ["step-1"]


def test_a_failed_replacement_puts_the_old_folder_back(final, monkeypatch):
    def cannot_exchange(*_):
        raise OSError

    rename = Path.rename

    def refuse_the_new_one(self, target):
        if (self / "state").read_text() == "new":
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(ctypes, "CDLL", cannot_exchange)
    monkeypatch.setattr(Path, "rename", refuse_the_new_one)
    with pytest.raises(OSError, match="Input/output"):
        publish(final, replace=True)
    assert (final / "state").read_text() == "old"
    assert names(final.parent) == ["step-1"]


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

if sys.argv[2] == "renames":
    ctypes.CDLL = None  # nothing exchanges two names, as on other systems than Linux
else:
    ctypes.CDLL(None)
for moment in range(1, 100):
    folder, left = Path(sys.argv[1], str(moment)), moment
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "weights").write_text("old")
    if os.fork() == 0:
        try:
            sys.addaudithook(hook)
            write_text(folder / "a.txt", "new")
            with publish_directory(folder / "model", replace=True) as temporary:
                write_text(temporary / "weights", "new")
            os._exit(0)
        finally:
            os._exit(1)
    status = os.wait()[1]
    assert status in (0, signal.SIGKILL)
    if status == 0:
        break
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot exchange the names of two folders")
@pytest.mark.parametrize("how", ["exchange", "renames"])
def test_a_killed_replacement_leaves_one_of_both_and_what_it_leaves_besides_goes_with_the_next(tmp_path, how):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), how], check=True)
    folders = list(tmp_path.iterdir())
    assert len(folders) > 12
    found = set()
    for folder in folders:
        if how == "renames":
            remove_temporaries(folder, of_others=True)
        found.add((folder / "model" / "weights").read_text())
        write_text(folder / "a.txt", "last")
        assert names(folder) == ["a.txt", "model"]
    assert found == {"old", "new"}


def test_what_is_written_is_read_and_what_json_cannot_express_is_refused(tmp_path):
    fields = {"step": 3, "elbo": -81.00000000000001, "words": ["ζ", None, True]}
    write_json(tmp_path / "a.json", fields)
    for value in (float("nan"), float("inf"), object()):
        assert "a.json" in refused_argument(write_json, tmp_path / "a.json", {"elbo": value})
    assert read_json(tmp_path / "a.json") == fields
    assert names(tmp_path) == ["a.json"]


def test_damaged_and_missing_json_and_fields_of_another_form_are_named(tmp_path):
    path = tmp_path / "best.json"
    assert refused_argument(read_json, path) == str(path)
    for content in (b'{"step": ', b"\xff\xfe", b"[1]", b'{"step": NaN}', b"[" * 100_000):
        path.write_bytes(content)
        assert refused_argument(read_json, path) == str(path)
    argument = refused_argument(check_fields, "log", {"step": 1, "elbo": "x"}, MetricsSchema)
    assert argument == "log, field 'elbo',"


def test_what_can_be_written_is_left_as_it_is(tmp_path):
    (tmp_path / "old.json").write_text("old")
    before = tmp_path.stat().st_mtime_ns
    for path in ("old.json", "new.json", "new folder/deeper/new.json"):
        check_writable(tmp_path / path)
    assert names(tmp_path) == ["old.json"]
    assert tmp_path.stat().st_mtime_ns == before


def test_what_cannot_be_written_is_refused(tmp_path, monkeypatch):
    def refused(name):
        assert refused_argument(check_writable, tmp_path / name) == str(tmp_path / name)

    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    refused("file/a.json")
    refused("folder")
    usage = namedtuple("Usage", "total used free")(10, 10, 0)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    refused("a.json")
    monkeypatch.undo()
    asked = os.access  # root may all
    monkeypatch.setattr(os, "access", lambda place, mode: place != tmp_path / "file" and asked(place, mode))
    refused("file")
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    refused("a.json")


@pytest.mark.filterwarnings("ignore:unclosed file", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_operation_of_opening_a_file_stays_an_interrupt(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    interrupts = 0
    while True:
        left = interrupts + 1

        def at_operation(frame, event, _):
            nonlocal left
            left -= event == "opcode"
            if left == 0:
                raise KeyboardInterrupt
            return at_operation

        def at_call(frame, *_):
            frame.f_trace_opcodes = True
            return at_operation

        before = sys.gettrace()
        sys.settrace(at_call)
        try:
            with open_regular(tmp_path / "file") as file:
                break
        except KeyboardInterrupt:
            interrupts += 1
        finally:
            sys.settrace(before)
    assert file.closed
    assert interrupts > 20
