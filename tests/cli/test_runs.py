"""The verbs about a run besides evaluate: figures and pictures, log Z, runs made of a run; what is refused."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

from discrete_vae import exact_log_partition, figures, load_experiment
from discrete_vae.config import instantiate
from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.registry import FIGURES
from discrete_vae.presets import cite
from discrete_vae.runs.io import read_json, write_json
from discrete_vae.runs.load import load_run
from discrete_vae.runs.results import log_partition_store
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.samplers.gibbs import unpack_bits
from discrete_vae.training.refit import RunRefit
from tests.cli.conftest import FEW, columns_of, forge, snapshot
from tests.training.tiny import start_run, train_quietly

QUICK_LOG_Z = ["--std-error", "0.05", "--health-sweeps", "200"]
QUICK = ("--num-steps", "4", "--batch-size", "10")
TAKEN = "--out must be a new or empty folder"
RELEASE = ("--license", "mit", "--precision", "float32")  # four validation examples of a tiny run tell little


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A run of images."""
    run = start_run(tmp_path_factory.mktemp("images") / "run")
    train_quietly(run)
    return run


# sample


def test_three_pictures_go_into_the_run(done, images):
    printed, _ = done("sample", images.path, *FEW, "--num-draws", "2")
    for name in ("samples", "reconstructions", "training"):
        path = images.figures_path / f"{name}.png"
        assert path.read_bytes().startswith(b"\x89PNG")
        assert str(path) in printed


def test_the_same_seed_gives_the_same_picture(done, images, tmp_path):
    for start in ("training", "fresh"):
        pictures = []
        for seed in (1, 1, 2):
            words = ["--out", tmp_path / "x.png", "--seed", seed, "--start", start, "--burn-in", "5"]
            done("sample", images.path, *FEW, *words)
            pictures.append((tmp_path / "x.png").read_bytes())
        assert pictures[0] == pictures[1] != pictures[2], start


def test_chains_start_at_given_states(done, images, tmp_path, monkeypatch):
    draw, seen = figures.evolution_table, []

    def record(model, chains, **sizes):
        seen.append(chains.state_dict()["z"])
        return draw(model, chains, **sizes)

    monkeypatch.setattr("discrete_vae.figures.run.evolution_table", record)
    states = np.random.default_rng(0).integers(0, 2, (3, 9))
    np.save(tmp_path / "states.npy", states)
    done("sample", images.path, "--start", tmp_path / "states.npy", "--out", tmp_path / "x.png")
    assert (unpack_bits(seen[0], 9).numpy() == states).all()


# figure


@pytest.mark.parametrize("name", FIGURES)
def test_figures_of_a_run_go_into_its_folder(done, trained, name):
    estimates = [{"value": value, "std_error": 0.1, "method": "m"} for value in (1.0, 1.1, 0.9)]
    step = read_json(trained / "best.json")["step"]
    found = {"step": step, "config": {"std_error": 0.1, "seed": 0}, "estimates": estimates, "exact": 1.05}
    log_partition_store(RunDirectory(trained)).add(found)
    out, _ = done("figure", name, trained)
    picture, table = (trained / "figures" / f"{name}{ending}" for ending in (".png", ".csv"))
    assert out == f"Table:   {table}\nPicture: {picture}\n"
    assert picture.read_bytes().startswith(b"\x89PNG")
    columns = columns_of(table)
    assert all(len(cells) > 1 for cells in columns.values())
    if name == "log-partition-histogram":
        assert [*map(float, columns["value"])] == [1.0, 1.1, 0.9]
        assert {*columns["exact"]} == {"1.05"}


@pytest.mark.filterwarnings("ignore:.*is not the file that the run was trained with")
def test_a_changed_config_is_noted_in_the_picture(cli, done, trained, tmp_path):
    write_json(trained / "config.json", read_json(trained / "config.json") | {"name": "renamed"})
    assert cli("figure", "reconstructions", trained)[0] == 2
    done("figure", "reconstructions", trained, "--out", tmp_path / "a.svg", "--accept-changed-config")
    assert "config.json" in (tmp_path / "a.svg").read_text()


