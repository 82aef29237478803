"""Threads of the compiled kernels: forked children, and the layer's order."""

import pytest
import torch
from numba.core import config

from discrete_vae import RBM, GraphBoltzmann
from discrete_vae.samplers.kernels import threads
from discrete_vae.samplers.kernels.philox import fair_coins
from discrete_vae.samplers.kernels.sweeps import run_sweeps


@pytest.mark.parametrize("energy", [RBM(5, 3), GraphBoltzmann(8, "complete")], ids=["bipartite", "graph"])
def test_forked_child_works_on_one_thread(energy, monkeypatch):
    start = fair_coins(30, 8, key=1)
    expected = run_sweeps(energy, start, 3, key=2, first_sweep=1)
    monkeypatch.setattr(threads.os, "getpid", lambda: -1)
    assert threads.num_threads() == 1
    assert torch.equal(run_sweeps(energy, start, 3, key=2, first_sweep=1), expected)


def test_thread_layer_order_is_restored(monkeypatch):
    before = list(config.THREADING_LAYER_PRIORITY)
    monkeypatch.setattr(threads, "_process_of_threads", None)
    threads.num_threads()
    assert before == config.THREADING_LAYER_PRIORITY
