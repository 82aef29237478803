"""dvae train and validate: wrong input is refused in one line that names it, and touches nothing."""

import numpy as np
import pytest

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
