"""The user's own file as a data set, labels beside it, and new examples for a trained model."""

import os

import numpy as np
import pytest
import torch

from discrete_vae.config import DigitsConfig, FileDataConfig, GaussianLikelihoodConfig, ModelConfig, RBMConfig
from discrete_vae.data.arrays import as_float32
from discrete_vae.data.batches import TrainingBatches
from discrete_vae.data.datasets import load_dataset, load_digits
from discrete_vae.data.rows import labels_of_part, load_file, read_label_file, read_rows, rows_of_part
from discrete_vae.data.tables import ColumnRoles
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


def test_probabilities_are_binarized(tmp_path):
    array = np.random.default_rng(0).random((40, 7))
    data = load_file(path=str(save(tmp_path, array)), binarize=True)
    assert data.dynamic
    assert data.train.unique().numel() > 2
    assert set(data.valid.unique().tolist()) == {0.0, 1.0}
    assert set(data.test.unique().tolist()) == {0.0, 1.0}
    assert "afresh in each step" in data.description.values


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


def test_evaluation_parts_of_probabilities_are_binarized_beside_fixed_training_bits(tmp_path):
    np.savez(tmp_path / "mine.npz", train=bits(6, 4), valid=bits(2, 4), test=np.full((3, 4), 0.5))
    data = load_file(path=tmp_path / "mine.npz", binarize=True)
    assert not data.dynamic
    assert set(data.test.unique().tolist()) == {0.0, 1.0}
    assert data.description.values == "train as in the file, valid and test once with seed 0"


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


@pytest.mark.parametrize(
    "keys", [("x", "z"), ("train", "valid"), ("train", "valid", "test", "masks"), ("train", "test", "y"), ()]
)
def test_other_keys_are_refused_and_listed(tmp_path, keys):
    np.savez(tmp_path / "mine.npz", **{key: bits(5, 4) for key in keys})
    listed = ", ".join(keys) or "none"
    rule = "must hold train, valid and test, or train and test, or one array, and besides only labels"
    with pytest.raises(InvalidInputError, match=f"{rule}; received {listed}"):
        load_file(path=tmp_path / "mine.npz")


def test_labels_stay_with_their_examples(tmp_path):
    array = np.arange(120.0).reshape(40, 3)
    np.savez(tmp_path / "mine.npz", x=array, y=np.array([f"row {row}" for row in range(40)]))
    data = load_file(path=tmp_path / "mine.npz")
    assert sorted(np.concatenate(list(data.labels.values()))) == sorted(f"row {row}" for row in range(40))
    for part in ("train", "valid", "test"):
        rows = getattr(data, part)[:, 0] / 3
        assert data.labels[part].tolist() == [f"row {int(row)}" for row in rows]
    np.savez(tmp_path / "mine.npz", x=array, y=np.zeros(39))
    with pytest.raises(InvalidInputError, match="array 'y',"):
        load_file(path=tmp_path / "mine.npz")


@pytest.mark.parametrize("names", [("train", "test", "train_labels"), ("x_train", "x_test", "y_train")])
def test_a_missing_validation_part_is_cut_from_the_training_part(tmp_path, names):
    train, test = np.arange(80.0).reshape(40, 2), -np.arange(10.0).reshape(5, 2)
    np.savez(tmp_path / "mine.npz", **dict(zip(names, (train, test, np.arange(40)), strict=True)))
    data = load_file(path=tmp_path / "mine.npz", valid_fraction=0.2)
    np.testing.assert_array_equal(data.test.numpy(), test)
    assert (len(data.train), len(data.valid)) == (32, 8)
    rows = torch.cat([data.train, data.valid])
    assert sorted(rows.tolist()) == train.tolist()
    labels = np.concatenate([data.labels["train"], data.labels["valid"]])
    np.testing.assert_array_equal(labels, rows[:, 0].numpy() / 2)
    assert "test" not in data.labels
    assert (
        data.description.split
        == "32/8/5, test as in the file, valid cut from train after a shuffle with seed 0"
    )


