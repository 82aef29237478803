"""dvae train and validate: wrong input is refused in one line, and touches nothing."""

import numpy as np
import pytest

from tests.commands.conftest import TINY

GOOD = np.eye(40, 12, dtype=np.float32)


def with_value(value):
    array = GOOD.copy()
    array[3, 4] = value
    return array


ARRAYS = {
    "one axis": (
        np.zeros(5),
        "(example, height, width) or (example, channel, height, width); received shape (5,)",
    ),
    "five axes": (np.zeros((2, 2, 2, 2, 2)), "received shape (2, 2, 2, 2, 2)"),
    "a number": (np.array(1.0), "received shape ()"),
    "infinity": (with_value(np.inf), "received values from 0 to inf. No likelihood can read them"),
    "below 0": (
        with_value(-0.5),
        "read by --model.likelihood bernoulli; received values from -0.5 to 1. gaussian can",
    ),
    "above 1": (with_value(1.5), "must hold values in [0, 1] to be read by"),
    "8-bit images": ((GOOD * 255).astype(np.uint8), "Divide 0..255 intensities by 255."),
    "real 0..255": (GOOD * 255, "Divide 0..255 intensities by 255."),
    "other integers": (
        GOOD.astype(np.int64) - 1,
        "received whole numbers from -1 to 0. gaussian can read them; categorical needs whole numbers from 0 to 255",
    ),
    "complex": (GOOD.astype(complex), "must hold booleans or real numbers; received dtype complex128"),
    "text": (GOOD.astype(str), "must hold booleans or real numbers; received dtype <U"),
    "no examples": (GOOD[:0], "must hold at least one example and feature; received shape (0, 12)"),
    "no features": (GOOD[:, :0], "received shape (40, 0)"),
    "too few": (
        GOOD[:5],
        "must have examples for each of three parts; received 5 examples, cut into 5, 0 and 0",
    ),
    "objects": (GOOD.astype(object), "must hold numbers; received Python objects"),
}


@pytest.mark.parametrize("case", ARRAYS)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_wrong_arrays_are_refused(refused, tmp_path, case, suffix):
    array, message = ARRAYS[case]
    file = tmp_path / f"wrong{suffix}"
    np.save(file, array, allow_pickle=True) if suffix == ".npy" else np.savez(file, array)
    error = refused("train", "--data", file, "--run-dir", tmp_path / "run")
    assert message in error
    assert file.name in error


def test_unpickling_never_happens(refused, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "exploded"), "w"))

    np.save(tmp_path / "bomb.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    refused("train", "--data", tmp_path / "bomb.npy", "--run-dir", tmp_path / "run")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.97])
def test_truncated_files_are_refused(refused, tmp_path, suffix, share):
    file = tmp_path / f"cut{suffix}"
    np.save(file, GOOD) if suffix == ".npy" else np.savez_compressed(file, GOOD)
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    assert "must be a readable NumPy file" in refused("train", "--data", file, "--run-dir", tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.npy", b"", "must be a readable NumPy file"),
        ("text.npy", b"0,1,1\n", "received another format. Write it with numpy.save."),
        ("zip.npz", b"not a zip", "must be a readable NumPy file"),
        (
            "table.txt",
            b"0,1\n",
            "received '.txt'. A table in text is read by the name table.csv.",
        ),
        ("table.csv", b"0,1\n", "must start with a line that names the columns"),
    ],
)
def test_files_of_another_kind_are_refused(refused, tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    assert message in refused("train", "--data", tmp_path / name, "--run-dir", tmp_path / "run")


def test_a_missing_file_and_a_folder_are_refused(refused, tmp_path):
    assert "must exist; received no such file" in refused("train", "--data", tmp_path / "none.npy")
    (tmp_path / "folder.npy").mkdir()
    assert "must be a file; received a folder" in refused("train", "--data", tmp_path / "folder.npy")


def test_an_npz_of_other_keys_is_refused_by_their_names(refused, tmp_path):
    np.savez(tmp_path / "keys.npz", images=GOOD, masks=np.zeros(40))
    error = refused("train", "--data", tmp_path / "keys.npz", "--run-dir", tmp_path / "run")
    assert "must hold train, valid and test, or train and test, or one array" in error
    assert "received images, masks." in error


def test_parts_of_other_widths_are_refused(refused, tmp_path):
    np.savez(tmp_path / "parts.npz", train=GOOD, valid=GOOD[:, :9], test=GOOD)
    error = refused("train", "--data", tmp_path / "parts.npz", "--run-dir", tmp_path / "run")
    assert "must have examples of shape (12,), as 'train' has; received shape (9,)" in error


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
