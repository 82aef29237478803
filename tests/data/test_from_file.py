import numpy as np
import pytest
import torch

from discrete_vae.data.from_file import load_file
from discrete_vae.errors import InvalidInputError


def bits(*shape, dtype=np.uint8):
    return np.random.default_rng(0).integers(0, 2, shape).astype(dtype)


def save(tmp_path, array):
    np.save(tmp_path / "mine.npy", array)
    return tmp_path / "mine.npy"


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float16, np.float32, np.float64])
def test_bits_of_any_type_are_fixed(tmp_path, dtype):
    array = bits(40, 7, dtype=dtype)
    data = load_file(path=save(tmp_path, array))
    assert (data.train.shape, data.valid.shape, data.test.shape) == ((32, 7), (4, 7), (4, 7))
    assert data.train.dtype == torch.float32
    assert not data.dynamic
    assert data.image_shape is None
    assert data.name == "mine"
    rows = torch.cat([data.train, data.valid, data.test])
    assert sorted(rows.tolist()) == sorted(array.astype(np.float32).tolist())
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.npy"]


def test_probabilities_are_binarised(tmp_path):
    array = np.random.default_rng(0).random((40, 7))
    data = load_file(path=str(save(tmp_path, array)))
    assert data.dynamic
    assert data.train.unique().numel() > 2
    assert set(data.valid.unique().tolist()) == {0.0, 1.0}
    assert set(data.test.unique().tolist()) == {0.0, 1.0}
    assert "afresh in each step" in data.description.binarisation


def test_images_keep_their_shape(tmp_path):
    array = bits(30, 3, 5)
    data = load_file(path=save(tmp_path, array))
    assert data.image_shape == (3, 5)
    assert data.num_features == 15
    rows = torch.cat([data.train, data.valid, data.test])
    assert sorted(rows.tolist()) == sorted(array.reshape(30, 15).astype(float).tolist())


def test_three_parts_keep_their_order(tmp_path):
    parts = {"train": bits(6, 4), "valid": bits(2, 4), "test": bits(3, 4)}
    np.savez(tmp_path / "mine.npz", **parts)
    data = load_file(path=tmp_path / "mine.npz")
    for part in parts:
        np.testing.assert_array_equal(getattr(data, part).numpy(), parts[part])
    assert data.description.split == "6/2/3, as in the file"


def test_evaluation_parts_of_probabilities_are_binarised_beside_fixed_training_bits(tmp_path):
    np.savez(tmp_path / "mine.npz", train=bits(6, 4), valid=bits(2, 4), test=np.full((3, 4), 0.5))
    data = load_file(path=tmp_path / "mine.npz")
    assert not data.dynamic
    assert set(data.test.unique().tolist()) == {0.0, 1.0}
    assert data.description.binarisation == "train as in the file, valid and test once with seed 0"


def test_a_single_array_of_any_name_is_split(tmp_path):
    array = bits(50, 4)
    np.savez(tmp_path / "mine.npz", pictures=array)
    from_npz = load_file(path=tmp_path / "mine.npz")
    from_npy = load_file(path=save(tmp_path, array))
    assert torch.equal(from_npz.train, from_npy.train)
    assert torch.equal(load_file(path=save(tmp_path, array)).test, from_npy.test)
    assert not torch.equal(load_file(path=save(tmp_path, array), split_seed=1).train, from_npy.train)


def test_fractions_are_those_asked_for(tmp_path):
    path = save(tmp_path, bits(30, 4))
    data = load_file(path=path, valid_fraction=0.1, test_fraction=0.3)
    assert (len(data.train), len(data.valid), len(data.test)) == (18, 3, 9)


