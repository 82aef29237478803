"""The CUDA kernel in Triton's interpreter, which `test_gibbs_triton` runs in a process of its own."""

import pytest
import torch

from discrete_vae.kernels import gibbs, gibbs_triton
from discrete_vae.kernels.gibbs import fair_coins, run_sweeps
from tests.kernels.test_gibbs_law import make_rbm


def both(rbm, start, *, num_sweeps=3, key=2, first_sweep=1, **options):
    """The states of the kernel and of the reference."""
    return [
        run_sweeps(rbm, start, num_sweeps, key=key, first_sweep=first_sweep, kernel=kernel, **options)
        for kernel in (gibbs_triton.run, gibbs.run_reference)
    ]


@pytest.mark.parametrize("shape", [(1, 1), (3, 40), (61, 37)], ids=str)
def test_same_states_as_the_reference(shape):
    rbm, start = make_rbm(*shape, scale=0.4), fair_coins(21, sum(shape), key=1)
    found, expected = both(rbm, start)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)
    assert not torch.equal(found, start)
    if shape == (3, 40):
        again = run_sweeps(rbm, start, 1, key=2, first_sweep=1, kernel=gibbs_triton.run)
        again = run_sweeps(rbm, again, 2, key=2, first_sweep=2, kernel=gibbs_triton.run)
        assert torch.equal(again, found)


@pytest.mark.parametrize("per_chain", [False, True])
def test_temperatures_and_clamped_units(per_chain):
    rbm, start = make_rbm(13, 9, scale=0.4), fair_coins(21, 22, key=1)
    clamped = fair_coins(21 if per_chain else 1, 22, key=3).bool()
    found, expected = both(rbm, start, inverse_temperature=torch.linspace(0, 2, 21), clamped=clamped)
    assert torch.equal(found, expected)
    held = clamped.expand_as(start)
    assert torch.equal(found[held], start[held])
    assert not torch.equal(found[~held], start[~held])


def test_counters_of_64_bits_and_far_chains():
    rbm, start = make_rbm(7, 6), fair_coins(20, 13, key=1)
    far = {"key": 2**64 - 1, "first_sweep": 2**32 - 2, "first_chain": 2**32 - 20}
    found, expected = both(rbm, start, **far)
    assert torch.equal(found, expected)
    assert not torch.equal(found, both(rbm, start, **far | {"first_sweep": 1})[0])


# numpy, with which the interpreter computes, warns where exp is infinite, as it may be
@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
def test_the_larger_tile_and_saturated_units():
    assert gibbs_triton.tile_of(128, 64) == 64
    rbm, start = make_rbm(70, 60, scale=0.3), fair_coins(70, 130, key=1)
    with torch.no_grad():
        rbm.bias[:2] = torch.tensor([200.0, -200.0])
    found, expected = both(rbm, start, num_sweeps=2)
    assert torch.equal(found, expected)
    assert bool((found[:, 0] == 1).all() & (found[:, 1] == 0).all())


@pytest.fixture
def one_program(monkeypatch):
    """All chains in one program: the interpreter takes as long for each as for many chains."""
    monkeypatch.setattr(gibbs_triton, "tile_of", lambda left, right: 1 << 14)


def test_rounded_weights_are_found(monkeypatch, one_program):
    """The planted fault: products of one bfloat16 part of the weights, or of two, as faster kernels would have it."""
    rbm, start = make_rbm(64, 64, scale=3.0), fair_coins(1 << 14, 128, key=1)
    found, expected = both(rbm, start, num_sweeps=1)
    assert torch.equal(found, expected)
    split = gibbs_triton.split_weights
    for parts in (1, 2):

        def rounded(*arguments, parts=parts, **options):
            weights = split(*arguments, **options)
            weights[: 3 - parts] = 0
            return weights

        monkeypatch.setattr(gibbs_triton, "split_weights", rounded)
        again = run_sweeps(rbm, start, 1, key=2, first_sweep=1, kernel=gibbs_triton.run)
        assert not torch.equal(again, expected)
