"""States with units set, fields and classes have the law of enumeration; paths have the best order of all."""

import itertools
import math

import numpy as np
import pytest
import torch

from discrete_vae import RBM, BernoulliLikelihood, DiscreteVAE, HierarchicalPosterior, SpikeExponential
from discrete_vae.config import CategoricalLikelihoodConfig
from discrete_vae.inference.encode import encode_rows, reconstruct_rows
from discrete_vae.inference.generate import (
    ClassModel,
    PriorStates,
    fit_class_model,
    fit_classes,
    generate,
    generate_of_labels,
    interpolate,
    order_of_flips,
)
from discrete_vae.samplers.gibbs import BlockGibbs
from discrete_vae.testing import check_frequencies, enumerate_machine
from tests.inference.models import small_model, some_bits
from tests.models import small_model as small_model_of
from tests.refusals import refused_argument

POWERS = 2 ** torch.arange(5)


@pytest.fixture
def prior():
    torch.manual_seed(0)
    machine = RBM(3, 2)
    with torch.no_grad():
        machine.weight.normal_(0, 1.5)
        machine.bias.normal_()
    return machine


@pytest.fixture
def pool(prior):
    return BlockGibbs(prior, 500, seed=1).step(50)


def counts(z):
    return torch.bincount((z.long() @ POWERS), minlength=32)


def test_units_that_are_set_and_fields_give_the_conditional_law(prior):
    """After sweeps and at the start already, as far as the pool has the law."""
    pool, field = BlockGibbs(prior, 60_000, seed=2).step(20), torch.tensor([0.0, 1.5, 0, -2, 0])
    before = prior.bias.detach().clone()
    states = PriorStates(prior, pool, {0: 1, 4: 0}, field, num_chains=2000, seed=3)
    machine = enumerate_machine(prior)
    wrong = (machine.states[:, 0] != 1) | (machine.states[:, 4] != 0)
    law = machine.log_prob + machine.states @ field.double()
    law, without = (
        torch.softmax(p.masked_fill(wrong, -torch.inf), 0).detach() for p in (law, machine.log_prob)
    )
    for z in (states.chains.z, states.step(40)):
        check_frequencies(counts(z), law)
        with pytest.raises(AssertionError):  # the planted fault: the field is left out
            check_frequencies(counts(z), without)
    assert torch.equal(prior.bias, before)  # the machine is left as it is


@pytest.fixture
def model(prior):
    torch.manual_seed(1)
    made = DiscreteVAE(
        prior=prior,
        posterior=HierarchicalPosterior(6, [[0, 1, 2], [3, 4]], (), SpikeExponential(beta=3.0)),
        likelihood=BernoulliLikelihood((6,)),
    )
    return made.eval()


@pytest.fixture
def classes():
    random = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(3, 5, generator=random) * 2, torch.tensor([0.0, 1, -1])
    return ClassModel(np.array(["a", "b", "c"]), weight, bias, 1.0, 0.0)


def test_states_of_a_class_have_the_law_of_bayes(model, pool, classes):
    states = PriorStates(model.prior, pool, num_chains=1000, seed=0)
    made = generate(model, states, 1500, classes=classes, wanted=[2, 0], num_sweeps=20)
    assert made.x.shape == (3000, 6)
    assert made.places.tolist() == [2] * 1500 + [0] * 1500
    machine = enumerate_machine(model.prior)
    of_class = classes.probabilities(machine.states)
    for group, place in enumerate((2, 0)):
        z = torch.from_numpy(made.z[1500 * group : 1500 * (group + 1)])
        law = machine.prob * of_class[:, place]
        check_frequencies(counts(z), (law / law.sum()).detach())
        # the planted fault: the class's weights as fields of the prior, without the normalizer of p(class | z)
        tilted = torch.softmax(machine.log_prob + machine.states @ classes.weight[place].double(), 0)
        with pytest.raises(AssertionError):
            check_frequencies(counts(z), tilted.detach())


