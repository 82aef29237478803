"""The user's own file as a data set, labels beside it, and new examples for a trained model."""

import gzip
import os

import numpy as np
import pytest
import torch

from discrete_vae.config import DigitsConfig, FileDataConfig, GaussianLikelihoodConfig, ModelConfig, RBMConfig
from discrete_vae.data.arrays import as_float32
from discrete_vae.data.batches import TrainingBatches
from discrete_vae.data.datasets import load_dataset, load_digits
from discrete_vae.data.files import TableReading
from discrete_vae.data.rows import labels_of_part, load_file, read_label_file, read_rows, rows_of_part
from discrete_vae.data.tables import ColumnRoles
from discrete_vae.own_data import own_experiment
from tests.refusals import refused, refused_argument

BITS = ModelConfig(num_features=3, prior=RBMConfig())
REALS = ModelConfig(num_features=3, prior=RBMConfig(), likelihood=GaussianLikelihoodConfig())
IMAGES = ModelConfig(event_shape=(1, 2, 3), prior=RBMConfig())


def bits(*shape, dtype=np.uint8):
    return np.random.default_rng(0).integers(0, 2, shape).astype(dtype)


@pytest.fixture
def file(tmp_path):
    """Writes text as a table, an array as .npy, named arrays as .npz; gives the path."""

    def write(content=None, **arrays):
        path = tmp_path / f"mine.{'npz' if content is None else 'csv' if isinstance(content, str) else 'npy'}"
        if content is None:
            np.savez(path, **arrays)
        elif isinstance(content, str):
            path.write_text(content)
        else:
            np.save(path, content)
        return path

    return write


def all_rows(data):
    return torch.cat([data.train, data.valid, data.test])


def same_rows(data, array):
    """True if the parts hold the rows of an array, in any order."""
    wanted = np.nan_to_num(array, nan=-9.0).reshape(len(array), -1).astype(np.float32)
    return sorted(all_rows(data).nan_to_num(-9.0).tolist()) == sorted(wanted.tolist())


# A file as a data set.


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, ">i2", np.float16, ">f4", np.float64, "g"])
def test_bits_of_any_type_are_fixed(tmp_path, file, dtype):
    array = bits(40, 7, dtype=dtype)
    for stored in (array, np.asfortranarray(array)):
        data = load_file(path=file(stored))
        assert (data.train.shape, data.valid.shape, data.test.shape) == ((32, 7), (4, 7), (4, 7))
        assert (data.name, data.image_shape, data.dynamic) == ("mine", None, False)
        assert data.train.dtype == torch.float32
        assert same_rows(data, array)
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.npy"]


def test_images_keep_their_shape_and_have_their_channels_first(file):
    for stored, shape in (
        (bits(30, 3, 5), (1, 3, 5)),
        (bits(30, 3, 4, 5), (3, 4, 5)),
        (bits(30, 3, 4, 3), (3, 4, 3)),  # either axis may be that of channels
        (bits(30, 4, 5, 4), (4, 5, 4)),
    ):
        data = load_file(path=file(stored))
        channels, height, width = shape
        assert (data.event_shape, data.image_shape) == (shape, (channels * height, width))
        assert same_rows(data, stored)
    for channels, height in ((1, 4), (3, 4), (4, 6)):
        images = bits(40, channels, height, 5)
        wanted, found = load_file(path=file(images)), load_file(path=file(np.moveaxis(images, 1, -1)))
        assert found.event_shape == (channels, height, 5)
        assert torch.equal(found.train, wanted.train)


@pytest.mark.parametrize("values", [np.linspace(-3, 7, 160), np.where(np.arange(160) % 3, 1.5, np.nan)])
def test_values_are_left_alone(file, values):
    array = np.random.default_rng(0).permutation(values).reshape(40, 4)
    data = load_file(path=file(array))
    assert not data.dynamic
    assert same_rows(data, array)
    assert sum(part.num_missing for part in data.summaries.values()) == np.isnan(array).sum()


