"""The folder of a run: its files, its log, its lock, what it ran on."""

import errno
import json
import os
import signal
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

import discrete_vae
from discrete_vae.errors import InvalidInputError
from discrete_vae.runs import run_directory
from discrete_vae.runs.run_directory import MetricsLog, RunDirectory, describe_environment, sole_writer
from tests.refusals import refused, refused_argument


def test_a_new_run_takes_an_empty_folder(tmp_path):
    run = RunDirectory.create(tmp_path / "a" / "run")
    assert run.path == tmp_path / "a" / "run"
    assert list(run.path.iterdir()) == []
    assert run.checkpoints(keep_last=3).folder(7) == run.path / "checkpoints" / "step-7"
    for name in (".tmp-config.json-ab", run_directory.LOCK_NAME):  # which killed processes leave
        (run.path / name).touch()
    assert RunDirectory.create(run.path).path == run.path


def test_a_new_run_refuses_all_else(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    for folder in (tmp_path, tmp_path / "thesis.tex", tmp_path / "thesis.tex" / "run"):
        error = refused(RunDirectory.create, folder)
        assert (error.argument, "thesis.tex" in error.received) == ("run_dir", True)
    assert refused_argument(RunDirectory.create, tmp_path / (300 * "a")) == "run_dir"
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("thesis.tex", "mine")]


def test_only_a_run_can_be_opened(tmp_path):
    for folder in (tmp_path / "none", tmp_path):
        assert refused_argument(RunDirectory.open, folder) == "run_dir"
    RunDirectory.create(tmp_path).write_config("{}")
    run = RunDirectory.open(str(tmp_path))
    assert run.read_config() == "{}"
    run.config_path.write_bytes(b"\xff")
    assert refused_argument(run.read_config) == str(run.config_path)


# metrics.jsonl.


@pytest.fixture
def log(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for step in (10, 20, 30):
        log.append({"step": step, "elbo": -100.0 + step})
    return log


def steps(log):
    return [record["step"] for record in log.read()]


def test_no_file_means_no_records(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.drop_after(5)
    log.sync()
    assert log.read() == []
    assert not log.path.exists()


def test_a_torn_last_line_is_ignored_and_then_removed(log):
    log.sync()
    assert log.read()[1] == {"step": 20, "elbo": -80.0}
    whole = log.path.read_bytes()
    for cut in range(1, 26):  # every place inside the last line
        log.path.write_bytes(whole[:-cut])
        assert steps(log) == [10, 20]
    log.append({"step": 31, "elbo": -69.0})
    assert steps(log) == [10, 20, 31]
    log.path.write_bytes(b'{"step": 1')
    log.append({"step": 2})
    assert steps(log) == [2]


def test_lines_beyond_the_step_are_dropped(log):
    before = log.path.stat().st_mtime_ns, log.path.stat().st_ino
    log.drop_after(30)
    assert (log.path.stat().st_mtime_ns, log.path.stat().st_ino) == before
    log.drop_after(20)
    assert steps(log) == [10, 20]
    log.append({"step": 25})
    assert steps(log) == [10, 20, 25]


def test_a_damaged_tail_is_dropped_and_damage_before_a_kept_line_refused_by_its_number(log):
    log.path.write_bytes(log.path.read_bytes() + b"\x00" * 40 + b"\n" + b'{"st')
    assert "line 4" in str(refused(log.read))
    log.drop_after(30)
    assert steps(log) == [10, 20, 30]
    lines = log.path.read_bytes().split(b"\n")
    lines[1] = b"garbage"
    log.path.write_bytes(b"\n".join(lines))
    assert "line 2" in str(refused(log.read))
    assert "line 2" in str(refused(log.drop_after, 30))
    log.drop_after(10)
    assert steps(log) == [10]


def test_a_record_needs_its_step_and_finite_numbers(log):
    for record in ({}, {"step": -1}, {"step": True}, {"step": 1.5}, {"step": 4, "x": float("nan")}):
        wanted = f"record, field '{'x' if 'x' in record else 'step'}',"
        assert refused_argument(log.append, record) == wanted
    assert steps(log) == [10, 20, 30]


# One writer at a time.


def test_a_second_writer_is_refused_until_the_first_is_done(tmp_path):
    with sole_writer(tmp_path):
        with pytest.raises(InvalidInputError, match="run_dir"), sole_writer(tmp_path):
            pass
        (tmp_path / "written").touch()
    with sole_writer(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["written"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a fork beside threads: it computes nothing
def test_a_killed_writer_holds_nothing(tmp_path):
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        with sole_writer(tmp_path):
            os.write(writer, b"held")
            signal.pause()
    assert os.read(reader, 4) == b"held"
    with pytest.raises(InvalidInputError, match="run_dir"), sole_writer(tmp_path):
        pass
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    os.close(reader)
    os.close(writer)
    (tmp_path / run_directory.LOCK_NAME).touch()  # a file of a killed writer is in nobody's way
    with sole_writer(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_comes_as_another_leaves_holds_the_folder(tmp_path):
    """The file that the first one removes guards nothing, though the second one may have it open."""
    with sole_writer(tmp_path):
        (tmp_path / run_directory.LOCK_NAME).unlink()  # as the first does before it lets go
        with sole_writer(tmp_path), pytest.raises(InvalidInputError, match="run_dir"), sole_writer(tmp_path):
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


# environment.json.


def test_it_holds_versions_seed_and_device(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # without git there is no commit
    described = describe_environment(seed=11, device="cpu")
    platform = described["platform"]
    assert (described["discrete_vae"], described["seed"]) == (discrete_vae.__version__, 11)
    assert (described["device"], described["commit"]) == ({"type": "cpu"}, None)
    assert described["packages"]["torch"] == version("torch")
    assert platform["processor"]
    assert platform["torch_threads"] == torch.get_num_threads()
    assert platform["vector_instructions"] == torch.backends.cpu.get_cpu_capability()
    assert json.loads(json.dumps(described, allow_nan=False)) == described


def git(folder, *arguments):
    identity = ["-c", "user.name=n", "-c", "user.email=e"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_is_that_of_the_checkout_that_tracks_the_package(tmp_path):
    file = tmp_path / Path(run_directory.__file__).name
    file.write_text("1")
    git(tmp_path, "init", "-q")
    assert run_directory._commit(tmp_path) is None  # not tracked: the checkout is somebody else's
    git(tmp_path, "add", file.name)
    git(tmp_path, "commit", "-qm", "one")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert run_directory._commit(tmp_path) == {"hash": head, "modified": False}
    file.write_text("2")
    assert run_directory._commit(tmp_path) == {"hash": head, "modified": True}
