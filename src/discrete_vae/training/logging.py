"""Output of a run while it trains: lines of metrics, TensorBoard events, and traces of steps."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor
from torch.profiler import profile, record_function

from discrete_vae.checks import check_positive_int
from discrete_vae.runs.io import naming, write_bytes
from discrete_vae.runs.run_directory import MetricsLog
from discrete_vae.samplers.gibbs import TellsMetrics
from discrete_vae.system import optional_library, unicode_path
from discrete_vae.training.state import StepTimes, TrainingState

Record = Mapping[str, Any]


@runtime_checkable
class MetricsLogger(Protocol):
    """A second place for lines of metrics.jsonl, for example `TensorBoardLogger`."""

    def begin(self, records: Sequence[Record]) -> None:
        """Bring what is there to the lines that the run goes on from, none for a new run; called once, at the start."""
        ...

    def write(self, record: Record) -> None:
        """Take one more line: the ``step``, and numbers."""
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

    with nullcontext() if logger is None else closing(logger):
        if logger is not None:
            logger.begin(metrics.read())
        yield append


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


def seconds_in(records: Sequence[Record]) -> float:
    """Seconds of training that lines of the log tell of."""
    return max((record.get("seconds", 0.0) for record in records), default=0.0)


WARM_UP = 5  # steps before the first one of a trace: kernels compile, memory is taken


class StepTrace:
    """A Chrome trace of some steps of a run, after five that warm up, with every operation in them."""

    def __init__(self, path: Path, num_steps: int) -> None:
        self.path = path
        self.recorded: list[int] = []  # numbers of steps
        self.written = False  # whether `write` was called
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


# Metrics as TensorBoard events.


class TensorBoardLogger:
    """Lines of metrics.jsonl as TensorBoard events, a scalar per number; a logger for `discrete_vae.train`.

    A run that goes on has all of its lines written anew, with ``purge_step`` 0, so that TensorBoard shows what
    metrics.jsonl holds: nothing twice, nothing of steps that were taken again, nothing lost in a kill. Numbers are
    float32 in events. It takes `pip install 'discrete-vae[tensorboard]'`.

    Args:
        path: The folder of the events; ``~`` is the home directory. The command takes the run's ``tensorboard``.
    """

    def __init__(self, path: str | Path) -> None:
        repair = "Install it: pip install 'discrete-vae[tensorboard]'."
        self._make: Any = optional_library("torch.utils.tensorboard.writer", "logger", repair).SummaryWriter
        self._folder = unicode_path("path", path)
        self._writer: Any = None

    def begin(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write the lines that there are, in place of all earlier events."""
        earlier = any(self._folder.glob("events.out.*"))
        self._writer = self._make(str(self._folder), purge_step=0 if earlier else None)
        # as if the run had never paused, so that TensorBoard's relative times are those of training
        start = time.time() - seconds_in(records)
        for record in records:
            self._add(record, start + record.get("seconds", 0.0))
        self._writer.flush()

    def write(self, record: Mapping[str, Any]) -> None:
        """Write one line, at once to the file."""
        self._add(record, time.time())
        self._writer.flush()

    def close(self) -> None:
        """Close the file; without `begin` there is none."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _add(self, record: Mapping[str, Any], when: float) -> None:
        for name, value in record.items():
            if name != "step" and isinstance(value, int | float):
                self._writer.add_scalar(name, value, record["step"], walltime=when)
