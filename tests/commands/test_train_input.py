"""dvae train and validate: wrong input is refused in one line that names it, and touches nothing."""

import numpy as np
import pytest

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


def test_unpickling_never_happens(refused, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "exploded"), "w"))

    np.save(tmp_path / "bomb.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    refused("train", "--data", tmp_path / "bomb.npy", "--run-dir", tmp_path / "run")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("name", "content", "received"),
    [
        ("empty.npy", b"", "empty.npy"),
        ("text.npy", b"0,1,1\n", "received another format."),
        ("zip.npz", b"not a zip", "zip.npz"),
        ("table.txt", b"0,1\n", "received '.txt'. A table in text is read by the name table.csv."),
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


@pytest.mark.parametrize("verb", ["train", "validate"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "EXPERIMENT or --data FILE must be given; received neither."),
        ("digits --data x.npy", "EXPERIMENT or --data FILE must be given; received both."),
        ("dogits", "EXPERIMENT must be one of digits, mnist-dynamic"),
        ("digits --model.prior.num-lefts 3", "Did you mean --model.prior.num-left"),
        ("digits --training.num-epochs many", "must be a whole number"),
        ("digits --model.event-shape 65", "--model.event-shape must have the data's 64 values; received 65."),
        ("digits --model.posterior.groups 100", "num_groups must be at most the 32 units; received 100."),
        ("digits --model.posterior.groups [[0,1],[1,2]]", "groups"),
        (
            "digits --training.batch-size 5000",
            "--training.batch-size must be at most the 1297 training examples",
        ),
        ("digits --data.num-valid 5000", "must leave examples to train on"),
        ("digits --data-dir /no/such/folder", "--data-dir must be an existing folder"),
    ],
)
def test_wrong_experiments_are_refused(refused, tmp_path, monkeypatch, verb, words, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused(verb, *words.split())


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("gpu", "--device must be auto, cpu, cuda or cuda:N; received 'gpu'."),
        ("cuda:99", "--device must be available; received cuda:99"),
    ],
)
def test_a_device_that_is_not_there_is_refused(refused, tmp_path, data_file, trained, device, message):
    assert message in refused("train", "--data", data_file, "--run-dir", tmp_path / "run", "--device", device)
    assert message in refused("evaluate", trained, "--device", device)


def test_a_folder_that_holds_anything_is_refused_and_kept(refused, tmp_path, data_file):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("mine")
    error = refused("train", "--data", data_file, "--run-dir", tmp_path / "thesis", *TINY)
    assert "--run-dir must be a new or empty folder" in error
    assert "which holds thesis.tex. Give another --run-dir." in error


def test_a_run_that_exists_is_refused_and_resuming_is_offered(refused, data_file, trained):
    error = refused("train", "--data", data_file, "--run-dir", trained, *TINY)
    assert f"or continue: dvae train --resume --run-dir {trained}." in error


def test_a_run_dir_below_a_file_is_refused(refused, tmp_path, data_file):
    (tmp_path / "file").write_text("mine")
    assert "--run-dir must be a folder" in refused(
        "train", "--data", data_file, "--run-dir", tmp_path / "file", *TINY
    )
    below = tmp_path / "file" / "run"
    assert "must be a folder that can be made" in refused(
        "train", "--data", data_file, "--run-dir", below, *TINY
    )
