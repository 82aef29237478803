"""A small run from data of one's own, trained once through the command line."""

import csv
import shlex
import shutil

import numpy as np
import pytest

from discrete_vae.cli import main
from discrete_vae.runs.checkpoints import CheckpointRecord, read_checkpoint, write_checkpoint

TINY = shlex.split(
    "--size smoke --training.num-epochs 6 --training.validate-every 2 --training.log-every 1 --training.num-sweeps 2 "
    "--training.sampler.num-chains 20 --model.prior.num-left 3 --model.prior.num-right 2 --model.posterior.hidden 5 "
    "--model.posterior.groups 2 --model.decoder.hidden 4 --evaluation.num-samples 20"
)
NUM_STEPS = 6  # one batch an epoch
FEW = ("--num-rows", "2", "--num-sweeps", "3", "--num-chains", "2")  # samples


@pytest.fixture
def cli(capsys):
    """Run a command; returns its status, its output and what it wrote on standard error."""

    def run(*words):
        status = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return status, out, err

    return run


@pytest.fixture
def done(cli):
    """Run a command that must succeed; returns its output and what it wrote on standard error."""

    def run(*words):
        status, out, err = cli(*words)
        assert status == 0, err
        return out, err

    return run


@pytest.fixture
def refused(cli, tmp_path):
    """Run a command that must fail, and writes or loses nothing; returns its error."""

    def run(*words):
        before = snapshot(tmp_path)
        error = refusal(cli(*words))
        assert snapshot(tmp_path) == before
        return error

    return run


def refusal(ended):
    """The error of a command that ended with status 2 and one line in the house's form."""
    status, out, err = ended
    assert (status, out) == (2, ""), err
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1
    assert "; received " in err
    assert err.rstrip().endswith((".", "?"))
    return err


def snapshot(folder):
    """All files below a folder, with their bytes."""
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def columns_of(path, delimiter=","):
    """The cells of a table in text by the names of their columns."""
    header, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines(), delimiter=delimiter)
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


# Runs as they are left behind.


def final_files(run, step=NUM_STEPS):
    """Weights, beta, chains, optimizer and running log Z, byte for byte, and which checkpoint is the best."""
    folder = run / "checkpoints" / f"step-{step}"
    return {path.name: path.read_bytes() for path in (*folder.iterdir(), run / "best.json")}


def forget_after(run, step):
    """Bring a finished run back to where it was after a step."""
    for folder in (run / "checkpoints").iterdir():
        if int(folder.name.removeprefix("step-")) > step:
            shutil.rmtree(folder)


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def forge(folder, tensors=None, meta=None, **record):
    """Write a checkpoint anew with other tensors and values; None or "gone" as a value takes one away."""
    there = read_checkpoint(folder, int(folder.name.removeprefix("step-")))
    tensors = {name: value for name, value in (there.tensors | (tensors or {})).items() if value is not None}
    meta = {name: value for name, value in (there.meta | (meta or {})).items() if value != "gone"}
    for file in folder.iterdir():
        file.unlink()
    fields = {"best": there.record.best, "interim": False} | record
    write_checkpoint(folder, CheckpointRecord(there.step, meta, **fields), tensors)


# Data and runs.


@pytest.fixture(scope="session")
def data_file(tmp_path_factory):
    """40 examples of 12 binary features, in two clusters."""
    random = np.random.default_rng(0)
    centers = random.random((2, 12))
    path = tmp_path_factory.mktemp("data") / "flags.npy"
    np.save(path, random.random((60, 12)) < centers[random.integers(0, 2, 60)])
    return path


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory, data_file):
    run = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", "--data", str(data_file), "--run-dir", str(run), *TINY]) == 0
    return run


@pytest.fixture
def trained(trained_once, tmp_path):
    """A copy of that run, which a test may spoil."""
    return shutil.copytree(trained_once, tmp_path / "trained")


@pytest.fixture(scope="session")
def images_run(tmp_path_factory):
    """A run of 60 images of 4 x 3 pixels with labels, x.npz beside it, with Gaussian layers."""
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    kind = random.integers(0, 2, 60)
    np.savez(folder / "x.npz", x=random.random((60, 4, 3)) < random.random((2, 4, 3))[kind], y=kind)
    layers = shlex.split(
        "--model.hierarchy gaussian --model.hierarchy.num-layers 2 --model.hierarchy.num-units 2 "
        "--model.hierarchy.posterior-hidden 5 --model.hierarchy.prior-hidden 5"
    )
    run = folder / "run"
    assert main(["train", "--data", str(folder / "x.npz"), "--run-dir", str(run), *TINY, *layers]) == 0
    return run


@pytest.fixture(scope="session")
def table_run(tmp_path_factory):
    """A run on a table of counts that had no gaps, and the table with some."""
    folder = tmp_path_factory.mktemp("table")
    counts = np.random.default_rng(0).poisson(5, (60, 4))
    lines = [f'{i % 3},"{a}",{b},{c} ,{d}' for i, (a, b, c, d) in enumerate(counts)]
    (folder / "whole.csv").write_text("\n".join(['kind,a,"b",c,d', *lines]))
    words = ["--model.likelihood", "negative-binomial", "--data.label-column", "kind", *TINY]
    assert main(["train", "--data", str(folder / "whole.csv"), "--run-dir", str(folder / "run"), *words]) == 0
    (folder / "gaps.csv").write_bytes(b'd,kind,a,c,b\r\n1,x,"NA",3.0,\r\n\r\n,y,"2",, 4\r\n')
    return folder
