"""Training from Python leaves what the command leaves, which both read; threads of a run."""

import json
from contextlib import nullcontext

import numpy as np
import pytest
import torch

import discrete_vae
from discrete_vae import DiscreteVAE, load_dataset, load_run
from discrete_vae.cli import main
from discrete_vae.config import FileDataConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.presets import load_experiment
from discrete_vae.runs.run_directory import RunDirectory, sole_writer
from discrete_vae.training.run import training_threads
from tests.refusals import refused_argument
from tests.training.tiny import CONFIG, NUM_STEPS, QuietProgress, assert_same_run, stop_after


def train(run_dir, config=CONFIG, dataset=None, **more):
    dataset = load_dataset("digits") if dataset is None else dataset
    return discrete_vae.train(config, dataset, run_dir, progress=QuietProgress(), **more)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("train") / "new" / "run"
    return folder, train(folder)


def test_a_run_from_python_is_a_run(trained, capsys):
    folder, result = trained
    assert result.step == NUM_STEPS
    run = RunDirectory.open(folder)
    assert run.read_experiment() == CONFIG
    environment = run.read_environment()
    assert (environment["seed"], environment["data"]["name"]) == (CONFIG.seed, "digits")
    for given in (str(folder), folder, run):
        loaded = load_run(given)
        assert (loaded.step, loaded.config) == (result.best_step, CONFIG)
    assert main(["evaluate", str(folder), "--num-examples", "5"]) == 0
    assert "log-likelihood" in capsys.readouterr().out


def test_a_run_that_was_stopped_goes_on_bit_for_bit(trained, tmp_path):
    assert train(tmp_path / "run", stop=stop_after(10)).step == 10
    environment = (tmp_path / "run/environment.json").read_bytes()
    assert train(RunDirectory(tmp_path / "run")).step == NUM_STEPS
    assert (tmp_path / "run/environment.json").read_bytes() == environment
    assert_same_run(RunDirectory(tmp_path / "run"), RunDirectory(trained[0]))


WIDER = CONFIG.model_copy(update={"model": CONFIG.model.model_copy(update={"num_features": 65})})


class NeverCloses:
    def begin(self, records):
        pass

    def write(self, record):
        pass


def test_what_does_not_fit_the_folder_or_the_data_is_refused_and_touches_nothing(trained, tmp_path):
    def everything():
        folders = (trained[0], tmp_path)
        return {path: path.stat().st_mtime_ns for folder in folders for path in folder.rglob("*")}

    notes = tmp_path / "notes.txt"
    notes.touch()
    before = everything()
    for folder, config, argument in (
        (trained[0], CONFIG.model_copy(update={"seed": 5}), "config"),
        (tmp_path / "run", WIDER, "model.num_features"),
        (tmp_path, CONFIG, "run_dir"),
        (notes, CONFIG, "run_dir"),
    ):
        assert refused_argument(train, folder, config) == argument
        assert everything() == before
    assert refused_argument(train, tmp_path / "run", logger=NeverCloses()) == "logger"
    assert everything() == before


def test_a_folder_that_is_in_use_is_refused(trained):
    with sole_writer(trained[0]):
        assert refused_argument(train, trained[0]) == "run_dir"


def test_the_data_may_change_neither_nor_be_needed_later(tmp_path):
    file = tmp_path / "bits.npy"
    bits = np.random.default_rng(0).random((200, 64)) < 0.5
    np.save(file, bits)
    config = CONFIG.model_copy(update={"data": FileDataConfig(path=file)})
    train(tmp_path / "run", config, load_dataset("file", path=file))
    np.save(file, ~bits)
    with pytest.raises(InvalidInputError, match="data"):
        train(tmp_path / "run", config, load_dataset("file", path=file))
    file.unlink()
    loaded = load_run(tmp_path / "run")
    assert loaded.model.event_shape == (64,)
    assert loaded.chains.step(1).shape == (30, 9)
    assert DiscreteVAE.from_pretrained(tmp_path / "run").config == loaded.model.config


def test_it_writes_what_the_command_writes(tmp_path, capsys):
    file = tmp_path / "bits.npy"
    np.save(file, np.random.default_rng(0).random((60, 12)) < 0.5)
    words = ["train", "--data", str(file), "--size", "smoke", "--training.num-epochs", "2"]
    assert main([*words, "--run-dir", str(tmp_path / "one")]) == 0
    capsys.readouterr()
    one = RunDirectory.open(tmp_path / "one")
    config = one.read_experiment()
    train(tmp_path / "two", config, load_dataset("file", **config.data.model_dump(exclude={"kind"})))
    two = RunDirectory.open(tmp_path / "two")
    assert one.config_path.read_bytes() == two.config_path.read_bytes()
    assert _steady(one.read_environment()) == _steady(two.read_environment())
    names = [sorted(path.name for path in each.path.iterdir()) for each in (one, two)]
    assert names[0] == names[1]
    assert one.checkpoints().steps() == two.checkpoints().steps()
    assert main(["train", "--resume", "--run-dir", str(two.path)]) == 0
    assert "has finished its" in capsys.readouterr().out


def _steady(environment):
    """Without the threads, which the command chooses."""
    environment["platform"].pop("torch_threads")
    return json.dumps(environment)


# Threads: one for small models, the run's own number when it is resumed, the user's word first.


@pytest.fixture
def two_threads(monkeypatch, threads_of_torch):
    """A machine of two cores, whose user has not chosen."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    threads_of_torch(2)


def number_of_threads(config, begun=None):
    """The threads inside the block; outside they must be as they were."""
    with training_threads(config, {} if begun is None else {"platform": {"torch_threads": begun}}):
        inside = torch.get_num_threads()
    assert torch.get_num_threads() == 2
    return inside


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    ("experiment", "begun", "asked", "expected"),
    [
        ("digits", None, None, 1),  # a small model
        ("mnist-static", None, None, 2),
        ("digits", 1, None, 1),  # resumed
        ("digits", 2, None, 2),
        ("digits", 64, None, 2),
        ("digits", None, "2", 2),  # the user's number
        ("digits", 1, "2", 2),
    ],
)
def test_the_number_of_threads(experiment, begun, asked, expected, monkeypatch):
    if asked is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert number_of_threads(load_experiment(experiment, "short"), begun) == expected


def test_a_run_that_goes_on_with_another_number_of_threads_says_so_if_it_knows(tmp_path):
    train(tmp_path / "run", stop=stop_after(10))
    file = tmp_path / "run/environment.json"
    environment = json.loads(file.read_text())
    for recorded in ({"torch_threads": 64, "processes": 2}, {}):  # as earlier versions wrote
        file.write_text(json.dumps(environment | {"platform": recorded}))
        with pytest.warns(UserWarning, match="torch threads 64, processes 2") if recorded else nullcontext():
            train(tmp_path / "run", stop=stop_after(1))


@pytest.mark.usefixtures("two_threads")
def test_a_model_that_cannot_be_made_is_refused_before_its_weights_are_counted():
    config = load_experiment("digits", "short")
    for slot, settings in (("prior", {"num_left": 10**10}), ("posterior", {"groups": 10**9})):
        part = getattr(config.model, slot).model_copy(update=settings)
        large = config.model_copy(update={"model": config.model.model_copy(update={slot: part})})
        with pytest.raises(InvalidInputError, match="memory"):
            number_of_threads(large)


@pytest.mark.usefixtures("two_threads")
def test_the_number_of_threads_is_restored_after_an_error():
    with pytest.raises(ZeroDivisionError), training_threads(load_experiment("digits", "short"), {}):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2
