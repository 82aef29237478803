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
from discrete_vae.load import load_run
from discrete_vae.presets import cite
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


@pytest.fixture
def files(trained, tmp_path, monkeypatch):
    """Files that do not fit, in the working folder, beside the run."""
    monkeypatch.chdir(tmp_path)
    np.save("few.npy", np.zeros(3))
    np.save("wide.npy", np.zeros((60, 2)))
    (tmp_path / "two.csv").write_text("a,b\n1,2\n")
    (tmp_path / "labels.txt").write_text("1\n")
    for name in ("taken.html", "taken.csv", "taken.png"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")


@pytest.mark.parametrize(
    ("words", "argument"),
    [
        ("sample trained --out grid.jpg", "--out"),
        ("sample trained --out wide.npy/grid.png", "wide.npy/grid.png"),
        ("sample trained --out taken.png", "taken.png"),
        ("sample trained --start fersh", "--start"),
        ("sample trained --start none.npy", "none.npy"),
        ("sample trained --start wide.npy", "--start"),
        ("sample trained --checkpoint newest", "--checkpoint"),
        ("sample trained --num-rows 0", "--num-rows"),
        ("sample trained --num-chains 21", "--num-chains"),
        ("sample trained --burn-in -3", "--burn-in"),
        ("sample .", "RUN"),
        ("figure evolutio", "NAME"),
        ("figure evolution", "RUN"),
        ("figure evolution RUN", "RUN"),
        ("figure evolution RUN RUN2", "dvae figure"),
        ("figure training-curves trained --out a.jpg", "--out"),
        ("figure training-curves trained --out taken.png", "taken.png"),
        ("figure training-curves trained --out taken.svg", "taken.csv"),
        ("figure training-curves trained --out file/a.png", "file/a.png"),
        ("figure training-curves trained --data-dir=", "--data-dir"),
        ("figure log-partition-histogram trained", "RUN"),
        ("log-partition trained --repeats 0", "--repeats"),
        ("log-partition trained --std-error 0", "--std-error"),
        ("log-partition trained --std-error -1", "--std-error"),
        ("log-partition trained --out histogram.txt", "--out"),
        ("log-partition trained --out file/z.json", "file/z.json"),
        ("refit trained --out trained/new", "--out"),
        ("refit trained --out trained", "--out"),
        ("refit trained --out file", "--out"),
        ("refit trained --out loop", "--out"),
        ("refit trained --out=", "--out"),
        ("log-partition trained --out=", "--out"),
        ("refit trained --num-steps 0", "--num-steps"),
        ("refit trained --batch-size 1", "--batch-size"),
        ("refit trained --batch-size 200", "--batch-size"),
        ("refit trained --model-share 1.5", "--model-share"),
        ("refit trained --model-share nan", "--model-share"),
        ("refit trained --model-share half", "--model-share"),
        ("refit trained --learning-rate 0", "--learning-rate"),
        ("refit trained --checkpoint 99", "--checkpoint"),
        ("release trained --license mit", "--out"),
        ("release trained --out new", "--license"),
        ("release trained --out new --license mit --precision half", "--precision"),
        ("release trained --out new --license mit", "trained/evaluation.json"),
        ("report trained --out page.pdf", "--out"),
        ("report trained --out few.npy/page.html", "few.npy/page.html"),
        ("report trained --out taken.html", "taken.html"),
        ("report trained --labels few.npy", "--labels"),
        ("report trained --labels wide.npy", "--labels"),
        ("report trained --labels two.csv", "--labels"),
        ("report trained --labels none.npy", "none.npy"),
        ("report trained --labels labels.txt", "--labels"),
        ("report trained --num-examples 0", "--num-examples"),
        ("cite mnist-statik", "NAME"),
    ],
)
def test_what_cannot_be_done_is_refused(refused, files, words, argument):
    assert refused(*words.split()).startswith(f"error: {argument} ")


@pytest.mark.parametrize("verb", ["sample", "report"])
def test_what_cannot_be_written_costs_no_work(refused, files, monkeypatch, verb):
    def work(*_, **__):
        raise AssertionError("computed before the check")

    for place in ("figures.run.make_feature_statistics", "report.latents.generated_examples"):
        monkeypatch.setattr(f"discrete_vae.{place}", work)
    assert "taken" in refused(verb, "trained", "--out", "taken.png" if verb == "sample" else "taken.html")


# sample


def test_writes_three_pictures_into_the_run(cli, images):
    status, printed, _ = cli("sample", images.path, *SMALL)
    assert status == 0
    for name in ("samples", "reconstructions", "training"):
        path = images.figures_path / f"{name}.png"
        assert path.read_bytes().startswith(b"\x89PNG")
        assert str(path) in printed


def test_out_names_the_only_file(cli, images, tmp_path):
    before = snapshot(images.path)
    assert cli("sample", str(images.path), *SMALL, "--out", str(tmp_path / "grid.svg"))[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["grid.svg"]
    assert snapshot(images.path) == before


def test_the_same_seed_gives_the_same_file(cli, images, tmp_path):
    for start in ("training", "fresh"):
        pictures = []
        for seed in (1, 1, 2):
            out = tmp_path / f"{start}-{len(pictures)}.png"
            words = ["--out", str(out), "--seed", str(seed), "--start", start, "--burn-in", "5"]
            assert cli("sample", str(images.path), *SMALL, *words)[0] == 0
            pictures.append(out.read_bytes())
        assert pictures[0] == pictures[1] != pictures[2], start


def test_chains_start_at_given_states(cli, images, tmp_path, monkeypatch):
    draw, seen = figures.evolution_table, []

    def record(model, chains, **sizes):
        seen.append(chains.state_dict()["z"])
        return draw(model, chains, **sizes)

    monkeypatch.setattr("discrete_vae.figures.run.evolution_table", record)
    states = np.random.default_rng(0).integers(0, 2, (3, 9))
    np.save(tmp_path / "states.npy", states)
    words = ["--start", str(tmp_path / "states.npy"), "--out", str(tmp_path / "x.png")]
    assert cli("sample", str(images.path), *words)[0] == 0
    assert (unpack_bits(seen[0], 9).numpy() == states).all()


def test_a_table_is_compared_with_its_samples(cli, trained):
    status, out, _ = cli("sample", trained)
    assert status == 0
    assert f"Samples against the data: {trained / 'figures' / 'samples.png'}" in out
    status, _, err = cli("sample", trained, "--num-chains", "1", "--num-rows", "1")
    assert (status, err.splitlines()[-1].partition(" must ")[0]) == (2, "error: samples")


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
def test_figures_of_a_run_go_into_its_folder(cli, run, name):
    status, out, err = cli("figure", name, run)
    assert status == 0, err
    picture, table = (run / "figures" / f"{name}{ending}" for ending in (".png", ".csv"))
    assert out == f"Table:   {table}\nPicture: {picture}\n"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert len(rows(table)) > 1


def test_the_table_goes_beside_the_named_picture(cli, run, tmp_path):
    out = tmp_path / "curves.svg"
    assert cli("figure", "training-curves", run, "--out", out)[0] == 0
    assert out.read_bytes().startswith(b"<?xml")
    found = rows(tmp_path / "curves.csv")
    assert {row["quantity"] for row in found} >= {"elbo", "validation_elbo"}
    assert not (run / "figures").exists()


def test_the_histogram_shows_what_was_kept(cli, run, tmp_path):
    assert cli("figure", "log-partition-histogram", run, "--out", tmp_path / "a.png")[0] == 0
    assert [float(row["value"]) for row in rows(tmp_path / "a.csv")] == [1.0, 1.1, 0.9]
    assert {row["exact"] for row in rows(tmp_path / "a.csv")} == {"1.05"}


def test_the_seed_decides(cli, run, tmp_path):
    found = []
    for seed in (1, 1, 2):
        assert cli("figure", "reconstructions", run, "--seed", seed, "--out", tmp_path / "a.png")[0] == 0
        found.append((tmp_path / "a.csv").read_text())
    assert found[0] == found[1] != found[2]


@pytest.mark.filterwarnings("ignore:.*is not the file that the run was trained with")
def test_a_changed_config_is_noted_in_the_picture(cli, run, tmp_path):
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"name": "renamed"}))
    assert cli("figure", "reconstructions", run)[0] == 2
    out = tmp_path / "a.svg"
    status, _, err = cli("figure", "reconstructions", run, "--out", out, "--accept-changed-config")
    assert status == 0, err
    assert "config.json" in out.read_text()


