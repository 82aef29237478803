"""The written-out gradients of an RBM, and its sides in the field's words."""

import pytest
import torch

from discrete_vae import RBM
from discrete_vae.testing import all_states, check_frequencies, enumerate_machine
from tests.boltzmann.graphs import randomize
from tests.boltzmann.products import products_of

CASES = {
    "left first": ([0, 0, 0, 1, 1], (4,)),
    "right first": ([1, 1, 1, 0, 0], (2, 3)),
    "one group": ([0, 0, 0, 0, 0], ()),
    "all cases": ([0, 1, 2, 1, 0], (4,)),
}


@pytest.mark.parametrize(("order", "lead"), CASES.values(), ids=CASES)
def test_expected_energy(order, lead):
    rbm = randomize(RBM(3, 2)).double()
    group = torch.tensor(order)
    pairs = rbm.pair_order(group)
    bits, mean = (torch.rand(*lead, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    got = rbm.expected_energy(bits, mean, pairs)
    plain = -(mean @ rbm.bias)
    for i in range(3):
        for j in range(3, 5):
            left = bits if group[i] < group[j] else mean
            right = bits if group[i] > group[j] else mean
            plain = plain - rbm.weight[i, j - 3] * left[..., i] * right[..., j]
    torch.testing.assert_close(got, plain, rtol=1e-12, atol=1e-12)
    scale = torch.rand(lead, dtype=torch.float64)
    wanted = [bits, mean, rbm.weight, rbm.bias]
    options = {"allow_unused": True, "materialize_grads": True}
    gradients = (torch.autograd.grad((scale * value).sum(), wanted, **options) for value in (got, plain))
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)


def conditionals(rbm):
    """p(hidden unit on | visible) for each visible state and the reverse, from the joint table alone."""
    sizes = 2**rbm.num_right, 2**rbm.num_left  # left is the low bits
    joint = enumerate_machine(rbm).prob.detach().view(sizes)
    hidden, visible = all_states(rbm.num_right), all_states(rbm.num_left)
    return (joint.T @ hidden) / joint.sum(0)[:, None], (joint @ visible) / joint.sum(1)[:, None]


def test_conditionals_are_those_of_the_joint_distribution():
    rbm = randomize(RBM(3, 2))
    hidden, visible = conditionals(rbm)
    torch.testing.assert_close(rbm.hidden_given_visible(all_states(3)), hidden)
    torch.testing.assert_close(rbm.visible_given_hidden(all_states(2)), visible)
    relaxed = torch.full((2, 4, 3), 0.5)
    assert rbm.hidden_given_visible(relaxed).shape == (2, 4, 2)
    assert rbm.hidden_given_visible(relaxed).requires_grad


def test_draws_follow_the_conditionals():
    rbm, generator = randomize(RBM(3, 2)), torch.Generator().manual_seed(0)
    for sample, width, given, prob in (
        (rbm.sample_hidden, 2, 3, conditionals(rbm)[0]),
        (rbm.sample_visible, 3, 2, conditionals(rbm)[1]),
    ):
        states = all_states(given).float().repeat_interleave(5000, 0)
        drawn = sample(states, generator=generator)
        assert drawn.dtype == torch.float32
        assert not drawn.requires_grad
        codes = (drawn.long() << torch.arange(width)).sum(-1)
        cells = torch.arange(2**given).repeat_interleave(5000) * 2**width + codes
        outcomes = all_states(width)
        factors = torch.where(outcomes[None] == 1, prob[:, None], 1 - prob[:, None])
        counts = torch.bincount(cells, minlength=2 ** (width + given))
        check_frequencies(counts, (factors.prod(-1) / 2**given).flatten())
        wrong = torch.where(outcomes[None] == 1, prob.flip(1)[:, None], 1 - prob.flip(1)[:, None])
        with pytest.raises(AssertionError):  # planted fault: the units of the answer in reverse
            check_frequencies(counts, (wrong.prod(-1) / 2**given).flatten())


def test_each_takes_one_product():
    rbm, generator = randomize(RBM(30, 20)), torch.Generator().manual_seed(0)
    visible, hidden = torch.ones(8, 30), torch.ones(8, 20)
    for call in (
        lambda: rbm.hidden_given_visible(visible),
        lambda: rbm.visible_given_hidden(hidden),
        lambda: rbm.sample_hidden(visible, generator=generator),
        lambda: rbm.sample_visible(hidden, generator=generator),
    ):
        assert products_of(call) == 1
    assert products_of(lambda: rbm.free_energy(visible)) == 2  # with the weights, and with the biases