@pytest.mark.parametrize(
    "values", [np.linspace(-3, 7, 160), np.arange(160), np.where(np.arange(160) % 3, 1.5, np.nan)]
)
def test_values_are_left_alone(tmp_path, values):
    array = np.random.default_rng(0).permutation(values).reshape(40, 4)
    data = load_file(path=save(tmp_path, array))
    assert not data.dynamic
    rows = torch.cat([data.train, data.valid, data.test]).nan_to_num(-9.0).tolist()
    assert sorted(rows) == sorted(np.nan_to_num(array, nan=-9.0).astype(np.float32).tolist())
    assert sum(part.num_missing for part in data.summaries.values()) == np.isnan(array).sum()


def test_missing_bits_stay_missing(tmp_path):
    array = np.random.default_rng(0).random((40, 7))
    array[::3, 2] = np.nan
    data = load_file(path=save(tmp_path, array), binarize=True)
    rows = torch.cat([data.train, data.valid, data.test])
    assert int(rows.isnan().sum()) == 14
    assert int(rows[:, 2].isnan().sum()) == 14
    batches = TrainingBatches(data, 32, seed=0)
    batch = batches.batch(0)
    assert int(batch.isnan().sum()) == int(data.train.isnan().sum()) > 0
    assert set(batch[~batch.isnan()].tolist()) == {0.0, 1.0}


def test_color_images_keep_their_shape(tmp_path):
    data = load_file(path=save(tmp_path, bits(30, 3, 4, 5)))
    assert (data.event_shape, data.image_shape, data.num_features) == ((3, 4, 5), (12, 5), 60)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            bits(40),
            r"\(example, height, width\) or \(example, channel, height, width\); received shape \(40,\)",
        ),
        (bits(40, 1, 1, 3, 3), r"received shape \(40, 1, 1, 3, 3\)"),
        (bits(0, 4), r"must hold at least one example and feature; received shape \(0, 4\)"),
        (bits(40, 0), r"must hold at least one example and feature; received shape \(40, 0\)"),
        (
            np.array([[0.0, 1.0], [2.0, 1e39]]),
            r"must hold values that float32 can hold; received 1e\+39 \(feature 1\)",
        ),
        (np.array([[1, 2**24 + 1]]), "at most 16,777,216, beyond which float32 rounds; received 16777217"),
        (
            np.array([[0.5], [1.7e9], [1.7e9 + 3]])[1:] + 0.5,
            "whose differences float32 keeps; received feature 0 from",
        ),
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
    with pytest.raises(InvalidInputError, match=r"array 'valid', .*received shape \(5,\)"):
        load_file(path=tmp_path / "mine.npz")
    np.savez(tmp_path / "mine.npz", train=bits(6, 4), valid=bits(2, 4), test=np.full((3, 4), 2))
    with pytest.raises(InvalidInputError, match=r"array 'test', .*received values from 2"):
        load_file(path=tmp_path / "mine.npz", binarize=True)


def test_objects_truncated_and_missing_files_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[None]]), allow_pickle=True)
    with pytest.raises(InvalidInputError, match="received Python objects"):
        load_file(path=tmp_path / "a.npy")
    path = save(tmp_path, bits(40, 7))
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InvalidInputError, match=r"mine\.npy"):
        load_file(path=path)
    with pytest.raises(InvalidInputError, match=r"none\.npz .*received no such file"):
        load_file(path=tmp_path / "none.npz")
    (tmp_path / "table.txt").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidInputError, match=r"must end in \.npy, \.npz, \.csv or \.parquet"):
        load_file(path=tmp_path / "table.txt")


@pytest.mark.parametrize("name", ["valid_fraction", "test_fraction"])
@pytest.mark.parametrize("value", [0.0, -0.1, 1.5, "a"])
def test_bad_fractions_are_refused(tmp_path, name, value):
    with pytest.raises(InvalidInputError, match=f"{name} must be a finite number"):
        load_file(path=save(tmp_path, bits(40, 4)), **{name: value})


def test_fractions_must_leave_examples(tmp_path):
    with pytest.raises(InvalidInputError, match="cut into 0, 20 and 20"):
        load_file(path=save(tmp_path, bits(40, 4)), valid_fraction=0.5, test_fraction=0.5)


def test_what_float32_rounds_is_named_beside_gaps():
    with pytest.raises(InvalidInputError, match=r"received 16777217 \(feature 1\)"):
        as_float32("x", np.array([[1.0, np.nan], [1.0, 16777217.0], [np.nan, 3.0]]))


