"""The verbs about a run besides evaluate: figures and pictures, log Z, runs made of a run; what is refused."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest

from discrete_vae import exact_log_partition, figures, load_experiment
from discrete_vae.data.datasets import load_dataset
from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.registry import FIGURES
from discrete_vae.presets import cite
from discrete_vae.runs.load import load_run
from discrete_vae.runs.results import log_partition_store
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.samplers.gibbs import unpack_bits
from discrete_vae.training.refit import RunRefit
from tests.commands.conftest import snapshot
from tests.training.tiny import start_run, train_quietly

SMALL = ["--num-rows", "2", "--num-sweeps", "3", "--num-chains", "2", "--num-draws", "2"]
QUICK_LOG_Z = ["--std-error", "0.05", "--health-sweeps", "200"]
QUICK = ("--num-steps", "4", "--batch-size", "10")
RELEASE = ("--license", "mit", "--precision", "float32")  # four validation examples of a tiny run tell little


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A run of images."""
    run = start_run(tmp_path_factory.mktemp("images") / "run")
    train_quietly(run)
    return run


# sample


def test_writes_three_pictures_into_the_run(done, images):
    printed, _ = done("sample", images.path, *SMALL)
    for name in ("samples", "reconstructions", "training"):
        path = images.figures_path / f"{name}.png"
        assert path.read_bytes().startswith(b"\x89PNG")
        assert str(path) in printed


def test_the_same_seed_gives_the_same_file(done, images, tmp_path):
    for start in ("training", "fresh"):
        pictures = []
        for seed in (1, 1, 2):
            out = tmp_path / f"{start}-{len(pictures)}.png"
            words = ["--out", str(out), "--seed", str(seed), "--start", start, "--burn-in", "5"]
            done("sample", str(images.path), *SMALL, *words)
            pictures.append(out.read_bytes())
        assert pictures[0] == pictures[1] != pictures[2], start


def test_chains_start_at_given_states(done, images, tmp_path, monkeypatch):
    draw, seen = figures.evolution_table, []

    def record(model, chains, **sizes):
        seen.append(chains.state_dict()["z"])
        return draw(model, chains, **sizes)

    monkeypatch.setattr("discrete_vae.figures.run.evolution_table", record)
    states = np.random.default_rng(0).integers(0, 2, (3, 9))
    np.save(tmp_path / "states.npy", states)
    words = ["--start", str(tmp_path / "states.npy"), "--out", str(tmp_path / "x.png")]
    done("sample", str(images.path), *words)
    assert (unpack_bits(seen[0], 9).numpy() == states).all()


def test_a_table_is_compared_with_its_samples(done, trained):
    out, _ = done("sample", trained)
    assert f"Samples against the data: {trained / 'figures' / 'samples.png'}" in out


# figure


@pytest.fixture
def run(trained):
    """A run with estimates of log Z."""
    estimates = [{"value": value, "std_error": 0.1, "method": "m"} for value in (1.0, 1.1, 0.9)]
    config = {"std_error": 0.1, "seed": 0}
    log_partition_store(RunDirectory(trained)).add(
        {"step": 6, "config": config, "estimates": estimates, "exact": 1.05}
    )
    return trained


def rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.mark.parametrize("name", FIGURES)
def test_figures_of_a_run_go_into_its_folder(done, run, name):
    out, _ = done("figure", name, run)
    picture, table = (run / "figures" / f"{name}{ending}" for ending in (".png", ".csv"))
    assert out == f"Table:   {table}\nPicture: {picture}\n"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert len(rows(table)) > 1


def test_the_histogram_shows_what_was_kept(done, run, tmp_path):
    done("figure", "log-partition-histogram", run, "--out", tmp_path / "a.png")
    assert [float(row["value"]) for row in rows(tmp_path / "a.csv")] == [1.0, 1.1, 0.9]
    assert {row["exact"] for row in rows(tmp_path / "a.csv")} == {"1.05"}


@pytest.mark.filterwarnings("ignore:.*is not the file that the run was trained with")
def test_a_changed_config_is_noted_in_the_picture(cli, done, run, tmp_path):
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"name": "renamed"}))
    assert cli("figure", "reconstructions", run)[0] == 2
    out = tmp_path / "a.svg"
    done("figure", "reconstructions", run, "--out", out, "--accept-changed-config")
    assert "config.json" in out.read_text()


def test_without_a_name_it_lists_what_there_is(cli):
    status, out, err = cli("figure")
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines() if line[:2] == "  " and line[2] != " "] == list(
        FIGURES
    )
    assert max(map(len, out.splitlines())) <= 80


# log-partition


