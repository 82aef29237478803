import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import discrete_vae
from discrete_vae.config import DataConfig, DigitsConfig, FileDataConfig, instantiate, members
from discrete_vae.data.datasets import load_dataset
from discrete_vae.errors import InvalidInputError


def test_it_is_exported():
    assert discrete_vae.load_dataset is load_dataset


def test_the_names_are_those_of_the_configs():
    kinds = [config.model_fields["kind"].default for config in members(DataConfig)]
    for kind in kinds:
        with pytest.raises(InvalidInputError, match="data_dir must be an existing folder"):
            load_dataset(kind, data_dir="none", **({"path": "mine.npy"} if kind == "file" else {}))


@pytest.mark.parametrize("config", members(DataConfig))
def test_every_config_reaches_a_loader_which_refuses_a_missing_folder(config, tmp_path):
    settings = {"path": tmp_path / "mine.npy"} if config is FileDataConfig else {}
    with pytest.raises(InvalidInputError, match="data_dir must be an existing folder"):
        instantiate(config(**settings), data_dir=tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_unknown_names_and_settings_are_refused():
    with pytest.raises(
        InvalidInputError, match=r"name must be one of digits, mnist-dynamic.*received 'mnist'"
    ):
        load_dataset("mnist")
    with pytest.raises(InvalidInputError, match=r"DigitsConfig\.num_vald is not a known field"):
        load_dataset("digits", num_vald=3)
    with pytest.raises(InvalidInputError, match=r"DigitsConfig\.split_seed must be at least 0"):
        load_dataset("digits", split_seed=-1)
    with pytest.raises(InvalidInputError, match=r"FileDataConfig\.path must be given"):
        load_dataset("file")


def test_a_config_builds_what_the_name_does():
    config = DigitsConfig(num_valid=7)
    assert torch.equal(instantiate(config, data_dir=None).valid, load_dataset("digits", num_valid=7).valid)
    assert DigitsConfig.from_json(config.model_dump_json()) == config


def test_the_path_of_a_file_becomes_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("mine.npy", np.eye(10))
    config = FileDataConfig(path=Path("mine.npy"))
    assert config.path == tmp_path / "mine.npy"
    monkeypatch.chdir("/")
    assert instantiate(FileDataConfig.from_json(config.model_dump_json())).num_features == 10


def test_configs_need_no_torch():
    program = "import sys, discrete_vae.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
