"""A compiled kernel that does not work is replaced, with a warning that says so once."""

import warnings

import pytest
import torch

from discrete_vae import RBM, BlockGibbs, GraphBoltzmann
from discrete_vae.errors import KernelWarning
from discrete_vae.kernels import gibbs, gibbs_graph, gibbs_rbm, gibbs_torch
from discrete_vae.kernels.gibbs import choose_kernel, run_sweeps
from discrete_vae.kernels.gibbs_torch import fair_coins

MACHINES = pytest.mark.parametrize(
    ("energy", "kernel"),
    [(RBM(5, 3), gibbs_rbm), (GraphBoltzmann(8, "complete"), gibbs_graph)],
    ids=["bipartite", "graph"],
)


@pytest.fixture(autouse=True)
def untried():
    """Each test tries anew, and leaves nothing behind."""
    gibbs.tried_kernel.cache_clear()
    yield
    gibbs.tried_kernel.cache_clear()


@MACHINES
def test_a_kernel_that_cannot_be_compiled_gives_way_to_the_reference(energy, kernel, monkeypatch):
    expected = BlockGibbs(energy, 20, seed=3).step(4)
    gibbs.tried_kernel.cache_clear()

    def broken(*arguments):
        raise AttributeError("'CPUContext' object has no attribute 'make_array'\nand a long trace")

    monkeypatch.setattr(kernel, "run", broken)
    chains = BlockGibbs(energy, 20, seed=3)
    with pytest.warns(
        KernelWarning, match="no attribute 'make_array'.; plain torch is used, some ten times slower"
    ):
        found = chains.step(4)
    assert torch.equal(found, expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chains.step(1)
    assert choose_kernel(energy) is gibbs_torch.run


@MACHINES
def test_a_kernel_with_wrong_states_gives_way_too(energy, kernel, monkeypatch):
    right = kernel.run
    monkeypatch.setattr(kernel, "run", lambda energy, z, call: 1 - right(energy, z, call))
    with pytest.warns(KernelWarning, match="its states are wrong"):
        assert choose_kernel(energy) is gibbs_torch.run


@MACHINES
def test_a_kernel_that_fails_on_several_threads_runs_on_one(energy, kernel, monkeypatch, threads_of_torch):
    right, start = kernel.run, fair_coins(30, 8, key=1)
    expected = run_sweeps(energy, start, 3, key=2, first_sweep=1, kernel=gibbs_torch.run)

    def broken(energy, z, call):
        if call.num_threads > 1:
            raise RuntimeError("no threads")
        return right(energy, z, call)

    monkeypatch.setattr(kernel, "run", broken)
    with pytest.warns(
        KernelWarning, match=r"on several threads with this numba \(RuntimeError: no threads\); one"
    ):
        parallel = choose_kernel(energy, parallel=True)
    assert choose_kernel(energy) is broken
    call = gibbs.SweepCall(3, 2, 1, 0, None, None, num_threads=2)
    assert torch.equal(parallel(energy, start, call), expected)


def test_a_warning_that_is_an_error_is_not_swallowed(monkeypatch):
    monkeypatch.setattr(
        gibbs_rbm, "run", lambda *arguments: warnings.warn("loud", KernelWarning, stacklevel=2)
    )
    with pytest.raises(KernelWarning, match="loud"):
        choose_kernel(RBM(2, 2))
