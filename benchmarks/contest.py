"""Contenders timed in turn: one run of each, round after round, so that a slow minute hits all of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LIMIT = 0.5  # seconds of one run; a slower contender runs fewer sweeps
FEWEST_ROUNDS = 3
PAUSE = 0.02  # seconds between runs: threads that wait for work go to sleep
_STOP, _GO_ON = signal.SIGSTOP, signal.SIGCONT  # some libraries' threads never sleep, so who waits is stopped


@dataclass
class Case:
    """One machine and amount of work."""

    num_left: int
    num_right: int
    num_chains: int = 2000
    num_sweeps: int = 100

    @property
    def label(self) -> str:
        return f"{self.num_left} + {self.num_right}"


@dataclass
class Result:
    """What a contender reached in a case."""

    name: str  # of the contender
    version: str = ""  # of its package
    failure: str | None = None  # why there are no figures
    num_sweeps: int = 0  # of one run
    updates: int = 0  # of spins in one run
    seconds: list[float] = field(default_factory=list)  # of each run
    memory: float = 0.0  # growth of the process's peak memory, MiB
    mean: list[float] = field(default_factory=list)  # of each unit after the last run

    @property
    def best(self) -> float:
        """Spin updates per second of the fastest run."""
        return self.updates / min(self.seconds)

    @property
    def median(self) -> float:
        """Spin updates per second of the median run."""
        return self.updates / statistics.median(self.seconds)


class ContenderError(Exception):
    """A contender ended; the message is the last line that it wrote."""


class Worker:
    """A contender's process, of a file in ``contenders`` and the interpreter to use."""

    def __init__(self, module: str, python: Path, num_threads: int) -> None:
        if not python.exists():
            raise ContenderError(f"no {python.parent.parent.name}")
        threads = {name: str(num_threads) for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")}
        # waiting threads soon go to sleep: no slower alone, faster beside other programs
        threads |= {"GOMP_SPINCOUNT": "10000"}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (open as long as the process)
        self._process = subprocess.Popen(
            [str(python), str(HERE / "worker.py"), module, str(num_threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env={**os.environ, **threads},
        )  # fmt: skip
        self.about = self._answer()
        self._process.send_signal(_STOP)

    def ask(self, do: str, **arguments: object) -> dict[str, Any]:
        """Make the contender do something and wait for its answer; until the next request it stands still."""
        self._process.send_signal(_GO_ON)
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps({"do": do, **arguments}), file=self._process.stdin, flush=True)
        answer = self._answer()
        time.sleep(PAUSE)
        self._process.send_signal(_STOP)
        return answer

    def prepare(self, case: Case) -> None:
        """Build the machine and its chains."""
        self.ask("prepare", num_left=case.num_left, num_right=case.num_right, num_chains=case.num_chains)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            lines = self._errors.read().strip().splitlines()
            self.close()
            raise ContenderError(lines[-1] if lines else "ended without a word")
        return json.loads(line)


def compete(
    contenders: list[tuple[str, Path]], case: Case, *, seconds: float, num_threads: int
) -> dict[str, Result]:
    """Time contenders, (file in ``contenders``, interpreter), in turn on one case.

    Rounds go on for so many seconds; there are three at least.
    """
    results, workers = {}, {}
    for module, python in contenders:
        results[module] = Result(module)
        try:
            workers[module] = _start(results[module], module, python, case, num_threads)
        except ContenderError as error:
            results[module].failure = str(error)
    begin, rounds = time.monotonic(), 0
    while rounds < FEWEST_ROUNDS or time.monotonic() < begin + seconds:
        rounds += 1
        for module, worker in list(workers.items()):
            result = results[module]
            try:
                answer = worker.ask("run", num_sweeps=result.num_sweeps)
            except ContenderError as error:
                result.failure = str(error)
                del workers[module]
                continue
            result.seconds.append(answer["seconds"])
            result.memory, result.mean = answer["memory"], answer["mean"]
    for worker in workers.values():
        worker.close()
    return results


def _start(result: Result, module: str, python: Path, case: Case, num_threads: int) -> Worker:
    """Start a contender, let it compile and warm up, and choose its number of sweeps."""
    worker = Worker(module, python, num_threads)
    result.name, result.version = worker.about["name"], worker.about["version"]
    worker.prepare(case)
    worker.ask("run", num_sweeps=2)  # may compile
    seconds = min(worker.ask("run", num_sweeps=2)["seconds"] for _ in range(3))
    num_sweeps = min(case.num_sweeps, max(1, int(LIMIT / seconds * 2)))
    worker.ask("run", num_sweeps=num_sweeps)  # a new number of sweeps may compile anew
    result.num_sweeps = num_sweeps
    result.updates = num_sweeps * case.num_chains * (case.num_left + case.num_right)
    return worker
