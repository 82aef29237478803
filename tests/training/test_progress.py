"""What a log says of the time that a run takes."""

import builtins
import io
import sys
import types
from unittest.mock import MagicMock

import pytest
from rich.console import Console

from discrete_vae.runs import progress


@pytest.fixture
def log_of(monkeypatch):
    """The log of a run whose first step takes ten seconds and whose others take a given time."""

    def run(num_steps, seconds, first_step=0, stage=None, shows=()):
        now = [0.0]
        monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
        text = io.StringIO()
        console = Console(file=text, soft_wrap=True)
        with progress.TrainingProgress(first_step, num_steps, console, stage=stage) as shown:
            for step in range(first_step + 1, num_steps + 1):
                slow = 1.0 if stage is None or step <= stage[0] else 4.0
                now[0] += 10.0 if step == first_step + 1 else seconds * slow
                shown.advance(step)
                if step in shows:
                    shown.show(step, None, {})
        return text.getvalue()

    return run


def test_a_log_says_once_how_long_it_takes_without_the_first_step(log_of):
    assert log_of(8001, 0.09) == "about 11 min 58 s for the 7,977 steps to come\n"
    assert log_of(801, 1.0, first_step=700) == "about 1 min 37 s for the 97 steps to come\n"


def test_a_log_does_not_count_slower_steps_as_if_they_were_the_others(log_of):
    stage = 600, "importance samples"
    assert log_of(801, 1.0, stage=stage, shows=(301, 600, 700)).splitlines() == [
        "about 9 min 56 s for the 596 steps until importance samples, with which they take longer",
        "step 301/801    5 min 8 s until importance samples",
        "step 600/801  ",
        "step 700/801    6 min 44 s left",
    ]
    assert log_of(801, 1.0, first_step=600, stage=stage) == "about 13 min 8 s for the 197 steps to come\n"


class ZMQInteractiveShell:
    """What IPython's kernel calls itself, by which rich knows a notebook."""


@pytest.fixture
def notebook(monkeypatch):
    """A kernel, whose standard error is no terminal, and what it displays."""
    shown = []
    display = types.ModuleType("IPython.display")
    display.display = shown.append
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return shown


def train_a_little():
    with progress.TrainingProgress(0, 5) as shown:
        for step in range(1, 6):
            shown.advance(step)
            shown.show(step, None, {"elbo": -90.0})


def test_a_notebook_without_widgets_gets_plain_lines(notebook, monkeypatch, capsys):
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    train_a_little()  # rich would show nothing and warn
    lines = capsys.readouterr().err.splitlines()
    assert notebook == []
    assert lines[0].startswith("step 1/5  elbo -90.00")
    assert len(lines) == 5


def test_a_notebook_with_widgets_gets_a_bar(notebook, monkeypatch, capsys):
    widgets = types.ModuleType("ipywidgets")
    widgets.Output = MagicMock()
    monkeypatch.setitem(sys.modules, "ipywidgets", widgets)
    monkeypatch.setattr(progress, "find_spec", lambda name: object())
    train_a_little()
    assert capsys.readouterr().err == ""
    widgets.Output.assert_called_once()
    assert widgets.Output.return_value in notebook


def test_what_is_soon_over_needs_no_estimate(log_of):
    assert log_of(100, 0.01) == ""
    assert log_of(5, 1.0) == ""
