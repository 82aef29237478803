"""Threads of compiled kernels: torch's number, left as it was; forked children; the layer's order, a shared cache."""

import os

import numpy as np
import pytest

from discrete_vae.kernels.loops import ChunkLoop, has_parallel_regions
from tests.processes import run_apart

BEGIN = """
import os, pathlib, threading
import numba, torch
from numba.core import config
from discrete_vae import RBM, GraphBoltzmann
from discrete_vae.kernels import loops
from discrete_vae.kernels.gibbs import fair_coins, run_reference, run_sweeps

loops.SMALLEST_SHARED = 0
start, machines = fair_coins(40, 8, key=1), (RBM(5, 3), GraphBoltzmann(8, "complete"))
with torch.no_grad():
    for parameter in (each for machine in machines for each in machine.parameters()):
        parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter))

def run(machine, num_sweeps=3, **more):
    return run_sweeps(machine, start, num_sweeps, key=2, first_sweep=1, **more)

def in_four_threads(work):
    workers = [threading.Thread(target=work) for _ in range(4)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
"""


CHECKS = """
loops.has_parallel_regions = lambda: False  # as where torch has another OpenMP than GNU's
most, used, launches, layers = 2, set(), [], list(config.THREADING_LAYER_PRIORITY)
wrapped, launch = loops.numba_threads, loops._launch_here
loops.numba_threads = lambda number: used.add(number) or wrapped(number)
loops._launch_here = lambda: launches.append(1) or launch()

def check(expected):
    used.clear()
    before = torch.get_num_threads()
    assert all(torch.equal(run(machine), run(machine, kernel=run_reference)) for machine in machines)
    assert torch.get_num_threads() == before, (torch.get_num_threads(), before)
    assert used - {1} == {expected} - {1}, (used, expected)

torch.set_num_threads(1)
check(1)
assert loops._process_of_threads is None
assert not os.path.isdir("/proc/self/task") or len(os.listdir("/proc/self/task")) == 1
torch.set_num_threads(4)
in_four_threads(loops._launch)
check(2)
assert launches == [1] and config.THREADING_LAYER_PRIORITY == layers
torch.set_num_threads(1)
check(1)
torch.set_num_threads(3)
check(most)
numba.set_num_threads(1)  # the user's own, smaller number
check(1)
assert numba.get_num_threads() == 1
numba.set_num_threads(most)
found = []
in_four_threads(lambda: found.append((run(machines[0], 20), torch.get_num_threads(), numba.get_num_threads())))
expected = run(machines[0], 20, kernel=run_reference)
assert len(found) == 4 and all(torch.equal(z, expected) and rest == [3, most] for z, *rest in found), found
assert (torch.get_num_threads(), numba.get_num_threads()) == (3, most)
"""


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
torch.set_num_threads(2)
assert loops.has_parallel_regions()
expected = [run(machine, kernel=run_reference) for machine in machines]
for number in (1, 2, 3):
    torch.set_num_threads(number)
    assert loops.threads_for(10**9) == min(number, 2)
    assert all(map(torch.equal, map(run, machines), expected))
    assert torch.get_num_threads() == number
found = []
in_four_threads(lambda: found.append(run(machines[0])))
assert len(found) == 4 and all(torch.equal(z, expected[0]) for z in found)
maps = pathlib.Path("/proc/self/maps")
if maps.exists():
    assert len({line.split()[-1] for line in maps.read_text().splitlines() if "libgomp" in line}) <= 1
"""


# A process is forked after torch used its threads: every call gives the parent's values, and none waits for ever.
A_FORK = """
import json, os, signal, warnings
import torch
import discrete_vae as d
from discrete_vae.kernels import loops as threads
from tests.models import small_model

threads.SMALLEST_SHARED = 0
torch.set_num_threads(2)
model = small_model(400, units=(9, 9), groups=2, hidden=(400,), decoder={"kind": "mlp", "hidden": (400,)})
for parameter in model.prior.parameters():
    torch.nn.init.normal_(parameter, std=0.3)
x = torch.bernoulli(torch.full((200, 400), 0.3))
chains = d.BlockGibbs(model.prior, 300, seed=2)
state, weights = chains.state_dict(), {name: t.clone() for name, t in model.state_dict().items()}

