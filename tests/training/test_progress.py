"""What a log says of the time that a run takes."""

import io

import pytest
from rich.console import Console

from discrete_vae.training import progress


@pytest.fixture
def log_of(monkeypatch):
    """The log of a run whose first step takes ten seconds and whose others take a given time."""

    def run(num_steps, seconds, first_step=0):
        now = [0.0]
        monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
        text = io.StringIO()
        with progress.TrainingProgress(first_step, num_steps, Console(file=text, soft_wrap=True)) as shown:
            for step in range(first_step + 1, num_steps + 1):
                now[0] += 10.0 if step == first_step + 1 else seconds
                shown.advance(step)
        return text.getvalue()

    return run


def test_a_log_says_once_how_long_it_takes_without_the_first_step(log_of):
    assert log_of(8001, 0.09) == "about 11 min 58 s for the 7,977 steps to come\n"
    assert log_of(801, 1.0, first_step=700) == "about 1 min 37 s for the 97 steps to come\n"


def test_what_is_soon_over_needs_no_estimate(log_of):
    assert log_of(100, 0.01) == ""
    assert log_of(5, 1.0) == ""