def test_examples_are_repeated_by_their_seed(model, pool):
    first, again, other = (
        generate(model, PriorStates(model.prior, pool, num_chains=4, seed=seed), 10, num_sweeps=2, seed=seed)
        for seed in (0, 0, 1)
    )
    assert first.x.shape == (10, 6)
    assert set(np.unique(first.x)) == {0.0, 1.0}
    assert (first.x == again.x).all()
    assert (first.x != other.x).any()
    states = PriorStates(model.prior, pool, num_chains=2)
    few = generate(model, states, 5, num_sweeps=1, max_rounds=1)
    assert len(few.x) == 5  # each state counts without classes


def test_a_class_that_does_not_come_up_is_given_up(model, pool, classes):
    rare = ClassModel(classes.classes, classes.weight, torch.tensor([0.0, 0.0, -60.0]), 1.0, 0.0)
    states = PriorStates(model.prior, pool, num_chains=50)
    asked = {"classes": rare, "wanted": [2], "num_sweeps": 1, "max_rounds": 3}
    assert refused_argument(generate, model, states, 5, **asked) == "count"
    for wanted in ([], [3], [-1], [1, 1]):
        assert refused_argument(generate, model, states, 5, **asked | {"wanted": wanted}) == "wanted"
    with_labels, pool = small_model_of(num_classes=3), torch.zeros(4, 4)
    assert refused_argument(generate_of_labels, with_labels, pool, 5, [2, 2], num_chains=4) == "wanted"


def test_classes_are_fitted_to_latents():
    random = np.random.default_rng(0)
    weight = random.normal(size=(4, 6)) * 3
    latents = (random.random((2000, 6)) < 0.5).astype(np.float32)
    logits = latents @ weight.T
    labels = (logits + random.gumbel(size=logits.shape)).argmax(1)
    fitted = fit_class_model(latents, labels)
    law = np.exp(logits - logits.max(1, keepdims=True))
    law /= law.sum(1, keepdims=True)
    found = fitted.probabilities(torch.from_numpy(latents)).numpy()
    assert np.abs(found - law).mean() < 0.03
    best = law.max(1).mean()
    assert abs(fitted.accuracy - best) < 0.05
    two = fit_class_model(latents, labels > 1)
    assert np.abs(two.probabilities(torch.from_numpy(latents)).numpy()[:, 1] - law[:, 2:].sum(1)).mean() < 0.1
    weights = np.where(labels > 1, 1.0, 5.0)  # of a sample that has a fifth of some classes
    drawn = random.random(2000) * weights < 1
    errors = []
    for given in (None, weights[drawn]):
        fitted = fit_class_model(latents[drawn], labels[drawn], weights=given)
        errors.append(np.abs(fitted.probabilities(torch.from_numpy(latents)).numpy() - law).mean())
    assert errors[1] < 0.05 < errors[0]
    rare = np.arange(400) % 4 == 0  # a quarter of the sample and three quarters of the population
    blind = fit_class_model(np.zeros((400, 1), np.float32), rare, weights=np.where(rare, 9.0, 1.0))
    assert blind.accuracy == pytest.approx(0.75, abs=0.1)
    # of a fifth, 80 examples, which count as 34
    assert blind.accuracy_std_error == pytest.approx(math.sqrt(0.75 * 0.25 / 34), rel=0.25)


def test_classes_of_a_model_are_fitted_by_the_weights_to_draws_of_codes():
    model, x, weights = small_model(), some_bits(60), np.where(np.arange(60) < 30, 9.0, 1.0)
    labels = x[:, 0].numpy()
    found = fit_classes(model, x, labels, weights=weights, seed=2)
    codes = encode_rows(model, x, draw=True, seed=2).bits.astype(np.float32)
    expected = fit_class_model(codes, labels, weights=weights, seed=2)
    assert torch.equal(found.weight, expected.weight)
    assert found.accuracy == expected.accuracy


def test_a_class_of_one_example_is_fitted_whatever_is_held_out():
    labels = np.array(["b", *"a" * 9])
    latents = np.random.default_rng(0).random((10, 3))
    for seed in range(10):
        fitted = fit_class_model(latents, labels, seed=seed)
        assert fitted.classes.tolist() == ["a", "b"]


# Paths between examples.


def random_machine(seed):
    machine, generator = RBM(4, 3), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter.normal_(0, 2, generator=generator)
    return machine


def energies_along(machine, start, order):
    z, found = start.clone(), [float(machine.energy(start[None]))]
    for unit in order:
        z[unit] = 1 - z[unit]
        found.append(float(machine.energy(z[None])))
    return np.array(found)


