"""The run that a command line names: a model that comes with the library in place of a folder; a changed config."""

import hashlib

import numpy as np
import pytest

from discrete_vae import load_run, pretrained_names
from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.io import read_json, sha256_file, shipped_folder
from discrete_vae.runs.run_directory import RunDirectory
from tests.cli.conftest import FEW, NUM_STEPS, forget_after, snapshot

# --pretrained NAME


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


def test_samples_take_no_data_and_go_here(done, here, no_data):
    out, _ = done("sample", "--pretrained", "digits", *FEW)
    assert out == "Samples along the chains: digits-samples.png\n"
    done("sample", shipped_folder("digits"), *FEW, "--out", "of-folder.png")
    assert sorted(path.name for path in here.iterdir()) == ["digits-samples.png", "of-folder.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in here.iterdir())


def test_what_reads_examples_says_how_to_give_some(refused, here, no_data):
    wanted = "digits must be there; received nothing. Fetch them. Or give examples of your own: --data FILE."
    assert wanted in refused("encode", "--pretrained", "digits", "--out", "codes.npz")


def test_new_examples_take_no_data(done, here, no_data):
    words = ["-n", "6", "--num-sweeps", "3", "--out", "new.npz", "--picture", "new.png"]
    out, _ = done("generate", "--pretrained", "digits", *words)
    step = load_run(shipped_folder("digits")).step
    assert out.startswith(f"digits, checkpoint of step {step}: 6 new examples\n")
    assert np.load("new.npz")["x"].shape == (6, 1, 8, 8)


def test_a_table_is_compared_with_its_data(cli, done, trained, data_file, here):
    out, _ = done("sample", trained, "--out", "samples.png")
    assert "Samples against the data: samples.png" in out
    moved = data_file.rename(data_file.with_suffix(".gone"))
    try:
        status, _, err = cli("sample", trained, "--out", "samples.png")
    finally:
        moved.rename(data_file)
    assert (status, data_file.name in err, "take no data" in err) == (2, True, False)


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("figure evolution", ["digits-evolution.csv", "digits-evolution.png"]),
        ("report --num-examples 40", ["digits-report.html"]),
        ("evaluate --num-samples 500 --num-examples 5 --out a.json", ["a.json"]),
        ("log-partition --health-sweeps 20 --out a.json", ["a.json"]),
        ("score --elbo --num-examples 5 --out a.csv", ["a.csv"]),
        ("refit --num-steps 2 --batch-size 20", ["digits-refit"]),
    ],
)
def test_results_go_here(done, here, words, written):
    done(*words.split(), "--pretrained", "digits", "--device", "cpu")
    assert sorted(path.name for path in here.iterdir()) == written


def test_the_list_says_how_good_they_are(cli):
    out = " ".join(cli("list")[1].split())
    for name in pretrained_names():
        found = read_json(RunDirectory.open(shipped_folder(name)).evaluation_path)["log_likelihood"]
        assert f"test log-likelihood {found['value']:.2f} ± {found['std_error']:.2f} nats" in out


# A config.json that is not the one that the run was trained with.


ACCEPT = "--accept-changed-config"


def change(run):
    """One flipped bit; returns the sums before and after."""
    path = run / "config.json"
    before = path.read_bytes()
    assert before.count(b'"learning_rate": 0.') == 1
    path.write_bytes(before.replace(b'"learning_rate": 0.', b'"learning_rate": 1.'))
    return hashlib.sha256(before).hexdigest(), sha256_file(path)


def test_a_flipped_digit_is_refused_by_every_verb(refused, trained):
    forget_after(trained, 4)
    before, after = change(trained)
    for words in ("train --resume --run-dir", "evaluate", "sample", "log-partition", "refit"):
        error = refused(*words.split(), trained)
        file = trained / "config.json"
        assert f"{file} must be the file that the run was trained with, SHA-256 {before}" in error
        assert f"received SHA-256 {after}." in error
        assert ACCEPT in error


@pytest.mark.filterwarnings("always")
def test_training_goes_on_with_a_warning_and_records_the_change(done, trained):
    forget_after(trained, 4)
    before, after = change(trained)
    _, err = done("train", "--resume", "--run-dir", trained, ACCEPT)
    assert f"warning: {trained / 'config.json'} is not the file" in err
    meta = RunDirectory(trained).checkpoints().load("last").meta
    assert meta["config_sha256"] == after
    assert meta["config_changes"] == [{"step": 4, "trained": before, "now": after}]
    done("evaluate", trained)  # from here on the file is the run's
    assert "changed_config" not in read_json(trained / "evaluation.json")


@pytest.mark.filterwarnings("always")
def test_results_say_that_the_change_was_accepted(done, trained):
    before, after = change(trained)
    expected = {"step": NUM_STEPS, "trained": before, "now": after}
    for verb, file in (("evaluate", "evaluation"), ("log-partition", "log_partition")):
        assert "warning: " in done(verb, trained, ACCEPT)[1]
        assert read_json(trained / f"{file}.json")["changed_config"] == expected
    done("sample", trained, ACCEPT, *FEW)
    for picture in ("samples", "reconstructions", "training"):
        assert after.encode() in (trained / "figures" / f"{picture}.png").read_bytes()
    for suffix in (".pdf", ".svg"):
        done("sample", trained, ACCEPT, *FEW, "--out", trained / f"x{suffix}")