def test_probabilities_are_binarized_and_gaps_stay(file):
    array = np.random.default_rng(0).random((40, 7))
    array[::3, 2] = np.nan
    data = load_file(path=str(file(array)), binarize=True)
    assert data.dynamic
    assert data.train.unique().numel() > 2
    rows = all_rows(data)
    assert int(rows.isnan().sum()) == int(rows[:, 2].isnan().sum()) == 14
    batch = TrainingBatches(data, 32, seed=0).batch(0)
    assert int(batch.isnan().sum()) == int(data.train.isnan().sum()) > 0
    for part in (batch, data.valid, data.test):
        assert set(part[~part.isnan()].tolist()) == {0.0, 1.0}


def test_three_parts_keep_their_order(file):
    parts = {"train": bits(6, 4), "valid": bits(2, 4), "test": bits(3, 4)}
    data = load_file(path=file(**parts))
    for part in parts:
        np.testing.assert_array_equal(getattr(data, part).numpy(), parts[part])
    assert data.description.split == "6/2/3, as in the file"
    data = load_file(path=file(**parts | {"test": np.full((3, 4), 0.5)}), binarize=True)
    assert not data.dynamic  # bits to train on stay, beside probabilities that are drawn once
    assert set(data.test.unique().tolist()) == {0.0, 1.0}
    assert data.description.values == "train as in the file, valid and test once with seed 0"


def test_a_single_array_of_any_name_is_split(file):
    array = bits(50, 4)
    from_npz, from_npy = load_file(path=file(pictures=array)), load_file(path=file(array))
    assert torch.equal(from_npz.train, from_npy.train)
    assert not torch.equal(load_file(path=file(array), split_seed=1).train, from_npy.train)
    data = load_file(path=file(bits(30, 4)), valid_fraction=0.1, test_fraction=0.3)
    assert (len(data.train), len(data.valid), len(data.test)) == (18, 3, 9)


@pytest.mark.parametrize("names", [("train", "test", "train_labels"), ("x_train", "x_test", "y_train")])
def test_a_missing_validation_part_is_cut_from_the_training_part(file, names):
    train, test = np.arange(80.0).reshape(40, 2), -np.arange(10.0).reshape(5, 2)
    path = file(**dict(zip(names, (train, test, np.arange(40)), strict=True)))
    data = load_file(path=path, valid_fraction=0.2)
    np.testing.assert_array_equal(data.test.numpy(), test)
    rows = torch.cat([data.train, data.valid])
    assert sorted(rows.tolist()) == train.tolist()
    labels = np.concatenate([data.labels["train"], data.labels["valid"]])
    np.testing.assert_array_equal(labels, rows[:, 0].numpy() / 2)
    assert "test" not in data.labels
    assert data.description.split.startswith("32/8/5")


@pytest.mark.parametrize("ending", ["csv", "tsv.gz", "CSV.GZ"])
def test_weights_and_a_condition_are_read_of_packed_tables(tmp_path, ending):
    text = "x,w,c\n" + "".join(f"{row}.5,{1 + row % 3},{'ab'[row % 2]}\n" for row in range(40))
    text = text.replace(",", "\t") if "tsv" in ending else text
    path = tmp_path / f"mine.{ending}"
    path.write_bytes(text.encode() if ending == "csv" else gzip.compress(text.encode()))
    data = load_file(path=path, weight_column="w", condition=("c",))
    for part in ("train", "valid", "test"):
        rows = getattr(data, part)[:, 0].numpy() - 0.5
        np.testing.assert_array_equal(data.weights[part], 1 + rows % 3)
        np.testing.assert_array_equal(data.conditions[part][:, 0].numpy(), rows % 2)


def test_labels_of_tables_stay_with_their_examples(file):
    table = "\n".join(["row,kind,x", *(f"{row},row {row},0.5" for row in range(40))])
    data = load_file(path=file(table), label_column="kind")
    for part in ("train", "valid", "test"):
        assert data.labels[part].tolist() == [f"row {int(row)}" for row in getattr(data, part)[:, 0]]
    assert data.description.columns == ("row", "x")


