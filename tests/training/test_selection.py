"""The best checkpoint is the best, not that with the luckiest log Z."""

import math
from dataclasses import replace

import pytest
import torch

from discrete_vae import DiscreteVAE, annealed_log_partition, exact_log_partition
from discrete_vae.boltzmann.base import LogPartition
from discrete_vae.config import GaussianHierarchyConfig
from discrete_vae.evaluation.evaluate import MeanElbo, evaluate_elbo
from discrete_vae.log_partition.estimate import comparable_log_partition
from discrete_vae.training.loop import validation_score
from tests.log_partition.machines import random_rbm, wide_and_deep_mode
from tests.training.tiny import CONFIG, NUM_STEPS, start_run, train_quietly


def estimate(elbo, error):
    return MeanElbo(elbo, 0.3, elbo + 10, 6.0, 4.0, 100, 1, log_partition_std_error=error)


def plain_maximum(found):
    """The rule that falls for a lucky log Z."""
    return found.elbo


def mean_regret(rule):
    """What the choice costs on average, and how often it costs more than the derivation allows."""
    generator, costs = torch.Generator().manual_seed(0), []
    for _ in range(2000):
        truth = -90 + 0.05 * torch.randn(12, generator=generator).double()
        errors = torch.where(torch.rand(12, generator=generator) < 0.3, 0.5, 0.02).double()
        noise = errors * torch.randn(12, generator=generator).double()
        found = [estimate(float(t + e), float(s)) for t, e, s in zip(truth, noise, errors, strict=True)]
        chosen = max(range(12), key=lambda k: rule(found[k]))
        costs.append(truth.max() - truth[chosen])
    return float(torch.stack(costs).mean())


def test_a_checkpoint_does_not_win_by_a_log_z_that_is_known_badly():
    known, lucky = estimate(-90.0, 0.02), estimate(-89.7, 0.4)
    assert plain_maximum(lucky) > plain_maximum(known)
    assert validation_score(lucky) < validation_score(known)
    assert mean_regret(validation_score) < 0.02 < 0.05 < mean_regret(plain_maximum)


def test_with_equal_errors_it_is_the_maximum():
    values = (-90.0, -89.99, -91.0, -89.98)
    for error in (0.0, 0.02):
        assert max(values, key=lambda v: validation_score(estimate(v, error))) == -89.98


@pytest.fixture
def noisy_log_z(monkeypatch):
    """log Z too low by three nats at step 14, with a standard error that says so; exact elsewhere."""

    def noisy(prior, *, chains, seed):
        exact = exact_log_partition(prior).value
        noisy.calls += 1
        return LogPartition(
            *((exact - 3.0, 2.0) if noisy.calls == 2 else (exact, 0.01)), "planted", len(chains)
        )

    noisy.calls = 0
    monkeypatch.setattr("discrete_vae.training.state.comparable_log_partition", noisy)


@pytest.mark.usefixtures("noisy_log_z")
def test_a_run_is_not_taken_in_by_a_planted_error(tmp_path):
    run = start_run(tmp_path / "run")
    result = train_quietly(run)
    lines = [line for line in run.metrics().read() if "validation_elbo" in line]
    assert (
        max(lines, key=lambda line: line["validation_elbo"])["step"] == 14
    )  # what the plain maximum falls for
    best = max(lines, key=lambda line: line["validation_score"])
    assert result.best_step == best["step"] != 14
    assert run.checkpoints().best() == {
        name: best[name] for name in ("step", "validation_elbo", "validation_score")
    }
    for line in lines:
        error = 2.0 if line["step"] == 14 else 0.01
        assert line["validation_score"] == pytest.approx(line["validation_elbo"] - 2 * error)
        assert line["validation_elbo_std_error"] > error


