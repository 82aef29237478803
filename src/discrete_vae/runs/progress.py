"""Progress of long work: a bar on a terminal and in a notebook, elsewhere plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Self

from rich.console import Console
from rich.errors import LiveError
from rich.progress import BarColumn, Progress, TextColumn

from discrete_vae.system import in_words

_TIMED = 3, 2.0  # steps and seconds that a first estimate of the time needs to have seen
_WORTH_SAYING = 5.0  # seconds
_WIDEST_BAR, _NARROWEST_BAR = 40, 8  # columns


class _Pace:
    """The time that a step takes, without the first steps, which compile kernels.

    It is the mean over at least the latter half and at most the last three quarters of the steps since `restart`: from
    a tenth of the work on, slow steps among the first fortieth do not count.
    """

    def __init__(self, step: int) -> None:
        self.restart(step)

    def restart(self, step: int) -> None:
        """Forget the steps before this one."""
        self._first = step
        self._before = self._mark = step, time.monotonic()

    def see(self, step: int) -> None:
        """Take note that a number of steps is done; after a smaller number it starts anew."""
        if step < self._mark[0]:
            self.restart(step)
        elif step - self._first >= max(1, 2 * (self._mark[0] - self._first)):
            self._before, self._mark = self._mark, (step, time.monotonic())

    def seconds_for(self, count: int, step: int, steps: int = 1, seconds: float = 0.0) -> float | None:
        """Seconds that so many steps take, seen from this one; None before so much is seen, and two reports."""
        begin, start = self._before
        passed = time.monotonic() - start
        if begin == self._first or step - begin < steps or passed < seconds:
            return None
        return passed / (step - begin) * count


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Say no more, since nobody reads it; rich would end the process."""
        self.quiet = True


def standard_error() -> Console:
    """A console on standard error; in a notebook one of plain lines where rich could not move a bar."""
    moves_bars = find_spec("ipywidgets") is not None  # else rich shows nothing in a notebook
    # a closed standard error is None: by `stderr` nothing is said on standard output in its place
    return _Console(file=sys.stderr, stderr=True, soft_wrap=True, force_jupyter=None if moves_bars else False)


class TrainingProgress:
    """A bar with the time that is left on a terminal and in a notebook that can move one; elsewhere plain lines.

    Where no line shows metrics, one line says how long it takes. From a stage on, a step and what begins there, steps
    take another time: estimates of the time that is left end there, and those after it are of its own steps.
    """

    def __init__(
        self,
        first_step: int,  # done before this process
        num_steps: int,  # of the whole run
        console: Console | None = None,  # None means standard error
        *,
        what: str = "training",
        transient: bool = False,  # whether the bar goes when all is done
        stage: tuple[int, str] | None = None,
    ) -> None:
        self._console = standard_error() if console is None else console
        self._num_steps, self._what = num_steps, what
        self._stage = stage if stage is not None and first_step < stage[0] else None
        self._pace = _Pace(first_step)
        self._estimated, self._status = False, ""
        self._bar: Progress | None = None
        moves_bars = self._console.is_interactive or self._console.is_jupyter
        if moves_bars and not self._console.quiet:
            self._cells = BarColumn()
            columns = TextColumn("{task.description}"), self._cells, TextColumn("{task.fields[words]}")
            self._bar = Progress(*columns, console=self._console, transient=transient)
            self._task = self._bar.add_task(what, total=num_steps, words="")
            self._move(first_step)

    def __enter__(self) -> Self:
        if self._bar is not None:
            with suppress(LiveError):  # a terminal moves one bar at a time: that within another is not shown
                self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, step: int, status: str | None = None) -> None:
        """Show that a number of steps is done; a bar has room for a few words beside it."""
        self._pace.see(step)
        if self._stage is not None and step == self._stage[0]:
            self._pace.restart(step)
            self._stage = None
        if self._bar is not None:
            self._status = self._status if status is None else status
            self._move(step)
        elif not self._estimated and self._pace.seconds_for(1, step, *_TIMED) is not None:
            self._estimated = True
            if left := self._left(step):
                self.note(f"{self._what}: {left}")

    def show(self, step: int, epoch: float | None, values: Mapping[str, float]) -> None:
        """Show metrics: beside the bar, or as a line of their own, which says the epoch where there is one."""
        pace = "examples_per_second"
        words = (f"{v:,.0f} examples/s" if name == pace else f"{name} {v:.2f}" for name, v in values.items())
        text = "  ".join(words)
        if self._bar is not None:
            self.advance(step, text)
            return
        self._estimated = True  # these lines say it
        passed = "" if epoch is None else f"epoch {epoch:.1f}  "
        left = self._left(step)
        self.note(f"step {step}/{self._num_steps}  {passed}{text}{left and '  '}{left}")

    def _move(self, step: int) -> None:
        """Move the bar; of the words those at the end give way where there is no room, and never the total."""
        assert self._bar is not None
        room = self._console.width - len(self._what) - 2
        words = list(filter(None, (f"{step}/{self._num_steps}", self._left(step), *self._status.split("  "))))
        while len(words) > 1 and len("  ".join(words)) > room - _NARROWEST_BAR:
            words.pop()
        text = "  ".join(words)
        self._cells.bar_width = max(_NARROWEST_BAR, min(_WIDEST_BAR, room - len(text)))
        self._bar.update(self._task, completed=step, words=text)

    def _left(self, step: int) -> str:
        """The time that is left, in words; empty where it is not known yet, or short."""
        end, name = self._stage or (self._num_steps, None)
        left = self._pace.seconds_for(end - step, step)
        if left is None or left < _WORTH_SAYING:
            return ""
        return f"{in_words(left)} {'left' if name is None else f'until {name}'}"

    def note(self, text: str) -> None:
        """Print one line that stays, where there is a place for it."""
        with suppress(OSError):
            self._console.print(text, highlight=False, markup=False)