@pytest.mark.parametrize("name", ["train", "whole"])
def test_what_named_arrays_hold_beside_examples_stays_with_them(file, name):
    rows = np.arange(40.0)
    town, x = np.where(rows % 3, "Brno", "Lyon"), rows[:, None] * [1.0, 0.5]
    beside = {"weights": rows % 4, "condition": np.stack([rows / 40, rows % 7], 1)}
    if name == "whole":
        data = load_file(path=file(x=x, labels=town, **beside))
    else:
        first = {f"{key}_train": each[:36] for key, each in beside.items()} | {"y_train": town[:36]}
        second = {"test": x[36:], "condition_test": beside["condition"][36:]}
        data = load_file(path=file(train=x[:36], **first, **second))
        assert data.weights.keys() == {"train", "valid"}
    seen = []
    for part in ("train", "valid", "test"):
        own = getattr(data, part)[:, 0].numpy()
        np.testing.assert_array_equal(data.conditions[part][:, 0].numpy(), (own / 40).astype(np.float32))
        if part in data.weights:
            np.testing.assert_array_equal(data.weights[part], own % 4)
            assert (own % 4 > 0).all()
        if part in data.labels:
            assert data.labels[part].tolist() == town[own.astype(int)].tolist()
        seen += own.tolist()
    assert len(seen) == 30 if name == "whole" else len(seen) > 30


def test_a_condition_in_an_array_is_read_as_that_of_the_model(file):
    path = file(x=np.arange(120.0).reshape(40, 3), condition=np.array(["b", "a"] * 20))
    model = own_experiment(path, likelihood="gaussian").model
    assert [(each.name, each.kind) for each in model.condition] == [("c", "binary")]
    path = file(x=bits(40, 3), condition=np.arange(40) % 3)
    coded = own_experiment(path, likelihood="bernoulli", kinds="c=category").model
    assert coded.condition[0].kind == "category"
    rows = read_rows(file(x=np.ones((3, 3)), condition=np.array(["a", "b", "b"])), model)
    assert rows.condition.tolist() == [[0.0], [1.0], [1.0]]
    assert read_rows(file("c,x0,x1,x2\nb,1,2,3\n"), model).condition.tolist() == [[1.0]]
    for wrong, argument in (
        ({"condition": np.array(["a", "c", "b"])}, "column 'c'"),
        ({"condition": np.array([["a", "b"]] * 3)}, "array 'condition'"),
        ({"condition": np.array(["a", "b"])}, "array 'condition'"),
        ({}, "mine.npz"),
    ):
        assert argument in refused_argument(read_rows, file(x=np.ones((3, 3)), **wrong), model)


X = bits(40, 3)
WRONG_FILES = {
    "mine.npy": [
        *(bits(*shape) for shape in ((40,), (40, 1, 1, 3, 3), (0, 4), (40, 0), (9, 4))),
        np.array([[0.0, 1.0], [2.0, 1e39]]),
        np.array([[1.7e9], [1.7e9 + 3]]) + 0.5,
        np.array([[0j, 1j]]),
        np.array([["a", "b"]]),
        bits(60, 12).astype("M8[s]"),
        np.zeros((20, 3), "i4,f4"),
    ],
    "mine.csv": ["a,b\n"],
    "mine.npz": [
        *(dict.fromkeys(keys, bits(5, 4)) for keys in ("xz", ("train", "valid"), ("train", "test", "y"), ())),
        dict.fromkeys(("train", "valid", "test", "masks"), bits(5, 4)),
        {"train": bits(9, 3), "test": bits(9, 3), "condition_train": np.arange(9)},
    ],
    "array 'weights'": [
        {"x": X, "weights": each}
        for each in (-np.ones(40), np.full(40, np.nan), np.ones((40, 1)), np.ones(39), np.full(40, "a"))
    ],
    "array 'condition'": [
        {"x": X, "condition": each} for each in (np.ones(39), np.ones((40, 0)), bits(40, 2, 2))
    ],
    "column 'c'": [{"x": X, "condition": np.ones(40)}],
    "array 'y'": [{"x": X, "y": bits(39)}],
    "array 'valid'": [
        {"train": bits(6, 4), "valid": bits(2, 5), "test": bits(3, 4)},
        {"train": bits(5, 4), "valid": bits(0, 4), "test": bits(5, 4)},
    ],
    "data set mine": [{"train": bits(1, 4), "valid": bits(5, 4), "test": bits(5, 4)}],
}
WRONG_SETTINGS = [
    ({"x": X, "condition": np.arange(40) % 3}, {"kinds": "d=real"}, "kinds"),
    (X, {"kinds": "c=real"}, "kinds"),
    (X, {"sequence_weights": 0.8}, "sequence_weights"),
    (X, {"layer": "counts"}, "layer"),
    (X, {"alphabet": "dna"}, "alphabet"),
    ("kind\nred\n", {"label_column": "kind"}, "mine.csv"),
    ("a,kind\n1,red\n", {"label_column": "knd"}, "label_column"),
    (X, {"label_column": "kind"}, "label_column"),
    (X, {"ignored_columns": ("id",)}, "ignored_columns"),
    (X, {"condition": ("town",)}, "condition"),
    (X, {"valid_fraction": 0.5, "test_fraction": 0.5}, "mine.npy"),
    *((X, {"valid_fraction": value}, "valid_fraction") for value in (0.0, -0.1, 1.5, "a")),
    (X, {"test_fraction": 0.0}, "test_fraction"),
    ({"train": bits(6, 4), "test": np.full((3, 4), 2)}, {"binarize": True}, "array 'test'"),
]


