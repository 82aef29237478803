"""A config.json that is not the one that the run was trained with: refused, or accepted with a word."""

import hashlib
import json

import pytest

from discrete_vae.runs.run_directory import RunDirectory
from tests.commands.conftest import NUM_STEPS
from tests.commands.test_train import forget_after

ACCEPT = "--accept-changed-config"
VERBS = [
    lambda run: ("train", "--resume", "--run-dir", run),
    lambda run: ("evaluate", run),
    lambda run: ("sample", run),
    lambda run: ("log-partition", run),
    lambda run: ("refit", run),
]
SMALL = ("--num-rows", 2, "--num-sweeps", 3, "--num-chains", 2, "--num-draws", 2)


def change(run, old='"learning_rate": 0.', new='"learning_rate": 1.'):
    """One flipped bit; returns the sums before and after."""
    path = run / "config.json"
    before = path.read_bytes()
    assert before.count(old.encode()) == 1
    after = before.replace(old.encode(), new.encode())
    path.write_bytes(after)
    return hashlib.sha256(before).hexdigest(), hashlib.sha256(after).hexdigest()


@pytest.mark.parametrize("words", VERBS, ids=["train", "evaluate", "sample", "log-partition", "refit"])
@pytest.mark.parametrize(
    ("old", "new"),
    [('"learning_rate": 0.', '"learning_rate": 1.'), ('"seed": 0,\n  "data"', '"seed": 1,\n  "data"')],
)
def test_a_flipped_digit_is_refused_by_every_verb(refused, trained, words, old, new):
    forget_after(trained, 4)
    before, after = change(trained, old, new)
    error = refused(*words(trained))
    assert (
        f"{trained / 'config.json'} must be the file that the run was trained with, SHA-256 {before}" in error
    )
    assert f"received SHA-256 {after}." in error
    assert ACCEPT in error


@pytest.mark.filterwarnings("always")
def test_training_goes_on_with_a_warning_and_records_the_change(cli, trained):
    forget_after(trained, 4)
    before, after = change(trained)
    status, _, err = cli("train", "--resume", "--run-dir", trained, ACCEPT)
    assert status == 0
    assert f"warning: {trained / 'config.json'} is not the file" in err
    meta = RunDirectory(trained).checkpoints().load("last").meta
    assert meta["config_sha256"] == after
    assert meta["config_changes"] == [{"step": 4, "trained": before, "now": after}]
    assert cli("evaluate", trained)[0] == 0  # from here on the file is the run's
    assert "changed_config" not in json.loads((trained / "evaluation.json").read_text())


@pytest.mark.filterwarnings("always")
def test_changes_add_up(cli, trained):
    forget_after(trained, 2)
    sums = [change(trained)[1]]
    RunDirectory(trained).checkpoints()
    cli("train", "--resume", "--run-dir", trained, ACCEPT)
    forget_after(trained, 4)
    sums.append(change(trained, '"learning_rate": 1.', '"learning_rate": 0.')[1])
    cli("train", "--resume", "--run-dir", trained, ACCEPT)
    changes = RunDirectory(trained).checkpoints().load(NUM_STEPS).meta["config_changes"]
    assert [(each["step"], each["now"]) for each in changes] == [(2, sums[0]), (4, sums[1])]


@pytest.mark.filterwarnings("always")
def test_results_say_that_the_change_was_accepted(cli, trained):
    before, after = change(trained)
    expected = {"step": NUM_STEPS, "trained": before, "now": after}
    for words, file in ((("evaluate", trained), "evaluation"), (("log-partition", trained), "log_partition")):
        status, _, err = cli(*words, ACCEPT)
        assert status == 0
        assert "warning: " in err
        assert json.loads((trained / f"{file}.json").read_text())["changed_config"] == expected
    assert cli("sample", trained, ACCEPT, *SMALL)[0] == 0
    for picture in ("samples", "reconstructions", "training"):
        assert after.encode() in (trained / "figures" / f"{picture}.png").read_bytes()
    for suffix in (".pdf", ".svg"):
        assert cli("sample", trained, ACCEPT, *SMALL, "--out", trained / f"x{suffix}")[0] == 0


def test_an_unchanged_config_leaves_no_note(cli, trained):
    assert cli("sample", trained, *SMALL)[0] == 0
    assert b"config.json was changed" not in (trained / "figures" / "samples.png").read_bytes()


def test_a_new_run_has_nothing_to_accept(refused, tmp_path, data_file):
    words = ("train", "--data", data_file, "--size", "smoke", "--run-dir", tmp_path / "run", ACCEPT)
    assert "--accept-changed-config must go with --resume" in refused(*words)
