"""What judges the rest: enumeration and quadrature against closed forms; false-alarm rates and power of the checks."""

import math

import pytest
import torch

from discrete_vae import RBM, SpikeExponential, SpikeSlab
from discrete_vae.testing import (
    TooFewSamplesError,
    all_states,
    check_frequencies,
    check_mean,
    enumerate_machine,
)
from tests.boltzmann.graphs import with_parameters
from tests.oracles.quadrature import joint_nodes, posterior_quadrature, unit_nodes
from tests.refusals import refused_argument


def test_one_pair_by_hand():
    rbm = with_parameters(RBM(1, 1).double(), weight=0.7, bias=[0.2, -0.5])
    machine = enumerate_machine(rbm)
    total = 1 + math.exp(0.2) + math.exp(-0.5) + math.exp(0.7 + 0.2 - 0.5)
    assert machine.log_partition.item() == pytest.approx(math.log(total), abs=1e-12)
    assert machine.pair_moments()[0, 1].item() == pytest.approx(math.exp(0.4) / total, abs=1e-12)
    second = machine.expectation(machine.states)[1].item()
    assert second == pytest.approx((math.exp(-0.5) + math.exp(0.4)) / total, abs=1e-12)
    assert refused_argument(all_states, 21) == "num_units"


@pytest.mark.parametrize("beta", [0.05, 8.0])
def test_weights_of_nodes_sum_to_one_and_give_the_moments(beta):
    nodes = unit_nodes(SpikeExponential(beta=beta, trainable=False).double(), 24)
    on = nodes.z == 1
    assert nodes.weight[on].sum().item() == pytest.approx(1, abs=1e-12)
    assert nodes.weight[~on].sum().item() == pytest.approx(1, abs=1e-12)
    mean = 1 / -math.expm1(-beta) - 1 / beta
    assert (nodes.weight * nodes.zeta)[on].sum().item() == pytest.approx(mean, abs=1e-10)
    smoothing = SpikeSlab()
    nodes = joint_nodes(smoothing, 2, 8)
    assert nodes.z.shape == (81, 2)
    assert nodes.weight.sum().item() == pytest.approx(4, abs=1e-12)  # once for each z
    posterior = posterior_quadrature(lambda group, zeta: zeta[:, :1] * group + 0.3, [[1], [0]], smoothing, 8)
    assert posterior.expectation(torch.ones(81).double()).item() == pytest.approx(1, abs=1e-12)
    # unit 0 comes second, with logit 0.3 + E over nothing of its own zeta: zeta[:, 0] is hidden from it
    assert posterior.logits[:, 0].unique().tolist() == pytest.approx([0.3])


def rejected(check, *arguments, **keywords):
    try:
        check(*arguments, **keywords)
    except AssertionError:
        return True
    return False


def test_false_alarm_rate_and_power_of_means():
    generator = torch.Generator().manual_seed(0)
    alarms = sum(
        rejected(check_mean, torch.randn(40, 5, generator=generator), torch.zeros(5), alpha=0.05)
        for _ in range(1000)
    )
    assert 10 <= alarms <= 0.05 * 1000 + 5 * (0.05 * 0.95 * 1000) ** 0.5
    noise = torch.randn(60, 3, generator=generator)
    assert rejected(check_mean, noise + torch.tensor([0.0, 1.5, 0.0]), torch.zeros(3))
    assert rejected(check_mean, torch.full((60, 1), float("nan")), torch.zeros(1))
    for batches, keywords in ((torch.zeros(10, 1), {}), (torch.randn(40, 1), {"resolution": 1e-3})):
        with pytest.raises(TooFewSamplesError):
            check_mean(batches, torch.zeros(1), **keywords)


def test_false_alarm_rate_and_power_of_frequencies():
    p = torch.tensor([0.5, 0.3, 0.15, 0.05])
    draws = torch.multinomial(p, 500_000, replacement=True, generator=torch.Generator().manual_seed(0))
    counts = [torch.bincount(row, minlength=4) for row in draws.view(1000, 500)]
    assert 10 <= sum(rejected(check_frequencies, each, p, alpha=0.05) for each in counts) <= 85
    assert rejected(check_frequencies, torch.tensor([600, 400]), torch.tensor([0.5, 0.5]))
    assert rejected(check_frequencies, torch.tensor([50, 30, 20]), torch.tensor([0.5, 0.3, math.nan]))
    assert rejected(check_frequencies, torch.tensor([600, 400, 1]), torch.tensor([0.6, 0.4, 0.0]))
    with pytest.raises(TooFewSamplesError):
        check_frequencies(torch.tensor([1, 1]), torch.tensor([0.5, 0.5]))
