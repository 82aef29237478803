"""dvae validate and the table of parameters."""

import torch

from discrete_vae import DiscreteVAE
from discrete_vae.cli import main
from discrete_vae.presets import experiment_names, load_experiment
from discrete_vae.training.describe import parameter_rows


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
