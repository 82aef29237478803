"""Estimates over data sets: the sums are right, errors are stated, noise is keyed."""

import copy
import math
import warnings

import pytest
import torch

from discrete_vae import RBM, BlockGibbs, DiscreteVAE, exact_log_partition
from discrete_vae.config import (
    EvaluationConfig,
    HierarchicalPosteriorConfig,
    ModelConfig,
    RBMConfig,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import UnevenWeightsWarning, evaluate_elbo, evaluate_model
from discrete_vae.evaluation.log_likelihood import evaluate_log_likelihood
from discrete_vae.log_partition.estimate import (
    AnnealingDisagreementWarning,
    estimate_log_partition,
    quick_log_partition,
)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    made = DiscreteVAE.from_config(
        ModelConfig(
            num_features=6,
            prior=RBMConfig(num_left=3, num_right=2),
            posterior=HierarchicalPosteriorConfig(groups=2, hidden=(5,)),
        )
    )
    with torch.no_grad():
        made.prior.weight.normal_()
    return made


@pytest.fixture(scope="module")
def x():
    return torch.bernoulli(torch.full((12, 6), 0.4), generator=torch.Generator().manual_seed(0))


def test_log_likelihood_is_the_mean_over_examples(model, x):
    seen = []
    estimate = evaluate_log_likelihood(
        model, x, log_partition=1.0, num_samples=200, report=lambda done, mean: seen.append((done, mean))
    )
    alone = [evaluate_log_likelihood(model, x[:k], log_partition=1.0, num_samples=200).value for k in (1, 2)]
    assert seen[0] == (1, pytest.approx(alone[0]))
    assert seen[1] == (2, pytest.approx(alone[1]))
    assert seen[-1] == (12, pytest.approx(estimate.value))
    assert estimate.num_examples == 12
    assert 0 < estimate.monte_carlo_std_error < estimate.std_error
    assert 1 <= estimate.min_ess <= estimate.median_ess <= 200
    assert 0 < estimate.doubling_gain < 0.1


def test_log_partition_shifts_everything(model, x):
    low, high = (evaluate_log_likelihood(model, x, log_partition=z, num_samples=50).value for z in (0.0, 2.0))
    assert low - high == pytest.approx(2.0)
    a, b = (evaluate_elbo(model, x, log_partition=z) for z in (0.0, 2.0))
    assert b.kl_discrete - a.kl_discrete == pytest.approx(2.0, abs=1e-5)
    assert a.elbo == pytest.approx(a.reconstruction - a.kl_discrete - a.kl_continuous, abs=1e-9)


def test_the_error_of_log_z_joins_that_of_the_elbo(model, x):
    found = evaluate_elbo(model, x, log_partition=1.0, log_partition_std_error=0.3)
    assert found.log_partition_std_error == 0.3
    assert found.total_std_error == pytest.approx(math.sqrt(found.elbo_std_error**2 + 0.09))
    alone = evaluate_elbo(model, x, log_partition=1.0)
    assert alone.total_std_error == alone.elbo_std_error == found.elbo_std_error


def test_an_example_has_its_noise_in_every_choice(model, x):
    whole = evaluate_log_likelihood(model, x, log_partition=1.0, num_samples=20).examples
    chosen = [2, 3, 7]
    part = evaluate_log_likelihood(
        model, x[chosen], log_partition=1.0, num_samples=20, indices=chosen
    ).examples
    assert part.index.tolist() == chosen
    for name in ("value", "std_error", "ess"):
        assert getattr(part, name).equal(getattr(whole, name)[chosen])
    with pytest.raises(InvalidInputError, match="indices must be the 12 numbers of the examples"):
        evaluate_log_likelihood(model, x, log_partition=1.0, num_samples=20, indices=chosen)


def test_elbo_lies_below_the_log_likelihood(model, x):
    log_z = exact_log_partition(model.prior).value
    elbo = evaluate_elbo(model, x, log_partition=log_z, num_samples=200)
    likelihood = evaluate_log_likelihood(model, x, log_partition=log_z, num_samples=2000)
    assert elbo.elbo < likelihood.value
    assert elbo.num_samples == 200


def test_weights_that_few_samples_carry_are_reported(model, x):
    sharp = copy.deepcopy(model)
    with torch.no_grad():
        sharp.decoder.network.output.weight.mul_(100)
    with pytest.warns(UnevenWeightsWarning, match=r"by [\d.]+ nats\. .* \d\.\d of 40\)") as caught:
        evaluate_model(sharp, x, EvaluationConfig(num_samples=40))
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate_model(model, x, EvaluationConfig(num_samples=400))


def test_one_example_has_no_spread(model, x):
    assert math.isnan(evaluate_elbo(model, x[:1], log_partition=0.0).elbo_std_error)
    assert math.isnan(evaluate_log_likelihood(model, x[:1], log_partition=0.0, num_samples=5).std_error)


def test_evaluate_model_is_plain_values(model, x):
    import json

    result = evaluate_model(model, x, EvaluationConfig(num_samples=50))
    assert result.log_partition.best.method == "enumeration"
    text = json.dumps(result.to_json())
    assert json.loads(text)["log_likelihood"]["num_samples"] == 50
    assert result.log_partition.gap is None
    assert result.log_likelihood.log_partition_std_error == 0.0
    assert result.log_likelihood_limit.num_samples == 50
    assert result.log_likelihood_limit.value != result.log_likelihood.value


def test_bridge_sampling_where_enumeration_is_out_of_reach():
    rbm = RBM(6, 6)
    with torch.no_grad():
        rbm.weight.normal_(generator=torch.Generator().manual_seed(0))
    chains = BlockGibbs(rbm, 300, seed=1).step(200)
    estimate = estimate_log_partition(
        rbm, chains=chains, std_error=0.03, num_chains=300, num_temperatures=100, max_enumerated=4
    )
    exact = exact_log_partition(rbm).value
    assert estimate.best.method == "bridge sampling"
    assert estimate.best.converged
    assert abs(estimate.best.value - exact) < 4 * estimate.best.std_error
    for check in (estimate.forward, estimate.reverse):
        assert check.num_samples == 300
        assert abs(check.value - exact) < 4 * check.std_error
    assert estimate.gap == estimate.reverse.value - estimate.forward.value


def test_annealing_that_disagrees_is_reported():
    rbm = RBM(6, 6)
    with torch.no_grad():
        rbm.weight.fill_(4.0)
        rbm.bias.fill_(-11.5)  # all-on has exp(6) of the weight, and the chains know all-off alone
    with pytest.warns(
        AnnealingDisagreementWarning, match="reverse annealing all modes that its chains do not know"
    ):
        estimate = estimate_log_partition(
            rbm, chains=torch.zeros(50, 12), std_error=0.05, num_temperatures=50, max_enumerated=4
        )
    assert estimate.best.value == pytest.approx(exact_log_partition(rbm).value, abs=0.2)


def test_quick_log_partition_enumerates_or_anneals():
    rbm = RBM(3, 5)
    settings = {"num_chains": 10, "num_temperatures": 5}
    assert quick_log_partition(rbm, max_enumerated=3, **settings).method == "enumeration"
    without_weights = quick_log_partition(RBM(64, 64), max_enumerated=2, **settings)
    assert (without_weights.value, without_weights.std_error) == (pytest.approx(128 * math.log(2)), 0)
    with torch.no_grad():
        rbm.weight[0, 0] = 1e-3
    assert quick_log_partition(rbm, max_enumerated=2, **settings).method == "annealed forward"


def test_numbers_are_checked(model, x):
    with pytest.raises(InvalidInputError, match="num_samples must be a positive integer"):
        evaluate_elbo(model, x, log_partition=0.0, num_samples=0)
