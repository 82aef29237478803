"""A run that is asked to stop saves the step it is at, and goes on from there as if nothing had been."""

import pytest
import torch

from discrete_vae.errors import NonFiniteLossError
from tests.training.test_loop import assert_same_state, final_state
from tests.training.test_parallel_tempering import TEMPERED
from tests.training.tiny import CONFIG, NUM_STEPS, start_run, train_quietly, without_times


class StopAt:
    """Says stop after so many questions."""

    def __init__(self, steps):
        self.left = steps

    def __call__(self):
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("config", [CONFIG, TEMPERED], ids=["block Gibbs", "tempering"])
def test_stopping_anywhere_changes_nothing(tmp_path, config):
    unbroken, run = start_run(tmp_path / "unbroken", config), start_run(tmp_path / "run", config)
    whole = train_quietly(unbroken, config)
    done = 0
    for steps in (0, 4, 3, 1, 12):  # ends at 0, 4, 7 (a validation), 8 and 20 (a line of the log)
        done += steps
        result = train_quietly(run, config, stop=StopAt(steps))
        assert result.step == done
        assert run.checkpoints().steps()[-1:] == ((done,) if done else ())
    assert (whole.step, whole.best_step, whole.best_elbo) == (NUM_STEPS, *best_of(train_quietly(run, config)))
    assert_same_state(final_state(run), final_state(unbroken))
    assert run.checkpoints().steps() == unbroken.checkpoints().steps()
    assert run.best_path.read_bytes() == unbroken.best_path.read_bytes()
    logs = [without_times(each.metrics().read()) for each in (run, unbroken)]
    assert logs[0] == logs[1]


def best_of(result):
    return result.best_step, result.best_elbo


def test_before_the_first_validation_there_is_no_best(tmp_path):
    result = train_quietly(start_run(tmp_path / "run"), stop=StopAt(3))
    assert (result.step, result.best_step, result.best_elbo) == (3, None, None)


def test_bad_weights_are_not_saved_on_stopping(tmp_path, monkeypatch):
    run = start_run(tmp_path / "run")
    from discrete_vae.training import loop

    original = loop.training_step

    def step(state, *arguments):
        elbo = original(state, *arguments)
        with torch.no_grad():
            state.model.prior.weight[0, 0] = torch.nan
        return elbo

    monkeypatch.setattr(loop, "training_step", step)
    with pytest.raises(NonFiniteLossError, match="the weight prior.weight is nan at step 1"):
        train_quietly(run, stop=StopAt(1))
    assert run.checkpoints().steps() == ()


def test_missing_lines_of_the_log_are_named(tmp_path):
    run = start_run(tmp_path / "run")
    train_quietly(run, stop=StopAt(13))  # lines of training figures at 5, 7 and 10
    lines = run.metrics_path.read_text().splitlines(keepends=True)
    run.metrics_path.write_text(lines[0])
    with pytest.warns(UserWarning, match=r"metrics\.jsonl lacks 2 lines, of the steps 7, 10; "):
        train_quietly(run, stop=StopAt(2))
    run.metrics_path.unlink()
    with pytest.warns(UserWarning, match=r"lacks 5 lines, of the steps 5, 7, 10, 14, 15; "):
        train_quietly(run, stop=StopAt(15))
    run.metrics_path.write_bytes(b"")
    with pytest.warns(UserWarning, match=r"lacks 10 lines, of the steps 5, 7, 10, 14, 15, \.\.\. 30; "):
        assert train_quietly(run).step == NUM_STEPS
