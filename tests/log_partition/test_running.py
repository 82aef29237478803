"""The running value of log Z and the chains' gradient."""

import math

import pytest
import torch

from discrete_vae import RBM, BlockGibbs, FactorialBernoulli, exact_log_partition
from discrete_vae.errors import InvalidInputError
from discrete_vae.log_partition.running import RunningLogPartition
from discrete_vae.testing.enumeration import enumerate_machine
from discrete_vae.testing.goodness_of_fit import check_mean


def random_rbm(left, right, scale):
    rbm = RBM(left, right)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        rbm.weight.copy_(scale * torch.randn(left, right, generator=generator))
        rbm.bias.copy_(scale * torch.randn(left + right, generator=generator))
    return rbm


def gradients_from_chains(rbm, make_value, num_chains=100):
    """The gradient of log Z from each of 40 independent sets of chains."""
    z = BlockGibbs(rbm, 40 * num_chains, seed=3).step(200)
    running = RunningLogPartition(rbm, value=1.5)
    rows = []
    for chains in z.split(num_chains):
        value = make_value(running, chains)
        assert value.item() == 1.5
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(value, list(rbm.parameters()))]))
    return torch.stack(rows)


def exact_gradient(rbm):
    machine = enumerate_machine(rbm)
    return torch.cat(
        [g.flatten() for g in torch.autograd.grad(machine.log_partition, list(rbm.parameters()))]
    )


def test_the_negative_phase_agrees_with_enumeration():
    rbm = random_rbm(6, 5, 0.7)
    rows = gradients_from_chains(rbm, lambda running, chains: running.tensor(chains))
    check_mean(rows, exact_gradient(rbm), resolution=0.02)


def test_it_is_rao_blackwellised():
    rbm = random_rbm(6, 5, 0.7)
    z = BlockGibbs(rbm, 4000, seed=3).step(200)
    both = [-rbm.marginal_energy(z).mean(), -rbm.energy(z).mean()]
    errors = [
        (torch.autograd.grad(v, rbm.weight)[0] - exact_gradient(rbm)[:30].reshape(6, 5)).square().mean()
        for v in both
    ]
    assert errors[0] < errors[1]


def test_chains_with_swapped_sides_are_rejected():
    rbm = random_rbm(5, 5, 0.7)

    def swapped(running, chains):
        return running.tensor(torch.cat([chains[:, 5:], chains[:, :5]], -1))

    with pytest.raises(AssertionError, match="standard errors apart"):
        check_mean(gradients_from_chains(rbm, swapped), exact_gradient(rbm))


def train(update, num_steps=400, num_chains=500, running_class=RunningLogPartition):
    """Fit a small machine to fixed moments with persistent chains, following log Z."""
    rbm = RBM(6, 5)
    target = random_rbm(6, 5, 2.0)
    data = BlockGibbs(target, 2000, seed=9).step(100)
    chains = BlockGibbs(rbm, num_chains, seed=1)
    running = running_class(rbm)
    optimiser = torch.optim.Adam(rbm.parameters(), lr=1e-2)
    z = chains.step(5)
    for _ in range(num_steps):
        loss = rbm.energy(data).mean() + running.tensor(z)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        z = update(running, chains, z)
    return rbm, running


def after_the_sweeps(running, chains, z):
    z = chains.step(5)
    running.update(z)
    return z


def test_the_value_stays_within_its_error_under_training():
    rbm, running = train(after_the_sweeps)
    exact = exact_log_partition(rbm).value
    assert abs(exact - RunningLogPartition(RBM(6, 5)).value) > 0.5  # log Z has moved
    assert 0 < running.std_error < 0.02
    assert abs(running.value - exact) < 5 * running.std_error


class OnTheChainsThatMadeTheStep(RunningLogPartition):
    """log mean exp(E_old - E_new) over the samples that the step has pushed against, before their next sweeps."""

    def update(self, z):
        new = self.energy.marginal_energy(z).detach()
        super().update(z)
        self.value = self.before + float(torch.logsumexp(self.old_energy - new, 0)) - math.log(len(z))

    def tensor(self, z):
        self.before, self.old_energy = self.value, self.energy.marginal_energy(z).detach()
        return super().tensor(z)


def test_the_chains_that_made_the_step_are_a_fault_that_is_caught():
    def before_the_sweeps(running, chains, z):
        running.update(z)
        return chains.step(5)

    rbm, running = train(before_the_sweeps, 2000, 100, running_class=OnTheChainsThatMadeTheStep)
    assert abs(running.value - exact_log_partition(rbm).value) > 5 * running.std_error


def test_a_factorial_prior_is_followed_exactly():
    prior = FactorialBernoulli(4)
    running = RunningLogPartition(prior)
    with torch.no_grad():
        prior.bias.copy_(torch.tensor([1.0, -2.0, 0.5, 3.0]))
    running.update(torch.zeros(10, 4))
    assert running.value == pytest.approx(exact_log_partition(prior).value, abs=1e-5)


def test_state_goes_on_where_it_stopped():
    rbm, running = train(after_the_sweeps, num_steps=5, num_chains=50)
    copy = RunningLogPartition(rbm, value=0.0)
    copy.load_state_dict(running.state_dict())
    with torch.no_grad():
        rbm.weight.add_(0.1)
    z = BlockGibbs(rbm, 50, seed=0).step(3)
    for one in (running, copy):
        one.update(z)
    assert (copy.value, copy.std_error) == (running.value, running.std_error)


def test_reset():
    rbm, running = train(after_the_sweeps, num_steps=3, num_chains=50)
    running.reset(7.0)
    assert (running.value, running.std_error) == (7.0, 0.0)
    running.update(BlockGibbs(rbm, 20, seed=0).step(1))
    assert running.value == pytest.approx(7.0, abs=1e-6)


def test_errors():
    rbm = random_rbm(2, 2, 1.0)
    with pytest.raises(InvalidInputError, match="value must be given where couplings are not zero"):
        RunningLogPartition(rbm)
    with pytest.raises(InvalidInputError, match="value must be a finite number; received nan"):
        RunningLogPartition(rbm, value=float("nan"))
    running = RunningLogPartition(rbm, value=0.0)
    running.update(torch.zeros(5, 4))
    with pytest.raises(InvalidInputError, match="z must hold 5 chains; received 6"):
        running.update(torch.zeros(6, 4))
    with pytest.raises(InvalidInputError, match=r"z must have shape \(chain, 4\)"):
        running.tensor(torch.zeros(5, 3))
    with pytest.raises(
        InvalidInputError, match=r"state must hold value and parameters.weight of shape \(2, 2\)"
    ):
        running.load_state_dict({"value": 1.0})
