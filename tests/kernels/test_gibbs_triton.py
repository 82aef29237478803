"""The CUDA kernel: interpreted and compiled without a GPU, its choice and what happens where it fails, and on a GPU."""

import contextlib
import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch._subclasses import FakeTensorMode

from discrete_vae import RBM, BlockGibbs, GraphBoltzmann
from discrete_vae.errors import KernelWarning
from discrete_vae.kernels import gibbs
from discrete_vae.kernels.gibbs import fair_coins, kernel_for, run_sweeps
from discrete_vae.kernels.registry import Kernel
from tests.kernels.test_gibbs_law import make_rbm

pytest.importorskip("triton", reason="triton is not installed; it comes with CUDA builds of torch")
from discrete_vae.kernels import gibbs_triton
from discrete_vae.kernels.gibbs_triton import split_weights

CUDA = torch.device("cuda", 0)
on_gpu = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


@pytest.fixture(autouse=True)
def untested():
    """Kernels are tested anew, and nothing is left behind."""
    gibbs.triton_kernel.cache_clear()
    yield
    gibbs.triton_kernel.cache_clear()


def test_the_kernel_is_right_in_the_interpreter():
    """Triton reads the variable when the kernel is defined, hence the process."""
    cases = Path(__file__).with_name("triton_cases.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(cases)]
    environment, told = os.environ | {"TRITON_INTERPRET": "1"}, subprocess.PIPE
    done = subprocess.run(command, env=environment, stdout=told, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


def compiled(left, right, capability, cache):
    """The kernel as a GPU would run it, for which no GPU is needed."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = gibbs_triton._run.arg_names
    pointers = {"after": "fp32", "before": "fp32", "parts": "bf16", "bias": "fp32", "clamped": "u8"}
    pointers["inverse_temperatures"] = "fp32"
    types = {name: "constexpr" if name.isupper() else "i32" for name in names}
    types |= {name: f"*{kind}" for name, kind in pointers.items()}
    types |= {"first_chain": "u32", "first_sweep": "u64", "key": "u64"}
    constants = {"LEFT": left, "RIGHT": right, "CHAINS": gibbs_triton.tile_of(left, right)}
    source = ASTSource(
        fn=gibbs_triton._run,
        signature=types,
        constexprs=constants | {"CLAMPED": True, "TEMPERED": True},
        attrs={(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if name in pointers},
    )
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(cache)
        options = {"num_warps": 4, "enable_fp_fusion": True}
        return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


SLOW = [
    pytest.param(*each, marks=pytest.mark.slow) for each in ((64, 80, 163), (64, 90, 227), (128, 90, 227))
]


@pytest.mark.parametrize(("side", "capability", "shared_memory"), [(64, 86, 99), *SLOW])
def test_the_kernel_compiles_for_tensor_cores(side, capability, shared_memory, tmp_path):
    kernel = compiled(side, side, capability, tmp_path)
    assert kernel.metadata.shared <= shared_memory << 10
    assert re.search(r"(mma\.sync|wgmma\.mma_async).*\.f32\.bf16\.bf16", kernel.asm["ptx"])
    assert "tf32" not in kernel.asm["ptx"]
    assert kernel.asm["cubin"]


def test_weights_are_the_sum_of_their_parts():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(50, 40, generator=generator) * torch.logspace(-20, 20, 40)
    weight[0, :4] = torch.tensor([0.0, -1.0, 1 + 2.0**-23, -(2 - 2.0**-23)])
    parts = split_weights(weight, 64, 64, first=3)
    assert parts.shape == (3, 64, 64)
    assert torch.equal(parts.bfloat16().float(), parts)
    assert torch.equal(parts.double().sum(0)[:50, 3:43], weight.double())
    assert torch.equal(parts.sum(0)[:50, 3:43], weight)
    assert int((parts != 0).any(0).sum()) == int((weight != 0).sum())
    # two parts would not do
    assert not torch.equal(parts[1:].double().sum(0)[:50, 3:43], weight.double())


def test_sizes():
    assert gibbs_triton.padded_sides(RBM(100, 64)) == (128, 64)
    assert gibbs_triton.padded_sides(RBM(61, 37)) == (64, 64)
    assert gibbs_triton.padded_sides(RBM(61, 64)) == (64, 128)  # the first counter holds a left unit too
    assert gibbs_triton.fits(RBM(128, 128))
    assert not gibbs_triton.fits(RBM(129, 128))


def fake_cuda(machine, *, dtype=torch.float32):
    """A machine whose parameters claim to lie on a GPU."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        for name, parameter in list(machine.named_parameters()):
            setattr(machine, name, torch.nn.Parameter(parameter.detach().to(CUDA, dtype)))
    return machine


@pytest.fixture
def gpu(monkeypatch):
    """Fake parameters are taken for those of a GPU on which the kernel passes its self-test."""
    monkeypatch.setattr(gibbs, "values_are_known", lambda bias: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(Kernel, "is_usable", lambda self: True)
    return monkeypatch


def test_the_kernel_is_chosen_for_what_it_can_do(gpu):
    small = fake_cuda(RBM(5, 3))
    for machine in (fake_cuda(RBM(100, 60)), fake_cuda(RBM(5, 3), dtype=torch.bfloat16), small):
        assert kernel_for(machine) is gibbs_triton.run
    wide, double = fake_cuda(RBM(129, 128)), fake_cuda(RBM(5, 3), dtype=torch.float64)
    for machine in (wide, double, fake_cuda(GraphBoltzmann(5, "complete")), RBM(5, 3).to("meta")):
        assert kernel_for(machine) is gibbs.run_on_device
    with gpu.context() as older:
        older.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
        assert kernel_for(small) is gibbs.run_on_device
    with gpu.context() as without_triton:
        without_triton.setattr(gibbs, "find_spec", lambda name: None)
        assert kernel_for(small) is gibbs.run_on_device
    gpu.undo()
    assert kernel_for(small) is gibbs.run_on_device  # fake, compiled or traced


def out_of_memory(states):
    raise RuntimeError("out of shared memory\nand more")


@pytest.mark.parametrize(
    ("fault", "works"),
    [
        (out_of_memory, False),
        (lambda states: 1 - states, False),
        (lambda states: states.view(-1)[: round(0.02 * states.numel())].neg_().add_(1), False),
        (lambda states: states.view(-1)[: round(0.005 * states.numel())].neg_().add_(1), True),
    ],
    ids=["an error", "wrong states", "a few wrong states", "draws within rounding"],
)
def test_a_kernel_that_fails_gives_way_with_one_warning(monkeypatch, fault, works):
    """On the CPU the self-test is the same."""

    def stand_in(energy, z, call):
        states = gibbs.run_reference(energy, z, call)
        changed = fault(states)
        return changed if changed.shape == states.shape else states

    monkeypatch.setattr(gibbs_triton, "run", stand_in)
    kernel = gibbs.triton_kernel(torch.device("cpu"), 64, 16)
    with contextlib.nullcontext() if works else pytest.warns(KernelWarning, match=r"64 \+ 16 .*triton"):
        kernel.select()
    assert kernel.select() is (stand_in if works else gibbs.run_on_device)


@pytest.mark.parametrize("ignored", ["clamped", "inverse_temperature"])
def test_a_kernel_that_ignores_an_option_of_the_call_gives_way(monkeypatch, ignored):
    def stand_in(energy, z, call):
        return gibbs.run_reference(energy, z, dataclasses.replace(call, **{ignored: None}))

    monkeypatch.setattr(gibbs_triton, "run", stand_in)
    with pytest.warns(KernelWarning, match="triton"):
        assert gibbs.triton_kernel(torch.device("cpu"), 64, 16).select() is gibbs.run_on_device


class TestOnGpu:
    pytestmark = on_gpu

    @pytest.mark.parametrize("shape", [(1, 1), (5, 3), (61, 37), (64, 64), (100, 100), (128, 128)], ids=str)
    def test_states_are_those_of_the_cpu(self, shape):
        """So is the law, which tests/devices/test_cuda.py counts."""
        rbm, start = make_rbm(*shape, scale=0.4), fair_coins(333, sum(shape), key=1)
        options = {"clamped": fair_coins(333, sum(shape), key=3).bool()}
        options["inverse_temperature"] = torch.linspace(0, 2, 333)
        for chosen in ({}, options):
            expected = run_sweeps(rbm, start, 2, key=2, first_sweep=1, **chosen)
            chosen = {name: value.to(CUDA) for name, value in chosen.items()}
            found = run_sweeps(rbm.to(CUDA), start.to(CUDA), 2, key=2, first_sweep=1, **chosen).cpu()
            assert kernel_for(rbm) is gibbs_triton.run
            rbm.to("cpu")
            assert float((found != expected).float().mean()) < 1e-3  # draws within rounding

    def test_chains_go_on_where_they_ended(self):
        rbm = make_rbm(20, 30).to(CUDA)
        whole, parts = BlockGibbs(rbm, 100, seed=1), BlockGibbs(rbm, 100, seed=1)
        parts.step(3)
        assert torch.equal(whole.step(7), parts.step(4))

    def test_a_larger_machine_takes_plain_torch(self):
        assert kernel_for(RBM(300, 200).to(CUDA)) is gibbs.run_on_device