def test_a_resumed_run_compares_by_the_score(tmp_path, monkeypatch):
    """The best so far has the lower ELBO; only its score, out of the checkpoint, keeps it the best."""

    def ever_worse(prior, *, chains, seed):
        ever_worse.calls += 1
        off = ever_worse.calls * 3.0
        return LogPartition(exact_log_partition(prior).value - off, off, "planted", 1)

    ever_worse.calls = 0
    monkeypatch.setattr("discrete_vae.training.state.comparable_log_partition", ever_worse)
    run = start_run(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train_quietly(run, stop_at=8)
    first = run.checkpoints().best()
    result = train_quietly(run)
    lines = [line for line in run.metrics().read() if "validation_elbo" in line]
    assert all(line["validation_elbo"] > first["validation_elbo"] for line in lines[1:])
    assert result.best_step == max(lines, key=lambda line: line["validation_score"])["step"]


def test_runs_with_importance_samples_are_compared_by_their_bound(tmp_path, monkeypatch):
    """From the first step on, though their ELBO falls: or the turn from one bound to the other would decide."""
    layers = GaussianHierarchyConfig(num_layers=1, num_units=4, posterior_hidden=(8,), prior_hidden=(8,))
    training = CONFIG.training.model_copy(update={"num_importance_samples": 4, "importance_start": 0.5})
    config = CONFIG.model_copy(
        update={"model": CONFIG.model.model_copy(update={"hierarchy": layers}), "training": training}
    )
    calls = []

    def planted(model, x, *, num_importance_samples, **keywords):
        found = evaluate_elbo(model, x, num_importance_samples=num_importance_samples, **keywords)
        calls.append(num_importance_samples)
        return replace(found, elbo=float(len(calls) if num_importance_samples == 4 else -len(calls)))

    monkeypatch.setattr("discrete_vae.training.loop.evaluate_elbo", planted)
    run = start_run(tmp_path / "run", config)
    result = train_quietly(run, config)
    assert calls == [1, 4] * (len(calls) // 2)
    assert run.checkpoints().best()["validation_score"] > 0
    assert (result.best_step, result.best_elbo) == (NUM_STEPS, 1.0 - len(calls))


def test_models_share_the_noise_of_examples():
    """What is common to two checkpoints falls out of their difference: it is far below the error of either."""
    torch.manual_seed(0)
    model = DiscreteVAE.from_config(CONFIG.model)
    x = torch.bernoulli(torch.full((200, 64), 0.3))
    before = evaluate_elbo(model, x, log_partition=5.0)
    with torch.no_grad():
        model.prior.bias += 1e-4
    after, other = (
        evaluate_elbo(model, x, log_partition=5.0),
        evaluate_elbo(model, x, log_partition=5.0, seed=1),
    )
    assert 0 < abs(after.elbo - before.elbo) < 1e-2 * before.elbo_std_error
    assert abs(after.elbo - other.elbo) > abs(after.elbo - before.elbo)


def test_log_z_for_comparison_finds_a_mode_that_annealing_misses():
    rbm = wide_and_deep_mode(10, 16, 2.0, 14.0)
    exact = exact_log_partition(rbm).value
    annealed = [annealed_log_partition(rbm, num_chains=200, num_temperatures=300, seed=s) for s in range(3)]
    assert any(exact - short.value > max(1.0, 8 * short.std_error) for short in annealed)
    found = comparable_log_partition(rbm, chains=torch.ones(1, 36), max_enumerated=0)
    assert abs(found.value - exact) < 4 * found.std_error
    assert found.std_error < 0.05


def test_what_does_not_converge_has_the_distance_of_two_methods_in_its_error(monkeypatch):
    monkeypatch.setattr("discrete_vae.log_partition.estimate._COMPARED_SWEEPS", 30)
    rbm = random_rbm(10, 10, 2.0)
    found = comparable_log_partition(rbm, chains=torch.zeros(1, 20), max_enumerated=0, seed=3)
    annealed = annealed_log_partition(rbm, num_chains=200, num_temperatures=300, seed=3)
    assert not found.converged
    assert found.std_error >= math.hypot(annealed.std_error, annealed.value - found.value)
    assert comparable_log_partition(rbm, chains=torch.zeros(1, 20)).std_error == 0
