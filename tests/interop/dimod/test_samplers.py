"""Our chains as dimod samplers: dimod's own tests, and the law against enumeration."""

import itertools
import unittest

import numpy as np
import pytest
import torch

from discrete_vae.testing import check_frequencies
from tests.refusals import refused_argument

dimod = pytest.importorskip("dimod", reason="dimod is not installed (extra dwave)")
checks = pytest.importorskip("dimod.testing", reason="dimod is not installed (extra dwave)")

from discrete_vae.interop.dimod import BlockGibbsSampler, ParallelTemperingSampler  # noqa: E402

SAMPLERS = [BlockGibbsSampler, ParallelTemperingSampler]
TRIANGLE = ({"a": 0.4, 5: -0.3, "c": 0.1}, {("a", 5): 0.7, (5, "c"): -0.5, ("a", "c"): 0.6})
SQUARE = ({0: 0.3, 1: -0.2, 2: 0.5, 3: 0.1}, {(0, 2): 0.8, (1, 2): -0.6, (1, 3): 0.4, (0, 3): -0.9})


@checks.load_sampler_bqm_tests(BlockGibbsSampler)
@checks.load_sampler_bqm_tests(ParallelTemperingSampler)
class TestSamplers(unittest.TestCase):
    def test_interface(self):
        for make in SAMPLERS:
            checks.assert_sampler_api(make())


def frequencies(bqm, found, inverse_temperature):
    """Counts of all states, and their exact probabilities."""
    labels = list(found.variables)
    states = list(itertools.product(sorted(bqm.vartype.value), repeat=len(labels)))
    energies = bqm.energies((np.array(states, np.int8), labels))
    exact = torch.from_numpy(-inverse_temperature * energies).softmax(0)
    codes = {state: index for index, state in enumerate(states)}
    cells = torch.tensor([codes[tuple(row)] for row in found.record.sample.tolist()])
    return torch.bincount(cells, minlength=len(states)), exact


@pytest.mark.parametrize("make", SAMPLERS)
@pytest.mark.parametrize(("vartype", "model"), [("SPIN", TRIANGLE), ("BINARY", SQUARE)])
def test_the_law_is_that_of_the_temperature(make, vartype, model):
    bqm = dimod.BinaryQuadraticModel(*model, 2.0, vartype)
    found = make().sample(bqm, num_reads=4000, num_sweeps=40, inverse_temperature=1.5, seed=3)
    check_frequencies(*frequencies(bqm, found, 1.5))
    checks.assert_sampleset_energies(found.slice(20), bqm)
    with pytest.raises(AssertionError):  # planted: the temperature left out
        check_frequencies(*frequencies(bqm, found, 1.0))
    if make is ParallelTemperingSampler:  # on a ladder of one's own
        ladder = {"num_reads": 4000, "num_sweeps": 30, "inverse_temperatures": (0.2, 1.0)}
        check_frequencies(*frequencies(bqm, make().sample(bqm, **ladder, seed=0), 1.0))


def test_tempering_finds_both_modes_where_one_temperature_stays():
    ring = dimod.BinaryQuadraticModel({}, {(i, (i + 1) % 6): -4.0 for i in range(6)}, 0.0, "SPIN")
    start = dict.fromkeys(range(6), 1)
    settings = {"num_reads": 200, "num_sweeps": 100, "seed": 0}
    settings |= {"initial_states": start, "initial_states_generator": "tile"}
    assert BlockGibbsSampler().sample(ring, **settings).record.sample.mean() > 0.9
    assert abs(ParallelTemperingSampler().sample(ring, **settings).record.sample.mean()) < 0.4


def test_a_ladder_is_tuned_for_few_reads():
    """A hundred spins that pull each other up: either sign has half of the law, all reads one sign 2^-14 of it."""
    pairs = dict.fromkeys(itertools.combinations(range(100), 2), -0.1)
    spins, start = dimod.BinaryQuadraticModel({}, pairs, 0.0, "SPIN"), np.ones((15, 100), np.int8)
    found = ParallelTemperingSampler().sample(spins, num_sweeps=200, seed=0, initial_states=start)
    assert len(set(np.sign(found.record.sample.sum(1)).tolist())) == 2


@pytest.mark.parametrize("make", SAMPLERS)
def test_a_seed_repeats_everything_and_initial_states_count_the_reads(make):
    bqm = dimod.BinaryQuadraticModel(*TRIANGLE, 0.0, "SPIN")
    seeds = [{"seed": 2**63}, {"seed": 2**63}, {"seed": 7}, {}, {}]
    found = [make().sample(bqm, num_reads=30, num_sweeps=4, **seed).record.sample for seed in seeds]
    assert np.array_equal(found[0], found[1])
    assert not any(np.array_equal(found[a], found[b]) for a in range(1, 5) for b in range(1, a))
    settings = {"num_reads": 50, "num_sweeps": 5, "seed": 1}
    bits = make().sample(bqm.change_vartype("BINARY", inplace=False), **settings)
    spins = make().sample(bqm, **settings)
    assert np.array_equal(spins.record.sample, 2 * bits.record.sample - 1)  # one law
    start = np.ones((6, 3), np.int8)
    assert len(make().sample(bqm, initial_states=(start, ["c", "a", 5]), num_sweeps=1, seed=0)) == 6
    assert (start == 1).all()  # left alone


@pytest.mark.parametrize("make", SAMPLERS)
def test_wrong_numbers_are_named(make):
    bqm = dimod.BinaryQuadraticModel(*TRIANGLE, 0.0, "SPIN")
    wrong = {"num_reads": 0, "num_sweeps": 0, "seed": -1, "inverse_temperature": "cold"}
    for name, value in wrong.items():
        assert refused_argument(make().sample, bqm, **{name: value}) == name
    with pytest.raises(ValueError, match="variables"):
        make().sample(bqm, initial_states={"a": 1})
    with pytest.raises(TypeError, match="annealing_time"):
        make().sample(bqm, annealing_time=20)