def test_labels_of_a_cut_file_stay_with_its_rows(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, np.arange(40.0)[:, None] * [1, 2])
    config = FileDataConfig(path=path, split_seed=3)
    data = load_file(path=path, split_seed=3)
    labels = np.array([f"row {row}" for row in range(40)])
    of_training = labels_of_part(labels, data, config)
    assert of_training.tolist() == [f"row {int(row)}" for row in data.train[:, 0]]
    assert labels_of_part(labels[: len(data.train)], data, config).tolist() == labels[:32].tolist()


def test_another_number_of_labels_is_refused(tmp_path):
    np.savez(tmp_path / "parts.npz", train=np.zeros((20, 2)), test=np.zeros((4, 2)))
    config = FileDataConfig(path=tmp_path / "parts.npz")
    data = load_file(path=config.path)
    with pytest.raises(InvalidInputError, match="labels .*received 24"):
        labels_of_part(np.zeros(24), data, config)  # which rows are whose, such a file does not say
    with pytest.raises(InvalidInputError, match="1297 training examples; received 1797"):
        labels_of_part(np.zeros(1797), load_digits(), DigitsConfig())


def test_words_and_numbers_are_read(tmp_path):
    (tmp_path / "kinds.csv").write_text('kind\n"a, b"\n c \n""\n')
    assert read_label_file(tmp_path / "kinds.csv").tolist() == ["a, b", "c", ""]
    (tmp_path / "numbers.csv").write_text("kind\n10\n9\n")
    assert read_label_file(tmp_path / "numbers.csv").tolist() == [10, 9]  # which words would sort otherwise
    np.save(tmp_path / "kinds.npy", np.array([3, 1]))
    assert read_label_file(tmp_path / "kinds.npy").tolist() == [3, 1]


@pytest.mark.parametrize(
    ("text", "line"),
    [("kind\na\n\nb\n", 3), ('kind\n"a\nb"\n\n', 4), ("\nkind\na\n", 1), ("kind,b\na,b\n", 1)],
)
def test_a_line_without_one_label_is_refused_by_its_number(tmp_path, text, line):
    (tmp_path / "kinds.csv").write_text(text)
    with pytest.raises(InvalidInputError, match=rf"labels .* in line {line} of .*kinds\.csv"):
        read_label_file(tmp_path / "kinds.csv")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
@pytest.mark.parametrize("ending", [".csv", ".npy"])
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path, ending):
    os.mkfifo(tmp_path / f"kinds{ending}")
    with pytest.raises(InvalidInputError, match="received a pipe"):
        read_label_file(tmp_path / f"kinds{ending}")


def test_a_file_of_text_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "kinds.csv").write_bytes(b"kind\n\xff\n")
    with pytest.raises(InvalidInputError, match="labels"):
        read_label_file(tmp_path / "kinds.csv")


BITS = ModelConfig(num_features=3, prior=RBMConfig())
REALS = ModelConfig(num_features=3, prior=RBMConfig(), likelihood=GaussianLikelihoodConfig())
IMAGES = ModelConfig(event_shape=(1, 2, 3), prior=RBMConfig())


def saved(folder, name, **arrays):
    if name.endswith(".npz"):
        np.savez(folder / name, **arrays)
    else:
        np.save(folder / name, arrays["x"])
    return folder / name


def test_an_array_is_read_whole_and_in_order(tmp_path):
    x = np.random.default_rng(0).integers(0, 2, (20, 3))
    rows = read_rows(saved(tmp_path, "x.npz", x=x, y=np.arange(20)), BITS)
    np.testing.assert_array_equal(rows.x, x)
    np.testing.assert_array_equal(rows.index, range(20))
    np.testing.assert_array_equal(rows.labels, range(20))
    assert not rows.binarized
    few = rows.subset(np.array([3, 7]))
    np.testing.assert_array_equal(few.x, x[[3, 7]])
    assert few.index.tolist() == few.labels.tolist() == [3, 7]


def test_parts_are_chosen_by_name(tmp_path):
    file = saved(tmp_path, "x.npz", train=np.zeros((2, 3)), test=np.ones((4, 3)))
    assert len(read_rows(file, BITS)) == 4
    assert len(read_rows(file, BITS, part="train")) == 2
    with pytest.raises(InvalidInputError, match="part"):
        read_rows(file, BITS, part="valid")
    with pytest.raises(InvalidInputError, match="part"):
        read_rows(saved(tmp_path, "x.npy", x=np.zeros((2, 3))), BITS, part="test")