@pytest.mark.parametrize(
    ("content", "settings", "argument"),
    [*((each, {}, name) for name, files in WRONG_FILES.items() for each in files), *WRONG_SETTINGS],
)
def test_what_is_no_data_set_is_refused_by_name(file, content, settings, argument):
    path = file(**content) if isinstance(content, dict) else file(content)
    assert argument in refused_argument(load_file, path=path, **settings)


def test_what_float32_rounds_is_named_beside_gaps(file):
    near = np.array([[1.0, np.nan], [1.0, 16777217.0], [np.nan, 16777220.0]])
    assert "feature 1 from 16777217.0 to 16777220.0" in str(refused(as_float32, "x", near))
    assert as_float32("x", near, fitted=True).shape == (3, 2)  # of a model that knows their range
    assert as_float32("x", np.array([[3, 1], [16777217, 1]])).shape == (2, 2)
    names = 2**60 + np.arange(100)[:, None]  # all one value in float64
    assert refused_argument(as_float32, "x", names) == "x"
    assert as_float32("x", names[1:2].repeat(9, 0)).shape == (9, 1)
    seconds = "\n".join(["width,seconds", *(f"{row},{1.7e9 + row % 7}" for row in range(40))])
    assert "column 'seconds'" in str(refused(load_file, path=file(seconds)))


def test_few_rows_beside_those_of_training_are_not_judged_by_their_own_range(file):
    near = np.array([[225211923.0, 1, 2], [225211924.0, 1, 2]])
    wide = np.linspace(0, 3e8, 30).reshape(10, 3)
    assert read_rows(file(near), REALS).x.shape == (2, 3)
    assert len(load_file(path=file(train=wide, valid=near, test=near)).test) == 2


# Labels beside the data.


def test_another_number_of_labels_is_refused(file):
    config = FileDataConfig(path=file(train=np.zeros((20, 2)), test=np.zeros((4, 2))))
    for count, data, of in ((24, load_file(path=config.path), config), (1797, load_digits(), DigitsConfig())):
        # which rows are whose, such a file does not say
        assert refused_argument(labels_of_part, np.zeros(count), data, of) == "labels"


def test_labels_of_all_rows_follow_the_examples_where_some_have_no_weight(file):
    numbers = np.arange(40)
    config = FileDataConfig(path=file(x=numbers[:, None] / 40, weights=numbers % 4))
    data = load_file(path=config.path)
    for part in ("train", "valid", "test"):
        found = labels_of_part(numbers, data, config, part)
        np.testing.assert_allclose(found / 40, getattr(data, part)[:, 0])
        assert (found % 4 > 0).all()
    assert refused_argument(labels_of_part, np.zeros(30), data, config) == "labels"  # no part has as many


def test_files_of_labels(file, tmp_path):
    assert read_label_file(file('kind\n"a, b"\n c \n""\n')).tolist() == ["a, b", "c", ""]
    assert read_label_file(file("kind\n10\n9\n")).tolist() == [10, 9]  # which words would sort otherwise
    assert read_label_file(file(np.array([3, 1]))).tolist() == [3, 1]
    for text, line in (("k\na\n\nb\n", 3), ('k\n"a\nb"\n\n', 4), ("\nk\na\n", 1), ("k,b\na,b\n", 1)):
        error = refused(read_label_file, file(text))
        assert (error.argument, f"line {line} " in f"{error.received} ") == ("labels", True)
    (tmp_path / "latin.csv").write_bytes(b"kind\n\xff\n")
    for name in ("pipe.csv", "pipe.npy"):
        os.mkfifo(tmp_path / name)
    for name in ("latin.csv", "pipe.csv", "pipe.npy"):
        error = refused(read_label_file, tmp_path / name)
        assert error.argument == "labels" or name in str(error)


