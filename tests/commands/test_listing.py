"""dvae list, dvae validate and --settings: what they print; they write nothing."""

import pytest

from discrete_vae.commands.settings import slots
from discrete_vae.experiments import experiment_names


def test_list_names_experiments_data_sets_and_components(cli):
    status, out, err = cli("list")
    assert (status, err) == (0, "")
    names = {line.split()[0] for line in out.splitlines() if line.startswith("  ")}
    assert set(experiment_names()) <= names
    for path, slot in slots().items():
        assert set(slot.members) <= names
        assert path == "data" or f" --{path} NAME" in out
    assert all(len(line) <= 120 for line in out.splitlines())


@pytest.mark.parametrize("verb", ["train", "validate"])
def test_settings_show_the_values_that_would_be_used(cli, tmp_path, monkeypatch, verb):
    monkeypatch.chdir(tmp_path)
    words = ["--settings", "--training.num-epochs", "7", "--model.smoothing", "spike-slab"]
    status, out, err = cli(verb, "digits", *words)
    assert (status, err) == (0, "")
    shown = {line.split()[0]: line.split()[1] for line in out.splitlines() if line.startswith("  --")}
    assert shown["--training.num-epochs"] == "7"
    assert shown["--model.smoothing"] == "spike-slab"
    assert "--model.smoothing.beta" not in shown
    assert shown["--evaluation.num-examples"] == "none"
    assert list(tmp_path.iterdir()) == []


def test_validate_counts_parameters_and_writes_nothing(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = cli("validate", "digits", "--size", "smoke")
    assert (status, err) == (0, "")
    assert "digits: 1297 / 250 / 250 examples (train / valid / test) of 64 features" in out
    assert "120 steps in 10 epochs, batches of 100, 500 chains" in out
    rows = [line for line in out.splitlines() if line.startswith("  ")]
    parts = {line.split()[0]: int(line.split()[-1].replace(",", "")) for line in rows if line[2] != " "}
    members = sum(int(line.split()[-1].replace(",", "")) for line in rows if line.startswith("    "))
    assert parts.pop("total") == sum(parts.values()) == members == 88817
    assert list(tmp_path.iterdir()) == []
