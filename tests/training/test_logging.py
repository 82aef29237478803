"""Events hold what metrics.jsonl holds, whatever becomes of a run, and training does not notice."""

import pytest

from discrete_vae import load_dataset
from discrete_vae.training.logging import TensorBoardLogger
from discrete_vae.training.loop import run_steps
from tests.training.events import events, lines
from tests.training.tiny import CONFIG, NUM_STEPS, QuietProgress, assert_same_run, start_run, train_quietly

pytest.importorskip("tensorboard", reason="TensorBoard, an extra, is not installed")


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    run = start_run(tmp_path_factory.mktemp("logged") / "run")
    train_quietly(run, logger=TensorBoardLogger(run.tensorboard_path))
    return run


def test_events_are_the_lines_of_the_log(logged):
    found = events(logged.tensorboard_path)
    assert found == lines(logged)
    assert {"elbo", "validation_elbo", "log_partition", "epoch", "seconds"} <= set(found)
    assert found["elbo"][-1][0] == NUM_STEPS


def test_training_is_the_same_bit_for_bit(logged, unbroken):
    plain, _ = unbroken
    assert not plain.tensorboard_path.exists()
    assert_same_run(logged, plain)


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
