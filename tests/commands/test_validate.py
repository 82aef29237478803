"""dvae list, dvae validate and --settings: what they print; they write nothing."""

import re

import pytest
import torch

from discrete_vae import DiscreteVAE
from discrete_vae.cli import main
from discrete_vae.figures.registry import FIGURES
from discrete_vae.overrides import slots
from discrete_vae.presets import experiment_names, load_experiment
from discrete_vae.training.describe import parameter_rows


def too_long(out, columns=80):
    return [line for line in out.splitlines() if len(line) > columns]


def test_list_names_experiments_data_sets_components_and_figures(cli):
    status, out, err = cli("list")
    assert (status, err) == (0, "")
    names = {line.split()[0] for line in out.splitlines() if line.startswith("  ")}
    assert set(experiment_names()) | set(FIGURES) <= names
    for path, slot in slots().items():
        assert set(slot.members) <= names
        assert path == "data" or f" --{path} NAME" in out
    assert too_long(out) == []


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
    assert too_long(out) == []
    assert list(tmp_path.iterdir()) == []


def test_validate_counts_parameters_and_writes_nothing(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = cli("validate", "digits", "--size", "smoke", "--device", "cpu")
    assert status == 0
    assert re.fullmatch(r"Computing on cpu with \d+ threads?\.\n", err)
    text = " ".join(out.split())
    assert "digits: 1297 / 250 / 250 examples (train / valid / test) of 64 features" in text
    assert "120 steps in 10 epochs, batches of 100, 500 chains" in text
    assert too_long(out) == []
    table = out.partition("\nParameters\n")[2].partition("\n\n")[0]
    rows = table.splitlines()
    parts = {line.split()[0]: int(line.split()[-1].replace(",", "")) for line in rows if line[2] != " "}
    members = sum(int(line.split()[-1].replace(",", "")) for line in rows if line.startswith("    "))
    assert parts.pop("total") == sum(parts.values()) == members == 88817
    assert list(tmp_path.iterdir()) == []


def test_a_wide_terminal_shows_a_setting_per_line(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    out = cli("train", "digits", "--settings")[1]
    line = next(line for line in out.splitlines() if line.startswith("  --training.num-epochs"))
    assert line.split()[1].isdecimal()
    assert " ".join(line.split()[2:]) == "Passes over the training part."
    assert too_long(out, 160) == []


def test_one_of_a_thing_is_no_plural(cli):
    out = cli("validate", "digits", "--size", "smoke", "--training.num-epochs", "1")[1]
    assert "in 1 epoch, batches" in out


def test_every_parameter_is_counted_once():
    for name in experiment_names():
        with torch.device("meta"):
            model = DiscreteVAE.from_config(load_experiment(name, "smoke").model)
        rows = parameter_rows(model)
        assert sum(row.count for row in rows) == sum(parameter.numel() for parameter in model.parameters())
        assert len({row.name for row in rows}) == len(rows)


def test_validate_shows_parts_memory_and_pace(capsys):
    layers = ["--model.hierarchy", "gaussian", "--model.hierarchy.num-layers", "2"]
    widths = ["--model.hierarchy.posterior-hidden", "8", "--model.hierarchy.prior-hidden", "8"]
    assert main(["validate", "digits", "--size", "smoke", *layers, *widths]) == 0
    shown = capsys.readouterr().out
    for text in ("64 + 32 -> 8 -> 32", "hierarchy.prior", "2 continuous layers of 16 units", "ms per step"):
        assert text in shown
