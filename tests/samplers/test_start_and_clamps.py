"""Start states, clamped units and inverse temperatures of block Gibbs, each in law against enumeration."""

import pytest
import torch

from discrete_vae import BlockGibbs, FactorialBernoulli, GraphBoltzmann
from discrete_vae.errors import InvalidInputError
from discrete_vae.testing.enumeration import all_states, enumerate_machine
from discrete_vae.testing.goodness_of_fit import check_frequencies
from tests.boltzmann.graphs import randomize
from tests.oracles.transitions import check_transitions, sweep_matrix
from tests.samplers.test_block_gibbs import make_rbm

MACHINES = {
    "rbm": lambda: make_rbm(3, 2),
    "graph": lambda: randomize(GraphBoltzmann(5, "complete")),
    "factorial": lambda: randomize(FactorialBernoulli(5)),
}
CLAMPED = torch.tensor([True, False, False, True, False])


@pytest.fixture(params=MACHINES)
def machine(request):
    return MACHINES[request.param]()


@pytest.mark.parametrize("scale", [1.0, 0.4, 2.0])
@pytest.mark.parametrize("clamped", [None, CLAMPED], ids=["free", "clamped"])
def test_a_sweep_from_given_states_has_the_exact_matrix(machine, scale, clamped):
    def step(z):
        options = {"start": z, "clamped": clamped, "inverse_temperature": scale}
        return BlockGibbs(machine, len(z), seed=5, **options).step(1)

    matrix = sweep_matrix(machine, inverse_temperature=scale, clamped=clamped)
    check_transitions(step, matrix, 5, repeats=2000)
    wrong = sweep_matrix(machine, inverse_temperature=1.3 * scale, clamped=clamped)
    with pytest.raises(AssertionError):  # planted fault: another temperature
        check_transitions(step, wrong, 5, repeats=2000)


def test_clamped_chains_follow_the_conditional_and_tempered_ones_their_power():
    rbm = make_rbm(3, 2)
    states, scale = all_states(5), 0.5
    log_prob = scale * enumerate_machine(rbm).log_prob.detach()
    held = (states[:, CLAMPED] == torch.tensor([1.0, 0.0])).all(1)
    expected = torch.where(held, log_prob, -torch.inf).softmax(0)
    start = torch.tensor([1.0, 0, 0, 0, 0]).repeat(20_000, 1)
    chains = BlockGibbs(rbm, 20_000, seed=1, start=start, clamped=CLAMPED, inverse_temperature=scale)
    codes = (chains.step(40).long() << torch.arange(5)).sum(-1)
    counts = torch.bincount(codes, minlength=32)
    check_frequencies(counts, expected)
    with pytest.raises(AssertionError):  # planted fault: the law at t = 1
        check_frequencies(counts, torch.where(held, log_prob / scale, -torch.inf).softmax(0))


def test_each_chain_has_its_own_mask_and_temperature():
    rbm, start = make_rbm(3, 2), torch.tensor([[1.0, 0, 1, 0, 1]]).repeat(3, 1)
    masks = torch.stack([CLAMPED, torch.ones(5, dtype=torch.bool), ~CLAMPED])
    scale = torch.tensor([0.0, 1.0, 2.0])
    chains = BlockGibbs(rbm, 3, seed=1, start=start, clamped=masks, inverse_temperature=scale)
    single = BlockGibbs(rbm, 1, seed=1, start=start[:1], clamped=CLAMPED, inverse_temperature=0.0)
    assert torch.equal(chains.z, start)
    z = chains.step(5)
    assert torch.equal(z[1], start[1])
    assert torch.equal(z[masks], start[masks])
    assert torch.equal(z[:1], single.step(5))


def test_start_is_copied_and_a_resumed_run_goes_on():
    rbm, start = make_rbm(3, 2), torch.ones(4, 5)
    chains = BlockGibbs(rbm, 4, seed=1, start=start, clamped=CLAMPED)
    start.zero_()
    assert bool((chains.step(3)[:, CLAMPED] == 1).all())
    resumed = BlockGibbs(rbm, 4, start=start, clamped=CLAMPED)
    resumed.load_state_dict(chains.state_dict())
    assert torch.equal(resumed.step(3), chains.step(3))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"start": torch.ones(3, 5)}, "start"),
        ({"start": torch.full((4, 5), 0.5)}, "start"),
        ({"start": "ones"}, "start"),
        ({"clamped": CLAMPED}, "start"),
        ({"clamped": CLAMPED.float(), "start": torch.ones(4, 5)}, "clamped"),
        ({"clamped": CLAMPED[:4], "start": torch.ones(4, 5)}, "clamped"),
        ({"clamped": [True] * 5, "start": torch.ones(4, 5)}, "clamped"),
        ({"inverse_temperature": float("nan")}, "inverse_temperature"),
        ({"inverse_temperature": "cold"}, "inverse_temperature"),
        ({"inverse_temperature": 1e7}, "inverse_temperature"),
        ({"inverse_temperature": torch.ones(3)}, "inverse_temperature"),
        ({"inverse_temperature": torch.tensor([1.0, 1, 1, torch.inf])}, "inverse_temperature"),
    ],
)
def test_wrong_arguments_are_refused(arguments, name):
    with pytest.raises(InvalidInputError) as caught:
        BlockGibbs(make_rbm(3, 2), 4, **arguments)
    assert caught.value.argument == name