# New examples for a model.


def test_an_array_is_read_whole_and_in_order(file):
    x = bits(20, 3)
    rows = read_rows(file(x=x, y=np.arange(20)), BITS)
    np.testing.assert_array_equal(rows.x, x)
    assert rows.index.tolist() == rows.labels.tolist() == list(range(20))
    assert not rows.binarized
    few = rows.subset(np.array([3, 7]))
    np.testing.assert_array_equal(few.x, x[[3, 7]])
    assert few.index.tolist() == few.labels.tolist() == [3, 7]


def test_parts_are_chosen_by_name(file):
    path = file(train=np.zeros((2, 3)), test=np.ones((4, 3)))
    assert len(read_rows(path, BITS)) == 4
    assert len(read_rows(path, BITS, part="train")) == 2
    data = load_dataset("digits")
    rows, train = rows_of_part(data, "test"), rows_of_part(data, "train")
    assert rows.x is data.test
    assert (rows.binarized, train.binarized) == (False, True)
    assert set(train.x.unique().tolist()) == {0.0, 1.0}
    assert refused_argument(read_rows, path, BITS, part="valid") == "part"
    assert refused_argument(read_rows, file(np.zeros((2, 3))), BITS, part="test") == "part"
    assert refused_argument(rows_of_part, data, "all") == "part"


def test_columns_are_found_by_name(file):
    roles = ColumnRoles("kind", ("id",), optional=frozenset({"kind", "id"}))
    known = {"columns": ("a", "b", "c"), "reading": TableReading(roles), "missing": True}
    rows = read_rows(file("c,kind,a,b,id\n3,cat,1,2,one\n6,dog,,5,two\n"), REALS, **known)
    np.testing.assert_array_equal(rows.x, [[1, 2, 3], [np.nan, 5, 6]])
    assert rows.columns == ("a", "b", "c")
    assert rows.labels.tolist() == ["cat", "dog"]
    path = file("c,a,b\n3,1,2\n")
    np.testing.assert_array_equal(read_rows(path, REALS, **known).x, [[1, 2, 3]])
    assert read_rows(path, REALS).columns == ("c", "a", "b")  # by place where no names are known
    reading = TableReading(ColumnRoles("kind"))
    assert refused_argument(read_rows, path, REALS, reading=reading) == "label_column"


def test_what_the_model_cannot_read_is_refused(file):
    for header, named in (("a,b,d", "'c'"), ("a,d,e", "'b'"), ("a,b,c,id", "'id'")):
        path = file(header + "\n" + ",".join("1" for _ in header.split(",")) + "\n")
        assert named in str(refused(read_rows, path, REALS, columns="abc"))
    twos = np.full((2, 3), 2.0)
    wrong = [(BITS, array) for array in (np.zeros((2, 4)), twos, twos * np.nan, twos[:0])]
    for model, array in (*wrong, (IMAGES, np.zeros((2, 3, 2))), (REALS, twos * np.inf)):
        assert "mine.npy" in refused_argument(read_rows, file(array), model)


def test_images_may_come_as_rows(file):
    x = np.arange(12).reshape(2, 2, 3) % 2
    for shape in ((2, 2, 3), (2, 1, 2, 3), (2, 6)):
        np.testing.assert_array_equal(read_rows(file(x.reshape(shape)), IMAGES).x, x.reshape(2, 6))


def test_probabilities_become_bits_once_and_gaps_stay(file):
    x = np.random.default_rng(0).random((400, 3))
    x[0, 0] = np.nan
    first, again = (read_rows(file(x), BITS, missing=True) for _ in range(2))
    assert first.binarized
    np.testing.assert_array_equal(first.x, again.x)
    assert torch.isnan(first.x).sum() == 1
    assert set(first.x.nan_to_num(0).unique().tolist()) == {0.0, 1.0}
    share = first.x.numpy()[x > 0.5].mean()
    assert abs(share - 0.75) < 5 * (0.1875 / (x > 0.5).sum()) ** 0.5  # alpha 6e-7
    assert not read_rows(file(np.nan_to_num(x)), REALS).binarized