@pytest.mark.parametrize("keys", [("x", "y"), ("train", "test"), ("train", "valid", "test", "labels"), ()])
def test_other_keys_are_refused_and_listed(tmp_path, keys):
    np.savez(tmp_path / "mine.npz", **{key: bits(5, 4) for key in keys})
    listed = ", ".join(keys) or "none"
    with pytest.raises(
        InvalidInputError,
        match=f"must hold the arrays train, valid and test, or a single one; received {listed}",
    ):
        load_file(path=tmp_path / "mine.npz")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (bits(40), r"must be \(example, feature\) or \(example, height, width\); received shape \(40,\)"),
        (bits(40, 1, 3, 3), r"received shape \(40, 1, 3, 3\)"),
        (bits(0, 4), r"must hold at least one example and feature; received shape \(0, 4\)"),
        (bits(40, 0), r"must hold at least one example and feature; received shape \(40, 0\)"),
        (np.array([[0.0, 1.0], [np.nan, 0.0]]), r"must hold no NaN; received NaN at \(1, 0\)"),
        (np.array([[0.0, -0.5]]), r"must hold values in \[0, 1\]; received values from -0.5 to 0.*Scale"),
        (np.array([[0.0, np.inf]]), r"must hold values in \[0, 1\]; received values from 0 to inf. Scale"),
        (np.array([[0.0, 255.0]]), r"must hold values in \[0, 1\].*Divide 0..255 intensities by 255"),
        (
            np.array([[0, 255]], np.uint8),
            "must hold 0 and 1 if it holds integers; received a value of 255. Divide",
        ),
        (np.array([[0, -1]]), "received a value of -1. Map it to 0 and 1"),
        (np.array([[0, 1000]]), "received a value of 1000. Map it to 0 and 1"),
        (np.array([[0j, 1j]]), "must hold booleans or real numbers; received dtype complex128"),
        (np.array([["a", "b"]]), "must hold booleans or real numbers"),
        (bits(9, 4), "must have examples for each of three parts; received 9 examples, cut into 9, 0 and 0"),
    ],
)
def test_bad_arrays_are_refused_by_name(tmp_path, array, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        load_file(path=save(tmp_path, array))
    assert str(tmp_path / "mine.npy") in str(caught.value)


def test_the_part_that_breaks_a_rule_is_named(tmp_path):
    np.savez(tmp_path / "mine.npz", train=bits(6, 4), valid=bits(2, 5), test=bits(3, 4))
    with pytest.raises(
        InvalidInputError, match=r"array 'valid', must have examples of shape \(4,\).*received shape \(5,\)"
    ):
        load_file(path=tmp_path / "mine.npz")
    np.savez(tmp_path / "mine.npz", train=bits(6, 4), valid=bits(2, 4), test=np.full((3, 4), 2))
    with pytest.raises(InvalidInputError, match="array 'test', must hold 0 and 1"):
        load_file(path=tmp_path / "mine.npz")


def test_objects_truncated_and_missing_files_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[None]]), allow_pickle=True)
    with pytest.raises(InvalidInputError, match="must hold numbers; received Python objects"):
        load_file(path=tmp_path / "a.npy")
    path = save(tmp_path, bits(40, 7))
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InvalidInputError, match=r"mine\.npy must be a readable NumPy file"):
        load_file(path=path)
    with pytest.raises(InvalidInputError, match=r"none\.npz must exist; received no such file"):
        load_file(path=tmp_path / "none.npz")
    with pytest.raises(InvalidInputError, match=r"path must name a \.npy or \.npz file"):
        load_file(path=tmp_path / "table.csv")


@pytest.mark.parametrize("name", ["valid_fraction", "test_fraction"])
@pytest.mark.parametrize("value", [0.0, -0.1, 1.5, "a"])
def test_bad_fractions_are_refused(tmp_path, name, value):
    with pytest.raises(InvalidInputError, match=f"{name} must be a finite number"):
        load_file(path=save(tmp_path, bits(40, 4)), **{name: value})


def test_fractions_must_leave_examples(tmp_path):
    with pytest.raises(InvalidInputError, match="cut into 0, 20 and 20"):
        load_file(path=save(tmp_path, bits(40, 4)), valid_fraction=0.5, test_fraction=0.5)
