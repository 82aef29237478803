"""Dispatch: a kernel runs where it supports the arguments and has passed its self-test, else the plain function."""

import math
import warnings
from dataclasses import replace

import pytest
import torch

from discrete_vae import RBM, BlockGibbs, GraphBoltzmann, numerics
from discrete_vae.errors import KernelWarning
from discrete_vae.hierarchy import base, gaussian
from discrete_vae.kernels import adam, gibbs, gibbs_graph, gibbs_rbm, importance, norm, registry
from discrete_vae.kernels.capture import Recorder
from discrete_vae.kernels.gibbs import SweepCall, fair_coins, kernel_for, run_sweeps
from discrete_vae.kernels.registry import Kernel, agrees_on, check_close, compiled_by, is_eager, load
from discrete_vae.nets import convolutional, mlp, modes
from discrete_vae.rng import keyed_generator
from discrete_vae.smoothing import spike
from discrete_vae.training.loop import training_step
from discrete_vae.training.state import TrainingState
from tests.training.test_step import config_of

FILES = (numerics, base, convolutional, gaussian, mlp, modes, spike)  # whose plain functions name a kernel
PATHS = sorted(registry.REGISTRY)
OWN = [adam._UPDATE, importance.draw_units, importance.draw_layer]  # self-tests of their own


def kernel_of(compiled, cases=(), **more):
    return Kernel("The loop", compiled, agrees_on(lambda: cases), lambda x: x + 1, **more)


@pytest.mark.parametrize(
    ("dtype", "inference"), [(torch.float32, False), (torch.float64, False), (torch.float32, True)]
)
def test_every_kernel_passes_its_self_test_whatever_is_torchs_default(dtype, inference, default_dtype):
    default_dtype(dtype)
    with torch.inference_mode(inference):
        for kernel in (*map(load, PATHS), *OWN):
            assert replace(kernel).is_usable(), kernel.name  # a copy, which is tested anew


@pytest.mark.parametrize("kernel", [*map(load, PATHS), *OWN], ids=lambda kernel: kernel.name)
def test_a_wrong_kernel_fails_its_self_test(kernel, monkeypatch):
    def wrong(*arguments):
        result = kernel.compiled(*arguments)
        with torch.no_grad():
            for tensor in registry.tensors_in(arguments if result is None else result):
                tensor.add_(0.1)
        return result

    # the self-tests of these two call what the kernel calls
    if kernel is load("norm.batch_norm"):
        monkeypatch.setattr(norm, "apply_fixed", lambda *_: None)
    if kernel is adam._UPDATE:
        monkeypatch.setattr(adam.PointerTable, "update", lambda *_: None)
    with pytest.warns(KernelWarning):
        assert not replace(kernel, compiled=wrong).is_usable()


def test_a_failed_self_test_is_said_once_and_leaves_the_reference():
    kernel = kernel_of(lambda x: x + 1.001, [(torch.zeros(2),)], fallback="something slower is used")
    with pytest.warns(KernelWarning, match="The loop .*something slower"):
        assert kernel.select()(torch.zeros(2)).tolist() == [1, 1]
    assert kernel.select()(torch.zeros(2)).tolist() == [1, 1]


def test_a_warning_that_is_an_error_is_not_swallowed():
    def loud(x):
        warnings.warn("loud", KernelWarning, stacklevel=2)

    with pytest.raises(KernelWarning, match="loud"):
        kernel_of(loud, [(torch.zeros(2),)]).is_usable()


def test_what_a_kernel_does_not_support_is_the_references(monkeypatch):
    kernel = kernel_of(lambda x: x + 5, supports=lambda x: x.dim() == 1)
    monkeypatch.setattr(registry, "REGISTRY", {})
    monkeypatch.setattr(registry, "load", lambda path: kernel)
    dispatch = compiled_by("own.kernel")(lambda x: x + 1)
    assert [float(dispatch(x)) for x in (torch.zeros(1), torch.zeros(()))] == [5, 1]


@pytest.mark.parametrize("place", range(2))
@pytest.mark.parametrize(
    ("path", "shapes", "more"),
    [("norm.project_norm", [(9,), (9,)], ()), ("norm.add_shared", [(2, 3, 4), (3, 4)], (True,))],
)
def test_tensors_with_gaps_are_changed_as_plain_torch_does(path, shapes, more, place):
    kernel, found = load(path), []
    for gaps in (True, False):
        tensors = [torch.linspace(-5, 5, math.prod(shape)).view(shape) for shape in shapes]
        if gaps:
            tensors[place] = tensors[place].repeat_interleave(2, -1)[..., ::2]
        chosen = kernel.compiled if kernel.supports(*tensors, *more) else kernel.reference
        chosen(*tensors, *more)
        found.append(tensors)
    assert all(map(torch.equal, *found))


