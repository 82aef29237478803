"""Wrong data and settings are refused in one line that names them; small parts and large seeds work to the end."""

import json
import shlex

import numpy as np
import pytest

from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.load import load_run
from tests.commands.conftest import TINY

GOOD = np.eye(40, 12, dtype=np.float32)


def with_value(value):
    array = GOOD.copy()
    array[3, 4] = value
    return array


ARRAYS = {
    "one axis": (np.zeros(5), "received shape (5,)"),
    "a number": (np.array(1.0), "received shape ()"),
    "infinity": (with_value(np.inf), "received values from 0 to inf. No likelihood can read them"),
    "below 0": (with_value(-0.5), "bernoulli; received values from -0.5 to 1. gaussian can"),
    "above 1": (with_value(1.5), "received values from 0 to 1.5"),
    "8-bit images": ((GOOD * 255).astype(np.uint8), "Divide 0..255 intensities by 255."),
    "other integers": (
        GOOD.astype(np.int64) - 1,
        "received whole numbers from -1 to 0. gaussian can read them",
    ),
    "complex": (GOOD.astype(complex), "received dtype complex128"),
    "no examples": (GOOD[:0], "received shape (0, 12)"),
    "too few": (GOOD[:5], "received 5 examples, cut into 5, 0 and 0"),
    "objects": (GOOD.astype(object), "received Python objects"),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_wrong_arrays_are_refused(refused, tmp_path, case):
    array, received = ARRAYS[case]
    np.save(tmp_path / "wrong.npy", array, allow_pickle=True)
    error = refused("train", "--data", tmp_path / "wrong.npy", "--run-dir", tmp_path / "run")
    assert received in error
    assert "wrong.npy" in error


@pytest.mark.parametrize(
    ("name", "content", "received"),
    [
        ("empty.npy", b"", "empty.npy"),
        ("text.npy", b"0,1,1\n", "received another format."),
        ("zip.npz", b"not a zip", "zip.npz"),
        ("table.txt", b"0,1\n", "Add such a line."),
        ("table.csv", b"0,1\n", "received '0', '1'"),
        ("none.npy", None, "received no such file"),
        ("folder.npy", "folder", "received a folder"),
        ("keys.npz", {"images": GOOD, "masks": np.zeros(40)}, "received images, masks."),
        ("parts.npz", {"train": GOOD, "valid": GOOD[:, :9], "test": GOOD}, "received shape (9,)"),
    ],
)
def test_files_of_another_kind_are_refused(refused, tmp_path, name, content, received):
    path = tmp_path / name
    if isinstance(content, dict):
        np.savez(path, **content)
    elif content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    assert received in refused("train", "--data", path, "--run-dir", tmp_path / "run")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train", "EXPERIMENT or --data FILE must be given; received neither."),
        ("validate digits --data x.npy", "EXPERIMENT or --data FILE must be given; received both."),
        ("train dogits", "EXPERIMENT must be one of digits, mnist-dynamic"),
        ("train digits --model.prior.num-lefts 3", "Did you mean --model.prior.num-left"),
        ("train digits --training.num-epochs many", "--training.num-epochs must"),
        ("train digits --model.posterior.groups [[0,1],[1,2]]", "groups"),
        ("train digits --run-dir thesis", "--run-dir must be a new or empty folder"),
        ("train digits --run-dir trained", "dvae train --resume --run-dir trained."),
    ],
)
def test_wrong_experiments_are_refused(refused, trained, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("mine")
    assert message in refused(*words.split())


FEW = np.random.default_rng(0).integers(0, 2, (10, 12)).astype(bool)


def test_ten_examples_are_trained_and_evaluated_to_the_end(done, tmp_path):
    """One example each for validation and test, whose standard errors are unknown."""
    np.save(tmp_path / "ten.npy", FEW)
    _, err = done("train", "--data", tmp_path / "ten.npy", "--run-dir", tmp_path / "run", *TINY)
    assert " ± unknown nats" in err
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    validations = [line for line in lines if "validation_elbo" in line]
    assert len(validations) == 3
    assert all("validation_elbo_std_error" not in line for line in validations)
    out, err = done("evaluate", tmp_path / "run")
    assert "unknown" in out
    assert json.loads((tmp_path / "run" / "evaluation.json").read_text())["elbo"]["elbo_std_error"] is None


@pytest.mark.parametrize("seed", [2**63, 2**64 - 1])
def test_every_seed_up_to_the_bound_works(done, tmp_path, data_file, seed):
    words = shlex.split(
        f"--seed {seed} --evaluation.seed {seed} --data.split-seed {seed} --training.num-epochs 2"
    )
    done("train", "--data", data_file, "--run-dir", tmp_path / "run", *TINY, *words)
    done("evaluate", tmp_path / "run", "--num-samples", 20)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert [config["seed"], config["evaluation"]["seed"], config["data"]["split_seed"]] == [seed] * 3


@pytest.mark.parametrize(
    ("part", "change"),
    [
        (("model", "posterior"), {"hidden": [10**12, 10**12]}),
        (("model", "decoder"), {"hidden": [10**12]}),
        (("model", "prior"), {"num_left": 10**12}),
        (("training", "sampler"), {"num_chains": 10**12}),
    ],
)
def test_a_run_whose_config_asks_for_absurd_sizes_is_refused(trained, part, change):
    config = json.loads((trained / "config.json").read_text())
    config[part[0]][part[1]] |= change
    (trained / "config.json").write_text(json.dumps(config))
    with pytest.warns(UserWarning, match="config"), pytest.raises(InvalidInputError, match="memory"):
        load_run(trained, accept_changed_config=True)
