"""One writer at a time."""

import errno
import subprocess
import sys

import pytest

from discrete_vae.errors import InvalidInputError
from discrete_vae.runs import run_directory
from discrete_vae.runs.run_directory import RunDirectory, sole_writer


def test_a_second_writer_is_refused_until_the_first_is_done(tmp_path):
    with sole_writer(tmp_path):
        with pytest.raises(InvalidInputError, match="run_dir must not be in use"), sole_writer(tmp_path):
            pass
        (tmp_path / "written").touch()
    with sole_writer(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["written"]


def test_a_killed_writer_holds_nothing(tmp_path):
    code = (
        "import sys; from pathlib import Path; from discrete_vae.runs.run_directory import sole_writer\n"
        "with sole_writer(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(InvalidInputError, match="must not be in use"), sole_writer(tmp_path):
            pass
        process.kill()
    with sole_writer(tmp_path):
        pass


def test_the_file_that_a_killed_writer_leaves_is_in_nobodys_way(tmp_path):
    (tmp_path / run_directory.LOCK_NAME).touch()
    assert RunDirectory.check_new(tmp_path) == tmp_path  # killed before the config was written
    with sole_writer(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_comes_as_another_leaves_holds_the_folder(tmp_path):
    """The file that the first one removes guards nothing, though the second one may have it open."""
    with sole_writer(tmp_path):
        (tmp_path / run_directory.LOCK_NAME).unlink()  # as the first does before it lets go
        with (
            sole_writer(tmp_path),
            pytest.raises(InvalidInputError, match="must not be in use"),
            sole_writer(tmp_path),
        ):
            pass


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EROFS, errno.ENOLCK])
def test_where_nothing_can_be_locked_nothing_is_held(tmp_path, monkeypatch, number):
    class NoLock(run_directory.FileLock):
        def _acquire(self):
            raise OSError(number, "no locks here")

    monkeypatch.setattr(run_directory, "FileLock", NoLock)
    with sole_writer(tmp_path):
        (tmp_path / "written").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["written"]
