"""Groups along a coloring of the prior's graph."""

import pytest
import torch

from discrete_vae import DiscreteVAE, FactorialBernoulli, GraphBoltzmann
from discrete_vae.config import (
    FactorialBernoulliConfig,
    GraphBoltzmannConfig,
    HierarchicalPosteriorConfig,
    ModelConfig,
    RBMConfig,
)
from discrete_vae.posterior import check_groups, color_groups

PRIORS = {
    "rbm": (RBMConfig(num_left=3, num_right=2), 2),
    "factorial": (FactorialBernoulliConfig(num_units=4), 1),
    "chimera": (GraphBoltzmannConfig(num_units=32, edges="chimera"), 2),
    "pegasus": (GraphBoltzmannConfig(num_units=40, edges="pegasus"), 4),
    "zephyr": (GraphBoltzmannConfig(num_units=48, edges="zephyr"), 4),
}


@pytest.mark.parametrize(("prior", "number"), PRIORS.values(), ids=PRIORS)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_model_has_a_group_per_color(prior, number, device):
    posterior = HierarchicalPosteriorConfig(groups="colors", hidden=(4,))
    with torch.device(device):
        model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=prior, posterior=posterior))
    groups = check_groups(model.posterior.groups)
    assert len(groups) == number
    assert model.config.posterior.groups == "colors"  # which is what is saved


@pytest.mark.parametrize("name", ["chimera", "pegasus", "zephyr"])
def test_no_pair_lies_within_a_group(name):
    machine = GraphBoltzmann(PRIORS[name][0].num_units, name)
    group = torch.zeros(machine.num_units, dtype=torch.int64)
    for index, units in enumerate(color_groups(machine)):
        group[list(units)] = index
    assert bool((group[machine.edges[:, 0]] != group[machine.edges[:, 1]]).all())
    assert color_groups(FactorialBernoulli(3)) == ((0, 1, 2),)
