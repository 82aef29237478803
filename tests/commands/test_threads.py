"""Threads of dvae train: one for small models, the run's own number when it is resumed, the user's word first."""

import json
import shutil

import pytest
import torch

from discrete_vae.commands import threads
from discrete_vae.commands.threads import training_threads
from discrete_vae.experiments import load_experiment
from tests.commands.conftest import TINY


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    """A machine of two cores, whose user has not chosen."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def number(config, begun=None):
    """The threads inside the block; outside they must be as they were."""
    with training_threads(config, {} if begun is None else {"platform": {"torch_threads": begun}}):
        inside = torch.get_num_threads()
    assert torch.get_num_threads() == 2
    return inside


def test_a_small_model_trains_on_one_thread_and_a_large_one_on_all(capsys):
    assert number(load_experiment("digits", "short")) == 1
    assert number(load_experiment("mnist-static", "short")) == 2
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("begun", "expected"), [(1, 1), (2, 2)])
def test_a_resumed_run_keeps_its_number(begun, expected, capsys):
    assert number(load_experiment("digits", "short"), begun) == expected
    assert capsys.readouterr().err == ""


def test_a_run_from_a_larger_machine_goes_on_with_what_there_is(capsys):
    assert number(load_experiment("digits", "short"), 64) == 2
    assert "began with 64 threads and goes on with 2: the same up to rounding" in capsys.readouterr().err


def test_the_users_number_goes_first_and_a_change_is_said(capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert number(load_experiment("digits", "short")) == 2
    assert number(load_experiment("digits", "short"), 1) == 2
    assert "began with 1 thread and goes on with 2" in capsys.readouterr().err


def test_the_number_is_restored_after_an_error():
    with pytest.raises(ZeroDivisionError), training_threads(load_experiment("digits", "short"), {}):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2


def test_the_run_records_its_number_and_is_resumed_with_it(cli, data_file, tmp_path, monkeypatch):
    run = tmp_path / "run"
    assert cli("train", "--data", data_file, "--run-dir", run, *TINY)[0] == 0
    environment = json.loads((run / "environment.json").read_text())
    assert environment["platform"]["torch_threads"] == 1
    assert torch.get_num_threads() == 2
    last = max((run / "checkpoints").iterdir(), key=lambda path: int(path.name.removeprefix("step-")))
    shutil.rmtree(last)
    seen = []
    choose = threads._choose
    monkeypatch.setattr(threads, "_choose", lambda *arguments: seen.append(choose(*arguments)) or seen[-1])
    assert cli("train", "--resume", "--run-dir", run)[0] == 0
    assert seen == [1]
