"""The kernel for accelerators, run on the CPU: its law, its key, and how little it asks of the device."""

import pytest
import torch

from discrete_vae import RBM, FactorialBernoulli, GraphBoltzmann
from discrete_vae.kernels import gibbs_torch
from discrete_vae.kernels.gibbs import run_sweeps
from tests.boltzmann.graphs import randomize
from tests.boltzmann.products import operations_of
from tests.oracles.transitions import check_sweeps, check_transitions, sweep_matrix

MACHINES = {
    "rbm": lambda: randomize(RBM(3, 2)),
    "graph": lambda: randomize(GraphBoltzmann(5, [[0, 1], [1, 2], [2, 0], [3, 4]])),
    "factorial": lambda: randomize(FactorialBernoulli(5)),
}


def sweep(energy, **options):
    return lambda z: run_sweeps(
        energy, z, 1, key=7, first_sweep=1, kernel=gibbs_torch.run_on_device, **options
    )


@pytest.mark.parametrize("name", MACHINES)
def test_sweeps_keep_the_law(name):
    check_sweeps(MACHINES[name](), sweep(MACHINES[name]()), repeats=3000)


def test_clamped_and_tempered_sweeps_have_their_matrix():
    rbm, clamped = MACHINES["rbm"](), torch.tensor([True, False, False, True, False])
    step = sweep(rbm, clamped=clamped, inverse_temperature=torch.full((32 * 3000,), 0.5))
    check_transitions(step, sweep_matrix(rbm, inverse_temperature=0.5, clamped=clamped), 5, repeats=3000)


class RightFirst(RBM):
    """A planted fault: the right side is drawn before the left."""

    def block_place(self, block):
        return super().block_place(1 - block)

    def compute_block_logits(self, z, block):
        return super().compute_block_logits(z, 1 - block)


def test_a_planted_fault_is_rejected():
    rbm = MACHINES["rbm"]()
    wrong = RightFirst(3, 2)
    wrong.load_state_dict(rbm.state_dict())
    with pytest.raises(AssertionError):
        check_transitions(sweep(wrong), sweep_matrix(rbm), 5, repeats=3000)


def test_sweeps_of_one_call_are_independent_draws():
    """Two sweeps in one call follow the square of the matrix; the noise of the first sweep used twice would not."""
    rbm = MACHINES["rbm"]()
    matrix = sweep_matrix(rbm)
    step = lambda z: run_sweeps(rbm, z, 2, key=7, first_sweep=1, kernel=gibbs_torch.run_on_device)  # noqa: E731
    check_transitions(step, matrix @ matrix, 5, repeats=3000)


def test_the_noise_is_keyed():
    rbm, z = MACHINES["rbm"](), torch.zeros(200, 5)

    def run(**key):
        key = {"key": 7, "first_sweep": 1, "first_chain": 0} | key
        return run_sweeps(rbm, z, 3, kernel=gibbs_torch.run_on_device, **key)

    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert torch.equal(run(), run())
    assert torch.equal(torch.get_rng_state(), before)
    for key in ({"key": 8}, {"first_sweep": 2}, {"first_chain": 1}, {"key": 2**64 - 1}):
        assert not torch.equal(run(), run(**key))
    assert torch.equal(z, torch.zeros(200, 5))


def test_a_unit_that_is_off_for_sure_stays_off():
    machine = FactorialBernoulli(1000)
    with torch.no_grad():
        machine.bias.fill_(-30.0)
    assert not bool(sweep(machine)(torch.zeros(20_000, 1000)).any())


def test_a_sweep_of_an_rbm_is_twelve_launches():
    rbm, z = RBM(64, 64), torch.zeros(50, 128)

    def operations(num_sweeps):
        return len(
            operations_of(
                lambda: run_sweeps(rbm, z, num_sweeps, key=7, first_sweep=1, kernel=gibbs_torch.run_on_device)
            )
        )

    assert operations(11) - operations(1) <= 10 * 12
