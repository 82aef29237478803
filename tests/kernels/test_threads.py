"""Threads of the compiled kernels: torch's number, left as it was; forked children; the layer's order."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from numba.core import config

from discrete_vae import RBM
from discrete_vae.kernels import loops
from discrete_vae.kernels.gibbs import fair_coins, run_sweeps
from discrete_vae.kernels.loops import ChunkLoop, has_parallel_regions


def test_forked_child_works_on_one_thread(monkeypatch, threads_of_torch):
    monkeypatch.setattr(loops, "has_parallel_regions", lambda: False)
    threads_of_torch(2)
    energy, start = RBM(5, 3), fair_coins(30, 8, key=1)
    expected = run_sweeps(energy, start, 3, key=2, first_sweep=1)
    monkeypatch.setattr(loops.os, "getpid", lambda: -1)
    assert loops.threads_for(10**9) == 1
    assert torch.equal(run_sweeps(energy, start, 3, key=2, first_sweep=1), expected)


def test_thread_layer_order_is_restored(monkeypatch):
    before = list(config.THREADING_LAYER_PRIORITY)
    monkeypatch.setattr(loops, "_process_of_threads", None)
    loops._launch()
    assert before == config.THREADING_LAYER_PRIORITY


@pytest.mark.parametrize(("most", "work"), [(4, loops.SMALLEST_SHARED - 1), (1, 10**9)])
def test_one_thread_is_not_launched(monkeypatch, most, work):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(config, "NUMBA_NUM_THREADS", most)
    monkeypatch.setattr(loops, "_launch", lambda: pytest.fail("launched"))
    assert loops.threads_for(work) == 1


CHECKS = """
import os, threading
import numba, torch
from discrete_vae import RBM, GraphBoltzmann
from discrete_vae.kernels import loops as threads
from discrete_vae.kernels.gibbs import fair_coins
from discrete_vae.kernels.gibbs import run_reference, run_sweeps

threads.has_parallel_regions = lambda: False  # as where torch has another OpenMP than GNU's
threads.SMALLEST_SHARED, most = 0, 2
rbm, graph, start = RBM(5, 3), GraphBoltzmann(8, "complete"), fair_coins(40, 8, key=1)
with torch.no_grad():
    for machine in (rbm, graph):
        for parameter in machine.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter))

used = set()
wrapped = threads.numba_threads
def counting(number):
    used.add(number)
    return wrapped(number)
threads.numba_threads = counting

def check(expected):
    used.clear()
    before = torch.get_num_threads()
    for machine in (rbm, graph):
        z = run_sweeps(machine, start, 3, key=2, first_sweep=1)
        assert torch.equal(z, run_sweeps(machine, start, 3, key=2, first_sweep=1, kernel=run_reference))
    assert torch.get_num_threads() == before, (torch.get_num_threads(), before)
    assert used - {1} == {expected} - {1}, (used, expected)

torch.set_num_threads(1)
check(1)
assert threads._process_of_threads is None
assert not os.path.isdir("/proc/self/task") or len(os.listdir("/proc/self/task")) == 1
torch.set_num_threads(4)
check(2)
assert threads._process_of_threads is not None
torch.set_num_threads(1)
check(1)
torch.set_num_threads(3)
check(min(3, most))
numba.set_num_threads(1)  # the user's own, smaller number
check(1)
assert numba.get_num_threads() == 1
numba.set_num_threads(most)
found, numbers = [], []
def in_a_thread():
    found.append(run_sweeps(rbm, start, 20, key=2, first_sweep=1))
    numbers.append((torch.get_num_threads(), numba.get_num_threads()))
workers = [threading.Thread(target=in_a_thread) for _ in range(4)]
[worker.start() for worker in workers]
[worker.join() for worker in workers]
expected = run_sweeps(rbm, start, 20, key=2, first_sweep=1, kernel=run_reference)
assert all(torch.equal(z, expected) for z in found) and numbers == [(3, most)] * 4, numbers
assert (torch.get_num_threads(), numba.get_num_threads()) == (3, most)
"""


def check_alone(code, **environment):
    """Run in a process of its own, since OpenMP and numba are launched once; it prints nothing where all is right."""
    command = [sys.executable, "-W", "error", "-c", code]
    environment = os.environ | environment
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_number_of_threads_is_torchs_and_stays():
    check_alone(CHECKS, OMP_NUM_THREADS="4", NUMBA_NUM_THREADS="2", OPENBLAS_NUM_THREADS="1")


def test_two_python_threads_launch_once(monkeypatch):
    launches = []
    monkeypatch.setattr(loops, "_process_of_threads", None)
    monkeypatch.setattr(loops, "_launch_here", lambda: launches.append(1))
    workers = [threading.Thread(target=loops._launch) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert launches == [1]


needs_regions = pytest.mark.skipif(
    not has_parallel_regions(), reason="torch has no OpenMP of GNU's kind here"
)


def _adding(chunks):
    def add(values, amount):
        for place in chunks(len(values)):
            values[place] += amount + 1000 * place
        return 0

    return add


def _first(values, amount):
    values[0] = amount


add = ChunkLoop(_adding, prepare=_first)


@needs_regions
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_each_chunk_is_worked_on_once_after_the_preparation(threads):
    for size in (7, 1):
        values = np.zeros(size)
        add(threads, values, 2.0)
        assert values.tolist() == [4.0] + [2.0 + 1000 * place for place in range(1, size)]
    assert ChunkLoop(_adding)(threads, np.zeros(0), 1.0) == 0


CHECKS_OF_REGIONS = """
import pathlib, threading
import torch
torch.set_num_threads(2)
from discrete_vae import RBM, GraphBoltzmann
from discrete_vae.kernels import loops as threads
from discrete_vae.kernels.gibbs import fair_coins
from discrete_vae.kernels.gibbs import run_reference, run_sweeps
assert threads.has_parallel_regions()
threads.SMALLEST_SHARED = 0
start = fair_coins(40, 8, key=1)
machines = RBM(5, 3), GraphBoltzmann(8, "complete")
def run(machine, **more):
    return run_sweeps(machine, start, 3, key=2, first_sweep=1, **more)
expected = [run(machine, kernel=run_reference) for machine in machines]
for number in (1, 2, 3):
    torch.set_num_threads(number)
    assert threads.threads_for(10**9) == min(number, 2)
    assert all(torch.equal(run(machine), right) for machine, right in zip(machines, expected))
    assert torch.get_num_threads() == number
found = []
workers = [threading.Thread(target=lambda: found.append(run(machines[0]))) for _ in range(4)]
[worker.start() for worker in workers]
[worker.join() for worker in workers]
assert all(torch.equal(z, expected[0]) for z in found)
maps = pathlib.Path("/proc/self/maps")
if maps.exists():
    assert len({line.split()[-1] for line in maps.read_text().splitlines() if "libgomp" in line}) <= 1
"""


@needs_regions
def test_states_do_not_depend_on_threads_and_one_openmp_is_loaded():
    check_alone(CHECKS_OF_REGIONS, OMP_NUM_THREADS="2", NUMBA_NUM_THREADS="2")
