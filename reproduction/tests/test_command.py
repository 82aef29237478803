"""The command: its list, its refusals, and the chain from nothing to a table."""

import json
import os
import shutil
import signal
import warnings

import pytest

from discrete_vae.data.datasets import load_dataset
from discrete_vae.errors import NonFiniteLossError
from discrete_vae.runs.progress import TrainingProgress
from reproduction import paper, sweep, tables
from reproduction.__main__ import REPRODUCTIONS
from reproduction.display import Options
from reproduction.tests.made_up import NUM_STEPS, completed, tiny

few_samples = pytest.mark.filterwarnings("ignore:the last doubling of the importance samples")


@pytest.mark.parametrize(
    ("words", "argument"),
    [
        ("table-3", "NAME"),
        ("table-1 --size huge", "--size"),
        ("gradient-study --size cpu", "--size"),
        ("table-1 --budget 0", "--budget"),
        ("table-1 --budget soon", "--budget"),
        ("table-1 --budget nan", "--budget"),
        ("table-1 --seeds 0", "--seeds"),
        ("table-1 --seed 1", "--seed"),
        ("figure-2 --budget 9", "--budget"),
        ("figure-5 --seeds 3", "--seeds"),
        ("figure-5 --only rbm", "--only"),
        ("relaxations --only rbm,rmb", "'rmb'"),
        ("table-1 --only mnist", "'mnist'"),
        ("relaxations --only ,", "--only"),
        ("table-1 --only=", "--only"),
        ("table-2 --out /dev/null/x", "/dev/null/x"),
        ("table-1 --runs /dev/null/x", "/dev/null/x"),
        ("table-1 table-2", "table-2"),
    ],
)
def test_what_is_wrong_is_refused(cli, words, argument):
    status, out, err = cli(*words.split())
    assert (status, out) == (2, "")
    assert argument in err


def test_it_lists_what_there_is_and_makes_at_once_what_needs_no_run(cli, tmp_path):
    status, out, err = cli()
    assert (status, err) == (0, "")
    for name in REPRODUCTIONS:
        assert f"  {name} " in out
    assert "four main runs" in " ".join(out.split())
    status, out, err = cli("table-2", "--out", tmp_path / "out", "--device", "cpu")
    assert (status, err) == (0, "")
    assert "Every number of size paper is the paper's" in " ".join(out.split())
    files = [f"{tmp_path}/out/table-2-cpu{end}" for end in (".md", ".csv")]
    assert out.splitlines()[-2:] == [f"Written to {file}" for file in files]
    assert cli("figure-7", "--out", tmp_path / "out")[0] == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("table-2-cpu.md", "table-2-cpu.csv", "figure-7.md", "figure-7.svg")
    }


@pytest.fixture
def tiny_models(monkeypatch, tmp_path):
    """The table of the simplified models, of two tiny ones; the words that make it."""
    runs = {"digits": tiny(), "other": tiny(training__num_sweeps=2)}
    monkeypatch.setattr(paper, "SIMPLIFIED", {"digits": -25.0, "other": -24.0})
    monkeypatch.setattr(tables, "_SIMPLIFIED_IN_WORDS", {"digits": "three sweeps", "other": "two sweeps"})
    monkeypatch.setattr(Options, "run", lambda self, name, seed, changes=None, scale=None: runs[name])
    monkeypatch.setitem(REPRODUCTIONS, "tiny", REPRODUCTIONS["simplified-models"])
    words = ["tiny", "--size", "smoke", "--device", "cpu"]
    return [*words, "--runs", tmp_path / "runs", "--out", tmp_path / "out"]


def records(folder):
    found = {path.name: json.loads(path.read_text()) for path in sorted((folder / "out/runs").glob("*.json"))}
    for fields in found.values():
        del fields["seconds"], fields["evaluation_seconds"]
    return found


@few_samples
def test_from_nothing_to_a_table_and_again_from_records(cli, tmp_path, tiny_models, monkeypatch):
    status, out, err = cli(*tiny_models)
    assert status == 0
    assert f"run 1 of 2: {tiny()}: 0 of {NUM_STEPS} steps; how long all take is not measured yet" in err
    assert "run 2 of 2: " in err
    files = {
        name: (tmp_path / "out" / name).read_bytes()
        for name in ("tiny-smoke.md", "tiny-smoke.csv", "tiny-smoke.svg")
    }
    assert [f"Written to {tmp_path}/out/{name}" for name in files] == out.splitlines()[-3:]
    assert len(records(tmp_path)) == 2
    shutil.rmtree(tmp_path / "runs")
    monkeypatch.setattr(sweep, "instantiate", None)  # no data either
    status, again, err = cli(*tiny_models)
    assert (status, err, again) == (0, "", out)
    assert {name: (tmp_path / "out" / name).read_bytes() for name in files} == files


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        completed(folder, tiny(), tiny(training__num_sweeps=2))
    return records(folder)


@few_samples
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize(
    ("number", "status", "moment"),
    [
        (signal.SIGTERM, 143, NUM_STEPS + 25),  # in the evaluation
        (signal.SIGINT, 130, NUM_STEPS + 90),  # in the second run
    ],
)
def test_a_signal_saves_and_the_same_command_goes_on(
    cli, tmp_path, tiny_models, unbroken, monkeypatch, number, status, moment
):
    count, original = iter(range(moment)), TrainingProgress.advance

    def advance(self, *words):
        if next(count, None) == moment - 1:
            os.kill(os.getpid(), number)
        original(self, *words)

    monkeypatch.setattr(TrainingProgress, "advance", advance)
    got, out, err = cli(*tiny_models)
    assert (got, out) == (status, "")
    places = f"--runs {tmp_path}/runs --out {tmp_path}/out"
    go_on = f"python -m reproduction tiny --size smoke {places} --device cpu"
    assert err.endswith(f"Interrupted; what is done is saved. Continue: {go_on}\n")
    assert cli(*tiny_models)[0] == 0
    assert records(tmp_path) == unbroken


@few_samples
def test_a_run_that_fails_is_named_and_the_others_stay(cli, tmp_path, tiny_models, monkeypatch):
    original = sweep.train

    def fail_second(config, *words, **more):
        if config.training.num_sweeps == 2:
            raise NonFiniteLossError(3, "kl_discrete", float("nan"), 2)
        return original(config, *words, **more)

    monkeypatch.setattr(sweep, "train", fail_second)
    status, out, err = cli(*tiny_models)
    assert (status, out) == (1, "")
    said = f"error: {tiny(training__num_sweeps=2)}: kl_discrete is nan at step 3;"
    assert err.splitlines()[-1].startswith(said)
    assert list(records(tmp_path)) == [f"{tiny().name}.json"]


@pytest.fixture
def real_data():
    for name in ("mnist-dynamic", "mnist-static", "omniglot", "caltech101-silhouettes"):
        if "DISCRETE_VAE_DATA" not in os.environ:
            pytest.skip("needs the data sets: DISCRETE_VAE_DATA names their folder")
        load_dataset(name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_table_1_from_nothing_in_size_smoke(cli, tmp_path, real_data):
    words = ("table-1", "--size", "smoke", "--runs", tmp_path / "runs", "--out", tmp_path / "out")
    status, out, _ = cli(*words)
    assert status == 0
    assert "Other sizes than in size paper" in " ".join(out.split())
    found = records(tmp_path)
    assert len(found) == 4
    for fields in found.values():
        assert fields["num_examples"] == 100
        assert -400 < fields["log_likelihood"]["value"] < -100
        assert fields["log_likelihood"]["value"] > fields["elbo"]
