"""The experiment for a file of one's own: what the data decide, what settings change, one reading."""

import numpy as np
import pytest
import scipy
import torch

from discrete_vae.config import instantiate
from discrete_vae.data import files
from discrete_vae.own_data import own_experiment, read_own_experiment
from tests.refusals import refused, refused_argument

RANDOM = np.random.default_rng(0)
VALUES = {"bits": RANDOM.random((60, 12)) < 0.3, "probabilities": RANDOM.random((60, 12))}
VALUES["with gaps"] = np.where(RANDOM.random((60, 12)) < 0.2, np.nan, VALUES["probabilities"])


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
def test_a_file_is_read_once_and_gives_the_data_of_the_config(tmp_path, monkeypatch, kind, overrides):
    path, reads, read = tmp_path / "mine.npy", [], files.read_npy
    np.save(path, VALUES[kind])
    monkeypatch.setattr(files, "read_npy", lambda file: reads.append(file) or read(file))
    config, found = read_own_experiment(path, overrides, size="smoke")
    assert reads == [path]
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


def test_settings_that_break_a_rule_are_refused_by_name(tmp_path):
    np.save(tmp_path / "mine.npy", VALUES["bits"])
    wrong = "data.num-valid 5, data.valid-fraction 2, data.vald-fraction 0.1, model.likelihood poisson"
    for words in (*wrong.split(", "), "training.num-epochs many"):
        path, value = words.split()
        given = tmp_path / "mine.npy", [(path, [value])]
        assert refused_argument(read_own_experiment, *given) == f"--{path}"
    assert refused_argument(own_experiment, tmp_path / "mine.npy", likelihood="") == "--model.likelihood"


def test_a_longer_run_keeps_the_share_of_its_patience(tmp_path):
    np.save(tmp_path / "mine.npy", VALUES["bits"])
    plain = own_experiment(tmp_path / "mine.npy").training

    def asked(**settings):
        settings |= {"num_epochs": 10 * plain.num_epochs}
        given = {f"training.{name}": value for name, value in settings.items()}
        return own_experiment(tmp_path / "mine.npy", settings=given).training

    longer = asked()
    assert (longer.validate_every, longer.log_every) == (10 * plain.validate_every, 10 * plain.log_every)
    assert longer.patience == plain.patience
    assert asked(validate_every=7).validate_every == 7


def test_kinds_that_are_none_leave_a_table_as_it_stands(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["a,b", *(f"{row / 40},{row % 3 / 2}" for row in range(40))]))
    assert own_experiment(path).data.kinds == "auto"
    config, _ = read_own_experiment(path, [("data.kinds", ["none"])])
    assert config.data.kinds is None
    assert config.model.likelihood.kind == "bernoulli"


def test_counts_are_given_the_total_named_or_not_unless_another_exposure_is(tmp_path):
    counts = np.random.default_rng(0).poisson(3.0, (60, 5))
    scipy.io.mmwrite(tmp_path / "cells.mtx", scipy.sparse.coo_array(counts))
    found = [own_experiment(tmp_path / "cells.mtx", likelihood=each) for each in (None, "negative-binomial")]
    assert found[0] == found[1]
    likelihood = found[0].model.likelihood
    assert (likelihood.kind, likelihood.exposure) == ("negative-binomial", "total")
    other, _ = read_own_experiment(tmp_path / "cells.mtx", [("model.likelihood.exposure", ["none"])])
    assert other.model.likelihood.exposure == "none"
    scipy.io.mmwrite(tmp_path / "one.mtx", scipy.sparse.coo_array(counts[:, :1]))
    likelihood = own_experiment(tmp_path / "one.mtx").model.likelihood  # whose total is its count
    assert (likelihood.kind, likelihood.exposure) == ("negative-binomial", "none")
    scipy.io.mmwrite(tmp_path / "logs.mtx", scipy.sparse.coo_array(np.log1p(counts)))
    found = [
        refused(own_experiment, tmp_path / "logs.mtx", likelihood=each)
        for each in (None, "negative-binomial")
    ]
    assert str(found[0]) == str(found[1])  # what is wrong with them as counts, not as bits


def test_a_column_without_a_value_is_left_out_beside_bits(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["a,b,none", *(f"{row % 2},{row % 3 // 2}," for row in range(40))]))
    config = own_experiment(path)
    assert [column.name for column in config.model.likelihood.columns] == ["a", "b"]
    assert config.data.ignored_columns == ("none",)
    path.write_text("\n".join(["a,b", *(40 * [","])]))
    assert refused_argument(own_experiment, path).startswith(str(path))


def test_ignored_columns_and_labels_are_kept_and_an_index_gives_a_warning(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["id,name,a,kind", *(f"{row + 7},n{row},{row % 3},red" for row in range(40))]))
    settings = {"likelihood": "gaussian", "size": "smoke", "label_column": "kind"}
    with pytest.warns(UserWarning, match="column 'id' of x.csv counts the rows.*--data.ignored-columns id"):
        config = own_experiment(path, ignored_columns=["name"], **settings)
    assert (config.data.ignored_columns, config.model.shape) == (("name",), (2,))
    config = own_experiment(path, ignored_columns=("name", "id"), **settings)
    data = instantiate(config.data, data_dir=None)
    assert (config.data.label_column, data.description.columns) == ("kind", ("a",))
    assert data.labels["test"].tolist() == ["red"] * 4


def test_settings_of_the_data_say_how_the_file_is_read(tmp_path):
    path = tmp_path / "x.csv"
    rows = (f"{row % 7}.5,{row % 5},{'mf'[row % 2]}" for row in range(60))
    path.write_text("\n".join(["a,falls,kind", *rows]))
    given = {"valid_fraction": 0.4, "ignored_columns": ("a",), "kinds": "falls=count", "label_units": "kind"}
    config = own_experiment(path, **given)
    assert config == own_experiment(path, settings={f"data.{name}": value for name, value in given.items()})
    assert (config.model.num_classes, config.training.batch_size) == (2, 30)
    refused = refused_argument(own_experiment, path, settings={"model.likelihood": "gaussian"})
    assert refused.startswith(str(path))
