"""Training with parallel tempering as the negative phase, chosen in the config."""

import torch

from discrete_vae.config import ParallelTemperingConfig
from discrete_vae.load import load_run
from discrete_vae.overrides import apply_overrides
from discrete_vae.samplers.tempering import ParallelTempering
from tests.training.tiny import CONFIG, NUM_STEPS, start_run, train_quietly

TEMPERED = apply_overrides(
    CONFIG, [("training.sampler", ["parallel-tempering"]), ("training.sampler.num-chains", ["30"])]
)


def test_the_command_line_chooses_it():
    assert TEMPERED.training.sampler == ParallelTemperingConfig(num_chains=30)


def test_a_resumed_run_equals_an_unbroken_one(tmp_path):
    whole, broken = start_run(tmp_path / "whole", TEMPERED), start_run(tmp_path / "broken", TEMPERED)
    result = train_quietly(whole, TEMPERED)
    try:
        train_quietly(broken, TEMPERED, stop_at=20)
    except KeyboardInterrupt:
        train_quietly(broken, TEMPERED)
    assert result.num_steps == NUM_STEPS
    first, second = load_run(whole, "last"), load_run(broken, "last")
    assert isinstance(first.chains, ParallelTempering)
    assert first.chains.num_replicas == second.chains.num_replicas
    assert torch.equal(first.chains.replicas, second.chains.replicas)
    for name, value in first.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[name]), name
