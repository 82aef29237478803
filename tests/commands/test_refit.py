"""dvae refit: a run with a new posterior that the other verbs take, and a run that stays as it is."""

import json
import subprocess
import sys

import pytest

from discrete_vae.load import load_run
from discrete_vae.training.refit import RunRefit
from tests.commands.conftest import snapshot

QUICK = ("--num-steps", "4", "--batch-size", "10")


def test_the_new_run_is_evaluated_and_sampled_and_the_old_one_stays(cli, trained, tmp_path):
    before = snapshot(trained)
    status, out, err = cli("refit", trained, "--out", tmp_path / "new", *QUICK)
    assert status == 0, err
    assert snapshot(trained) == before
    assert "Validation ELBO -" in out
    assert out.endswith(f"Next: dvae evaluate {tmp_path / 'new'}\n")
    assert "step 4/4  elbo -" in err
    old, new = load_run(trained), load_run(tmp_path / "new")
    assert (new.step, new.config, new.changed_config) == (old.step, old.config, None)
    changed = {
        name
        for name, value in new.model.state_dict().items()
        if not value.equal(old.model.state_dict()[name])
    }
    assert changed
    assert all(name.startswith("posterior.") for name in changed)
    for words in (["evaluate", "--num-samples", "200"], ["log-partition", "--health-sweeps", "20"]):
        assert cli(words[0], tmp_path / "new", *words[1:])[0] == 0
    status, _, err = cli("sample", tmp_path / "new", "--num-rows", "2", "--num-sweeps", "2")
    assert (status, "warning" in err.lower()) == (0, False)  # the course of training is there


def test_what_is_said_of_the_refit(cli, trained, tmp_path):
    words = [*QUICK, "--model-share", "0.25", "--learning-rate", "0.01", "--seed", "5"]
    cli("refit", trained, "--out", tmp_path / "new", *words)
    said = json.loads((tmp_path / "new" / "refit.json").read_text())
    best = json.loads((tmp_path / "new" / "best.json").read_text())
    assert said["run"] == str(trained.resolve())
    assert said["step"] == best["step"] == load_run(trained).step
    assert best["validation_elbo"] == said["after"]["elbo"] != said["before"]["elbo"]
    wanted = {"num_steps": 4, "batch_size": 10, "model_share": 0.25, "learning_rate": 0.01, "seed": 5}
    assert wanted.items() <= said["config"].items()


def test_the_folder_is_beside_the_run_by_default(cli, trained):
    assert cli("refit", trained, *QUICK, "--checkpoint", "last")[0] == 0
    new = trained.with_name("trained-refit")
    lines = [json.loads(line)["step"] for line in (new / "metrics.jsonl").read_text().splitlines()]
    assert [path.name for path in (new / "checkpoints").iterdir()] == ["step-6"]
    assert max(lines) == 6


def test_the_log_ends_at_the_checkpoint(cli, trained, tmp_path):
    cli("refit", trained, "--out", tmp_path / "new", *QUICK, "--checkpoint", "4")
    lines = (tmp_path / "new" / "metrics.jsonl").read_text().splitlines()
    assert max(json.loads(line)["step"] for line in lines) == 4


def test_an_empty_folder_is_filled(cli, trained, tmp_path):
    (tmp_path / "new").mkdir()
    assert cli("refit", trained, "--out", tmp_path / "new", *QUICK)[0] == 0
    assert load_run(tmp_path / "new").step == load_run(trained).step


