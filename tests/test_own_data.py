"""The experiment for a file of one's own: what the data decide, what settings change, one reading."""

import numpy as np
import pytest
import torch

from discrete_vae.config import instantiate
from discrete_vae.data import files
from discrete_vae.own_data import own_experiment, read_own_experiment
from tests.refusals import refused_argument

RANDOM = np.random.default_rng(0)
VALUES = {"bits": RANDOM.random((60, 12)) < 0.3, "probabilities": RANDOM.random((60, 12))}
VALUES["with gaps"] = np.where(RANDOM.random((60, 12)) < 0.2, np.nan, VALUES["probabilities"])


@pytest.fixture
def reads(monkeypatch):
    """Counts how often a file is read."""
    count, read = [], files.read_npy
    monkeypatch.setattr(files, "read_npy", lambda file: count.append(file) or read(file))
    return count


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize(
    "overrides",
    [
        [],
        [("data.binarization-seed", ["3"])],
        [("data.valid-fraction", ["0.3"]), ("seed", ["4"])],
        [("data.binarize", ["true"])],
        [("model.likelihood", ["gaussian"]), ("data.binarize", ["false"])],
    ],
    ids=lambda overrides: " ".join(path for path, _ in overrides),
)
def test_a_file_is_read_once_and_gives_the_data_of_the_config(tmp_path, reads, kind, overrides):
    path = tmp_path / "mine.npy"
    np.save(path, VALUES[kind])
    config, found = read_own_experiment(path, overrides, size="smoke")
    assert len(reads) == 1
    given = dict(overrides)
    decided = kind != "bits" and "model.likelihood" not in given
    assert config.data.binarize == (decided or given.get("data.binarize") == ["true"])
    wanted = instantiate(config.data, data_dir=None)
    for part in ("train", "valid", "test"):
        pair = getattr(found, part), getattr(wanted, part)
        torch.testing.assert_close(*pair, rtol=0, atol=0, equal_nan=True)
    for field in ("dynamic", "description", "event_shape"):
        assert getattr(found, field) == getattr(wanted, field)
    assert found.dynamic == (config.data.binarize and kind != "bits")
    assert config.seed == int(given.get("seed", ["0"])[0])
    assert config.model.missing == (kind == "with gaps")
    if not overrides:
        assert own_experiment(path, size="smoke") == config


@pytest.mark.parametrize(
    ("overrides", "argument"),
    [
        ([("data.num-valid", ["5"])], "--data.num-valid"),
        ([("data.valid-fraction", ["2"])], "--data.valid-fraction"),
        ([("data.vald-fraction", ["0.1"])], "--data.vald-fraction"),
        ([("model.likelihood", ["poisson"])], "--model.likelihood"),
        ([("training.num-epochs", ["many"])], "--training.num-epochs"),
    ],
)
def test_settings_that_break_a_rule_are_refused_by_name(tmp_path, overrides, argument):
    np.save(tmp_path / "mine.npy", VALUES["bits"])
    assert refused_argument(read_own_experiment, tmp_path / "mine.npy", overrides) == argument


def test_ignored_columns_are_kept_and_an_index_gives_a_warning(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["id,name,a", *(f"{row + 7},n{row},{row % 3}" for row in range(40))]))
    with pytest.warns(UserWarning, match="column 'id' of x.csv counts the rows.*--data.ignored-columns id"):
        config = own_experiment(path, ignored_columns=["name"], likelihood="gaussian", size="smoke")
    assert (config.data.ignored_columns, config.model.shape) == (("name",), (2,))
    config = own_experiment(path, ignored_columns=("name", "id"), likelihood="gaussian", size="smoke")
    assert instantiate(config.data, data_dir=None).description.columns == ("a",)


def test_the_column_of_labels_is_kept(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["a,kind,b", *(f"{row % 2},red,1" for row in range(40))]))
    config = own_experiment(path, label_column="kind", size="smoke")
    assert (config.data.label_column, config.model.shape) == ("kind", (2,))
    assert instantiate(config.data, data_dir=None).labels["test"].tolist() == ["red"] * 4
