"""The benchmark of training steps on a tiny model: its products, its contender, its line of JSON."""

import json
import sys

import pytest
import torch

from discrete_vae.config import BlockGibbsConfig
from discrete_vae.presets import load_experiment
from discrete_vae.training.loop import training_step
from discrete_vae.training.state import TrainingState
from tests.models import LAYERS, small_config

ROWS, X, LEFT, RIGHT, CHAINS = 6, 10, 3, 5, 7


def tiny_experiment():
    config = load_experiment("digits", "smoke")
    layers = LAYERS | {"posterior_hidden": (12,), "prior_hidden": (13,)}
    decoder = {"kind": "mlp", "hidden": (14,)}
    model = small_config(X, units=(LEFT, RIGHT), groups=2, hidden=(11,), hierarchy=layers, decoder=decoder)
    changes = {"sampler": BlockGibbsConfig(num_chains=CHAINS), "batch_size": ROWS, "num_sweeps": 2}
    training = config.training.model_copy(update=changes)
    return config.model_copy(update={"model": model, "training": training})


def step_of(config):
    x = torch.bernoulli(torch.full((ROWS, X), 0.3), generator=torch.Generator().manual_seed(0))
    state = TrainingState.initial(config, x)
    return state, lambda: training_step(state, config, x, 1.0, 0.5)


def test_products_are_those_of_the_model():
    from step_floor import products_of

    products = products_of(*step_of(tiny_experiment()))
    # what each network reads, how much of it wants a gradient, and its widths
    networks = [
        *((X, 0, 11, 4), (X + 4, 4, 11, 4)),  # posterior
        *((X + 8, 8, 12, 4), (X + 10, 10, 12, 4)),  # Gaussian layers
        *((8, 8, 13, 4), (10, 10, 13, 4)),  # their priors
        (12, 12, 14, X),  # decoder
    ]
    expected = []
    for given, wanted, hidden, outputs in networks:
        expected += [(ROWS, given, hidden), (hidden, ROWS, given), (ROWS, hidden, wanted)]
        expected += [(ROWS, hidden, outputs), (outputs, ROWS, hidden), (ROWS, outputs, hidden)]
    expected.remove((ROWS, 11, 0))  # x wants none
    assert sorted(product.shape for product in products if not product.energy) == sorted(expected)
    energies = [(ROWS, LEFT, RIGHT), (ROWS, RIGHT, LEFT), (LEFT, ROWS, RIGHT)]
    energies += [(CHAINS, LEFT, RIGHT), (LEFT, CHAINS, RIGHT)]
    assert sorted(product.shape for product in products if product.energy) == sorted(energies)
    for product in products:
        rows, _, columns = product.shape
        assert product.call("float32")().shape == (rows, columns)


def test_plain_contender_has_the_same_weights_and_trains():
    """Its loss falls on data that can be learned: all bits alike."""
    from contenders.plain_vae import PlainTraining

    config = tiny_experiment()
    torch.manual_seed(0)
    plain = PlainTraining(config, "float32")
    shapes = [sorted(p.shape for p in each.model.parameters()) for each in (plain, step_of(config)[0])]
    assert shapes[0] == shapes[1]
    x = torch.bernoulli(torch.full((ROWS, 1), 0.5)).expand(ROWS, X).contiguous()
    losses = [plain.step(x) for _ in range(150)]
    assert sum(losses[-20:]) < sum(losses[:20]) - 20 * 2


def test_one_line_of_json(capsys, monkeypatch):
    import training_step as benchmark

    words = "training_step.py digits --size smoke --json --seconds 0"
    monkeypatch.setattr(sys, "argv", words.split())
    benchmark.main()
    found = json.loads(capsys.readouterr().out)
    assert found["floor_ms"] == pytest.approx(found["products_ms"] + found["optimizer_ms"], abs=2e-4)
    assert found["step_ms"] > found["chains_ms"] > 0
    assert found["step_ms_median"] >= found["step_ms"]
