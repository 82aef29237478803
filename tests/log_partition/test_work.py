"""Free-energy differences between temperatures against the machine's own free energies."""

import pytest
import torch

from discrete_vae.log_partition.bridge import tempered_work
from tests.log_partition.machines import random_rbm


@pytest.mark.parametrize("shape", [(3, 2), (70, 130)])
@pytest.mark.parametrize("block", [0, 1])
def test_work_is_a_difference_of_free_energies(shape, block):
    rbm = random_rbm(*shape)
    generator = torch.Generator().manual_seed(1)
    z = torch.bernoulli(torch.full((50, sum(shape)), 0.5), generator=generator)
    below, here, above = torch.rand(3, 50, dtype=torch.float64, generator=generator).sort(0).values
    with torch.no_grad():
        free = [rbm.free_energy(z.double(), block, t) for t in (below, here, above)]
        for energies in (None, rbm.energy(z)):
            down, up = tempered_work(rbm, z, block, (below, here, above), energies=energies)
            torch.testing.assert_close(down, free[1] - free[0], rtol=0, atol=2e-4)
            torch.testing.assert_close(up, free[2] - free[1], rtol=0, atol=2e-4)


def test_large_logits_stay_finite():
    rbm = random_rbm(5, 5, 1000.0)
    t = torch.ones(1)
    down, up = tempered_work(rbm, torch.ones(1, 10), 1, (t / 2, t, t))
    assert bool(down.isfinite().all())
    assert up.item() == 0
