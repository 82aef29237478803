"""Output of a run while it trains: lines of metrics, progress, traces of steps."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor
from torch.profiler import profile, record_function

from discrete_vae.checks import check_positive_int
from discrete_vae.config import TrainingConfig
from discrete_vae.runs.io import naming, write_bytes
from discrete_vae.runs.run_directory import MetricsLog
from discrete_vae.samplers.gibbs import TellsMetrics
from discrete_vae.system import in_words
from discrete_vae.training.state import StepTimes, TrainingState

Record = Mapping[str, Any]


class MetricsLogger(Protocol):
    """A second place for lines of metrics.jsonl, for example `discrete_vae.interop.tensorboard.TensorBoardLogger`."""

    def begin(self, records: Sequence[Record]) -> None:
        """Bring what is there to the lines that the run goes on from; called once, before the first step.

        Args:
            records: The lines; none for a new run. Lines of steps that will be taken again are not among them.
        """
        ...

    def write(self, record: Record) -> None:
        """Take one more line.

        Args:
            record: A mapping with the ``step``, and numbers.
        """
        ...

    def close(self) -> None:
        """Let go of files; called once, however training ends."""
        ...


@contextmanager
def written(
    metrics: MetricsLog, logger: MetricsLogger | None, *, writes: bool
) -> Iterator[Callable[[Record], None]]:
    """A function that appends a line to the log, which is at the step that the run goes on from, and to a logger.

    Only one of several processes that train together writes.
    """
    if not writes:
        yield lambda record: None
        return

    def append(record: Record) -> None:
        metrics.append(record)
        if logger is not None:
            logger.write(record)

    try:
        if logger is not None:
            logger.begin(metrics.read())
        yield append
    finally:
        if logger is not None:
            logger.close()


def is_due(settings: TrainingConfig, step: int, num_steps: int) -> bool:
    """True after steps at which a line of training metrics is due."""
    return step % settings.log_every == 0 or validates(settings, step, num_steps)


def validates(settings: TrainingConfig, step: int, num_steps: int) -> bool:
    """True after steps at which a validation, with a checkpoint, is due."""
    return step == num_steps or step % settings.validate_every == 0


def state_metrics(state: TrainingState) -> dict[str, float]:
    """Metrics of the state: log Z, the step size and, if there are any, beta and the sampler's own."""
    metrics = {
        "log_partition": state.log_partition,
        "log_partition_std_error": state.log_partition_std_error,
        "learning_rate": state.optimizer.param_groups[0]["lr"],
    }
    beta = getattr(state.model.smoothing, "beta", None)
    if isinstance(beta, Tensor):
        metrics["beta"] = float(beta.detach())
    if isinstance(state.chains, TellsMetrics):
        metrics |= state.chains.metrics()
    return metrics


