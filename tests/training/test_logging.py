"""What a run writes of itself besides its log: a trace of single steps, and events that hold what the log holds."""

import importlib.util
import json

import pytest
import torch

from discrete_vae import load_dataset
from discrete_vae.errors import InvalidInputError
from discrete_vae.training import loop
from discrete_vae.training.logging import WARM_UP, StepTrace, TensorBoardLogger
from discrete_vae.training.loop import run_steps
from tests.training.events import events, lines
from tests.training.tiny import (
    CONFIG,
    NUM_STEPS,
    QuietProgress,
    assert_same_run,
    start_run,
    stop_after,
    train_quietly,
)

needs_tensorboard = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="TensorBoard, an extra, is not installed"
)


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


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    run = start_run(tmp_path_factory.mktemp("logged") / "run")
    train_quietly(run, logger=TensorBoardLogger(run.tensorboard_path))
    return run


@needs_tensorboard
def test_events_are_the_lines_of_the_log(logged):
    found = events(logged.tensorboard_path)
    assert found == lines(logged)
    assert {"elbo", "validation_elbo", "log_partition", "epoch", "seconds"} <= set(found)
    assert found["elbo"][-1][0] == NUM_STEPS


@needs_tensorboard
def test_training_is_the_same_bit_for_bit(logged, unbroken):
    plain, _ = unbroken
    assert not plain.tensorboard_path.exists()
    assert_same_run(logged, plain)


@needs_tensorboard
@pytest.mark.parametrize(("stop_at", "logs"), [(33, True), (20, False)])
def test_nothing_is_lost_or_doubled_where_a_run_goes_on(tmp_path, stop_at, logs):
    run = start_run(tmp_path / "run")
    first = {"logger": TensorBoardLogger(run.tensorboard_path)} if logs else {}
    with pytest.raises(KeyboardInterrupt):  # as a kill: what was done since the last checkpoint is done again
        train_quietly(run, stop_at=stop_at, **first)
    if logs:
        assert events(run.tensorboard_path) == lines(run)  # closed, nothing is left in memory
    train_quietly(run, logger=TensorBoardLogger(run.tensorboard_path))
    assert events(run.tensorboard_path) == lines(run)


def test_the_logger_is_closed_where_training_cannot_begin(tmp_path):
    class Broken:
        closed = False

        def begin(self, records):
            raise OSError("no space left")

        def close(self):
            self.closed = True

    logger, run = Broken(), start_run(tmp_path / "run")
    with pytest.raises(OSError, match="no space left"):
        run_steps(CONFIG, load_dataset("digits"), run, progress=QuietProgress(), logger=logger)
    assert logger.closed