def test_without_a_name_it_lists_what_there_is(cli):
    status, out, err = cli("figure")
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines() if line[:2] == "  " and line[2] != " "] == list(
        FIGURES
    )
    assert max(map(len, out.splitlines())) <= 80


def test_damaged_estimates_are_named(refused, run):
    (run / "log_partition.json").write_text('{"step": 6, "estimates": [{"value": 1.0}], "exact": null}')
    error = refused("figure", "log-partition-histogram", run)
    assert "log_partition.json, field 'estimates.0.std_error', must be there" in error


def test_listing_the_figures_loads_no_torch():
    code = "import sys; from discrete_vae.cli import main; main(['figure']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


# log-partition


def test_repeats_with_a_histogram(cli, images):
    status, printed, _ = cli("log-partition", images.path, "--repeats", "3", *QUICK_LOG_Z)
    assert status == 0
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


def test_one_repeat_is_drawn_where_it_is_asked_for(cli, images, tmp_path):
    out = tmp_path / "dot.svg"
    status, printed, _ = cli("log-partition", images.path, *QUICK_LOG_Z, "--out", out)
    assert status == 0
    assert b"repeat" in out.read_bytes()
    lines = [line for line in printed.splitlines() if str(tmp_path.parent) not in line]
    assert lines
    assert max(map(len, lines)) <= 80


