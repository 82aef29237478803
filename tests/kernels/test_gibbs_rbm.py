"""Fields by products of bytes draw what sums of table rows and the reference draw, but for draws within rounding."""

import pytest
import torch

from discrete_vae import RBM
from discrete_vae.kernels import gibbs_rbm, gibbs_torch
from discrete_vae.kernels.gibbs_rbm import LARGEST_WEIGHT
from discrete_vae.kernels.gibbs_torch import SweepCall, fair_coins

pytestmark = pytest.mark.skipif(
    not gibbs_rbm.has_matrix_unit(), reason="this processor has no matrix unit for bytes"
)
WITHIN_ROUNDING = 2e-5  # share of draws; rounding of fields by 1e-5 changes two in a million


def machine(left, right, scale=1.0):
    generator = torch.Generator().manual_seed(left)
    energy = RBM(left, right)
    with torch.no_grad():
        energy.weight.normal_(0, scale, generator=generator)
        energy.bias.normal_(0, 1.0, generator=generator)
    return energy


draw = gibbs_rbm.by_products.compiled


def share_of_differences(energy, num_chains, draws):
    z = fair_coins(num_chains, energy.num_units, key=3)
    call = SweepCall(1, 7, 5, 11, None, None)
    with torch.no_grad():
        return float((draws(energy, z, call) != gibbs_torch.run(energy, z, call)).float().mean())


def test_states_are_the_references():
    assert gibbs_rbm.by_products.is_usable()
    assert share_of_differences(machine(300, 290), 1000, draw) < WITHIN_ROUNDING


def test_fewer_bits_of_a_weight_would_be_seen():
    def coarse(energy, z, call):
        largest = energy.weight.abs().amax()
        steps = 2.0**14 / largest
        energy.weight.copy_((energy.weight * steps).round() / steps)
        return draw(energy, z, call)

    energy = machine(300, 290)
    exact = machine(300, 290)
    z, call = fair_coins(1000, 590, key=3), SweepCall(1, 7, 5, 11, None, None)
    with torch.no_grad():
        found = coarse(energy, z, call)
        assert float((found != gibbs_torch.run(exact, z, call)).float().mean()) > 2 * WITHIN_ROUNDING


@pytest.mark.parametrize(("left", "right", "num_chains"), [(3, 2, 41), (17, 70, 9), (64, 16, 100)])
def test_sides_and_chains_need_not_be_multiples_of_anything(left, right, num_chains):
    assert share_of_differences(machine(left, right), num_chains, draw) < 1e-3  # none of some hundred draws


def test_it_does_not_matter_how_chains_are_divided():
    energy, z = machine(150, 140), fair_coins(100, 290, key=1)
    temperatures = torch.linspace(0.2, 1.0, 100)
    clamped = (torch.arange(290) % 5 == 0).expand(100, 290)
    whole = draw(energy, z, SweepCall(4, 1, 1, 0, temperatures, clamped))
    assert torch.equal(whole[clamped], z[clamped])
    again = draw(energy, z, SweepCall(4, 1, 1, 0, temperatures, clamped, num_threads=2))
    assert torch.equal(whole, again)
    part = draw(energy, z[37:], SweepCall(4, 1, 1, 37, temperatures[37:], clamped[37:]))
    assert torch.equal(whole[37:], part)
    by_tables = gibbs_rbm.by_tables(energy, z, SweepCall(4, 1, 1, 0, temperatures, clamped))
    assert float((whole != by_tables).float().mean()) < 1e-3


def test_large_weights_and_small_machines_are_summed_by_tables():
    call = SweepCall(1, 1, 1, 0, None, None)
    assert gibbs_rbm._suits_products(machine(256, 256, 0.1), None, call)
    assert not gibbs_rbm._suits_products(machine(64, 64, 0.1), None, call)
    energy = machine(256, 256, 0.1)
    with torch.no_grad():
        energy.weight[3, 5] = -LARGEST_WEIGHT - 1
    assert not gibbs_rbm._suits_products(energy, None, call)
    hot = SweepCall(1, 1, 1, 0, torch.tensor([0.5, 200.0]), None)
    assert not gibbs_rbm._suits_products(machine(256, 256, 0.1), None, hot)