@pytest.mark.parametrize("seed", range(2))
@torch.no_grad()
def test_the_order_is_the_best_of_all(seed):
    machine = random_machine(seed)
    start = torch.zeros(7)
    end = torch.tensor([1.0, 1, 0, 1, 1, 1, 0])
    order, energies = order_of_flips(machine, start, end)
    assert sorted(order) == [0, 1, 3, 4, 5]
    np.testing.assert_allclose(energies, energies_along(machine, start, order), atol=1e-5)
    every = [energies_along(machine, start, each) for each in itertools.permutations(sorted(order))]
    peaks = np.array([each.max() for each in every])
    assert energies.max() == pytest.approx(peaks.min(), abs=1e-5)
    best = min(each.mean() for each in every if each.max() < peaks.min() + 1e-5)
    assert energies.mean() == pytest.approx(best, abs=1e-5)
    assert peaks.max() > peaks.min() + 0.5  # the order matters, so that a wrong one would be seen


@pytest.mark.parametrize("layers", [0, 2])
@pytest.mark.parametrize("path", ["flips", "straight"])
def test_the_ends_are_the_reconstructions_of_the_codes(layers, path):
    model, x = small_model(layers=layers, seed=1), some_bits(8)
    codes, own = encode_rows(model, x), reconstruct_rows(model, x, code=True)
    for first, last in ((0, 1), (2, 5), (3, 3)):
        found = interpolate(model, x[first][None], x[last][None], path=path, num_steps=6)
        np.testing.assert_allclose(found.mean[[0, -1]], own[[first, last]], atol=2e-5)
        np.testing.assert_allclose(found.zeta[[0, -1]], codes.zeta[[first, last]], atol=1e-5)
        np.testing.assert_array_equal(found.bits[[0, -1]], codes.bits[[first, last]])
        energies = model.prior.energy(torch.from_numpy(found.bits).float()).detach().numpy()
        np.testing.assert_allclose(found.energy, energies, atol=1e-5)
        assert abs(found.barrier - (energies.max() - energies[[0, -1]].max())) < 1e-4
        differ = int((codes.bits[first] != codes.bits[last]).sum())
        if path == "flips" and differ:
            assert len(found.mean) == differ + 1
            assert (np.abs(np.diff(found.bits.astype(int), axis=0)).sum(1) == 1).all()
            assert found.flipped[0] == -1
            changed = [int(np.flatnonzero(row)[0]) for row in np.diff(found.bits.astype(int), axis=0)]
            assert found.flipped[1:].tolist() == changed
        else:
            assert len(found.mean) == 6
            assert (found.flipped == -1).all()


def test_layers_keep_their_place_in_the_prior():
    model, x = small_model(layers=2, seed=1), some_bits(8)
    found = interpolate(model, x[:1], x[5:6])
    zeta, h = torch.from_numpy(found.zeta), torch.from_numpy(found.continuous)
    with torch.no_grad():
        law = model.hierarchy.prior_at(zeta, h)
        normals = ((h - law.mean) / law.log_std.exp()).flatten(1)
    lengths = normals.norm(dim=1)
    steps = np.diff(lengths.numpy())
    np.testing.assert_allclose(steps, steps.mean(), atol=1e-3)
    angles = torch.arccos((normals[1:] * normals[:-1]).sum(1) / lengths[1:] / lengths[:-1])
    np.testing.assert_allclose(angles, angles.mean(), atol=1e-3)


def test_the_mean_of_codes_is_their_mode():
    model = small_model_of(likelihood=CategoricalLikelihoodConfig(num_categories=3))
    with torch.no_grad():  # the codes at both ends, never the one between
        for parameter in model.decoder.parameters():
            parameter.zero_()
        logits = torch.tensor([5.0, -9.0, 5.1])[:, None]
        model.decoder.initialize_output_(logits.expand(3, 5).flatten())
    pool = torch.zeros(4, model.prior.num_units)
    states = PriorStates(model.prior, pool, num_chains=4, seed=0)
    made = generate(model, states, 4, statistic="mean", num_sweeps=2)
    assert set(np.unique(made.x)) == {2.0}
