"""What dvae train and dvae validate are asked for: the config, and its data, which are read once."""

import numpy as np
import pytest
import torch

from discrete_vae.cli.train import Request
from discrete_vae.config import instantiate
from discrete_vae.data import rows

RANDOM = np.random.default_rng(0)
VALUES = {"bits": RANDOM.random((60, 12)) < 0.3, "probabilities": RANDOM.random((60, 12))}
VALUES["with gaps"] = np.where(RANDOM.random((60, 12)) < 0.2, np.nan, VALUES["probabilities"])


def request(path, overrides):
    """What `dvae train --data PATH` asks for."""
    given = dict.fromkeys(Request.__dataclass_fields__)
    return Request(**given | {"verb": "train", "data": str(path), "overrides": overrides})


@pytest.fixture
def reads(monkeypatch):
    """Counts how often a file is read."""
    count, read = [], rows.read_own_arrays
    monkeypatch.setattr(rows, "read_own_arrays", lambda file, *more: count.append(file) or read(file, *more))
    return count


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize(
    "more", [[], [("data.binarization-seed", ["3"])], [("data.valid-fraction", ["0.3"])]]
)
def test_a_file_is_read_once_however_its_values_are_read(tmp_path, reads, kind, more):
    path = tmp_path / "mine.npy"
    np.save(path, VALUES[kind])
    config, data = request(path, more).resolve()
    found = data()
    assert len(reads) == 1
    assert config.data.binarize == (kind != "bits")
    wanted = instantiate(config.data, data_dir=None)
    for part in ("train", "valid", "test"):
        torch.testing.assert_close(
            getattr(found, part), getattr(wanted, part), rtol=0, atol=0, equal_nan=True
        )
    assert (found.dynamic, found.description, found.event_shape) == (
        wanted.dynamic,
        wanted.description,
        wanted.event_shape,
    )
    assert found.dynamic == (kind != "bits")


def test_what_else_the_settings_say_is_read_anew(tmp_path, reads):
    path = tmp_path / "mine.npy"
    np.save(path, VALUES["probabilities"])
    words = [("model.likelihood", ["gaussian"]), ("data.binarize", ["false"])]
    config, data = request(path, words).resolve()
    assert not config.data.binarize
    assert torch.equal(data().train, instantiate(config.data, data_dir=None).train)
