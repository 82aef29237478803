"""Paths between examples: their ends are reconstructions, their order of flips the best one by trying all."""

import itertools

import numpy as np
import pytest
import torch

from discrete_vae import RBM
from discrete_vae.inference.encode import encode_rows, reconstruct_rows
from discrete_vae.inference.interpolate import interpolate, order_of_flips
from tests.inference.models import small_model, some_bits


def random_machine(seed, sides=(4, 3)):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        machine = RBM(*sides)
        with torch.no_grad():
            for parameter in machine.parameters():
                parameter.normal_(0, 2)
    return machine


def energies_along(machine, start, order):
    z, found = start.clone(), [float(machine.energy(start[None]))]
    for unit in order:
        z[unit] = 1 - z[unit]
        found.append(float(machine.energy(z[None])))
    return np.array(found)


@pytest.mark.parametrize("seed", range(4))
@torch.no_grad()
def test_the_order_is_the_best_of_all(seed):
    machine = random_machine(seed)
    start = torch.zeros(7)
    end = torch.tensor([1.0, 1, 0, 1, 1, 1, 0])
    order, energies = order_of_flips(machine, start, end)
    assert sorted(order) == [0, 1, 3, 4, 5]
    np.testing.assert_allclose(energies, energies_along(machine, start, order), atol=1e-5)
    every = [energies_along(machine, start, each) for each in itertools.permutations(sorted(order))]
    peaks = np.array([each.max() for each in every])
    assert energies.max() == pytest.approx(peaks.min(), abs=1e-5)
    best = min(each.mean() for each in every if each.max() < peaks.min() + 1e-5)
    assert energies.mean() == pytest.approx(best, abs=1e-5)
    assert peaks.max() > peaks.min() + 0.5  # the order matters, so that a wrong one would be seen


def test_a_wider_beam_is_no_worse_and_equal_states_need_no_flip():
    machine = random_machine(5, (12, 12))
    start, end = torch.zeros(24), torch.ones(24)
    narrow, wide = (order_of_flips(machine, start, end, width=width)[1].max() for width in (1, 200))
    assert wide <= narrow
    order, energies = order_of_flips(machine, start, start)
    assert order == []
    assert energies.shape == (1,)


@pytest.mark.parametrize("layers", [0, 2])
@pytest.mark.parametrize("path", ["flips", "straight"])
def test_the_ends_are_the_reconstructions_of_the_codes(layers, path):
    model, x = small_model(layers=layers, seed=1), some_bits(8)
    codes, own = encode_rows(model, x), reconstruct_rows(model, x, code=True)
    for first, last in ((0, 1), (2, 5), (3, 3)):
        found = interpolate(model, x[first][None], x[last][None], path=path, num_steps=6)
        np.testing.assert_allclose(found.mean[[0, -1]], own[[first, last]], atol=2e-5)
        np.testing.assert_allclose(found.zeta[[0, -1]], codes.zeta[[first, last]], atol=1e-5)
        np.testing.assert_array_equal(found.bits[[0, -1]], codes.bits[[first, last]])
        energies = model.prior.energy(torch.from_numpy(found.bits).float()).detach()
        np.testing.assert_allclose(found.energy, energies, atol=1e-5)
        ends = max(float(energies[0]), float(energies[-1]))
        assert abs(found.barrier - (float(energies.max()) - ends)) < 1e-4
        differ = int((codes.bits[first] != codes.bits[last]).sum())
        if path == "flips" and differ:
            assert len(found.mean) == differ + 1
            assert (np.abs(np.diff(found.bits.astype(int), axis=0)).sum(1) == 1).all()
            assert found.flipped[0] == -1
            changed = [int(np.flatnonzero(row)[0]) for row in np.diff(found.bits.astype(int), axis=0)]
            assert found.flipped[1:].tolist() == changed
        else:
            assert len(found.mean) == 6
            assert (found.flipped == -1).all()


def test_layers_keep_their_place_in_the_prior():
    model, x = small_model(layers=2, seed=1), some_bits(8)
    found = interpolate(model, x[:1], x[5:6])
    zeta, h = torch.from_numpy(found.zeta), torch.from_numpy(found.continuous)
    with torch.no_grad():
        law = model.hierarchy.prior_at(zeta, h)
        normals = ((h - law.mean) / law.log_std.exp()).flatten(1)
    lengths = normals.norm(dim=1)
    steps = np.diff(lengths.numpy())
    np.testing.assert_allclose(steps, steps.mean(), atol=1e-3)
    angles = torch.arccos((normals[1:] * normals[:-1]).sum(1) / lengths[1:] / lengths[:-1])
    np.testing.assert_allclose(angles, angles.mean(), atol=1e-3)
