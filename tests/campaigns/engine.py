"""Runs the cases of a campaign, each with a time limit and in forked processes, and counts what became of them.

The packages are imported once and a process is forked for each command, so that a case costs little more than its own
work. Threads and forks do not go together: whoever starts a campaign allows a single thread.
"""

import contextlib
import functools
import gc
import importlib
import itertools
import json
import multiprocessing
import os
import random
import select
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from tests.campaigns.forked import limit_memory, refusal_fault


class Outcome(StrEnum):
    """What became of a case; the last three are faults."""

    REFUSED = "refused"
    EQUAL = "equal"
    OTHER = "other"
    CRASHED = "crashed"
    WRONG = "wrong"
    LOST = "lost"


FAULTS = (Outcome.CRASHED, Outcome.WRONG, Outcome.LOST)


class Finding(NamedTuple):
    """What became of one case.

    Attributes:
        outcome: Its class.
        detail: What was asked for and what came, in a few lines; needed for faults only.
        struck: Whether the kill or the fault came before the work had ended.
    """

    outcome: Outcome
    detail: str = ""
    struck: bool = True


def refusal(ended, **options):
    """What became of a command that failed: it was refused, or its end is none that `refusal_fault` lets pass."""
    wrong = refusal_fault(ended, **options)
    return Finding(Outcome.REFUSED) if wrong is None else Finding(Outcome.CRASHED, f"{wrong}\n{ended}")


@dataclass
class Campaign:
    """One kind of trouble, met again and again; it decorates the function that carries out one case.

    The function takes what was prepared, the randomness of the case, its number and an empty folder.

    Attributes:
        name: Its name on the command line and in the table.
        what: What a case is, for the table.
        bounded: Number of cases in the tests.
        long: Number of cases under ``make campaign``.
        prepare: Makes in an empty folder what all cases start from.
        limit: Seconds after which a case counts as hanging.
    """

    name: str
    what: str
    bounded: int
    long: int
    prepare: Callable[[Path], Any] = lambda folder: None
    limit: float = 120.0

    def __call__(self, case):
        self.case = case
        CAMPAIGNS[self.name] = self
        return case

    @property
    def sample(self):
        """The bounded number of cases, spread over the long one; an odd stride meets all kinds of cases in turn."""
        return [number * (self.long // self.bounded | 1) for number in range(self.bounded)]


CAMPAIGNS: dict[str, Campaign] = {}
"""All that are declared in modules that are imported, by name."""


class Report(NamedTuple):
    """The counts of one campaign by outcome, and its faults: number of the case, outcome and detail."""

    name: str
    cases: int
    struck: int
    seconds: float
    counts: dict[str, int]
    faults: list[tuple[int, str, str]]


def _cases(name, seed, numbers):
    """Numbers and findings of cases, from processes that are replaced when a case brings one down."""
    campaign, left, found = CAMPAIGNS[name], list(numbers), []
    with tempfile.TemporaryDirectory(prefix=f"campaign-{name}-") as folder:
        stage = campaign.prepare(Path(folder))
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
                        outcome, *rest = json.loads(line)
                        found.append((left.pop(0), Finding(Outcome(outcome), *rest)))
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(worker, signal.SIGKILL)
                status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
            if left:
                what = f"the process ended with {status}, -9 for the limit of {campaign.limit:g} s"
                found.append((left.pop(0), Finding(Outcome.CRASHED, what)))
    return found


def _work(campaign, stage, seed, numbers, folder, writer):
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
            lines.write(json.dumps(found) + "\n")
    os._exit(0)


def run(campaign, *, seed, numbers, jobs=1):
    """Carry out a campaign in several processes, each with its share of the cases, and count."""
    begin, share = time.monotonic(), functools.partial(_cases, campaign.name, seed)
    if jobs == 1:
        found = share(numbers)
    else:
        with multiprocessing.get_context("fork").Pool(jobs) as pool:
            shares = pool.map(share, [numbers[job::jobs] for job in range(jobs)], 1)
        found = sorted(itertools.chain(*shares))
    counts = Counter(each.outcome for _, each in found)
    faults = [(number, each.outcome, each.detail) for number, each in found if each.outcome in FAULTS]
    struck = sum(each.struck for _, each in found)
    return Report(campaign.name, len(found), struck, time.monotonic() - begin, counts, faults)


def warm_up():
    """Do once what every forked process would do again."""
    from discrete_vae import RBM, BlockGibbs

    modules = "cli.train cli.runs training.loop evaluation.evaluate evaluation.diagnostics figures.curves"
    drawing = ("torch._dynamo", "matplotlib.pyplot", "matplotlib.backends.backend_agg")
    for name in (*(f"discrete_vae.{module}" for module in modules.split()), *drawing):
        importlib.import_module(name)
    BlockGibbs(RBM(3, 2), 20, seed=0).step(2)
    gc.freeze()  # what is there stays for good: a forked process need not look through it