def test_columns_are_found_by_name(tmp_path):
    (tmp_path / "x.csv").write_text("c,kind,a,b,id\n3,cat,1,2,one\n6,dog,,5,two\n")
    roles = ColumnRoles("kind", ("id",), optional=frozenset({"kind", "id"}))
    known = {"columns": ("a", "b", "c"), "roles": roles, "missing": True}
    rows = read_rows(tmp_path / "x.csv", REALS, **known)
    np.testing.assert_array_equal(rows.x, [[1, 2, 3], [np.nan, 5, 6]])
    assert rows.columns == ("a", "b", "c")
    assert rows.labels.tolist() == ["cat", "dog"]
    (tmp_path / "y.csv").write_text("c,a,b\n3,1,2\n")
    np.testing.assert_array_equal(read_rows(tmp_path / "y.csv", REALS, **known).x, [[1, 2, 3]])
    assert read_rows(tmp_path / "y.csv", REALS).columns == (
        "c",
        "a",
        "b",
    )  # by place where no names are known
    with pytest.raises(InvalidInputError, match="label_column"):
        read_rows(tmp_path / "y.csv", REALS, roles=ColumnRoles("kind"))


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("a,b,d", "must have the 3 columns that the run was trained on; received none of the name 'c'"),
        ("a,d,e", "none of the name 'b', and 1 more are missing"),
        ("a,b,c,id", "must have no columns but those .* received 'id'"),
    ],
)
def test_other_columns_are_refused_by_name(tmp_path, header, message):
    (tmp_path / "x.csv").write_text(header + "\n" + ",".join("1" for _ in header.split(",")) + "\n")
    with pytest.raises(InvalidInputError, match=message):
        read_rows(tmp_path / "x.csv", REALS, columns=("a", "b", "c"))


@pytest.mark.parametrize(
    ("model", "array", "message"),
    [
        (BITS, np.zeros((2, 4)), r"must have examples of 3 values, as the run's have, \(3,\)"),
        (IMAGES, np.zeros((2, 3, 2)), r"received examples of shape \(1, 3, 2\)"),
        (BITS, np.full((2, 3), 2.0), r"must hold values in \[0, 1\], which the run's bernoulli"),
        (BITS, np.full((2, 3), np.nan), "must have no missing values, since the run has learned of none"),
        (REALS, np.full((2, 3), np.inf), "must hold finite values"),
        (BITS, np.zeros((0, 3)), "must hold at least one example"),
    ],
)
def test_what_the_model_cannot_read_is_refused(tmp_path, model, array, message):
    with pytest.raises(InvalidInputError, match=message):
        read_rows(saved(tmp_path, "x.npy", x=array), model)


def test_images_may_come_as_rows(tmp_path):
    x = np.arange(12).reshape(2, 2, 3) % 2
    for shape in ((2, 2, 3), (2, 1, 2, 3), (2, 6)):
        rows = read_rows(saved(tmp_path, "x.npy", x=x.reshape(shape)), IMAGES)
        np.testing.assert_array_equal(rows.x, x.reshape(2, 6))


def test_probabilities_become_bits_once_and_gaps_stay(tmp_path):
    x = np.random.default_rng(0).random((400, 3))
    x[0, 0] = np.nan
    first, again = (read_rows(saved(tmp_path, "x.npy", x=x), BITS, missing=True) for _ in range(2))
    assert first.binarized
    np.testing.assert_array_equal(first.x, again.x)
    assert torch.isnan(first.x).sum() == 1
    assert set(first.x.nan_to_num(0).unique().tolist()) == {0.0, 1.0}
    high = x > 0.5
    assert 0.70 < first.x.numpy()[high].mean() < 0.80  # 3/4
    assert not read_rows(saved(tmp_path, "y.npy", x=np.nan_to_num(x)), REALS).binarized


def test_a_part_of_a_data_set():
    data = load_dataset("digits")
    rows = rows_of_part(data, "test")
    assert rows.x is data.test
    assert not rows.binarized
    train = rows_of_part(data, "train")
    assert train.binarized
    assert set(train.x.unique().tolist()) == {0.0, 1.0}
    with pytest.raises(InvalidInputError, match="part"):
        rows_of_part(data, "all")
