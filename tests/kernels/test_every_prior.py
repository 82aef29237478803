"""The law of the sweeps of every prior that a config can name, under every kernel that takes it."""

import pytest

from discrete_vae.config import PriorConfig, instantiate, members
from discrete_vae.kernels import gibbs_torch
from discrete_vae.kernels.gibbs import kernel_for, run_sweeps
from tests.boltzmann.graphs import randomize
from tests.boltzmann.test_contract import SMALL
from tests.oracles.transitions import check_sweeps


@pytest.mark.parametrize("config", members(PriorConfig))
@pytest.mark.parametrize("choose", [kernel_for, lambda energy: gibbs_torch.run], ids=["own", "torch"])
def test_sweeps_keep_the_law(config, choose):
    kind = config.model_fields["kind"].default
    energy = randomize(instantiate(config(**SMALL[kind])))

    def step(z):
        return run_sweeps(energy, z, 1, key=7, first_sweep=1, kernel=choose(energy))

    check_sweeps(energy, step, repeats=1000)
