"""Training with tempered chains as the negative phase, chosen in the config."""

import pytest
import torch

from discrete_vae.config import ParallelTemperingConfig, TrajectoryTemperingConfig
from discrete_vae.load import load_run
from discrete_vae.log_partition.exact import exact_log_partition
from discrete_vae.overrides import apply_overrides
from discrete_vae.samplers.tempering import ParallelTempering
from discrete_vae.samplers.trajectory import TrajectoryTempering
from tests.training.tiny import CONFIG, start_run, train_quietly

TEMPERED = apply_overrides(
    CONFIG, [("training.sampler", ["parallel-tempering"]), ("training.sampler.num-chains", ["30"])]
)
LED = apply_overrides(
    CONFIG,
    [
        ("training.sampler", ["trajectory-tempering"]),
        ("training.sampler.num-chains", ["100"]),
        ("training.optimizer.learning-rate", ["0.3"]),
        ("training.optimizer.rate.final-fraction", ["1"]),
        ("training.num-epochs", ["10"]),
        ("training.log-every", ["20"]),
        ("training.validate-every", ["50"]),
    ],
)

NUM_STEPS = 120


CASES = {
    "parallel": (TEMPERED, ParallelTemperingConfig(num_chains=30), ParallelTempering, 20),
    "trajectory": (LED, TrajectoryTemperingConfig(num_chains=100), TrajectoryTempering, 70),
}


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    config, *rest = CASES[request.param]
    whole = start_run(tmp_path_factory.mktemp(request.param) / "whole", config)
    train_quietly(whole, config)
    return config, *rest, whole


def test_a_resumed_run_equals_an_unbroken_one(case, tmp_path):
    config, chosen, kind, stop, whole = case
    assert config.training.sampler == chosen
    broken = start_run(tmp_path / "broken", config)
    with pytest.raises(KeyboardInterrupt):
        train_quietly(broken, config, stop_at=stop)
    train_quietly(broken, config)
    first, second = load_run(whole, "last"), load_run(broken, "last")
    assert isinstance(first.chains, kind)
    for one, other in ((first.chains, second.chains), (first.model, second.model)):
        saved = other.state_dict()
        for name, value in one.state_dict().items():
            assert torch.equal(value, saved[name]), name


def test_the_log_has_the_sampler_s_log_z_with_its_error(tmp_path):
    whole = start_run(tmp_path / "run", LED)
    assert train_quietly(whole, LED).num_steps == NUM_STEPS
    logged = [record for record in whole.metrics().read() if "log_partition" in record]
    own = [record for record in logged if record["step"] % 50 and record["step"] != NUM_STEPS]
    assert len(own) == 4
    assert all(0 < record["log_partition_std_error"] < 0.3 for record in own)
    loaded = load_run(whole, "last")
    assert isinstance(loaded.chains, TrajectoryTempering)
    assert loaded.chains.num_rungs > 1
    found, exact = loaded.chains.log_partition(), exact_log_partition(loaded.model.prior)
    assert abs(found.value - exact.value) < 5 * found.std_error
