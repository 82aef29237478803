"""The loop: resumed, stopped and failing runs, the best checkpoint, priors on graphs."""

import itertools
import json
import math
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from discrete_vae import exact_log_partition
from discrete_vae.boltzmann.base import LogPartition
from discrete_vae.config import GaussianHierarchyConfig, GraphBoltzmannConfig, RBMConfig
from discrete_vae.data.datasets import load_dataset
from discrete_vae.errors import InvalidInputError, NonFiniteLossError
from discrete_vae.evaluation.evaluate import MeanElbo, evaluate_elbo, independent_features
from discrete_vae.likelihoods.base import BernoulliLikelihood
from discrete_vae.objectives import elbo
from discrete_vae.runs.checkpoints import CheckpointWriteError
from discrete_vae.runs.load import load_run
from discrete_vae.training import loop
from discrete_vae.training.loop import run_steps, validation_score
from discrete_vae.training.run import validation_baseline
from discrete_vae.training.state import PARTS, ElboSums, TrainingState
from tests.training.test_tempering import TEMPERED
from tests.training.tiny import (
    CONFIG,
    NUM_STEPS,
    QuietProgress,
    assert_same_run,
    changed,
    last_tensors,
    start_run,
    stop_after,
    train_quietly,
)


def with_model(**parts):
    return CONFIG.model_copy(update={"model": CONFIG.model.model_copy(update=parts)})


def test_a_killed_and_resumed_run_equals_an_unbroken_one(unbroken, tmp_path):
    """Killed around lines of the log, every fifth, and validations, every seventh."""
    run = start_run(tmp_path / "run")
    for stop in (1, 7, 8, 15, 36):
        with pytest.raises(KeyboardInterrupt):
            train_quietly(run, stop_at=stop)
    train_quietly(run)
    assert_same_run(run, unbroken[0])


def test_the_seed_decides_the_weights_and_the_number_of_threads_does_not(
    unbroken, tmp_path, threads_of_torch
):
    threads_of_torch(3 - min(torch.get_num_threads(), 2))
    for seed in (0, 1):
        config = CONFIG.model_copy(update={"seed": seed})
        run = start_run(tmp_path / str(seed), config)
        train_quietly(run, config)
        if seed == 0:
            assert_same_run(run, unbroken[0])
    other, expected = (last_tensors(each)["model/prior.weight"] for each in (run, unbroken[0]))
    assert not torch.equal(other, expected)


def test_metrics(unbroken):
    records = unbroken[0].metrics().read()
    training = [record for record in records if "elbo" in record]
    assert [record["step"] for record in training] == [5, 7, 10, 14, 15, 20, 21, 25, 28, 30, 35, 36]
    for record in training:
        total = record["reconstruction"] - record["kl_discrete"] - record["kl_continuous"]
        assert record["elbo"] == pytest.approx(total, abs=1e-3)
        assert {"epoch", "seconds", "beta", "log_partition", "learning_rate"} <= record.keys()
        shares = [record[f"{part}_share"] for part in PARTS]
        assert min(shares) > 0
        assert sum(shares) <= 1
        assert record["examples_per_second"] > 0
    validations = {each["step"]: each["validation_elbo"] for each in records if "validation_elbo" in each}
    assert sorted(validations) == [7, 14, 21, 28, 35, 36]
    best = unbroken[1]
    assert validations[best.best_step] == best.best_elbo == max(validations.values())
    # chains that lag behind the prior, as these of three sweeps per step, do not shift the logged values
    prior = load_run(unbroken[0], NUM_STEPS).model.prior
    assert training[-1]["log_partition"] == exact_log_partition(prior).value
    assert training[-1]["log_partition_std_error"] == 0.0
    assert json.loads(unbroken[0].best_path.read_text())["step"] == best.best_step
    assert {best.best_step, NUM_STEPS} <= set(unbroken[0].checkpoints().steps())
    assert train_quietly(unbroken[0]).num_steps == NUM_STEPS  # a finished run trains no further


def test_other_steps_and_seeds_have_other_noise():
    x = torch.ones(CONFIG.training.batch_size, 64)
    found = []
    for step, seed in ((0, 0), (0, 0), (1, 0), (0, 1)):
        state = TrainingState.initial(CONFIG, x)  # the same weights and chains
        state.step = step
        bound = loop.training_step(state, CONFIG.model_copy(update={"seed": seed}), x, 1.0, 0.5)
        found.append(bound.kl_relative.tolist())
    assert found[0] == found[1]
    assert found[0] != found[2] != found[3] != found[0]


