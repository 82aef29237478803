"""Runs the cases of a campaign, each with a time limit and in forked processes, and counts what became of them.

The packages are imported once and a process is forked for each command, so that a case costs little more than its own
work. Threads and forks do not go together: whoever starts a campaign allows a single thread.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
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
from typing import Any, NoReturn

from tests.campaigns.forked import limit_memory


class Outcome(StrEnum):
    """What became of a case; the last three are faults."""

    REFUSED = "refused"
    EQUAL = "equal"
    OTHER = "other"
    CRASHED = "crashed"
    WRONG = "wrong"
    LOST = "lost"


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
    """One kind of trouble, met again and again.

    Attributes:
        name: Its name on the command line and in the table.
        what: What a case is, for the table.
        bounded: Number of cases in the tests.
        long: Number of cases under ``make campaign``.
        prepare: Makes in an empty folder what all cases start from.
        case: Carries out one case: what was prepared, its randomness, its number, an empty folder.
        limit: Seconds after which a case counts as hanging.
    """

    name: str
    what: str
    bounded: int
    long: int
    prepare: Callable[[Path], Any]
    case: Callable[[Any, random.Random, int, Path], Finding]
    limit: float = 120.0


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
                        yield left.pop(0), _finding(json.loads(line))
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(worker, signal.SIGKILL)
                status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
            if left:
                what = (
                    f"the process of the case ended with {status}, -9 for its limit of {campaign.limit:g} s"
                )
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


def _finding(record: dict[str, Any]) -> Finding:
    return Finding(Outcome(record["outcome"]), record["detail"], record["struck"])


def run(campaign: Campaign, *, seed: int, numbers: Sequence[int]) -> Report:
    """Carry out a campaign and count."""
    begin, report = time.monotonic(), Report(campaign.name)
    for number, found in cases(campaign, seed, numbers):
        report.cases += 1
        report.struck += found.struck
        report.counts[found.outcome] += 1
        if found.outcome in FAULTS:
            report.faults.append((number, found.outcome, found.detail))
    report.seconds = time.monotonic() - begin
    return report


def run_shared(campaign: Campaign, *, seed: int, numbers: Sequence[int], jobs: int) -> Report:
    """`run` in several processes, each with its share of the cases."""
    begin, readers = time.monotonic(), []
    for job in range(jobs):
        reader, writer = os.pipe()
        if os.fork() == 0:
            with os.fdopen(writer, "w") as lines:
                lines.write(run(campaign, seed=seed, numbers=numbers[job::jobs]).to_json())
            os._exit(0)
        os.close(writer)
        readers.append(reader)
    report = Report(campaign.name)
    for reader in readers:
        with os.fdopen(reader) as lines:
            share = json.loads(lines.read())
        os.wait()
        report.cases += share["cases"]
        report.struck += share["struck"]
        report.counts.update(share["counts"])
        report.faults += share["faults"]
    report.faults.sort()
    report.seconds = time.monotonic() - begin
    return report


def warm_up() -> None:
    """Do once what every forked process would do again."""
    import importlib

    from discrete_vae import RBM, BlockGibbs

    for name in (
        *("cli.train", "cli.runs", "training.loop"),
        *("evaluation.evaluate", "evaluation.diagnostics", "figures.curves"),
    ):
        importlib.import_module(f"discrete_vae.{name}")
    for name in ("torch._dynamo", "matplotlib.pyplot", "matplotlib.backends.backend_agg"):
        importlib.import_module(name)
    BlockGibbs(RBM(3, 2), 20, seed=0).step(2)
