"""Where the time of a step goes, in the log."""

import pytest
import torch

from discrete_vae.training import state
from discrete_vae.training.state import PARTS, TIME_METRICS, StepTimes
from tests.training.tiny import start_run, train_quietly


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on when it is told to."""
    now = [100.0]
    monkeypatch.setattr(state.time, "perf_counter", lambda: now[0])

    def pass_(seconds):
        now[0] += seconds

    return pass_


def test_shares_are_those_of_the_time_and_the_rate_counts_all_of_it(clock):
    times = StepTimes()
    for _ in range(2):
        clock(0.5)  # data
        for part, seconds in zip(PARTS, (1.0, 2.0, 1.5), strict=True):
            times.begin(part)
            clock(seconds)
        times.end_step()
    found = times.metrics(100, torch.device("cpu"))
    assert found == {
        "examples_per_second": pytest.approx(20.0),
        "chains_share": pytest.approx(0.2),
        "networks_share": pytest.approx(0.4),
        "optimizer_share": pytest.approx(0.3),
    }
    assert set(found) < set(TIME_METRICS)
    clock(50.0)
    times.restart()
    assert times.metrics(100, torch.device("cpu")) == {}


def test_an_accelerator_has_a_rate_and_no_shares(clock):
    times = StepTimes()
    times.begin("chains")
    clock(2.0)
    times.end_step()
    assert times.metrics(10, torch.device("cuda")) == {"examples_per_second": 5.0}


def test_lines_of_the_log_carry_them(tmp_path):
    run = start_run(tmp_path / "run")
    train_quietly(run)
    for record in run.metrics().read():
        if "elbo" in record:
            shares = [record[f"{part}_share"] for part in PARTS]
            assert min(shares) > 0
            assert sum(shares) <= 1
            assert record["examples_per_second"] > 0
