"""dvae sample: pictures from a run, refused input."""

import shutil

import numpy as np
import pytest

from discrete_vae import figures
from discrete_vae.cli import main
from tests.training.tiny import start_run, train_quietly

SMALL = ["--num-rows", "2", "--num-sweeps", "3", "--num-chains", "2", "--num-draws", "2"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run = start_run(tmp_path_factory.mktemp("sample") / "run")
    train_quietly(run)
    return run


def files_under(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_writes_three_pictures_into_the_run(trained, capsys):
    assert main(["sample", str(trained.path), *SMALL]) == 0
    printed = capsys.readouterr().out
    for name in ("samples", "reconstructions", "training"):
        path = trained.figures_path / f"{name}.png"
        assert path.read_bytes().startswith(b"\x89PNG")
        assert str(path) in printed


def test_out_names_the_only_file(trained, tmp_path, capsys):
    before = files_under(trained.path)
    assert main(["sample", str(trained.path), *SMALL, "--out", str(tmp_path / "grid.svg")]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["grid.svg"]
    assert files_under(trained.path) == before


def test_the_same_seed_gives_the_same_file(trained, tmp_path):
    for start in ("training", "fresh"):
        pictures = []
        for seed in (1, 1, 2):
            out = tmp_path / f"{start}-{len(pictures)}.png"
            words = ["--out", str(out), "--seed", str(seed), "--start", start, "--burn-in", "5"]
            assert main(["sample", str(trained.path), *SMALL, *words]) == 0
            pictures.append(out.read_bytes())
        assert pictures[0] == pictures[1] != pictures[2], start


def test_chains_start_at_given_states(trained, tmp_path, monkeypatch):
    draw, seen = figures.evolution_table, []

    def record(model, chains, **sizes):
        seen.append(chains.state_dict()["z"])
        return draw(model, chains, **sizes)

    monkeypatch.setattr("discrete_vae.figures.run.evolution_table", record)
    states = np.random.default_rng(0).integers(0, 2, (3, 9))
    np.save(tmp_path / "states.npy", states)
    words = ["--start", str(tmp_path / "states.npy"), "--out", str(tmp_path / "x.png")]
    assert main(["sample", str(trained.path), *words]) == 0
    from discrete_vae.samplers.gibbs import unpack_bits

    assert (unpack_bits(seen[0], 9).numpy() == states).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "grid.jpg"], "--out must end in one of .png, .pdf, .svg"),
        (
            ["--start", "fersh"],
            "--start must be training, fresh or a .npy file; received 'fersh'. Did you mean fresh?",
        ),
        (["--checkpoint", "newest"], "--checkpoint must be best, last or a step"),
        (["--num-rows", "0"], "--num-rows must be a whole number of at least 1"),
        (["--num-chains", "31"], "--num-chains must be at most 30"),
        (["--start", "states.npy"], "states.npy"),
        (["--start", "wide.npy"], "--start must hold states of the prior"),
        (
            ["--out", "wide.npy/grid.png"],
            "wide.npy/grid.png must be writable; received wide.npy, which is no folder",
        ),
        (["--burn-in", "-3"], "--burn-in must be a whole number of at least 0"),
    ],
)
def test_wrong_input(trained, tmp_path, monkeypatch, capsys, words, message):
    np.save(tmp_path / "wide.npy", np.zeros((2, 10)))
    monkeypatch.chdir(tmp_path)
    before = files_under(trained.path)
    assert main(["sample", str(trained.path), *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("error: ")
    assert "Traceback" not in error
    assert files_under(trained.path) == before
    assert [p.name for p in tmp_path.iterdir()] == ["wide.npy"]


def test_a_folder_that_is_no_run(tmp_path, capsys):
    assert main(["sample", str(tmp_path)]) == 2
    assert "error: " in capsys.readouterr().err


def test_a_picture_that_cannot_be_written_costs_no_drawing(trained, tmp_path, capsys, monkeypatch):
    def drawn(*_, **__):
        raise AssertionError("drawn before the check")

    monkeypatch.setattr("discrete_vae.figures.run.evolution_table", drawn)
    taken = tmp_path / "grid.png"
    taken.mkdir()
    assert main(["sample", str(trained.path), *SMALL, "--out", str(taken)]) == 2
    assert "grid.png must be writable; received a folder of that name." in capsys.readouterr().err


def test_a_table_is_compared_with_its_samples(cli, trained_once, tmp_path):
    table = shutil.copytree(trained_once, tmp_path / "table")
    status, out, _ = cli("sample", table)
    assert status == 0
    assert f"Samples against the data: {table / 'figures' / 'samples.png'}" in out
    status, _, err = cli("sample", table, "--num-chains", "1", "--num-rows", "1")
    assert status == 2
    assert "samples must hold at least 2 samples" in err