def test_a_line_takes_log_z_half_way_from_the_last_one(tmp_path, monkeypatch):
    config, bounds, usual = changed(CONFIG, {"training.log-every": "1"}), [], loop.training_step
    monkeypatch.setattr(loop, "training_step", lambda *given: bounds.append(usual(*given)))
    train_quietly(run := start_run(tmp_path / "run", config), config, stop=stop_after(3))
    before = 9 * math.log(2)  # of a prior without weights
    for bound, line in zip(bounds, run.metrics().read(), strict=True):
        log_z, before = (before + line["log_partition"]) / 2, line["log_partition"]
        assert line["kl_discrete"] == pytest.approx(float(bound.kl_relative.mean()) + log_z, abs=1e-5)


def test_means_over_steps_take_log_z_to_change_evenly():
    sums = ElboSums()
    for kl in (3.0, 5.0):
        sums.add((-8.0, kl - 2, 1.0), 2.0)
    means = {"elbo": -13.25, "reconstruction": -8.0, "kl_discrete": 4.25, "kl_continuous": 1.0}
    assert sums.means(0.5) == means


@pytest.mark.parametrize("term", ["reconstruction", "kl_discrete"])
def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, monkeypatch, term):
    config = changed(CONFIG, {"training.record": "false"})
    run, count = start_run(tmp_path / "run", config), itertools.count()
    original, kl = BernoulliLikelihood.log_prob, elbo.kl_without_log_partition
    wrong = {"reconstruction": 1.0, "kl_discrete": 1.0}

    def log_prob(self, parameters, x, observed=None):
        if self.training:  # the tenth time, and then the KL of the same step
            wrong[term] = math.inf if next(count) == 9 else 1.0
        return original(self, parameters, x, observed) * wrong["reconstruction"]

    monkeypatch.setattr(BernoulliLikelihood, "log_prob", log_prob)
    monkeypatch.setattr(elbo, "kl_without_log_partition", lambda *a, **k: kl(*a, **k) * wrong["kl_discrete"])
    with pytest.raises(NonFiniteLossError) as caught:
        train_quietly(run, config)
    assert (caught.value.step, caught.value.term, caught.value.last_checkpoint) == (9, term, 7)
    monkeypatch.undo()
    assert all(bool(value.isfinite().all()) for value in run.checkpoints().load("last").tensors.values())
    assert train_quietly(run, config).num_steps == NUM_STEPS


@pytest.mark.parametrize(
    ("weight", "value", "step", "stop", "named", "saved"),
    [
        ("posterior.smoothing.beta", math.inf, 8, NUM_STEPS, "", (7,)),  # which has bounds
        ("prior.weight", math.nan, 0, 1, "prior.weight", ()),  # not saved on stopping
    ],
)
def test_a_broken_weight_stops_the_run(weight, value, step, stop, named, saved, tmp_path, monkeypatch):
    run, usual = start_run(tmp_path / "run"), loop.training_step

    def broken(state, *arguments):
        elbo = usual(state, *arguments)
        if state.step == step:
            state.model.get_parameter(weight).data.fill_(value)
            state.model.project_()
        return elbo

    monkeypatch.setattr(loop, "training_step", broken)
    with pytest.raises(NonFiniteLossError) as caught:
        train_quietly(run, stop=stop_after(stop))
    assert named in str(caught.value)
    assert caught.value.step == step + 1
    assert run.checkpoints().steps() == saved
    assert caught.value.last_checkpoint == (saved[-1] if saved else None)


