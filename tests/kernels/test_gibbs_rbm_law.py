"""The law of a sweep: the exact matrix leaves p(z) invariant, and every kernel draws from the exact matrix."""

import pytest
import torch

from discrete_vae import RBM, FactorialBernoulli
from discrete_vae.kernels import gibbs_torch
from discrete_vae.kernels.gibbs import kernel_for, run_sweeps
from discrete_vae.kernels.gibbs_torch import unit_words
from discrete_vae.testing import TooFewSamplesError, check_frequencies, check_mean, enumerate_machine
from tests.oracles.transitions import check_transitions, invariance_error, sweep_matrix

INVARIANCE = 1e-12
REPEATS = 1000  # chains out of each state
SHAPES = [(1, 1), (1, 3), (3, 1), (2, 2), (3, 3), (2, 4), (5, 1)]


def make_rbm(num_left: int, num_right: int, *, scale: float = 1.5, seed: int = 0) -> RBM:
    rbm = RBM(num_left, num_right)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        rbm.weight.normal_(0, scale, generator=generator)
        rbm.bias.normal_(0, 1, generator=generator)
    return rbm


def make_factorial() -> FactorialBernoulli:
    energy = FactorialBernoulli(5)
    with torch.no_grad():
        energy.bias.copy_(torch.tensor([-2.0, -0.5, 0.0, 1.0, 3.0]))
    return energy


class TransposedWeight(RBM):
    def compute_block_logits(self, z, block):
        left, right = z[..., : self.num_left], z[..., self.num_left :]
        weight, bias = self.weight.to(z.dtype), self.bias.to(z.dtype).split([self.num_left, self.num_right])
        return (right @ weight if block == 0 else left @ weight.T) + bias[block]


class DroppedBias(RBM):
    def compute_block_logits(self, z, block):
        return super().compute_block_logits(z, block) - self.bias[self.blocks[block]].to(z.dtype)


class SwappedSides(RBM):
    def compute_block_logits(self, z, block):
        return super().compute_block_logits(z, 1 - block)


class StaleField(RBM):
    """The right side sees the left side as it was before this sweep."""

    def compute_block_logits(self, z, block):
        if block == 0:
            self.old = z.clone()
        return super().compute_block_logits(z if block == 0 else self.old, block)


def faulty(kind: type[RBM], rbm: RBM) -> RBM:
    copy = kind(rbm.num_left, rbm.num_right)
    copy.load_state_dict(rbm.state_dict())
    return copy


def kernel_of(name: str, energy):
    return gibbs_torch.run if name == "torch" else kernel_for(energy)


def one_sweep(energy, kernel, *, key: int = 7, first_sweep: int = 1, **options):
    return lambda z: run_sweeps(energy, z, 1, key=key, first_sweep=first_sweep, kernel=kernel, **options)


@pytest.mark.parametrize("shape", SHAPES)
def test_exact_matrix_leaves_the_rbm_invariant(shape):
    rbm = make_rbm(*shape)
    matrix = sweep_matrix(rbm)
    torch.testing.assert_close(matrix.sum(-1), torch.ones(len(matrix), dtype=torch.float64))
    assert invariance_error(enumerate_machine(rbm).prob, matrix) < INVARIANCE


def test_exact_matrix_leaves_the_factorial_machine_invariant():
    energy = make_factorial()
    matrix = sweep_matrix(energy)
    assert invariance_error(enumerate_machine(energy).prob, matrix) < INVARIANCE
    assert torch.allclose(matrix, enumerate_machine(energy).prob.expand_as(matrix), atol=1e-14)


@pytest.mark.parametrize("kind", [TransposedWeight, DroppedBias, SwappedSides])
def test_invariance_rejects_wrong_conditionals(kind):
    rbm = make_rbm(3, 3)
    assert invariance_error(enumerate_machine(rbm).prob, sweep_matrix(faulty(kind, rbm))) > 1e-3


@pytest.mark.parametrize("kernel", ["torch", "compiled"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1), (3, 3), (2, 4)])
def test_kernel_draws_from_the_exact_matrix(kernel, shape):
    rbm = make_rbm(*shape)
    check_transitions(one_sweep(rbm, kernel_of(kernel, rbm)), sweep_matrix(rbm), sum(shape), repeats=REPEATS)


def test_reference_draws_from_the_factorial_matrix():
    energy = make_factorial()
    assert kernel_for(energy) is gibbs_torch.run
    check_transitions(one_sweep(energy, None), sweep_matrix(energy), 5, repeats=REPEATS)