def test_earlier_estimates_are_kept(cli, images):
    for words in (["--repeats", "2"], ["--repeats", "1"], ["--repeats", "1", "--seed", "4"]):
        assert cli("log-partition", str(images.path), *QUICK_LOG_Z, *words)[0] == 0
    names = sorted(path.name for path in (images.path / "log_partitions").iterdir())
    for settings in (
        "repeats-2-std-error-0.05-seed-0",
        "repeats-1-std-error-0.05-seed-0",
        "repeats-1-std-error-0.05-seed-4",
    ):
        assert any(settings in name for name in names)
    assert len(json.loads((images.path / "log_partition.json").read_text())["estimates"]) >= 2


def test_json_elsewhere_leaves_the_run_alone(cli, images, tmp_path):
    before = snapshot(images.path)
    assert cli("log-partition", str(images.path), *QUICK_LOG_Z, "--out", str(tmp_path / "z.json"))[0] == 0
    assert snapshot(images.path) == before
    assert len(json.loads((tmp_path / "z.json").read_text())["estimates"]) == 1


# refit


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
    assert "--out must be a new or empty folder" in refused(*words, "--seed", "1")
    (tmp_path / "new" / "config.json").unlink()
    assert "--out must be a new or empty folder" in refused(*words)


def test_a_link_stays_and_its_empty_folder_is_filled(cli, refused, trained, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "loop").symlink_to("loop")
    assert cli("refit", trained, "--out", tmp_path / "link", *QUICK)[0] == 0
    assert (tmp_path / "link").is_symlink()
    assert load_run(tmp_path / "real").step == load_run(trained).step
    assert "--out must lead to a file or folder" in refused(
        "refit", trained, "--out", tmp_path / "loop", *QUICK
    )


def test_training_does_not_go_on_with_it(cli, refused, trained, tmp_path):
    cli("refit", trained, "--out", tmp_path / "new", *QUICK)
    message = refused("train", "--resume", "--run-dir", tmp_path / "new")
    assert "whose posterior dvae refit has fitted anew. Go on with the run that it was made of" in message


def test_damage_is_found_before_the_work(refused, trained, monkeypatch):
    monkeypatch.setattr("discrete_vae.training.refit.refit_posterior", None)
    log = trained / "metrics.jsonl"
    log.write_text("{\n" + log.read_text())
    assert "metrics.jsonl, line 1" in refused("refit", trained, *QUICK)


@pytest.mark.filterwarnings("always")
def test_a_changed_config_is_said(cli, refused, trained, tmp_path):
    text = (trained / "config.json").read_text()
    (trained / "config.json").write_text(text + "\n")
    assert "must be the file that the run was trained with" in refused("refit", trained, *QUICK)
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