def test_a_self_test_is_no_part_of_a_recording():
    def self_test(kernel):
        assert torch.get_default_device().type == "cpu"
        check_close((torch.ones(2) * 2, torch.full((2,), 2.0)))  # looks at values

    x = torch.ones(2)
    with Recorder() as recorder:
        assert Kernel("The loop", torch.neg, self_test).is_usable()
        x.add(1)
    assert recorder.problem is None
    assert len(recorder.calls) == 1


class Subclass(torch.Tensor):
    pass


def test_plain_tensors_of_the_right_dtype_are_dispatched(monkeypatch):
    monkeypatch.setattr(registry, "load", lambda path: kernel_of(lambda *arguments: "compiled"))

    @compiled_by("a.kernel")
    def function(*arguments):
        return "plain"

    x = torch.ones(2)
    assert function(x, None, 3.0) == function(torch.nn.Parameter(x)) == "compiled"
    for other in (x.double(), x.bfloat16(), x[:0], x.to("meta"), x.as_subclass(Subclass)):
        assert function(x, other) == "plain"
    with torch.autocast("cpu", torch.bfloat16):
        assert function(x) == "plain"
    assert torch.func.vmap(lambda y: y + float(function(y) == "plain"))(x).tolist() == [2, 2]
    assert is_eager()


# Kernels of Markov chains.


MACHINES = pytest.mark.parametrize(
    ("energy", "module"),
    [(RBM(5, 3), gibbs_rbm), (GraphBoltzmann(8, "complete"), gibbs_graph)],
    ids=["bipartite", "graph"],
)


@pytest.fixture
def untested():
    """The kernels of chains are tested anew, and nothing is left behind."""
    gibbs.cpu_kernel.cache_clear()
    yield
    gibbs.cpu_kernel.cache_clear()


@MACHINES
@pytest.mark.parametrize("fault", ["no compiler", "wrong states"])
def test_a_kernel_that_does_not_work_gives_way_to_the_reference(energy, module, fault, monkeypatch, untested):
    right, expected = module.run, BlockGibbs(energy, 20, seed=3).step(4)
    gibbs.cpu_kernel.cache_clear()

    def broken(*arguments):
        if fault == "no compiler":
            raise AttributeError("'CPUContext' object has no attribute 'make_array'\nand a long trace")
        return 1 - right(*arguments)

    monkeypatch.setattr(module, "run", broken)
    chains = BlockGibbs(energy, 20, seed=3)
    with pytest.warns(KernelWarning, match="make_array.*plain" if fault == "no compiler" else "states"):
        assert torch.equal(chains.step(4), expected)
    chains.step(1)  # without a second warning, which would be an error
    assert kernel_for(energy) is gibbs.run_reference


@MACHINES
def test_a_kernel_that_fails_on_several_threads_runs_on_one(energy, module, monkeypatch, untested):
    right, start = module.run, fair_coins(30, 8, key=1)
    expected = run_sweeps(energy, start, 3, key=2, first_sweep=1, kernel=gibbs.run_reference)
    gibbs.cpu_kernel.cache_clear()

    def broken(energy, z, call):
        if call.num_threads > 1:
            raise RuntimeError("no threads")
        return right(energy, z, call)

    monkeypatch.setattr(module, "run", broken)
    with pytest.warns(KernelWarning, match="on several threads .*no threads.*one thread"):
        parallel = kernel_for(energy, parallel=True)
    assert kernel_for(energy) is broken
    call = SweepCall(3, 2, 1, 0, None, None, num_threads=2)
    assert torch.equal(parallel(energy, start, call), expected)


def test_values_do_not_depend_on_torchs_default_dtype(default_dtype):
    def values(dtype):
        config = config_of("layers")
        state = TrainingState.initial(config, torch.full((30, 64), 0.3))
        default_dtype(dtype)
        for _ in range(3):
            found = training_step(state, config, torch.ones(20, 64), 1.0, 0.5).value
            state.step += 1
        x, options = torch.ones(5, 64), {"log_partition": 1 / 3, "generator": keyed_generator(0)}
        likelihood = state.model.log_likelihood(x, num_samples=10, **options).value
        default_dtype(torch.float32)
        return torch.cat([found, likelihood]).double()

    assert torch.equal(values(torch.float64), values(torch.float32))


def test_training_steps_do_not_depend_on_the_default_device():
    def values(device):
        config, x = config_of("layers"), torch.ones(20, 64)
        state = TrainingState.initial(config, torch.full((30, 64), 0.3))
        with torch.device(device):
            for _ in range(3):
                found = training_step(state, config, x, 1.0, 0.5).value
                state.step += 1
        return torch.cat([found, state.model.prior.bias.detach()])

    assert torch.equal(values("meta"), values("cpu"))
