"""Which precision a run computes in, that it stays in it, and that it goes on bit for bit in bfloat16."""

import math

import pytest
import torch
from torch import nn

from discrete_vae import load_dataset, train
from discrete_vae.errors import InvalidInputError
from discrete_vae.nets.mlp import ConcatLinear
from discrete_vae.nets.precision import gains_by_bfloat16
from discrete_vae.runs.io import write_json
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training import step
from discrete_vae.training.state import TrainingState
from discrete_vae.training.step import choose_precision
from tests.training.tiny import CONFIG, start_run, train_quietly

WIDE = CONFIG.model.model_copy(
    update={"posterior": CONFIG.model.posterior.model_copy(update={"hidden": (400, 400)})}
)


def config_in(name, model=CONFIG.model):
    settings = CONFIG.training.model_copy(update={"precision": name})
    return CONFIG.model_copy(update={"training": settings, "model": model})


@pytest.fixture(params=[True, False], ids=["fast", "slow"])
def fast(request, monkeypatch):
    monkeypatch.setattr(step, "has_fast_bfloat16", lambda device: request.param)
    return request.param


def test_auto_takes_bfloat16_where_processor_and_networks_gain(fast):
    assert choose_precision(config_in("auto"), device="cpu").name == "float32"
    wide = choose_precision(config_in("auto", WIDE), device="cpu")
    assert wide.name == ("bfloat16" if fast else "float32")
    assert ("has instructions" if fast else "has no instructions") in wide.reason


def test_auto_counts_the_multiplications_of_a_product(monkeypatch):
    monkeypatch.setattr(step, "has_fast_bfloat16", lambda device: True)
    sizes = [400 * 784, 10 * 400]
    network = nn.Sequential(ConcatLinear([784], 400), ConcatLinear([400], 10))
    enough = math.ceil(2e6 * len(sizes) / sum(sizes))
    assert gains_by_bfloat16(network, enough)
    assert not gains_by_bfloat16(network, enough - 1)
    assert not gains_by_bfloat16(
        nn.Linear(10_000, 10_000, device="meta"), 1000
    )  # no network whose products are set
    config = config_in("auto", WIDE)
    small = config.model_copy(update={"training": config.training.model_copy(update={"batch_size": 10})})
    assert choose_precision(config, device="cpu").name == "bfloat16"
    assert choose_precision(small, device="cpu").name == "float32"


def test_what_is_asked_for_is_taken(fast):
    assert choose_precision(config_in("float32", WIDE), device="cpu").dtype == torch.float32
    asked = choose_precision(config_in("bfloat16"), device="cpu")
    assert asked.dtype == torch.bfloat16
    assert ("slow" in asked.reason) is not fast


def test_a_run_goes_on_in_the_precision_that_it_began_with(fast):
    begun = {"precision": "bfloat16"}
    assert choose_precision(config_in("auto"), device="cpu", begun=begun).name == "bfloat16"
    assert choose_precision(config_in("auto", WIDE), device="cpu", begun={"seed": 1}).name == "float32"


def test_the_folder_names_it(tmp_path, fast):
    train(config_in("auto", WIDE), load_dataset("digits"), tmp_path / "run", stop=lambda: True)
    run = RunDirectory.open(tmp_path / "run")
    assert run.read_environment()["precision"] == ("bfloat16" if fast else "float32")
    write_json(run.environment_path, run.read_environment() | {"precision": 5})
    with pytest.raises(InvalidInputError, match="environment.json, field 'precision'"):
        train(config_in("auto", WIDE), load_dataset("digits"), tmp_path / "run", stop=lambda: True)


def test_a_resumed_run_in_bfloat16_equals_an_unbroken_one(tmp_path):
    config = config_in("bfloat16")
    whole, broken = start_run(tmp_path / "whole", config), start_run(tmp_path / "broken", config)
    train_quietly(whole, config)
    with pytest.raises(KeyboardInterrupt):
        train_quietly(broken, config, stop_at=17)
    train_quietly(broken, config)
    one, other = (run.checkpoints().load("last").tensors for run in (whole, broken))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    single = start_run(tmp_path / "single", config_in("float32"))
    train_quietly(single, config_in("float32"))
    name = "model/decoder.network.output.weight"
    assert not torch.equal(single.checkpoints().load("last").tensors[name], one[name])


def test_a_state_in_bfloat16_keeps_float32_weights_and_names():
    state = TrainingState.initial(config_in("bfloat16"), load_dataset("digits").train)
    assert all(parameter.dtype == torch.float32 for parameter in state.model.parameters())
    plain = TrainingState.initial(config_in("float32"), load_dataset("digits").train)
    assert state.capture()[0].keys() == plain.capture()[0].keys()
