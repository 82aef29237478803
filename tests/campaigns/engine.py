"""Runs the cases of a campaign, each with a time limit and in forked processes, and counts what became of them.

The packages are imported once and a process is forked for each command, so that a case costs little more than its own
work. Threads and forks do not go together: whoever starts a campaign allows a single thread.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import select
import shlex
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from tests.campaigns.forked import limit_memory


class Outcome(StrEnum):
    """What became of a case; the last three are faults."""

    REFUSED = "refused"
    EQUAL = "equal"
    OTHER = "other"
    CRASHED = "crashed"
    WRONG = "wrong"
    LOST = "lost"


_Case = TypeVar("_Case", bound=Callable[..., "Finding"])
FAULTS = (Outcome.CRASHED, Outcome.WRONG, Outcome.LOST)


@dataclass(frozen=True)
class Finding:
    """What became of one case.

    Attributes:
        outcome: Its class.
        detail: What was asked for and what came, in a few lines; needed for faults only.
        struck: Whether the kill or the fault came before the work had ended.
    """

    outcome: Outcome
    detail: str = ""
    struck: bool = True


@dataclass(frozen=True)
class Campaign:
    """One kind of trouble, met again and again; `campaign` declares it."""

    name: str
    what: str
    bounded: int
    long: int
    prepare: Callable[[Path], Any]
    case: Callable[[Any, random.Random, int, Path], Finding]
    limit: float

    @property
    def sample(self) -> list[int]:
        """The bounded number of cases, spread over the long one; an odd stride meets all kinds of cases in turn."""
        return [number * (self.long // self.bounded | 1) for number in range(self.bounded)]


CAMPAIGNS: dict[str, Campaign] = {}
"""All that are declared in modules that are imported, by name."""


def campaign(
    name: str,
    what: str,
    *,
    bounded: int,
    long: int,
    prepare: Callable[[Path], Any] = lambda folder: None,
    limit: float = 120.0,
) -> Callable[[_Case], _Case]:
    """Declare a campaign by the function that carries out one case.

    The function takes what was prepared, the randomness of the case, its number and an empty folder.

    Args:
        name: Its name on the command line and in the table.
        what: What a case is, for the table.
        bounded: Number of cases in the tests.
        long: Number of cases under ``make campaign``.
        prepare: Makes in an empty folder what all cases start from.
        limit: Seconds after which a case counts as hanging.
    """

    def declare(case: _Case) -> _Case:
        CAMPAIGNS[name] = Campaign(name, what, bounded, long, prepare, case, limit)
        return case

    return declare


@dataclass
class Report:
    """The counts of one campaign, and its faults with the number of their case."""

    name: str
    cases: int = 0
    struck: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, str, str]] = field(default_factory=list)

    def to_json(self) -> str:
        return json.dumps(vars(self) | {"counts": dict(self.counts)})


def cases(campaign: Campaign, seed: int, numbers: Sequence[int]) -> Iterator[tuple[int, Finding]]:
    """Carry out cases of a campaign, in processes that are replaced when a case brings one down."""
    with tempfile.TemporaryDirectory(prefix=f"campaign-{campaign.name}-") as folder:
        stage = campaign.prepare(Path(folder))
        left = list(numbers)
        while left:
            reader, writer = os.pipe()
            worker = os.fork()
            if worker == 0:
                os.setpgid(0, 0)
                os.close(reader)
                _work(campaign, stage, seed, left, Path(folder, "case"), writer)
            os.close(writer)
            try:
                with os.fdopen(reader, "rb", buffering=0) as lines:  # a buffer would hide lines from select
                    while left and select.select([lines], [], [], campaign.limit)[0]:
                        if not (line := lines.readline()):
                            break
                        record = json.loads(line)
                        yield left.pop(0), Finding(**record | {"outcome": Outcome(record["outcome"])})
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(worker, signal.SIGKILL)
                status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
            if left:
                what = f"the process ended with {status}, -9 for the limit of {campaign.limit:g} s"
                yield left.pop(0), Finding(Outcome.CRASHED, what)


def _work(
    campaign: Campaign, stage: Any, seed: int, numbers: Sequence[int], folder: Path, writer: int
) -> NoReturn:
    limit_memory()
    with os.fdopen(writer, "w", buffering=1) as lines:
        for number in numbers:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            chosen = random.Random(f"{campaign.name} {seed} {number}")
            try:
                found = campaign.case(stage, chosen, number, folder)
            except Exception:
                found = Finding(Outcome.CRASHED, traceback.format_exc())
            lines.write(json.dumps(asdict(found)) + "\n")
    os._exit(0)


def run(campaign: Campaign, *, seed: int, numbers: Sequence[int], jobs: int = 1) -> Report:
    """Carry out a campaign in several processes, each with its share of the cases, and count."""
    begin, report = time.monotonic(), Report(campaign.name)
    if jobs == 1:
        for number, found in cases(campaign, seed, numbers):
            report.cases += 1
            report.struck += found.struck
            report.counts[found.outcome] += 1
            if found.outcome in FAULTS:
                report.faults.append((number, found.outcome, found.detail))
    else:
        for share in _shares(campaign, seed, numbers, jobs):
            report.cases += share["cases"]
            report.struck += share["struck"]
            report.counts.update(share["counts"])
            report.faults += share["faults"]
        report.faults.sort()
    report.seconds = time.monotonic() - begin
    return report


def _shares(campaign: Campaign, seed: int, numbers: Sequence[int], jobs: int) -> Iterator[dict[str, Any]]:
    readers = []
    for job in range(jobs):
        reader, writer = os.pipe()
        if os.fork() == 0:
            with os.fdopen(writer, "w") as lines:
                lines.write(run(campaign, seed=seed, numbers=numbers[job::jobs]).to_json())
            os._exit(0)
        os.close(writer)
        readers.append(reader)
    for reader in readers:
        with os.fdopen(reader) as lines:
            yield json.loads(lines.read())
        os.wait()


def warm_up() -> None:
    """Do once what every forked process would do again."""
    from discrete_vae import RBM, BlockGibbs

    modules = shlex.split(
        "cli.train cli.runs training.loop evaluation.evaluate evaluation.diagnostics figures.curves"
    )
    drawing = ("torch._dynamo", "matplotlib.pyplot", "matplotlib.backends.backend_agg")
    for name in (*(f"discrete_vae.{module}" for module in modules), *drawing):
        importlib.import_module(name)
    BlockGibbs(RBM(3, 2), 20, seed=0).step(2)
    gc.freeze()  # what is there stays for good: a forked process need not look through it
