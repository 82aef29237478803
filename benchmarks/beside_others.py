"""What a training step costs beside other programs: alone, beside a busy process, and two trainings at once.

Each training runs in the environment that the command dvae sets, and as a plain library user has it. Who waits is
stopped, and all take turns, round after round. Writes a section of RESULTS.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from results import PAGE, describe_machine, table, write_section

EXPERIMENTS = ["digits", "mnist-static"]
# seconds of steps of one measurement: threads take a quarter second to see that others are there
WINDOW = 3.0
KINDS = {"dvae train": "dvae", "library, train()": "train", "library, own loop": None}
OURS = ("OMP_", "GOMP_", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS")  # variables that say how threads behave
NOTE = """Best and median over rounds of the mean step within three seconds, ms, and both as multiples of the step
alone. The other program is a loop in Python. Nothing is set in the environment. "dvae train" and `train()` watch for
other programs (`yielding_threads`); an own loop does not, unless it asks for it. Random images; the data do not matter
to the time."""


class Training:
    """A training in size short, of a value of KINDS, in a process that stands still unless it is asked for steps."""

    def __init__(self, experiment: str, kind: str | None) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        command = [sys.executable, str(Path(__file__).with_name("step_worker.py")), experiment]
        if kind is not None:
            command.append(kind)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.threads = int(self._line())
        self._process.send_signal(signal.SIGSTOP)

    def start(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        assert self._process.stdin is not None
        print(WINDOW, file=self._process.stdin, flush=True)

    def finish(self) -> float:
        """Milliseconds per step of the window that `start` began."""
        times = json.loads(self._line())
        self._process.send_signal(signal.SIGSTOP)
        return 1e3 * statistics.mean(times)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("A training ended early; its message stands above.")
        return line


class Rival:
    """A process that keeps one core busy while it is let."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
        self._process.send_signal(signal.SIGSTOP)

    def __enter__(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def __exit__(self, *error: object) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def measure(
    pairs: dict[str, tuple[Training, Training]], rival: Rival, *, seconds: float
) -> dict[str, list[list[float]]]:
    """Milliseconds per step of each pair: alone, beside the rival, and of both at once, one number per round."""
    found: dict[str, list[list[float]]] = {name: [[], [], []] for name in pairs}
    end, rounds = time.monotonic() + seconds, 0
    while rounds < 3 or time.monotonic() < end:
        rounds += 1
        for name, (one, other) in pairs.items():
            alone, beside, both = found[name]
            one.start()
            alone.append(one.finish())
            with rival:
                one.start()
                beside.append(one.finish())
            one.start()
            other.start()
            both.append((one.finish() + other.finish()) / 2)
    return found


def beside_table(experiment: str, *, seconds: float) -> str:
    pairs = {name: (Training(experiment, kind), Training(experiment, kind)) for name, kind in KINDS.items()}
    rival = Rival()
    try:
        found = measure(pairs, rival, seconds=seconds)
    finally:
        rival.close()
        for trainings in pairs.values():
            for training in trainings:
                training.close()
    rows = []
    for name, (alone, *others) in found.items():
        row = [f"{name}, {pairs[name][0].threads} of {os.cpu_count()} threads"]
        row += [f"{min(alone):.1f}", f"{statistics.median(alone):.1f}"]
        for times in others:
            row += [f"{min(times):.1f}", f"{statistics.median(times):.1f}", f"{min(times) / min(alone):.2f}"]
            row.append(f"{statistics.median(times) / statistics.median(alone):.2f}")
        rows.append(row)
    head = [f"{experiment}, size short", "alone, best", "(median)", "beside a busy process, best", "(median)"]
    times_alone = ["times alone, best", "(median)"]
    return table([*head, *times_alone, "two at once, best", "(median)", *times_alone], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=90, help="seconds of rounds for each table")
    parser.add_argument("--page", type=Path, default=PAGE, help="page to write")
    options = parser.parse_args()
    parts = [describe_machine(os.cpu_count() or 1), NOTE]
    for experiment in EXPERIMENTS:
        parts.append(beside_table(experiment, seconds=options.seconds))
        print(parts[-1], end="\n\n", flush=True)
    write_section(options.page, "Beside other programs", "\n\n".join(parts))
    print(f"Written to {options.page}")


if __name__ == "__main__":
    main()
