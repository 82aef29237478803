"""The OpenMP wait policy: threads that give way to other programs."""

import os
import subprocess
import sys
import threading
import time
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch

from discrete_vae import system
from discrete_vae.system import _Holders, _Judge, _Watch, yielding_threads


class Recorder:
    """Stands for the holders and notes what they are told."""

    held = False

    def hold(self):
        self.held = True

    def free(self):
        self.held = False


@pytest.mark.parametrize(
    ("shares", "held"),
    [
        ([0.1] * 20, [False] * 20),  # short waits are no contention
        # a long wait holds at once and until a second without waiting
        ([0.0, 0.5, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0], [False, True, True, True, True, True, True, False]),
    ],
)
def test_what_looks_a_quarter_second_apart_say(shares, held):
    judge = _Judge()
    assert [judge.look(share, index / 4) for index, share in enumerate(shares)] == held


def test_contention_that_comes_back_holds_longer():
    """Two programs that free their threads in turn would never find peace."""
    judge, now, held = _Judge(), 0.0, []
    for _ in range(4):
        begin = now
        judge.look(0.5, now)
        while judge.look(0.0, now := now + 0.25):
            pass
        held.append(now - begin)
        now += 0.25
    assert held == sorted(set(held))
    assert held[-1] > 4 * held[0]


def test_the_watch_holds_while_threads_wait_and_frees_at_its_end(monkeypatch):
    monkeypatch.setattr(system, "_PERIOD", 0.005)
    waited, recorder = [0.0], Recorder()

    def read():
        waited[0] += 0.005  # as long as the period: contended
        return waited[0]

    watch = _Watch(read, recorder)
    watch.start()
    deadline = time.monotonic() + 10
    while not recorder.held and time.monotonic() < deadline:
        time.sleep(0.005)
    assert recorder.held
    watch.end()
    silent = _Watch(lambda: None, recorder)  # of a system that says nothing, which is left alone
    silent.start()
    for each in (watch, silent):
        each.join(10)
        assert not each.is_alive()
    assert not recorder.held


def test_blocks_may_be_nested():
    def watches():
        return [t for t in threading.enumerate() if t.name == "discrete_vae-openmp-wait" and t.is_alive()]

    before = len(watches())
    with yielding_threads():
        with yielding_threads():
            inside = len(watches())
        assert system._watch is not None
    assert system._watch is None
    assert inside <= before + 1
    assert len(watches()) <= before  # it has ended, and does not only end soon


def test_no_thread_is_left_inside_torch(monkeypatch):
    """One that runs while the interpreter ends can abort the process."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    before, holders = threading.active_count(), _Holders()
    holders.hold()
    assert threading.active_count() > before
    holders.free()
    assert threading.active_count() == before


@pytest.mark.parametrize("state", ["not imported", "half imported"])
def test_torch_is_left_to_the_main_thread(monkeypatch, state):
    """Else a signal that ends its import there ends this thread too, with a traceback of its own."""
    half = ModuleType("torch")
    half.__spec__ = ModuleSpec("torch", None)
    half.__spec__._initializing = True
    monkeypatch.setitem(sys.modules, "torch", None if state == "not imported" else half)
    before = threading.active_count()
    holders = _Holders()
    holders.hold()
    assert threading.active_count() == before
    holders.free()


_SPIN = """
import sys, time, torch
from discrete_vae.system import _Holders
holders, x = _Holders(), torch.ones(1 << 18)

def share():
    "Processor time per second of a thread that shares little work with another, again and again."
    begin, used = time.perf_counter(), time.process_time()
    for _ in range(200):
        x.sum()
        time.sleep(0.002)
    return (time.process_time() - used) / (time.perf_counter() - begin)

share()
spinning = share()
holders.hold()
time.sleep(0.2)
held = share()
holders.free()
time.sleep(0.2)
print(spinning, held, share())
"""


@pytest.mark.skipif(
    sys.platform != "linux" or (os.cpu_count() or 1) < 2, reason="needs GNU OpenMP and two cores to spin on"
)
def test_holders_let_waiting_threads_sleep_and_spin_again():
    """A waiting thread spins for 3 ms, so through each pause of 2 ms, unless the holders are there."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    command = [sys.executable, "-c", _SPIN]
    done = subprocess.run(command, env=bare, capture_output=True, text=True, check=True, timeout=120)
    spinning, held, freed = map(float, done.stdout.split())
    assert held < spinning / 2
    assert held < freed / 2
