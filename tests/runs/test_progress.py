"""What a log says of the time that a run takes."""

import builtins
import io
import re
import sys
import types
from unittest.mock import MagicMock

import numpy as np
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


def seconds_of(words):
    """The time that `in_words` wrote."""
    sizes = {"s": 1, "min": 60, "h": 3600}
    return sum(float(number) * sizes[unit] for number, unit in re.findall(r"([\d.]+) (s|min|h)\b", words))


def test_a_log_without_other_lines_says_once_how_long_it_takes(log_of):
    (said,) = log_of(8001, 0.09).splitlines()
    assert seconds_of(said) == pytest.approx(8001 * 0.09, rel=0.02)
    (said,) = log_of(801, 1.0, first_step=700).splitlines()
    assert seconds_of(said) == pytest.approx(100, rel=0.1)


def test_what_is_noted_may_hold_brackets():
    text = io.StringIO()
    progress.TrainingProgress(0, 1, Console(file=text, soft_wrap=True)).note("runs/[bold]a [/b]")
    assert text.getvalue() == "runs/[bold]a [/b]\n"


@pytest.mark.parametrize(("num_steps", "slow"), [(120, 3), (3000, 20)])
def test_the_time_left_is_right_from_a_tenth_on_though_the_first_steps_compile(monkeypatch, num_steps, slow):
    """The first steps take 100 times as long, the others between half and one and a half of their mean."""
    random, now = np.random.default_rng(0), [0.0]
    seconds = 2.0 * (random.random(num_steps) + 0.5) * np.where(np.arange(num_steps) < slow, 100, 1)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    text = io.StringIO()
    shown = progress.TrainingProgress(0, num_steps, Console(file=text, soft_wrap=True))
    for step in range(1, num_steps + 1):
        now[0] += seconds[step - 1]
        shown.advance(step)
        shown.show(step, None, {})
        left = seconds[step:].sum()
        if step >= num_steps / 10 and left > 10:
            said = text.getvalue().splitlines()[-1]
            assert left * 2 / 3 <= seconds_of(said) <= left * 4 / 3, (said, left)


@pytest.mark.parametrize("num_steps", [2400, 12_345_678])
def test_a_bar_fits_80_columns_with_its_total(monkeypatch, num_steps):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    text = io.StringIO()
    console = Console(file=text, width=80, force_terminal=True, color_system=None)
    values = {"elbo": -12345.67, "kl_discrete": 123.45, "examples_per_second": 1234567.0}
    stage = num_steps - 1, "importance samples"
    with progress.TrainingProgress(0, num_steps, console, stage=stage) as shown:
        for step in (1, 2, 1000, num_steps - 2):
            now[0] += 4000.0
            shown.show(step, None, values)
            console.print("")
    parts = re.split(r"[\r\n]|\x1b\[[0-9;?]*[A-Za-z]", text.getvalue())
    lines = [line for line in parts if "training" in line]
    assert lines
    assert max(map(len, lines)) <= 80
    assert all(re.search(rf" \d+/{num_steps}\b", line) for line in lines)


def test_a_log_does_not_count_slower_steps_as_if_they_were_the_others(log_of):
    stage = 600, "importance samples"
    lines = log_of(801, 1.0, stage=stage, shows=(301, 600, 700)).splitlines()
    assert lines[-3].startswith("step 301/801  ")
    assert lines[-3].endswith(" until importance samples")
    assert seconds_of(lines[-3].partition("  ")[2]) == pytest.approx(299, abs=1)
    assert lines[-2].strip() == "step 600/801"
    assert lines[-1].endswith(" left")
    assert seconds_of(lines[-1].partition("  ")[2]) == pytest.approx(404, abs=1)


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


def test_a_quiet_console_shows_nothing_in_a_notebook(notebook):
    with progress.TrainingProgress(0, 5, Console(quiet=True)) as shown:
        shown.show(1, None, {"elbo": -90.0})
    assert notebook == []


def test_a_terminal_that_moves_no_bar_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    text = io.StringIO()
    with progress.TrainingProgress(0, 5, Console(file=text, force_terminal=True)) as shown:
        shown.show(1, None, {"elbo": -90.0})
    assert text.getvalue().strip() == "step 1/5  elbo -90.00"


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
