"""Progress of long work: a bar on a terminal and in a notebook, elsewhere plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.errors import LiveError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from discrete_vae.system import in_words

_TIMED_SECONDS, _TIMED_STEPS = 2.0, 3  # what an estimate of the time needs to have seen
_WORTH_SAYING = 5.0  # seconds


def progress_console() -> Console:
    """Standard error: a terminal, a notebook that can move a bar (with ipywidgets), or a stream of lines."""
    moves_bars = find_spec("ipywidgets") is not None  # without it rich shows nothing in a notebook, and warns
    return Console(file=sys.stderr, soft_wrap=True, force_jupyter=None if moves_bars else False)


class TrainingProgress:
    """A bar with the time that is left on a terminal and in a notebook that can move one; elsewhere plain lines.

    The first of these lines says how long it takes. From a stage on, a step and what begins there, steps take another
    time: estimates of the time that is left end there, and those after it are of its own steps.
    """

    def __init__(
        self,
        first_step: int,  # done before this process
        num_steps: int,  # of the whole run
        console: Console | None = None,  # None means standard error
        *,
        what: str = "training",
        unit: str = "steps",
        transient: bool = False,  # whether the bar goes when all is done
        stage: tuple[int, str] | None = None,
    ) -> None:
        self._console = console or progress_console()
        self._num_steps, self._unit = num_steps, unit
        self._stage = stage if stage is not None and first_step < stage[0] else None
        self._begin = first_step, time.monotonic()  # of what estimates go by
        self._first_advance: tuple[int, float] | None = None
        self._estimated, self._status = False, ""
        self._bar: Progress | None = None
        if self._console.is_terminal or self._console.is_jupyter:
            columns = (
                TextColumn(what),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(compact=True),
                TextColumn("{task.fields[status]}"),
            )
            self._bar = Progress(*columns, console=self._console, transient=transient)
            self._task = self._bar.add_task(what, total=num_steps, completed=first_step, status="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            with suppress(LiveError):  # a terminal moves one bar at a time: that within another is not shown
                self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, step: int, status: str | None = None) -> None:
        """Show that a number of steps is done; a bar has room for a few words beside it."""
        if self._bar is not None:
            self._status = self._status if status is None else status
            self._bar.update(self._task, completed=step, status=self._status)
            return
        if self._stage is not None and step == self._stage[0]:
            self._begin, self._stage = (step, time.monotonic()), None
        if not self._estimated:
            self._estimate(step)

    def _estimate(self, step: int) -> None:
        """Say once how long the rest will take, by the steps after the first, which compiles kernels."""
        now = time.monotonic()
        if self._first_advance is None:
            self._first_advance = step, now
            return
        first, start = self._first_advance
        if now - start < _TIMED_SECONDS or step - first < _TIMED_STEPS:
            return
        self._estimated = True
        end, name = self._stage or (self._num_steps, None)
        left = (now - start) / (step - first) * (end - step)
        if left > _WORTH_SAYING:
            what = "to come" if name is None else f"until {name}, with which they take longer"
            self.note(f"about {in_words(left)} for the {end - step:,} {self._unit} {what}")

    def show(self, step: int, epoch: float | None, values: Mapping[str, float]) -> None:
        """Show metrics: beside the bar, or as a line of their own, which says the epoch where there is one."""
        pace = "examples_per_second"
        words = (f"{v:,.0f} examples/s" if name == pace else f"{name} {v:.2f}" for name, v in values.items())
        text = "  ".join(words)
        if self._bar is not None:
            self.advance(step, text)
            return
        passed = "" if epoch is None else f"epoch {epoch:.1f}  "
        self.note(f"step {step}/{self._num_steps}  {passed}{text}{self._left(step)}")

    def _left(self, step: int) -> str:
        """The time that is left, in words; nothing is known of it where a stage begins."""
        first, start = self._begin
        if step == first:
            return ""
        end, name = self._stage or (self._num_steps, None)
        left = (time.monotonic() - start) / (step - first) * (end - step)
        return f"  {in_words(left)} {'left' if name is None else f'until {name}'}"

    def note(self, text: str) -> None:
        """Print one line that stays."""
        self._console.print(text, highlight=False)
