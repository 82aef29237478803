"""What estimators cost and refuse, and what baselines learn and read."""

import pytest
import torch

from discrete_vae import (
    DisARM,
    DiscreteVAE,
    LearnedBaseline,
    LeaveOneOut,
    NaiveKL,
    Reinforce,
    Reparameterized,
    RunningMean,
)
from discrete_vae.config import RunningMeanConfig
from discrete_vae.objectives import Baseline
from tests.boltzmann.graphs import with_parameters
from tests.models import small_config, small_model
from tests.refusals import refused_argument

GROUPS = torch.tensor([0, 1, 0, 2, 1])
SIZES = {"group_of_unit": GROUPS, "num_features": 4}


def make_model():
    return small_model(6, groups=2, hidden=(5,))


@pytest.mark.parametrize(
    ("kind", "settings", "cost"),
    [
        (Reparameterized, {}, 1),
        (Reinforce, {}, 1),
        (LeaveOneOut, {"num_samples": 3}, 3),
        (DisARM, {}, 3),
        (NaiveKL, {}, 1),
    ],
)
def test_what_an_estimate_costs_and_that_its_value_is_the_bounds(kind, settings, cost):
    model, x = make_model().double().eval(), torch.ones(4000, 6, dtype=torch.float64)
    estimator = kind.of(model, **settings)
    made = model.estimate_gradient(estimator, x, generator=torch.Generator().manual_seed(1))
    assert made.num_evaluations == estimator.num_evaluations == cost
    assert made.score is None or not bool(made.score.any())
    with torch.no_grad():
        right = model.elbo(x, log_partition=0.0, generator=torch.Generator().manual_seed(2)).value
    assert float(made.loss.detach() + right.mean()) == pytest.approx(0, abs=0.1)


def test_the_reparameterized_estimate_is_the_gradient_of_the_elbo():
    model, x = make_model(), torch.ones(7, 6)
    noise = [torch.Generator().manual_seed(3) for _ in range(2)]
    made = model.estimate_gradient(Reparameterized.of(model), x, discrete=0.5, generator=noise[0]).loss
    right = model.elbo(x, generator=noise[1]).weighted_loss(discrete=0.5)
    found = (torch.autograd.grad(loss, model.parameters()) for loss in (made, right))
    torch.testing.assert_close(*found)


class TellsGradients(LearnedBaseline):
    def forward(self, features, zeta, signals):
        self.takes_gradients = [each.requires_grad for each in (features, zeta, signals)]
        return super().forward(features, zeta, signals)


@pytest.mark.parametrize("kind", [Reinforce, NaiveKL])
def test_the_loss_of_a_baseline_reaches_its_own_parameters_alone(kind):
    model = DiscreteVAE.from_config(small_config(6, groups=2), encoder=torch.nn.Linear(6, 6))
    with_parameters(model.prior, weight=1.0)  # without couplings the naive estimate has no signal
    posterior = model.posterior
    sizes = {"group_of_unit": posterior.group_of_unit, "num_features": posterior.num_features}
    baseline = TellsGradients((5,), **sizes)
    estimator, x = kind.of(model, baseline=baseline), torch.eye(6)
    for _ in range(2):  # from the first batch networks learn nothing
        loss = model.estimate_gradient(estimator, x).loss
    assert baseline.takes_gradients == [False, False, False]
    for part in (model.encoder, baseline):
        found = torch.autograd.grad(loss, part.parameters(), retain_graph=True)
        assert any(bool(each.any()) for each in found), part


class TestRunningMean:
    def test_each_group_has_its_own_and_starts_with_its_first_batch(self):
        baseline = RunningMean(0.9, **SIZES)
        signals = torch.tensor([1.0, 20.0, -3.0]).expand(2, 6, 3)
        assert torch.equal(baseline(None, None, signals)[0], signals)
        assert float(baseline(None, None, signals)[0].abs().max()) < 1e-5

    def test_in_evaluation_mode_it_stays(self):
        baseline = RunningMean(0.9, **SIZES)
        baseline(None, None, torch.ones(1, 6, 3))
        baseline.eval()(None, None, torch.full((1, 6, 3), 5.0))
        assert baseline.mean().tolist() == [1.0, 1.0, 1.0]


class TestLearnedBaseline:
    def test_it_starts_as_the_running_mean(self):
        learned, mean = LearnedBaseline(**SIZES), RunningMean(**SIZES)
        for _ in range(3):
            signals = 5 * torch.rand(1, 8, 3)
            got = learned(torch.rand(8, 4), torch.rand(1, 8, 5), signals)[0]
            torch.testing.assert_close(got, mean(None, None, signals)[0])

    def test_it_reads_the_features_and_earlier_groups_alone(self):
        learned = LearnedBaseline((7,), **SIZES).eval()
        for parameter in learned.parameters():
            torch.nn.init.normal_(parameter)
        features, zeta = torch.rand(8, 4), torch.rand(2, 8, 5, requires_grad=True)
        predicted = _predicted(learned, features, zeta)
        for group in range(3):
            (read,) = torch.autograd.grad(
                predicted[..., group].sum(), zeta, retain_graph=True, allow_unused=True
            )
            touched = torch.zeros(5) if read is None else read.abs().sum((0, 1))
            assert torch.equal(touched > 0, group > GROUPS)

    def test_it_learns_what_features_and_earlier_groups_tell(self):
        torch.manual_seed(0)
        learned = LearnedBaseline((), **SIZES)
        optimizer = torch.optim.Adam(learned.parameters(), lr=0.1)
        for _ in range(150):
            features, zeta = torch.rand(100, 4), torch.rand(1, 100, 5)
            told = 10 * features[:, :1] + 20 * zeta[0, :, :1]  # zeta of group 0
            signals = (100 + told + torch.randn(100, 3)).unsqueeze(0)
            advantages, error = learned(features, zeta, signals)
            optimizer.zero_grad()
            error.mean().backward()
            optimizer.step()
        spread = advantages.std((0, 1))
        assert float(spread[0].detach()) > 4.0  # zeta of its own group is not for it
        assert float(spread[1:].detach().max()) < 1.5


def _predicted(learned, features, zeta):
    """What the networks make, with its gradient: the loss is a square, so half its derivative by a signal of 0."""
    signals = torch.zeros(2, 8, 3)
    learned.level.note(signals)
    _, error = learned(features, zeta, signals)
    found = []
    for group in range(3):
        shifted = signals.clone()
        shifted[..., group] = 1.0
        found.append(learned(features, zeta, shifted)[1] - error)
    return torch.stack(found, -1)


def test_a_baseline_comes_from_its_config_or_as_it_is():
    model = make_model()
    made = Reinforce.of(model, baseline=RunningMeanConfig(decay=0.5)).baseline
    assert made.decay == 0.5
    assert Reinforce.of(model, baseline=made).baseline is made
    assert refused_argument(Reinforce.of, model, baseline=RunningMean) == "baseline"


class OneSignal(Baseline):
    """A fault: one signal for all groups, which could be taken for one of each."""

    def forward(self, features, zeta, signals):
        return signals.mean(-1), None


def test_signals_of_another_shape_are_refused():
    model, x = make_model(), torch.ones(4, 6)
    sizes = {"group_of_unit": model.posterior.group_of_unit, "num_features": model.posterior.num_features}
    estimator = Reinforce.of(model, baseline=OneSignal(**sizes))
    assert refused_argument(model.estimate_gradient, estimator, x) == "the baseline's signals"
