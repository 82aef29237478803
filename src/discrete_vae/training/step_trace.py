"""A trace of single training steps for the usual viewers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch.profiler import profile, record_function

from discrete_vae.checks import check_positive_int
from discrete_vae.runs.atomic import naming, write_bytes
from discrete_vae.training.step_times import StepTimes

WARM_UP = 5  # steps before the first one of a trace: kernels compile, memory is taken


class StepTrace:
    """Records some steps of a run with every operation in them, as a Chrome trace.

    Args:
        path: The file to write.
        num_steps: Steps to record, after five that warm up.

    Attributes:
        path: The file.
        recorded: Numbers of the steps recorded.
        written: Whether `write` was called.

    Raises:
        InvalidInputError: If num_steps is not a positive integer.
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
        """Take one step inside; records it if it is one of those wanted.

        Args:
            step: Its number.
            times: Whose parts the trace names.
        """
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
        """Whether all steps wanted are recorded and not written yet."""
        return not self.written and len(self.recorded) >= self._num_steps

    def write(self) -> str:
        """Write what is recorded, once; returns one line that says where it is and how to open it.

        Raises:
            OSError: If it cannot be written; names the file.
        """
        self.written = True
        if self._profile is None:
            return f"no trace: it begins after {WARM_UP} steps, and the run ended before"
        self._profile.stop()
        with tempfile.TemporaryDirectory() as folder:
            whole = Path(folder, self.path.name)
            self._profile.export_chrome_trace(str(whole))
            with naming(self.path):
                write_bytes(self.path, whole.read_bytes())
        steps = (
            f"step {self.recorded[0]}"
            if len(self.recorded) == 1
            else f"steps {self.recorded[0]} to {self.recorded[-1]}"
        )
        return f"trace of {steps}: {self.path}; open it at https://ui.perfetto.dev or in chrome://tracing"
