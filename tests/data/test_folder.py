from pathlib import Path

import pytest

from discrete_vae.data.download import check_data_dir, data_folder
from discrete_vae.errors import InvalidInputError


def test_the_argument_wins_over_the_variable_over_the_cache(tmp_path, monkeypatch):
    named, variable, cache = (tmp_path / name for name in ("named", "variable", "cache"))
    named.mkdir()
    variable.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("DISCRETE_VAE_DATA", str(variable))
    assert data_folder(named) == named
    assert data_folder() == variable
    monkeypatch.delenv("DISCRETE_VAE_DATA")
    assert data_folder().name == "discrete-vae"
    assert not cache.exists()


def test_a_named_folder_must_exist_and_is_not_created(tmp_path, monkeypatch):
    missing = tmp_path / "typing-error"
    for find in (data_folder, check_data_dir):
        with pytest.raises(InvalidInputError, match="data_dir must be an existing folder"):
            find(missing)
    monkeypatch.setenv("DISCRETE_VAE_DATA", str(missing))
    with pytest.raises(InvalidInputError, match="DISCRETE_VAE_DATA must be an existing folder"):
        data_folder()
    assert not missing.exists()


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match="data_dir must be an existing folder"):
        data_folder(str(tmp_path / "file"))


def test_the_tilde_is_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder("~") == tmp_path
    assert check_data_dir(None) is None
    assert check_data_dir(Path("~")) == tmp_path
