"""Training with tempered chains as the negative phase, chosen in the config."""

import pytest

from discrete_vae.config import TrajectoryTemperingConfig
from discrete_vae.log_partition.estimate import exact_log_partition
from discrete_vae.runs.load import load_run
from discrete_vae.samplers.trajectory import TrajectoryTempering
from tests.training.tiny import CONFIG, assert_same_run, changed, start_run, train_quietly

TEMPERED = changed(CONFIG, {"training.sampler": "parallel-tempering", "training.sampler.num-chains": "30"})
SETTINGS = {
    "sampler": "trajectory-tempering",
    "sampler.num-chains": "100",
    "optimizer.learning-rate": "0.3",
    "optimizer.rate.final-fraction": "1",
    "num-epochs": "10",
    "log-every": "20",
    "validate-every": "50",
}
LED = changed(CONFIG, {f"training.{name}": value for name, value in SETTINGS.items()})

NUM_STEPS = 120


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    run = start_run(tmp_path_factory.mktemp("led") / "whole", LED)
    assert train_quietly(run, LED).num_steps == NUM_STEPS
    return run


def test_a_resumed_run_equals_an_unbroken_one(whole, tmp_path):
    assert LED.training.sampler == TrajectoryTemperingConfig(num_chains=100)
    broken = start_run(tmp_path / "broken", LED)
    with pytest.raises(KeyboardInterrupt):
        train_quietly(broken, LED, stop_at=70)
    train_quietly(broken, LED)
    assert_same_run(broken, whole)


def test_the_log_has_the_sampler_s_log_z_with_its_error(whole):
    logged = [record for record in whole.metrics().read() if "log_partition" in record]
    own = [record for record in logged if record["step"] % 50 and record["step"] != NUM_STEPS]
    assert len(own) == 4
    assert all(0 < record["log_partition_std_error"] < 0.3 for record in own)
    loaded = load_run(whole, "last")
    assert isinstance(loaded.chains, TrajectoryTempering)
    assert loaded.chains.num_rungs > 1
    found, exact = loaded.chains.log_partition(), exact_log_partition(loaded.model.prior)
    assert abs(found.value - exact.value) < 5 * found.std_error
