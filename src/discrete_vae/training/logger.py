"""Another place, beside metrics.jsonl, where a run's metrics go as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from discrete_vae.runs.metrics import MetricsLog

Record = Mapping[str, Any]


class MetricsLogger(Protocol):
    """What takes the lines of metrics.jsonl, such as `discrete_vae.interop.tensorboard.TensorBoardLogger`."""

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
    """What appends a line to the log and hands it to a logger, if there is one.

    Args:
        metrics: The log, at the step that the run goes on from.
        logger: Where else lines go.
        writes: Whether this process writes at all: of several that train together the first one does.
    """
    if not writes:
        yield lambda record: None
        return
    if logger is None:
        yield metrics.append
        return

    def append(record: Record) -> None:
        metrics.append(record)
        logger.write(record)

    try:
        logger.begin(metrics.read())
        yield append
    finally:
        logger.close()
