"""--pretrained NAME in place of RUN: pictures without data, and nothing written into the package."""

import inspect

import click
import numpy as np
import pytest

from discrete_vae import load_dataset, load_run, pretrained_names, train
from discrete_vae.cli import dvae
from discrete_vae.cli.options import VERBS
from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.hub import shipped_folder
from discrete_vae.runs.io import read_json
from discrete_vae.runs.run_directory import RunDirectory
from tests.commands.conftest import snapshot
from tests.training.tiny import CONFIG, QuietProgress

SMALL = ["--num-rows", "2", "--num-sweeps", "3", "--num-chains", "2", "--num-draws", "2"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder; the models of the package must stay as they are."""
    monkeypatch.chdir(tmp_path)
    before = snapshot(shipped_folder("digits"))
    yield tmp_path
    assert snapshot(shipped_folder("digits")) == before


@pytest.fixture
def no_data(monkeypatch):
    def missing(**_):
        raise InvalidInputError("digits", "must be there", "nothing", "Fetch them.")

    monkeypatch.setattr("discrete_vae.data.datasets.load_digits", missing)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images") / "run"
    train(CONFIG, load_dataset("digits"), folder, progress=QuietProgress())
    return RunDirectory.open(folder)


def test_samples_take_no_data_and_go_here(cli, here, no_data):
    status, out, err = cli("sample", "--pretrained", "digits", *SMALL)
    assert status == 0, err
    assert out == "Samples along the chains: digits-samples.png\n"
    assert [path.name for path in here.iterdir()] == ["digits-samples.png"]
    assert (here / "digits-samples.png").read_bytes().startswith(b"\x89PNG")


def test_samples_are_those_of_the_folder(cli, here):
    for words in (["--pretrained", "digits"], [shipped_folder("digits")]):
        assert cli("sample", *words, *SMALL, "--out", f"{len(words)}.png")[0] == 0
    assert (here / "1.png").read_bytes() == (here / "2.png").read_bytes()


def test_new_examples_take_no_data(cli, here, no_data):
    words = ["-n", "6", "--num-sweeps", "3", "--out", "new.npz", "--picture", "new.png"]
    status, out, err = cli("generate", "--pretrained", "digits", *words)
    assert status == 0, err
    step = load_run(shipped_folder("digits")).step
    assert out.startswith(f"digits, checkpoint of step {step}: 6 new examples\n")
    assert np.load("new.npz")["x"].shape == (6, 1, 8, 8)


def test_samples_of_any_run_of_images_take_no_data(cli, images, here, no_data):
    status, _, err = cli("sample", images.path, *SMALL, "--out", "samples.png")
    assert status == 0, err
    assert cli("figure", "evolution", images.path, "--out", "evolution.png")[0] == 0


def test_reconstructions_say_that_they_take_data(refused, images, here, no_data):
    message = refused("sample", images.path, *SMALL)
    assert (
        "digits must be there; received nothing. Fetch them. Samples alone take no data: --out FILE.png."
        in message
    )
    assert not images.figures_path.exists()


def test_the_picture_is_the_same_with_and_without_data(cli, images, here, monkeypatch):
    assert cli("sample", images.path, *SMALL, "--out", "recorded.png")[0] == 0
    environment = images.environment_path.read_bytes()
    try:
        images.environment_path.unlink()  # as of a run that keeps nothing: the data are read
        assert cli("sample", images.path, *SMALL, "--out", "read.png")[0] == 0
    finally:
        images.environment_path.write_bytes(environment)
    assert (here / "recorded.png").read_bytes() == (here / "read.png").read_bytes()


def test_what_reads_examples_says_how_to_give_some(refused, here, no_data):
    message = refused("encode", "--pretrained", "digits", "--out", "codes.npz")
    assert (
        "digits must be there; received nothing. Fetch them. Or give examples of your own: --data FILE."
        in message
    )


def test_a_table_is_compared_with_its_data(cli, trained, data_file, here):
    moved = data_file.rename(data_file.with_suffix(".gone"))
    try:
        status, _, err = cli("sample", trained, "--out", "samples.png")
    finally:
        moved.rename(data_file)
    assert status == 2
    assert data_file.name in err
    assert "take no data" not in err


@pytest.mark.parametrize(
    ("words", "written"),
    [
        (["figure", "evolution"], ["digits-evolution.csv", "digits-evolution.png"]),
        (["report", "--num-examples", "40"], ["digits-report.html"]),
        (["evaluate", "--num-samples", "500", "--num-examples", "5", "--out", "a.json"], ["a.json"]),
        (["log-partition", "--health-sweeps", "20", "--out", "a.json"], ["a.json"]),
        (["score", "--elbo", "--num-examples", "5", "--out", "a.csv"], ["a.csv"]),
        (["refit", "--num-steps", "2", "--batch-size", "20"], ["digits-refit"]),
    ],
    ids=lambda words: words[0],
)
def test_results_go_here(cli, here, words, written):
    status, _, err = cli(*words, "--pretrained", "digits", "--device", "cpu")
    assert status == 0, err
    assert sorted(path.name for path in here.iterdir()) == written


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate"], "--out must be given with --pretrained; received nothing. Add --out digits.json."),
        (["log-partition"], "--out must be given with --pretrained; received nothing."),
        (["log-partition", "--out", "a.png"], "--out must end in .json; received 'a.png'."),
        (["sample", "runs/x"], "--pretrained must stand in place of RUN; received it beside 'runs/x'."),
        (["figure", "evolution", "runs/x"], "--pretrained must stand in place of RUN; received it beside"),
        (["sample", "--checkpoint", "3"], "checkpoint must be 'last', 'best' or the step of a checkpoint"),
    ],
)
def test_what_is_refused(refused, here, words, message):
    assert message in refused(*words, "--pretrained", "digits")


def test_another_name_lists_those_there_are(refused, here):
    message = refused("sample", "--pretrained", "digist")
    assert f"--pretrained must be one of {', '.join(pretrained_names())}; received 'digist'." in message
    assert "Did you mean digits?" in message


def test_a_name_without_the_option_is_understood(refused, here):
    assert "Did you mean --pretrained digits?" in refused("sample", "digits")


def test_each_verb_that_takes_a_run_takes_it():
    for name in VERBS:
        command = dvae.get_command(click.Context(dvae), name)
        parameters = {parameter.name for parameter in command.params}
        arguments = {each.name for each in command.params if isinstance(each, click.Argument)}
        assert ("pretrained" in parameters) == bool(arguments & {"run", "runs"}), name
    assert "run" in inspect.signature(load_run).parameters


def test_the_list_says_how_good_they_are(cli):
    out = " ".join(cli("list")[1].split())
    for name in pretrained_names():
        found = read_json(RunDirectory.open(shipped_folder(name)).evaluation_path)["log_likelihood"]
        assert f"test log-likelihood {found['value']:.2f} +- {found['std_error']:.2f} nats." in out