def test_a_full_disk_during_a_checkpoint_loses_nothing(tmp_path, monkeypatch):
    run = start_run(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train_quietly(run, stop_at=8)

    def full(*arguments, **keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("discrete_vae.runs.checkpoints.write_checkpoint", full)
    with pytest.raises(CheckpointWriteError, match="No space left"):
        train_quietly(run)
    monkeypatch.undo()
    assert run.checkpoints().steps() == (7,)
    assert train_quietly(run).num_steps == NUM_STEPS


def test_a_foreign_checkpoint_is_refused(unbroken, tmp_path):
    config = with_model(prior=RBMConfig(num_left=4, num_right=5))
    run = start_run(tmp_path / "run", config)
    run.checkpoints_path.symlink_to(unbroken[0].checkpoints_path)
    with pytest.raises(InvalidInputError, match=r"config\.json must be the file .* --accept-changed-config"):
        train_quietly(run, config)
    with (
        pytest.warns(UserWarning, match="is not the file that the run was trained with"),
        pytest.raises(InvalidInputError, match=r"step-36: \S+ must be .* It belongs to another model"),
    ):
        train_quietly(run, config, accept_changed_config=True)


@pytest.mark.parametrize(("before", "after"), [("none", "50"), ("50", "none")])
def test_patience_may_be_changed_by_whoever_accepts_it(before, after, tmp_path):
    begun, config = (changed(CONFIG, {"training.patience": patience}) for patience in (before, after))
    train_quietly(first := start_run(tmp_path / "first", begun), begun, stop=stop_after(13))
    run = start_run(tmp_path / "run", config)
    shutil.copytree(first.checkpoints_path, run.checkpoints_path)
    shutil.copy(first.metrics_path, run.metrics_path)
    with pytest.warns(UserWarning, match="is not the file that the run was trained with"):
        assert train_quietly(run, config, accept_changed_config=True).step == NUM_STEPS


def test_stopping_anywhere_changes_nothing(tmp_path):
    config, done = TEMPERED, 0
    unbroken, run = start_run(tmp_path / "unbroken", config), start_run(tmp_path / "run", config)
    whole = train_quietly(unbroken, config)
    for steps in (0, 4, 3, 1, 12):  # ends at 0, 4, 7 (a validation), 8 and 20 (a line of the log)
        done += steps
        result = train_quietly(run, config, stop=stop_after(steps))
        assert result.step == done
        assert (result.best_step, result.best_elbo is None) == ((None, True) if done < 7 else (7, False))
        assert run.checkpoints().steps()[-1:] == ((done,) if done else ())
    end = train_quietly(run, config)
    assert (end.step, end.best_step, end.best_elbo) == (NUM_STEPS, whole.best_step, whole.best_elbo)
    assert_same_run(run, unbroken)
    assert run.checkpoints().steps() == unbroken.checkpoints().steps()


def test_seconds_of_steps_without_a_line_are_kept_when_a_run_stops(tmp_path):
    run = start_run(tmp_path / "run")
    train_quietly(run, stop=stop_after(4))  # a line comes at step 5
    seconds = run.checkpoints().load("last").meta["seconds"]
    assert seconds > 0
    train_quietly(run, stop=stop_after(1))
    assert run.metrics().read()[-1]["seconds"] > seconds


def test_a_run_starts_by_the_weights_of_its_examples():
    digits = load_dataset("digits")
    weights = np.where(np.arange(len(digits.train)) < 200, 3.0, 1.0)
    rows = np.repeat(np.arange(len(weights)), weights.astype(int))
    states = [
        TrainingState.initial(CONFIG, digits.train, weights=weights),
        TrainingState.initial(CONFIG, digits.train[rows]),
        TrainingState.initial(CONFIG, digits.train),
    ]
    first, second, third = (state.model.decoder.network.output.bias for state in states)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def waiting(patience, rate, warm_up=0, samples=1):
    """The tiny run beside a model of independent features, with epochs of warm-up and late importance samples."""
    words = {"patience": patience, "independent-start": "true", "optimizer.learning-rate": rate}
    words |= {"warm-up.epochs": 0, "warm-up.prior-epochs": warm_up}
    words |= {"num-importance-samples": samples, "importance-start": 0.36}
    model = {"model.smoothing": "ramps"} if samples > 1 else {}
    return changed(CONFIG, model | {f"training.{name}": str(value) for name, value in words.items()})


def scores(run, name="validation_score"):
    return {each["step"]: each[name] for each in run.metrics().read() if name in each}


def end_of(trained, patience, first):
    """The step at which so many validations have passed since the best, or since the first that counts."""
    best, waited = -math.inf, 0
    for step, score in trained.items():
        waited = 0 if score > best or step <= first else waited + 1
        best = max(best, score)
        if waited == patience:
            return step
    return NUM_STEPS


def test_training_ends_after_so_many_validations_without_a_better_bound(tmp_path):
    rate, ends = 3e-3, []
    # by the second validation twelve steps of warm-up have ended, or importance samples begun
    for warm_up, samples in ((0, 1), (1, 1), (0, 2)):
        first = 0 if (warm_up, samples) == (0, 1) else 14
        config = waiting("none", rate, warm_up, samples)
        train_quietly(whole := start_run(tmp_path / f"whole {warm_up} {samples}", config), config)
        trained = {step: elbo for step, elbo in scores(whole, "validation_elbo").items() if step > 0}
        for patience in (1,) if first else (1, 2):
            config = waiting(patience, rate, warm_up, samples)
            run = start_run(tmp_path / f"{warm_up} {samples} {patience}", config)
            with pytest.raises(KeyboardInterrupt):
                train_quietly(run, config, stop_at=13)
            for _ in range(2):  # a run that has ended trains no further
                result = train_quietly(run, config)
                ends.append(result.step)
                assert result.step == result.num_steps == end_of(trained, patience, first)
            assert scores(run).items() <= scores(whole).items()
            assert result.best_step == max(scores(run), key=scores(run).__getitem__)
    assert min(ends) < NUM_STEPS


def test_warm_up_and_the_bound_of_beta_may_follow_the_length_of_the_run(tmp_path):
    """Shares of three epochs are those numbers of epochs, up to the rounding of the quotients."""
    trained = {"model.smoothing.trainable": "true", "model.smoothing.beta": "0.4"}

    def beginning(name, unit, epochs, slope):
        words = {"schedule-unit": unit, "beta-bound.start": 0.5, "beta-bound.slope": slope}
        words |= {"warm-up.epochs": epochs, "warm-up.prior-epochs": epochs}
        given = trained | {f"training.{setting}": str(value) for setting, value in words.items()}
        config = changed(CONFIG, given)
        run = start_run(tmp_path / name, config)
        train_quietly(run, config, stop=stop_after(10))
        return [line[key] for line in run.metrics().read() if "elbo" in line for key in ("elbo", "beta")]

    in_epochs = beginning("epochs", "epoch", 0.6, 0.1)
    assert beginning("shares", "run", 0.2, 0.3) == pytest.approx(in_epochs, abs=1e-3)
    assert beginning("others", "run", 0.6, 0.1) != pytest.approx(in_epochs, abs=1e-3)


@pytest.mark.parametrize("kind", ["spike-exponential", "overlapping-exponential"])
def test_a_constant_beta_stays_above_the_bound_of_trained_ones(kind, tmp_path):
    constant = {"model.smoothing": kind, "model.smoothing.trainable": "false", "model.smoothing.beta": "8"}
    config = changed(CONFIG, constant)
    assert config.training.beta_bound.start < 8
    train_quietly(run := start_run(tmp_path / "run", config), config, stop=stop_after(10))
    assert {line["beta"] for line in run.metrics().read() if "beta" in line} == {8.0}


def test_independent_features_may_stay_the_best_and_the_end_says_why(tmp_path):
    config, data, told = waiting(2, 1e-9), load_dataset("digits"), []
    run = start_run(tmp_path / "run", config)

    class Progress(QuietProgress):
        def note(self, text):
            told.append(text)

    for stops in (stop_after(13), None, None):  # broken off, to its end, finished
        result = run_steps(config, data, run, progress=Progress(), stop=stops)
    kept = [text for text in told if text.startswith("Independent columns are kept")]
    assert len(set(kept)) == 1
    assert len(kept) == 2
    lead = max(score for step, score in scores(run).items() if step > 0) - scores(run)[0]
    assert lead < 0
    assert f"is worse by {-lead:.2f} ± " in kept[0]
    with pytest.warns(UserWarning, match="step 21, is trained"):
        loaded = load_run(run)
    assert loaded.step == 0 == json.loads(run.best_path.read_text())["step"]
    found = evaluate_elbo(loaded.model, data.valid, log_partition=9 * math.log(2))
    expected = independent_features(loaded.model.likelihood, data.train, data.valid).value
    assert found.elbo == pytest.approx(expected, abs=1e-4)
    assert result.best_elbo == pytest.approx(expected, abs=1e-4)


def beside_independent(tmp_path, num_valid, weights=None):
    """A fresh run's checkpoints, and log p(x) of so many validation examples whose features are independent."""
    config, data = waiting(2, 1e-9), load_dataset("digits")
    run, state = start_run(tmp_path / "run", config), TrainingState.initial(config, data.train)
    checkpoints = loop.RunCheckpoints(run, state, config.training, num_steps=NUM_STEPS)
    own = {} if weights is None else {"valid": weights}
    few = replace(data, valid=data.valid[:num_valid], weights=own)
    base = checkpoints.begin_with_independent(config, few).elbo
    model = load_run(run, 0).model.eval()
    of_each = model.log_likelihood(data.valid[:num_valid], 1, log_partition=9 * math.log(2)).value.double()
    assert base == pytest.approx(np.average(of_each, weights=weights), abs=1e-4)
    return checkpoints, of_each


@pytest.mark.parametrize(
    ("of_bound", "of_log_likelihood", "is_clear"), [(1, 5, True), (1, 0, False), (-1, 5, False)]
)
def test_a_lead_of_the_bound_within_chance_is_judged_by_the_log_likelihood(
    tmp_path, monkeypatch, of_bound, of_log_likelihood, is_clear
):
    checkpoints, of_each = beside_independent(tmp_path, 250)
    spread = torch.linspace(-1, 1, len(of_each)).double()
    found = SimpleNamespace(examples=SimpleNamespace(value=of_each + of_log_likelihood + spread))
    monkeypatch.setattr(loop, "evaluate_log_likelihood", lambda *_, **__: found)
    base = float(of_each.mean())
    score = checkpoints.score(estimate(base + of_bound, 0.0), of_each + of_bound + 40 * spread)
    assert score == pytest.approx(base + of_bound if is_clear else min(base, base + of_bound), abs=1e-4)


@pytest.mark.parametrize(
    ("of_bound", "of_log_likelihood", "is_clear"), [(1.02, 0, True), (0.98, 1.02, True), (0.98, 0.98, False)]
)
def test_a_lead_is_judged_by_the_weights_of_the_examples(
    tmp_path, monkeypatch, of_bound, of_log_likelihood, is_clear
):
    """In units of the least lead that counts."""
    weights = np.linspace(1, 30, 20) ** 2
    checkpoints, of_each = beside_independent(tmp_path, 20, weights)
    spread = torch.linspace(-1, 1, 20).double()
    spread = spread - np.average(spread, weights=weights)
    error = math.sqrt(20 / 19 * ((weights * spread.numpy()) ** 2).sum()) / weights.sum()
    least = error * stats.t.ppf(0.95, weights.sum() ** 2 / (weights**2).sum() - 1)
    found = SimpleNamespace(examples=SimpleNamespace(value=of_each + of_log_likelihood * least + spread))
    monkeypatch.setattr(loop, "evaluate_log_likelihood", lambda *_, **__: found)
    base, lead = np.average(of_each, weights=weights), of_bound * least
    score = checkpoints.score(estimate(base + lead, 0.0), of_each + lead + spread)
    assert score == pytest.approx(base + lead if is_clear else base, abs=1e-4)


@pytest.mark.parametrize("num_valid", [3, 10])
def test_leads_pass_as_often_as_students_t_says(tmp_path, num_valid):
    """Normal leads of mean 0 and of one standard deviation; false alarms of the band: 1 in 10,000 each.

    Leads beyond one standard error, the planted fault, would pass too often.
    """
    checkpoints, of_each = beside_independent(tmp_path, num_valid)  # which no second look saves
    generator, count = torch.Generator().manual_seed(0), 500
    for mean in (0.0, 1.0):
        passed, plain = 0, 0
        for _ in range(count):
            lead = mean + torch.randn(num_valid, generator=generator).double()
            score = float((of_each + lead).mean())
            passed += checkpoints.score(estimate(score, 0.0), of_each + lead) > float(of_each.mean()) + 1e-4
            plain += float(lead.mean()) > float(lead.std()) / num_valid**0.5
        limit = stats.t.ppf(0.95, num_valid - 1)
        expected = stats.nct.sf(limit, num_valid - 1, mean * num_valid**0.5)
        low, high = stats.binom.ppf([5e-5, 1 - 5e-5], count, expected)
        assert low <= passed <= high < plain


def test_a_lead_of_one_example_is_never_clear(tmp_path):
    checkpoints, of_one = beside_independent(tmp_path, 1)
    assert checkpoints.score(estimate(float(of_one) + 9, 0.0), of_one + 9) <= float(of_one) + 1e-4
    checkpoints.best["validation_score"] -= 1e-4  # of step 0, as another processor had rounded it
    assert (
        checkpoints.score(estimate(float(of_one) + 9, 0.0), of_one + 9)
        <= checkpoints.best["validation_score"]
    )
    many, of_each = beside_independent(tmp_path / "many", 20)
    base = float(of_each.mean())
    for lead, is_clear in ((1, True), (0.5, False)):  # beside two standard errors of log Z
        found = many.score(estimate(base + lead, 0.3), of_each + lead)
        assert found == pytest.approx(base + lead - 0.6, abs=1e-4)
        assert (found > base) == is_clear
    worse = checkpoints.score(estimate(float(of_one) - 3, 0.0), of_one - 3)
    assert worse == pytest.approx(float(of_one) - 3, abs=1e-4)


def test_the_checkpoint_of_step_0_changes_no_step_and_resuming_from_it_neither(unbroken, tmp_path):
    config = waiting(50, CONFIG.training.optimizer.learning_rate)
    whole, run = start_run(tmp_path / "whole", config), start_run(tmp_path / "run", config)
    train_quietly(whole, config)
    for steps in (0, 0, 3, 4, 20):
        train_quietly(run, config, stop=stop_after(steps))
    train_quietly(run, config)
    assert_same_run(run, whole)
    (early := start_run(tmp_path / "early", config)).metrics()
    train_quietly(early, config, stop=stop_after(0))
    early.metrics_path.write_text("")  # killed between the checkpoint of step 0 and its line
    train_quietly(early, config)
    assert_same_run(early, whole)
    plain = changed(config, {"training.independent-start": "false"})
    train_quietly(other := start_run(tmp_path / "plain", plain), plain)
    tensors, expected = last_tensors(other), last_tensors(whole)
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in tensors.items())


def test_missing_lines_of_the_log_are_named(tmp_path):
    run = start_run(tmp_path / "run")
    train_quietly(run, stop=stop_after(13))  # lines of training figures at 5, 7 and 10
    lines = run.metrics_path.read_text().splitlines(keepends=True)
    run.metrics_path.write_text(lines[0])
    with pytest.warns(UserWarning, match=r"metrics\.jsonl .* 7, 10;"):
        train_quietly(run, stop=stop_after(17))
    run.metrics_path.unlink()
    with pytest.warns(UserWarning, match=r" 10 .* 5, 7, 10, 14, 15, \.\.\. 30;"):
        assert train_quietly(run).step == NUM_STEPS


def estimate(elbo, error):
    return MeanElbo(elbo, 0.3, elbo + 10, 6.0, 4.0, 100, 1, log_partition_std_error=error)


def test_a_checkpoint_does_not_win_by_a_log_z_that_is_known_badly():
    """With equal errors the maximum wins."""
    assert validation_score(estimate(-89.7, 0.4)) < validation_score(estimate(-90.0, 0.02))
    values = (-90.0, -89.99, -91.0, -89.98)
    for error in (0.0, 0.02):
        assert max(values, key=lambda v: validation_score(estimate(v, error))) == -89.98


@pytest.fixture
def wrong_log_z(monkeypatch):
    """Make validations take a log Z that is too low, by how much and with which error as a function of their number."""

    def plant(wrong):
        count = itertools.count(1)

        def planted(prior, *, chains, seed):
            off, error = wrong(next(count))
            return LogPartition(exact_log_partition(prior).value - off, error, "planted", len(chains))

        monkeypatch.setattr("discrete_vae.training.state.comparable_log_partition", planted)

    return plant


def test_a_run_is_not_taken_in_by_a_planted_error(tmp_path, wrong_log_z):
    wrong_log_z(lambda number: (3.0, 2.0) if number == 2 else (0.0, 0.01))
    run = start_run(tmp_path / "run")
    result = train_quietly(run)
    lines = [line for line in run.metrics().read() if "validation_elbo" in line]
    plain = max(lines, key=lambda line: line["validation_elbo"])
    assert plain["step"] == 14  # the plain maximum falls for it
    best = max(lines, key=lambda line: line["validation_score"])
    assert result.best_step == best["step"] != 14
    assert run.checkpoints().best().items() <= best.items()
    for line in lines:
        error = 2.0 if line["step"] == 14 else 0.01
        assert line["validation_score"] == pytest.approx(line["validation_elbo"] - 2 * error)
        assert line["validation_elbo_std_error"] > error


def test_a_resumed_run_compares_by_the_score(tmp_path, wrong_log_z):
    """The best so far has the lower ELBO; only its score, out of the checkpoint, keeps it the best."""
    wrong_log_z(lambda number: (number * 3.0, number * 3.0))
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
    config, calls = with_model(hierarchy=layers).model_copy(update={"training": training}), []

    def planted(model, x, *, num_importance_samples, **keywords):
        calls.append(num_importance_samples)
        value = float(len(calls) if num_importance_samples == 4 else -len(calls))
        return torch.tensor([value, 0.0, 0.0]).double().expand(len(x), 3)

    monkeypatch.setattr("discrete_vae.training.loop.elbo_parts", planted)
    run = start_run(tmp_path / "run", config)
    result = train_quietly(run, config)
    assert calls == [1, 4] * (len(calls) // 2)
    assert run.checkpoints().best()["validation_score"] > 0
    assert (result.best_step, result.best_elbo) == (NUM_STEPS, 1.0 - len(calls))


def test_a_run_with_weights_resumes_and_validates_by_them(tmp_path):
    digits = load_dataset("digits")
    random = np.random.default_rng(0)
    sizes = {"train": len(digits.train), "valid": len(digits.valid)}
    weighted = replace(digits, weights={part: random.exponential(size=size) for part, size in sizes.items()})
    unbroken, resumed = start_run(tmp_path / "unbroken"), start_run(tmp_path / "resumed")
    run_steps(CONFIG, weighted, unbroken, progress=QuietProgress())
    with pytest.raises(KeyboardInterrupt):
        run_steps(CONFIG, weighted, resumed, progress=QuietProgress(20))
    run_steps(CONFIG, weighted, resumed, progress=QuietProgress())
    assert_same_run(resumed, unbroken)
    # validation alone, with and without: the same model and noise
    other = replace(weighted, weights={"train": weighted.weights["train"]})
    plain = start_run(tmp_path / "plain")
    run_steps(CONFIG, other, plain, progress=QuietProgress())
    elbos = [run.metrics().read()[-1]["validation_elbo"] for run in (unbroken, plain)]
    assert elbos[0] != elbos[1]
    assert elbos[0] == pytest.approx(elbos[1], abs=3)


def test_the_graph_of_an_rbm_learns_what_the_rbm_learns(unbroken, tmp_path):
    edges = tuple((i, 5 + j) for i in range(5) for j in range(4))
    config = with_model(prior=GraphBoltzmannConfig(num_units=9, edges=edges))
    train_quietly(run := start_run(tmp_path / "graph", config), config)
    graph = load_run(run).model.prior
    rbm = load_run(unbroken[0]).model.prior
    assert float(rbm.weight.detach().abs().max()) > 0.01
    # sums in another order may turn a draw of the chains, one in some 10 million
    torch.testing.assert_close(graph.weight.view(5, 4), rbm.weight, rtol=0, atol=1e-4)
    torch.testing.assert_close(graph.bias, rbm.bias, rtol=0, atol=1e-4)


def test_independent_features_have_the_weights_of_the_training_examples(tmp_path):
    config, digits, random = waiting(2, 1e-9), load_dataset("digits"), np.random.default_rng(0)
    weights = {
        part: 1 + 9.0 * random.integers(0, 2, len(getattr(digits, part))) for part in ("train", "valid")
    }
    weighted = replace(digits, weights=weights)
    run = start_run(tmp_path / "run", config)
    run_steps(config, weighted, run, progress=QuietProgress())
    told = run.metrics().read()[0]["validation_elbo"]
    assert told == pytest.approx(validation_baseline(config, weighted).value, abs=1e-4)
    assert abs(told - validation_baseline(config, replace(weighted, weights={})).value) > 1e-3
