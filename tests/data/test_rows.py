"""New examples for a trained model: read as training reads its own, refused where the model cannot read them."""

import numpy as np
import pytest
import torch

from discrete_vae.config import GaussianLikelihoodConfig, ModelConfig, RBMConfig
from discrete_vae.data.datasets import load_dataset
from discrete_vae.data.rows import read_rows, rows_of_part
from discrete_vae.data.tables import NoFeatures
from discrete_vae.errors import InvalidInputError

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
    few = rows.chosen(np.array([3, 7]))
    np.testing.assert_array_equal(few.x, x[[3, 7]])
    assert few.index.tolist() == few.labels.tolist() == [3, 7]


def test_parts_are_chosen_by_name(tmp_path):
    file = saved(tmp_path, "x.npz", train=np.zeros((2, 3)), test=np.ones((4, 3)))
    assert len(read_rows(file, BITS)) == 4
    assert len(read_rows(file, BITS, part="train")) == 2
    with pytest.raises(InvalidInputError, match="part must be train or test for"):
        read_rows(file, BITS, part="valid")
    with pytest.raises(InvalidInputError, match="part must be left out"):
        read_rows(saved(tmp_path, "x.npy", x=np.zeros((2, 3))), BITS, part="test")


def test_columns_are_found_by_name(tmp_path):
    (tmp_path / "x.csv").write_text("c,kind,a,b,id\n3,cat,1,2,one\n6,dog,,5,two\n")
    without = NoFeatures("kind", ("id",), optional=frozenset({"kind", "id"}))
    known = {"columns": ("a", "b", "c"), "without": without, "missing": True}
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
    with pytest.raises(InvalidInputError, match="label_column must be the name of a column"):
        read_rows(tmp_path / "y.csv", REALS, without=NoFeatures("kind"))


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
    with pytest.raises(InvalidInputError, match="part must be one of train, valid, test"):
        rows_of_part(data, "all")
