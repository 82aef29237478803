"""A trace of single steps that viewers open."""

import json

import pytest
import torch

from discrete_vae.errors import InvalidInputError
from discrete_vae.training import loop
from discrete_vae.training.logging import WARM_UP, StepTrace
from tests.training.tiny import assert_same_run, start_run, stop_after, train_quietly


def test_a_trace_holds_the_steps_and_their_parts_and_changes_nothing(unbroken, tmp_path):
    run = start_run(tmp_path / "run")
    train_quietly(run, trace=StepTrace(run.profile_path, 3))
    assert_same_run(run, unbroken[0])
    names = [event.get("name") for event in json.loads(run.profile_path.read_text())["traceEvents"]]
    wanted = [f"step {WARM_UP + 1}", f"step {WARM_UP + 2}", f"step {WARM_UP + 3}"]
    assert [name for name in names if str(name).startswith("step ")] == wanted
    assert {"chains", "networks", "optimizer"} <= set(names)
    assert any(str(name).startswith("aten::") for name in names)
    assert not torch.autograd.profiler._is_profiler_enabled


def test_a_run_that_stops_on_the_way_leaves_the_steps_that_it_has(tmp_path):
    run = start_run(tmp_path / "run")
    trace = StepTrace(run.profile_path, 100)
    train_quietly(run, trace=trace, stop=stop_after(WARM_UP + 2))
    assert trace.recorded == [WARM_UP + 1, WARM_UP + 2]
    assert run.profile_path.is_file()


def test_a_step_that_fails_ends_the_profile(tmp_path, monkeypatch):
    run = start_run(tmp_path / "run")
    original = loop.training_step

    def failing(state, *arguments):
        if state.step == WARM_UP + 1:
            raise KeyboardInterrupt
        return original(state, *arguments)

    monkeypatch.setattr(loop, "training_step", failing)
    with pytest.raises(KeyboardInterrupt):
        train_quietly(run, trace=StepTrace(run.profile_path, 3))
    assert not torch.autograd.profiler._is_profiler_enabled
    assert not run.profile_path.exists()


def test_a_run_that_ends_before_leaves_none(tmp_path):
    assert "no trace" in StepTrace(tmp_path / "profile.json", 3).write()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidInputError, match="num_steps"):
        StepTrace(tmp_path / "profile.json", 0)