def test_repeats_with_a_histogram(done, images):
    printed, _ = done("log-partition", images.path, "--repeats", "3", *QUICK_LOG_Z)
    assert "3/3  log Z = " in printed
    assert "exchange rates" in printed
    assert "R-hat" in printed
    assert (images.figures_path / "log-partition.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads((images.path / "log_partition.json").read_text())
    exact = exact_log_partition(load_run(images).model.prior).value
    assert result["exact"] == pytest.approx(exact)
    assert len({found["value"] for found in result["estimates"]}) == 3
    for found in result["estimates"]:
        assert abs(found["value"] - exact) < 5 * found["std_error"]
        assert found["converged"]
    assert result["chains"]["num_sweeps"] == 200


def test_json_elsewhere_leaves_the_run_alone(done, images, tmp_path):
    before = snapshot(images.path)
    done("log-partition", str(images.path), *QUICK_LOG_Z, "--out", str(tmp_path / "z.json"))
    assert snapshot(images.path) == before
    assert len(json.loads((tmp_path / "z.json").read_text())["estimates"]) == 1


# refit


def test_the_new_run_is_evaluated_and_sampled_and_the_old_one_stays(cli, done, trained, tmp_path):
    before = snapshot(trained)
    out, err = done("refit", trained, "--out", tmp_path / "new", *QUICK)
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
        done(words[0], tmp_path / "new", *words[1:])
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


def test_the_log_ends_at_the_checkpoint(cli, trained, tmp_path):
    cli("refit", trained, "--out", tmp_path / "new", *QUICK, "--checkpoint", "4")
    lines = (tmp_path / "new" / "metrics.jsonl").read_text().splitlines()
    assert max(json.loads(line)["step"] for line in lines) == 4


def test_the_same_request_finds_its_result_and_another_one_is_refused(cli, done, refused, trained, tmp_path):
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
    again, _ = done(*words)
    assert snapshot(tmp_path) == before
    assert not list(tmp_path.glob(".tmp-*"))
    assert [line for line in again.splitlines() if line not in first] == [f"It was there: {tmp_path / 'new'}"]
    assert "--out must be a new or empty folder" in refused(*words, "--seed", "1")
    (tmp_path / "new" / "config.json").unlink()
    assert "--out must be a new or empty folder" in refused(*words)


def test_a_link_stays_and_its_empty_folder_is_filled(done, refused, trained, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "loop").symlink_to("loop")
    done("refit", trained, "--out", tmp_path / "link", *QUICK)
    assert (tmp_path / "link").is_symlink()
    assert load_run(tmp_path / "real").step == load_run(trained).step
    assert "--out must lead to a file or folder" in refused(
        "refit", trained, "--out", tmp_path / "loop", *QUICK
    )


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
    loaded, run, out = load_run(trained), RunDirectory.open(trained), tmp_path / "new"
    dataset = load_dataset("file", path=loaded.config.data.path)

    def fill(step, loss):
        out.mkdir(exist_ok=True)
        (out / "notes.txt").write_text("mine")

    with pytest.raises(
        InvalidInputError, match=r"--out must be a new or empty folder; received .*notes\.txt"
    ):
        RunRefit(run, loaded, dataset, out, num_steps=1, batch_size=10).run(fill)
    assert snapshot(out) == {out / "notes.txt": b"mine"}


# release


@pytest.fixture
def evaluated(done, trained):
    done("evaluate", trained, "--num-samples", "10")
    return trained


def test_the_released_run_is_evaluated_and_sampled(cli, done, evaluated, tmp_path):
    new = tmp_path / "released" / "mine"
    out, err = done("release", evaluated, "--out", new, *RELEASE)
    assert "a difference of +0.0000 ± 0.0000" in out
    total = sum(path.stat().st_size for path in new.rglob("*") if path.is_file())
    (state,) = new.rglob("*.safetensors")
    assert f"Written to {new}: {total:,} bytes, {state.stat().st_size:,} of them weights and chains" in out
    assert out.endswith(f"Next: dvae sample {new}\n")
    assert (new / "README.md").read_text().splitlines()[1] == 'license: "mit"'
    assert load_run(new).step == load_run(evaluated).step
    for words in (["evaluate", "--num-samples", "10"], ["sample", "--num-rows", "2", "--num-sweeps", "2"]):
        status, _, err = cli(words[0], new, *words[1:])
        assert (status, "warning" in err.lower()) == (0, False), err


def test_the_same_release_finds_its_result_and_another_one_is_refused(
    cli, done, refused, evaluated, tmp_path
):
    words = ["release", evaluated, "--out", tmp_path / "new", *RELEASE]
    _, first, _ = cli(*words)
    before = snapshot(tmp_path)
    again, _ = done(*words)
    assert snapshot(tmp_path) == before
    assert first.splitlines()[:2] == again.splitlines()[:2]
    for other in (["--seed", "1"], ["--num-samples", "3"]):
        assert "--out must be a new or empty folder" in refused(*words, *other)
    assert "--out must be a new or empty folder" in refused(*words[:-4], "--license", "x", *RELEASE[2:])


# report, cite


def test_writes_one_file_into_the_run(done, trained):
    before = set(trained.rglob("*"))
    out, _ = done("report", trained)
    assert set(trained.rglob("*")) - before == {trained / "report.html"}
    assert out.startswith(f"Report: {trained / 'report.html'} (")
    assert (trained / "report.html").read_text().startswith("<!doctype html>")


def test_what_to_cite(cli, trained):
    assert cli("cite", "mnist-static") == (0, cite(load_experiment("mnist-static")) + "\n", "")
    assert "{kingma2015," in cli("cite", trained)[1]