def test_without_a_name_it_lists_what_there_is(done):
    out, err = done("figure")
    names = [line.split()[0] for line in out.splitlines() if line[:2] == "  " and line[2] != " "]
    assert (names, err) == (list(FIGURES), "")
    assert max(map(len, out.splitlines())) <= 80


# log-partition


def test_repeats_with_a_histogram(done, images, tmp_path):
    before = snapshot(images.path)
    done("log-partition", images.path, *QUICK_LOG_Z, "--out", tmp_path / "z.json")
    assert snapshot(images.path) == before
    assert len(read_json(tmp_path / "z.json")["estimates"]) == 1
    printed, _ = done("log-partition", images.path, "--repeats", "3", *QUICK_LOG_Z)
    assert all(words in printed for words in ("3/3  log Z = ", "exchange rates", "R-hat"))
    assert (images.figures_path / "log-partition.png").read_bytes().startswith(b"\x89PNG")
    result = read_json(images.path / "log_partition.json")
    exact = exact_log_partition(load_run(images).model.prior).value
    assert result["exact"] == pytest.approx(exact)
    assert len({found["value"] for found in result["estimates"]}) == 3
    for found in result["estimates"]:
        assert abs(found["value"] - exact) < 5 * found["std_error"]
        assert found["converged"]
    assert result["chains"]["num_sweeps"] == 200


# refit


def test_the_new_run_is_evaluated_and_sampled_and_the_old_one_stays(done, trained, tmp_path):
    before, folder = snapshot(trained), tmp_path / "new"
    words = [*QUICK, "--model-share", "0.25", "--learning-rate", "0.01", "--seed", "5"]
    out, err = done("refit", trained, "--out", folder, *words)
    assert snapshot(trained) == before
    assert "Validation ELBO -" in out
    assert out.endswith(f"Next: dvae evaluate {folder}\n")
    assert "step 4/4  elbo -" in err
    old, new = load_run(trained), load_run(folder)
    assert (new.step, new.config, new.changed_config) == (old.step, old.config, None)
    weights = old.model.state_dict()
    changed = {name for name, value in new.model.state_dict().items() if not value.equal(weights[name])}
    assert changed
    assert all(name.startswith("posterior.") for name in changed)
    said, best = (read_json(folder / name) for name in ("refit.json", "best.json"))
    assert (said["run"], said["step"], best["step"]) == (str(trained.resolve()), old.step, old.step)
    assert best["validation_elbo"] == said["after"]["elbo"] != said["before"]["elbo"]
    wanted = {"num_steps": 4, "batch_size": 10, "model_share": 0.25, "learning_rate": 0.01, "seed": 5}
    assert wanted.items() <= said["config"].items()
    done("evaluate", folder, "--num-samples", "200")
    done("log-partition", folder, "--health-sweeps", "20")
    _, err = done("sample", folder, "--num-rows", "2", "--num-sweeps", "2")
    assert "warning" not in err.lower()  # the course of training is there


def test_the_log_ends_at_the_checkpoint(done, trained, tmp_path):
    done("refit", trained, "--out", tmp_path / "new", *QUICK, "--checkpoint", "4")
    assert max(record["step"] for record in RunDirectory(tmp_path / "new").metrics().read()) == 4


def test_the_same_request_finds_its_result_and_another_one_is_refused(done, refused, trained, tmp_path):
    words = ["refit", trained, "--out", tmp_path / "new", *QUICK]
    first, _ = done(*words)
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
    assert [line for line in again.splitlines() if line not in first] == [f"It was there: {tmp_path / 'new'}"]
    assert TAKEN in refused(*words, "--seed", "1")
    run = shutil.copytree(trained, tmp_path / "run")
    done("refit", run, "--out", tmp_path / "other", *QUICK)
    saved = RunDirectory.open(run).checkpoints().load("best")  # trained anew in the same folder
    forge(saved.folder, {"model/prior.bias": saved.tensors["model/prior.bias"] + 1})
    assert TAKEN in refused("refit", run, "--out", tmp_path / "other", *QUICK)
    (tmp_path / "new" / "config.json").unlink()
    assert TAKEN in refused(*words)