def test_the_same_request_finds_its_result_and_another_one_is_refused(cli, refused, trained, tmp_path):
    words = ["refit", trained, "--out", tmp_path / "new", *QUICK]
    _, first, _ = cli(*words)
    before = snapshot(tmp_path)
    # as after a kill between the folder's name and the last line
    code = (
        "import os, pathlib, sys\n"
        "from discrete_vae.runs.io import publish_directory\n"
        "with publish_directory(pathlib.Path(sys.argv[1])):\n"
        "    os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "new")], check=True)
    assert list(tmp_path.glob(".tmp-*"))
    status, again, err = cli(*words)
    assert status == 0, err
    assert snapshot(tmp_path) == before
    assert not list(tmp_path.glob(".tmp-*"))
    assert [line for line in again.splitlines() if line not in first] == [f"It was there: {tmp_path / 'new'}"]
    assert "--out must" in refused(*words, "--seed", "1")
    (tmp_path / "new" / "config.json").unlink()
    assert "--out must" in refused(*words)


def test_a_link_stays_and_its_empty_folder_is_filled(cli, refused, trained, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "loop").symlink_to("loop")
    assert cli("refit", trained, "--out", tmp_path / "link", *QUICK)[0] == 0
    assert (tmp_path / "link").is_symlink()
    assert load_run(tmp_path / "real").step == load_run(trained).step
    assert "--out must" in refused("refit", trained, "--out", tmp_path / "loop", *QUICK)


def test_training_does_not_go_on_with_it(cli, refused, trained, tmp_path):
    cli("refit", trained, "--out", tmp_path / "new", *QUICK)
    assert "--run-dir must" in refused("train", "--resume", "--run-dir", tmp_path / "new")


@pytest.mark.parametrize(
    ("option", "value", "name"),
    [
        ("--out", "IN", "--out"),
        ("--out", "RUN", "--out"),
        ("--out", "FILE", "--out"),
        ("--num-steps", "0", "--num-steps"),
        ("--batch-size", "1", "--batch-size"),
        ("--batch-size", "200", "--batch-size"),
        ("--model-share", "1.5", "--model-share"),
        ("--model-share", "nan", "--model-share"),
        ("--model-share", "half", "--model-share"),
        ("--learning-rate", "0", "--learning-rate"),
        ("--checkpoint", "99", "checkpoint"),
    ],
)
def test_wrong_input_is_refused(refused, trained, option, value, name):
    places = {"IN": trained / "new", "RUN": trained, "FILE": trained / "config.json"}
    assert f"{name} must" in refused("refit", trained, option, places.get(value, value))


def test_damage_is_found_before_the_work(refused, trained, monkeypatch):
    monkeypatch.setattr("discrete_vae.training.refit.refit_posterior", None)
    log = trained / "metrics.jsonl"
    log.write_text("{\n" + log.read_text())
    assert "metrics.jsonl, line 1" in refused("refit", trained, *QUICK)


@pytest.mark.filterwarnings("always")
def test_a_changed_config_is_said(cli, refused, trained, tmp_path):
    text = (trained / "config.json").read_text()
    (trained / "config.json").write_text(text + "\n")
    assert "config.json must" in refused("refit", trained, *QUICK)
    words = ["--out", tmp_path / "new", *QUICK, "--accept-changed-config"]
    assert cli("refit", trained, *words)[0] == 0
    assert json.loads((tmp_path / "new" / "refit.json").read_text())["changed_config"]["step"] == 6


def test_a_step_size_that_breaks_the_posterior_writes_nothing(cli, trained, tmp_path):
    status, _, err = cli("refit", trained, "--out", tmp_path / "new", *QUICK, "--learning-rate", "1e38")
    assert status == 1
    assert "the weight posterior." in err
    assert " at step 1; the run has stopped." in err
    assert f"The last good checkpoint is that of step {load_run(trained).step}" in err
    assert not (tmp_path / "new").exists()


def test_a_worse_posterior_is_said(cli, trained, tmp_path):
    _, out, _ = cli("refit", trained, "--out", tmp_path / "new", *QUICK, "--learning-rate", "3")
    assert "The posterior of training was better" in out


def test_a_folder_that_was_filled_meanwhile_stays(trained, tmp_path):
    from discrete_vae.data.datasets import load_dataset
    from discrete_vae.errors import InvalidInputError
    from discrete_vae.runs.run_directory import RunDirectory

    loaded, run, out = load_run(trained), RunDirectory.open(trained), tmp_path / "new"
    dataset = load_dataset("file", path=loaded.config.data.path)

    def fill(step, loss):
        out.mkdir(exist_ok=True)
        (out / "notes.txt").write_text("mine")

    with pytest.raises(InvalidInputError, match=r"--out must .*notes\.txt"):
        RunRefit(run, loaded, dataset, out, num_steps=1, batch_size=10).run(fill)
    assert snapshot(out) == {out / "notes.txt": b"mine"}


def test_a_disk_that_refuses_leaves_nothing(cli, trained, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("discrete_vae.runs.run_directory.write_checkpoint", full)
    status, _, err = cli("refit", trained, "--out", tmp_path / "new", *QUICK)
    assert status == 2
    assert "new must be writable" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trained"]