def figures():
    model.load_state_dict(weights)  # the batch norms keep running statistics
    generator = torch.Generator().manual_seed(1)
    log_partition = d.exact_log_partition(model.prior).value
    elbo = model.elbo(x, log_partition=log_partition, generator=generator)
    loss = (elbo.kl_discrete - elbo.reconstruction).mean()
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    chains.load_state_dict(state)
    with torch.no_grad():
        likelihood = model.log_likelihood(x, num_samples=20, log_partition=log_partition, generator=generator)
    return {
        "exact": float(log_partition),
        "elbo": -float(loss.detach()),
        "gradient": sum(float(each.double().abs().sum()) for each in gradients if each is not None),
        "likelihood": float(likelihood.value.mean()),
        "bennett": d.bennett_log_partition(model.prior, num_chains=64, std_error=0.1, seed=3).value,
        "gibbs": float((chains.step(5) @ torch.arange(18.0)).sum()),
        "threads": torch.get_num_threads(),
    }

parent = figures()
assert threads.has_parallel_regions() or threads._process_of_threads == os.getpid()
reader, writer = os.pipe()
warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
child = os.fork()
if child == 0:
    signal.alarm(60)
    os.write(writer, json.dumps(figures()).encode())
    os._exit(0)
_, status = os.waitpid(child, 0)
os.close(writer)
assert status == 0, f"the child ended with {status}"
answer = json.loads(os.read(reader, 10_000))
assert (parent.pop("threads"), answer.pop("threads")) == (2, 1)
assert torch.get_num_threads() == 2
for name, value in parent.items():
    assert abs(answer[name] - value) <= 1e-4 * abs(value), (name, value, answer[name])
assert answer["gibbs"] == parent["gibbs"]
"""


# numba numbers functions of one name in the order in which a process compiles them, and its cache keeps the numbers.
# One process compiles others first. The next makes another form with just these numbers, and then loads the first form.
SHARED_CACHE = """
import os, signal, tempfile
import torch
from numba import njit
from numba.core import config
from discrete_vae.kernels import adam
from tests.kernels.test_adam import largest_difference, parameters, take, working_copies

def is_right(num_threads):
    torch.set_num_threads(num_threads)
    mine, right = parameters(), parameters()
    take(adam.Adam(mine, working=working_copies(mine)), 0, torch.bfloat16)
    take(torch.optim.Adam(right), 0, torch.bfloat16)
    return largest_difference(mine, right) < 1e-6

def all_right(*numbers_of_threads, compiled_before=0):
    child = os.fork()
    if child == 0:
        signal.alarm(100)
        for _ in range(compiled_before):
            njit(lambda: 0)()
        os._exit(not all(map(is_right, numbers_of_threads)))
    return os.waitpid(child, 0)[1] == 0

torch.set_num_threads(1)  # threads that are there are not in a fork
torch.optim.Adam([torch.ones(1, requires_grad=True)])  # the first one loads much, here once for all
adam.SMALLEST_SHARED = 0
# LLVM's model of some processors puts the code of both forms into the loop: then there is no name to be mistaken
with tempfile.TemporaryDirectory() as config.CACHE_DIR:
    adam.update = adam.ChunkLoop(adam._make, prepare=adam._prepare)
    assert is_right(1)
    code = "".join(adam.update.serial.inspect_asm().values()).splitlines()
has_names = any("stretch" in line and not line.strip().startswith(".") for line in code)

for planted in (False, True):
    if planted:
        adam.named = lambda function, key: function
    right = []
    for before in (1, 2, 3):  # by which numba numbers names: one of them makes the two forms' names alike
        with tempfile.TemporaryDirectory() as config.CACHE_DIR:
            adam.update = adam.ChunkLoop(adam._make, prepare=adam._prepare)
            assert all_right(1, compiled_before=before)
            right.append(all_right(2, 1))
    assert all(right) is not (planted and has_names), planted
"""


PROGRAMS = {
    "the number of threads is torch's and stays": BEGIN + CHECKS,
    "states do not depend on threads and one OpenMP is loaded": BEGIN + CHECKS_OF_REGIONS,
    "a forked child gives the parent's values": A_FORK,
    "both forms of Adam are right out of a cache that another process wrote": SHARED_CACHE,
}
ANYWHERE = {"the number of threads is torch's and stays", "a forked child gives the parent's values"}


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """How the programs ended, each in a process of its own, since OpenMP and numba are launched once."""
    threads = {"OMP_NUM_THREADS": "4", "NUMBA_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "1"}
    return run_apart(PROGRAMS, tmp_path_factory.mktemp("apart"), **threads)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("name", PROGRAMS)
def test_in_processes_apart(ended, name):
    if name not in ANYWHERE and not has_parallel_regions():
        pytest.skip("torch has no OpenMP of GNU's kind here")
    assert ended[name] == (0, "")
