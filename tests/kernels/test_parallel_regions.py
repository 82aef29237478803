"""Loops on torch's own threads: the same states for any number of them, and one OpenMP in the process."""

import os
import subprocess
import sys

import numpy as np
import pytest

from discrete_vae.kernels.loops import ChunkLoop, has_parallel_regions

needs_regions = pytest.mark.skipif(
    not has_parallel_regions(), reason="torch has no OpenMP of GNU's kind here"
)


def _make(chunks):
    def add(values, amount):
        for place in chunks(len(values)):
            values[place] += amount + 1000 * place
        return 0

    return add


def _prepare(values, amount):
    values[0] = amount


add = ChunkLoop(_make, prepare=_prepare)


@needs_regions
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_each_chunk_is_worked_on_once_after_the_preparation(threads):
    values = np.zeros(7)
    add(threads, values, 2.0)
    assert values.tolist() == [4.0] + [2.0 + 1000 * place for place in range(1, 7)]


@needs_regions
def test_without_chunks_nothing_is_done():
    add(2, np.zeros(1), 1.0)
    assert ChunkLoop(_make)(2, np.zeros(0), 1.0) == 0


# In a process of its own, since OpenMP is loaded once. Prints nothing where all is right.
CHECKS = """
import pathlib, threading
import torch
torch.set_num_threads(2)
from discrete_vae import RBM, GraphBoltzmann
from discrete_vae.kernels import loops as threads
from discrete_vae.kernels import gibbs_torch as torch_reference
from discrete_vae.kernels.gibbs_torch import fair_coins
from discrete_vae.kernels.gibbs import run_sweeps
assert threads.has_parallel_regions()
threads.SMALLEST_SHARED = 0
start = fair_coins(40, 8, key=1)
machines = RBM(5, 3), GraphBoltzmann(8, "complete")
def run(machine, **more):
    return run_sweeps(machine, start, 3, key=2, first_sweep=1, **more)
expected = [run(machine, kernel=torch_reference.run) for machine in machines]
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
    environment = os.environ | {"OMP_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "2"}
    command = [sys.executable, "-W", "error", "-c", CHECKS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