class Clock:
    """Seconds of training of this process and, as the log has them, of those before it."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._before = max((record.get("seconds", 0.0) for record in records), default=0.0)
        self._start = time.monotonic()

    def here(self) -> float:
        """Of this process."""
        return time.monotonic() - self._start

    def total(self) -> float:
        """Of all processes that the run has had."""
        return self._before + self.here()


_TIMED_SECONDS, _TIMED_STEPS = 2.0, 3  # what an estimate of the time needs to have seen
_WORTH_SAYING = 5.0  # seconds
WARM_UP = 5  # steps before the first one of a trace: kernels compile, memory is taken


def progress_console() -> Console:
    """Standard error: a terminal, a notebook that can move a bar (with ipywidgets), or a stream of lines."""
    moves_bars = find_spec("ipywidgets") is not None  # without it rich shows nothing in a notebook, and warns
    return Console(file=sys.stderr, soft_wrap=True, force_jupyter=None if moves_bars else False)


class TrainingProgress:
    """A bar with the time that is left on a terminal and in a notebook that can move one; elsewhere plain lines.

    The first of these lines says how long it takes.

    Args:
        first_step: Steps done before this process.
        num_steps: Steps of the whole run.
        console: None means standard error.
        what: The work, for the bar.
        unit: The name of steps, for the line about the time.
        transient: Whether the bar goes when all is done.
        stage: A step from which on steps take another time, and what begins there. Lines before it say the time until
            it, those after it go by its own steps.
    """

    def __init__(
        self,
        first_step: int,
        num_steps: int,
        console: Console | None = None,
        *,
        what: str = "training",
        unit: str = "steps",
        transient: bool = False,
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
        if self._first_advance is None:
            self._first_advance = step, time.monotonic()
            return
        first, start = self._first_advance
        if time.monotonic() - start < _TIMED_SECONDS or step - first < _TIMED_STEPS:
            return
        self._estimated = True
        left, end, name = self._left(step, self._first_advance)
        if left > _WORTH_SAYING:
            what = "to come" if name is None else f"until {name}, with which they take longer"
            self.note(f"about {in_words(left)} for the {end - step:,} {self._unit} {what}")

    def _left(self, step: int, begin: tuple[int, float]) -> tuple[float, int, str | None]:
        """Seconds to the end of the stage by the steps since its begin, that end, and what begins there."""
        end, name = self._stage or (self._num_steps, None)
        return (time.monotonic() - begin[1]) / (step - begin[0]) * (end - step), end, name

    def show(self, step: int, epoch: float | None, values: Mapping[str, float]) -> None:
        """Show metrics: beside the bar, or as a line of their own, which says the epoch where there is one."""
        text = "  ".join(_shown(name, value) for name, value in values.items())
        if self._bar is not None:
            self._status = text
            self._bar.update(self._task, completed=step, status=text)
            return
        passed, rest = "" if epoch is None else f"epoch {epoch:.1f}  ", ""
        if step > self._begin[0]:  # nothing is known of the time where a stage begins
            left, _, name = self._left(step, self._begin)
            rest = f"  {in_words(left)} {'left' if name is None else f'until {name}'}"
        self.note(f"step {step}/{self._num_steps}  {passed}{text}{rest}")

    def note(self, text: str) -> None:
        """Print one line that stays."""
        self._console.print(text, highlight=False)


def _shown(name: str, value: float) -> str:
    return f"{value:,.0f} examples/s" if name == "examples_per_second" else f"{name} {value:.2f}"


class StepTrace:
    """A Chrome trace of some steps of a run with every operation in them.

    Args:
        path: The file to write.
        num_steps: Steps to record, after five that warm up.

    Attributes:
        path: The file.
        recorded: Numbers of the steps recorded.
        written: Whether `write` was called.
    """

    def __init__(self, path: Path, num_steps: int) -> None:
        self.path = path
        self.recorded: list[int] = []
        self.written = False
        self._num_steps = check_positive_int("num_steps", num_steps)
        self._to_warm_up = WARM_UP
        self._profile: profile | None = None

    @contextmanager
    def around(self, step: int, times: StepTimes) -> Iterator[None]:
        """Record the step that is taken inside if it is one of those wanted; the trace names the parts of its times."""
        if self._to_warm_up > 0 or len(self.recorded) >= self._num_steps:
            self._to_warm_up -= 1
            yield
            return
        if self._profile is None:
            self._profile = profile()
            self._profile.start()
        times.labels = True
        try:
            with record_function(f"step {step}"):
                yield
        except BaseException:
            self._profile.stop()
            raise
        finally:
            times.labels = False
        self.recorded.append(step)

    def is_complete(self) -> bool:
        """True once all steps wanted are recorded, until they are written."""
        return not self.written and len(self.recorded) >= self._num_steps

    def write(self) -> str:
        """Write what is recorded, once; returns one line that says where it is and how to open it."""
        self.written = True
        if self._profile is None:
            return f"no trace: it begins after {WARM_UP} steps, and the run ended before"
        self._profile.stop()
        with tempfile.TemporaryDirectory() as folder:
            whole = Path(folder, self.path.name)
            self._profile.export_chrome_trace(str(whole))
            with naming(self.path):
                write_bytes(self.path, whole.read_bytes())
        first, *others = self.recorded
        steps = f"steps {first} to {others[-1]}" if others else f"step {first}"
        return f"trace of {steps}: {self.path}; open it at https://ui.perfetto.dev or in chrome://tracing"