def test_a_link_stays_and_its_empty_folder_is_filled(done, trained, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    done("refit", trained, "--out", tmp_path / "link", *QUICK)
    assert (tmp_path / "link").is_symlink()
    assert load_run(tmp_path / "real").step == load_run(trained).step


def test_a_step_size_that_breaks_the_posterior_writes_nothing(cli, done, trained, tmp_path):
    words = ["refit", trained, "--out", tmp_path / "new", *QUICK, "--learning-rate"]
    status, _, err = cli(*words, "1e38")
    assert (status, (tmp_path / "new").exists()) == (1, False)
    assert "the weight posterior." in err
    assert " at step 1; the run has stopped." in err
    assert f"The last good checkpoint is that of step {load_run(trained).step}" in err
    assert "The posterior of training was better" in done(*words, "3")[0]


def test_a_folder_that_was_filled_meanwhile_stays(trained, tmp_path):
    loaded, run, out = load_run(trained), RunDirectory.open(trained), tmp_path / "new"

    def fill(step, loss):
        out.mkdir(exist_ok=True)
        (out / "notes.txt").write_text("mine")

    refit = RunRefit(run, loaded, instantiate(loaded.config.data), out, num_steps=1, batch_size=10)
    with pytest.raises(InvalidInputError, match=rf"{TAKEN}; received .*notes\.txt"):
        refit.run(fill)
    assert snapshot(out) == {out / "notes.txt": b"mine"}


# release


def test_the_released_run_is_evaluated_and_sampled_and_found_again(done, refused, trained, tmp_path):
    new = tmp_path / "released" / "mine"
    words = ["release", trained, "--out", new, *RELEASE]
    done("evaluate", trained, "--num-samples", "10")
    out, _ = done(*words)
    assert "a difference of +0.0000 ± 0.0000" in out
    total = sum(path.stat().st_size for path in new.rglob("*") if path.is_file())
    (state,) = new.rglob("*.safetensors")
    assert f"Written to {new}: {total:,} bytes, {state.stat().st_size:,} of them weights and chains" in out
    assert out.endswith(f"Next: dvae sample {new}\n")
    assert (new / "README.md").read_text().splitlines()[1] == 'license: "mit"'
    assert load_run(new).step == load_run(trained).step
    before = snapshot(tmp_path)
    again, _ = done(*words)
    assert snapshot(tmp_path) == before
    assert out.splitlines()[:2] == again.splitlines()[:2]
    for other in (["--seed", "1"], ["--num-samples", "3"], ["--license", "x"]):
        assert TAKEN in refused(*words, *other)
    for words in (["evaluate", "--num-samples", "10"], ["sample", "--num-rows", "2", "--num-sweeps", "2"]):
        _, err = done(words[0], new, *words[1:])
        assert "warning" not in err.lower()


# report, cite


def test_a_report_is_one_file_in_the_run(done, trained):
    before = set(trained.rglob("*"))
    out, _ = done("report", trained)
    assert set(trained.rglob("*")) - before == {trained / "report.html"}
    assert out.startswith(f"Report: {trained / 'report.html'} (")
    assert (trained / "report.html").read_text().startswith("<!doctype html>")


def test_what_to_cite(done, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mnist-static").mkdir()  # of data, say
    assert done("cite", "mnist-static") == (cite(load_experiment("mnist-static")) + "\n", "")
    assert "{kingma2015," in done("cite", trained)[0]


def test_a_table_that_is_there_without_its_picture_stays(done, refused, trained, tmp_path):
    (tmp_path / "mine.csv").write_text("of another\n")
    assert "mine.csv" in refused("figure", "training-curves", trained, "--out", tmp_path / "mine.png")
    for _ in range(2):
        done("figure", "training-curves", trained, "--out", tmp_path / "other.png")


def test_log_z_of_another_checkpoint_is_not_drawn(done, refused, trained):
    steps = sorted(int(path.name.removeprefix("step-")) for path in (trained / "checkpoints").iterdir())
    done("log-partition", trained, "--checkpoint", steps[0])
    words = ["figure", "log-partition-histogram", trained, "--checkpoint"]
    done(*words, steps[0])
    assert "log Z" in refused(*words, steps[-1])
