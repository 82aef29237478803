"""Expectations of the score-function estimators, enumerated, against the exact gradient; faults are rejected."""

import copy

import pytest
import torch

from discrete_vae import DisARM, LearnedBaseline, LeaveOneOut, NoBaseline, Reinforce, RunningMean
from discrete_vae.rng import DrawnNoise
from tests.objectives.gradients.exact import (
    CASES,
    NUM_FEATURES,
    WEIGHTS,
    X,
    build,
    by_group,
    exact_gradient,
    expectation,
    flat_gradient,
    of_one_draw,
)

SHARP = "graph, three groups"  # without noise of zeta: nothing is left but finite sums


def baseline_of(kind, model):
    """One in evaluation mode, with something in it."""
    if kind is None:
        return None
    made = kind(group_of_unit=model.posterior.group_of_unit, num_features=NUM_FEATURES).double()
    torch.manual_seed(5)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    for module in made.modules():
        if isinstance(module, RunningMean):
            module.total.uniform_(1, 4)
            module.weight.fill_(0.8)
    return made.eval()


def estimators(model):
    yield "no baseline", Reinforce.of(model)
    for kind in (NoBaseline, RunningMean, LearnedBaseline):
        yield kind.__name__, Reinforce.of(model, baseline=baseline_of(kind, model))
    yield "leave-one-out", LeaveOneOut.of(model)
    yield "DisARM", DisARM.of(model)


@pytest.mark.parametrize("name", CASES)
def test_every_estimator_has_the_same_expectation(name):
    model = build(name)
    expected = expectation(model, Reinforce.of(model))
    for which, estimator in estimators(model):
        found = expectation(model, estimator)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10, msg=lambda m: f"{which}: {m}")  # noqa: B023


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_gradient_of_the_bound(name):
    model = build(name)
    found = expectation(model, Reinforce.of(model), num_nodes=5)
    torch.testing.assert_close(found, exact_gradient(model), rtol=1e-6, atol=1e-6)


def test_three_draws_leave_one_out():
    model = build(SHARP)
    found = expectation(model, LeaveOneOut.of(model, num_samples=3))
    torch.testing.assert_close(found, exact_gradient(model), rtol=1e-9, atol=1e-10)


class WithItsOwn(LeaveOneOut):
    """A fault: a draw's own signal is part of its baseline."""

    def advantages(self, signals):
        return signals - signals.mean(0)


class SeesItsGroup(LearnedBaseline):
    """A fault: the baseline of a group reads the zeta whose score it multiplies."""

    def forward(self, features, zeta, signals):
        advantages, error = super().forward(features, zeta, signals)
        return advantages - zeta.sum(-1, keepdim=True), error


class Turned(DisARM):
    """A fault: the pair's difference has the other sign."""

    def _estimate(self, model, batch, grad_outputs):
        made = super()._estimate(model, batch, grad_outputs)
        return type(made)(*made.terms, -made.score, made.grad_outputs, made.num_evaluations)


class Together(DisARM):
    """A fault: one pair, antithetic in all groups, although later groups have other logits in it."""

    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.flipped[1:] = True


@pytest.mark.parametrize("fault", ["own signal", "own group", "sign", "all groups together"])
def test_planted_faults_are_rejected(fault):
    model = build(SHARP)
    estimator = {
        "own signal": lambda: WithItsOwn.of(model),
        "own group": lambda: Reinforce.of(model, baseline=baseline_of(SeesItsGroup, model)),
        "sign": lambda: Turned.of(model),
        "all groups together": lambda: Together.of(model),
    }[fault]()
    with pytest.raises(AssertionError, match="not close"):
        torch.testing.assert_close(expectation(model, estimator), exact_gradient(model), rtol=1e-3, atol=1e-3)


class NotesFirst(RunningMean):
    """A fault: a batch's signals enter the mean before it is taken away from them."""

    def forward(self, features, zeta, signals):
        self.note(signals)
        return signals - self.mean(), None


def expectation_of_a_step(model, baseline):
    """Of the gradient of a batch of one example, from one state of a baseline that learns."""
    uniforms, noise, weight = of_one_draw(model, torch.full((1, 4), 0.5, dtype=torch.float64), torch.ones(1))
    total = 0
    for u, e, w in zip(uniforms, noise, weight, strict=True):
        estimator = Reinforce.of(model, baseline=copy.deepcopy(baseline).train())
        source = DrawnNoise([u[None, None], by_group(model, e[None])])
        found = model.estimate_gradient(estimator, X, discrete=WEIGHTS[0], generator=source)
        assert not torch.equal(estimator.baseline.total, baseline.total)
        total = total + w * flat_gradient(found.loss, model)
    return total


def test_a_running_mean_learns_from_a_batch_after_it_was_used():
    model = build(SHARP)
    expected = exact_gradient(model)
    right, fault = (baseline_of(kind, model) for kind in (RunningMean, NotesFirst))
    torch.testing.assert_close(expectation_of_a_step(model, right), expected, rtol=1e-9, atol=1e-10)
    with pytest.raises(AssertionError, match="not close"):
        torch.testing.assert_close(expectation_of_a_step(model, fault), expected, rtol=1e-2, atol=1e-3)


def test_an_empty_batch_leaves_a_running_mean_as_it_was():
    baseline = RunningMean(group_of_unit=torch.tensor([0, 0, 1]), num_features=2)
    features, zeta = torch.ones(3, 2), torch.ones(1, 3, 3)
    baseline(features, zeta, torch.ones(1, 3, 2))
    before = {name: value.clone() for name, value in baseline.state_dict().items()}
    baseline(features[:0], zeta[:, :0], torch.ones(1, 0, 2))
    torch.testing.assert_close(baseline.state_dict(), before, rtol=0, atol=0)
