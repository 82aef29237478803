"""One contender in a process of its own: reads requests, answers with times, one JSON line each.

Run by `contest.Worker` with the interpreter that has the contender installed. It imports nothing of this library, so
that a peer's environment needs nothing but the peer.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import resource
import sys
import time

import numpy as np


def machine(num_left: int, num_right: int) -> tuple[np.ndarray, np.ndarray]:
    """Weight (left, right) and bias (unit,) float32 of a machine that mixes within a few sweeps."""
    generator = np.random.default_rng(0)
    weight = generator.normal(0, 0.8 / np.sqrt(num_left + num_right), (num_left, num_right))
    return weight.astype(np.float32), generator.normal(0, 0.5, num_left + num_right).astype(np.float32)


def peak_memory() -> float:
    """The largest memory so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


WARM_UP = 0.1  # seconds before each timed run: the process has stood still, and its threads wake on one core


class Session:
    """The contender and what it has prepared."""

    def __init__(self, name: str, num_threads: int) -> None:
        self.module = importlib.import_module(f"contenders.{name}")
        self.num_threads = num_threads
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(num_threads)
        self.step = None
        self.idle_memory = 0.0

    def describe(self) -> dict:
        return {"name": self.module.NAME, "version": importlib.metadata.version(self.module.PACKAGE)}

    def prepare(self, num_left: int, num_right: int, num_chains: int) -> dict:
        self.idle_memory = peak_memory()
        weight, bias = machine(num_left, num_right)
        self.step = self.module.prepare(weight, bias, num_chains, self.num_threads)
        return {}

    def run(self, num_sweeps: int) -> dict:
        begin = time.perf_counter()
        while time.perf_counter() < begin + WARM_UP:
            np.asarray(self.step(2))
        start = time.perf_counter()
        states = np.asarray(self.step(num_sweeps))  # a lazy library has to deliver
        seconds = time.perf_counter() - start
        return {
            "seconds": seconds,
            "mean": states.mean(0, dtype=np.float64).tolist(),
            "memory": peak_memory() - self.idle_memory,
        }


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may print
    session = Session(sys.argv[1], int(sys.argv[2]))
    print(json.dumps(session.describe()), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(session, request.pop("do"))(**request)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