def test_a_disk_that_refuses_leaves_nothing(cli, trained, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("discrete_vae.runs.run_directory.write_checkpoint", full)
    status, _, err = cli("refit", trained, "--out", tmp_path / "new", *QUICK)
    assert status == 2
    assert "must be writable; received No space left on device. Free space or check permissions" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trained"]


# release


@pytest.fixture
def evaluated(cli, trained):
    assert cli("evaluate", trained, "--num-samples", "10")[0] == 0
    return trained


def test_the_released_run_is_evaluated_and_sampled(cli, evaluated, tmp_path):
    new = tmp_path / "released" / "mine"
    status, out, err = cli("release", evaluated, "--out", new, *RELEASE)
    assert status == 0, err
    assert "a difference of +0.0000 +- 0.0000" in out
    total = sum(path.stat().st_size for path in new.rglob("*") if path.is_file())
    (state,) = new.rglob("*.safetensors")
    assert f"Written to {new}: {total:,} bytes, {state.stat().st_size:,} of them weights and chains" in out
    assert out.endswith(f"Next: dvae sample {new}\n")
    assert (new / "README.md").read_text().splitlines()[1] == 'license: "mit"'
    assert load_run(new).step == load_run(evaluated).step
    for words in (
        ["evaluate", "--num-samples", "10"],
        ["sample", "--num-rows", "2", "--num-sweeps", "2"],
    ):
        status, _, err = cli(words[0], new, *words[1:])
        assert (status, "warning" in err.lower()) == (0, False), err


def test_the_number_of_examples_is_given(cli, evaluated, tmp_path):
    assert cli("release", evaluated, "--out", tmp_path / "new", *RELEASE, "--num-examples", "2")[0] == 0
    assert json.loads((tmp_path / "new" / "release.json").read_text())["num_examples"] == 2


def test_the_same_release_finds_its_result_and_another_one_is_refused(cli, refused, evaluated, tmp_path):
    words = ["release", evaluated, "--out", tmp_path / "new", *RELEASE]
    _, first, _ = cli(*words)
    before = snapshot(tmp_path)
    status, again, err = cli(*words)
    assert status == 0, err
    assert snapshot(tmp_path) == before
    assert first.splitlines()[:2] == again.splitlines()[:2]
    for other in (["--seed", "1"], ["--num-samples", "3"]):
        assert "--out must be a new or empty folder" in refused(*words, *other)
    assert "--out must be a new or empty folder" in refused(*words[:-4], "--license", "x", *RELEASE[2:])


def test_training_does_not_go_on_with_a_release(cli, refused, evaluated, tmp_path):
    cli("release", evaluated, "--out", tmp_path / "new", *RELEASE)
    message = refused("train", "--resume", "--run-dir", tmp_path / "new")
    assert (
        "a released run, which has nothing of the optimizer. Go on with the run that it was made of"
        in message
    )


# report, cite


def test_writes_one_file_into_the_run(cli, trained):
    before = set(trained.rglob("*"))
    status, out, _ = cli("report", trained)
    assert status == 0
    assert set(trained.rglob("*")) - before == {trained / "report.html"}
    assert out.startswith(f"Report: {trained / 'report.html'} (")
    assert (trained / "report.html").read_text().startswith("<!doctype html>")


def test_out_takes_another_place_and_replaces_what_is_there(cli, trained, tmp_path):
    place = tmp_path / "mine.html"
    place.write_text("old")
    status, _, _ = cli("report", trained, "--out", place, "--num-examples", "20", "--seed", "3")
    assert status == 0
    assert place.read_text().endswith("</html>\n")
    assert not (trained / "report.html").exists()


def test_a_disk_that_fails_leaves_the_page_that_was_there(cli, trained, monkeypatch):
    (trained / "report.html").write_text("old")

    def fails(path, fill):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("discrete_vae.runs.output.write_stream", fails)
    status, out, err = cli("report", trained)
    assert (status, out) == (2, "")
    assert "report.html must be writable; received No space left on device" in err
    assert (trained / "report.html").read_text() == "old"


def test_what_to_cite(cli, trained):
    assert cli("cite", "mnist-static") == (0, cite(load_experiment("mnist-static")) + "\n", "")
    assert "{kingma2015," in cli("cite", trained)[1]
