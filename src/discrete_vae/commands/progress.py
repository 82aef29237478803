"""How far a verb has come with its examples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Report(Protocol):
    """What moves the bar."""

    def __call__(self, done: int, status: str | None = None, /) -> None:
        """Show how many examples are done, and a few words beside it."""
        ...


@contextmanager
def examples_progress(total: int, what: str) -> Iterator[Report]:
    """A bar on a terminal, elsewhere a line that says how long it takes; of the first process of torchrun alone.

    Args:
        total: Examples.
        what: What is done with them.
    """
    from discrete_vae.distributed import rank
    from discrete_vae.training.progress import TrainingProgress

    if rank() > 0:
        yield lambda done, status=None, /: None
        return
    with TrainingProgress(0, total, what=what, unit="examples", transient=True) as shown:
        yield shown.advance