@pytest.mark.parametrize("kernel", ["torch", "compiled"])
@pytest.mark.parametrize("seed", [0, 1, 2, 2**63, 2**64 - 1])
def test_law_holds_for_hostile_keys_and_sweeps(kernel, seed):
    rbm = make_rbm(3, 2)
    run = kernel_of(kernel, rbm)
    matrix = sweep_matrix(rbm)
    check_transitions(one_sweep(rbm, run, key=seed), matrix, 5, repeats=REPEATS)
    check_transitions(one_sweep(rbm, run, key=seed, first_sweep=2**32), matrix, 5, repeats=REPEATS)


@pytest.mark.parametrize("kernel", ["torch", "compiled"])
@pytest.mark.parametrize("inverse_temperature", [0.0, 0.3, 2.0])
def test_law_holds_at_other_temperatures(kernel, inverse_temperature):
    rbm = make_rbm(2, 3)
    cold = torch.full((32 * REPEATS,), inverse_temperature)
    step = one_sweep(rbm, kernel_of(kernel, rbm), inverse_temperature=cold)
    check_transitions(step, sweep_matrix(rbm, inverse_temperature=inverse_temperature), 5, repeats=REPEATS)
    with pytest.raises(AssertionError):
        check_transitions(step, sweep_matrix(rbm), 5, repeats=REPEATS)


@pytest.mark.parametrize("kernel", ["torch", "compiled"])
def test_law_holds_with_clamped_units(kernel):
    rbm = make_rbm(3, 2)
    clamped = torch.tensor([False, True, False, True, False])
    step = one_sweep(rbm, kernel_of(kernel, rbm), clamped=clamped)
    check_transitions(step, sweep_matrix(rbm, clamped=clamped), 5, repeats=REPEATS)
    with pytest.raises(AssertionError):
        check_transitions(step, sweep_matrix(rbm), 5, repeats=REPEATS)


@pytest.mark.parametrize("kind", [TransposedWeight, DroppedBias, SwappedSides, StaleField])
def test_counted_transitions_reject_wrong_kernels(kind):
    rbm = make_rbm(3, 3)
    step = one_sweep(faulty(kind, rbm), None)
    with pytest.raises(AssertionError, match="chi-square"):
        check_transitions(step, sweep_matrix(rbm), 6, repeats=REPEATS)


def test_counted_transitions_reject_one_random_number_for_both_sides(monkeypatch):
    def shared_words(num_chains, num_units, **counter):
        words = unit_words(num_chains, num_units, **counter)
        return torch.cat([words[:, : num_units // 2]] * 2, 1)

    rbm = make_rbm(3, 3, scale=0.2)
    step = one_sweep(rbm, gibbs_torch.run)
    check_transitions(step, sweep_matrix(rbm), 6, repeats=REPEATS)
    monkeypatch.setattr(gibbs_torch, "unit_words", shared_words)
    with pytest.raises(AssertionError, match="chi-square"):
        check_transitions(step, sweep_matrix(rbm), 6, repeats=REPEATS)


def test_too_few_transitions_do_not_pass():
    rbm = make_rbm(3, 3)
    with pytest.raises(TooFewSamplesError):
        check_transitions(one_sweep(rbm, None), sweep_matrix(rbm), 6, repeats=1)


@pytest.fixture(scope="module")
def long_run():
    """A 10 + 8 machine and independent states of it, 40 batches of 5,000 chains after 60 sweeps."""
    rbm = make_rbm(10, 8, scale=0.6, seed=3)
    start = torch.zeros(200_000, 18)
    return rbm, run_sweeps(rbm, start, 60, key=11, first_sweep=1)


def test_moments_of_a_larger_machine(long_run):
    rbm, z = long_run
    batches = z.view(40, -1, 18).double()
    moments = torch.einsum("bci,bcj->bij", batches, batches) / batches.shape[1]
    check_mean(moments, enumerate_machine(rbm).pair_moments().detach(), resolution=2e-3)


def test_moments_reject_a_slightly_colder_machine(long_run):
    rbm, z = long_run
    cold = run_sweeps(rbm, z, 20, key=12, first_sweep=1, inverse_temperature=torch.full((len(z),), 1.03))
    batches = cold.view(40, -1, 18).double()
    moments = torch.einsum("bci,bcj->bij", batches, batches) / batches.shape[1]
    with pytest.raises(AssertionError, match="standard errors apart"):
        check_mean(moments, enumerate_machine(rbm).pair_moments().detach())


def test_successive_sweeps_use_independent_noise():
    # at zero weights the states of successive sweeps are independent coins, so pairs of them are uniform
    rbm = RBM(1, 1)
    first = run_sweeps(rbm, torch.zeros(100_000, 2), 1, key=5, first_sweep=1)
    second = run_sweeps(rbm, first, 1, key=5, first_sweep=2)
    cells = (torch.cat([first, second], 1).long() << torch.arange(4)).sum(-1)
    check_frequencies(torch.bincount(cells, minlength=16), torch.full((16,), 1 / 16))
