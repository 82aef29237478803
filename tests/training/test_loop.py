"""The loop: resuming equals not stopping, metrics, best checkpoint, what stops it."""

import json
import math
import random

import pytest
import torch

from discrete_vae import exact_log_partition
from discrete_vae.boltzmann.base import LogPartition
from discrete_vae.config import ModelConfig, RBMConfig
from discrete_vae.errors import InvalidInputError, NonFiniteLossError
from discrete_vae.likelihoods.families import BernoulliLikelihood
from discrete_vae.load import load_run
from discrete_vae.runs.checkpoints import CheckpointWriteError
from discrete_vae.training import step as step_module
from discrete_vae.training.state import ElboSums
from tests.training.tiny import CONFIG, NUM_STEPS, start_run, train_quietly


def final_state(run):
    """Every byte that a further step would depend on."""
    checkpoint = run.checkpoints().load(NUM_STEPS)
    raw = {name: value.contiguous().flatten().view(torch.uint8) for name, value in checkpoint.tensors.items()}
    return raw, checkpoint.meta


def assert_same_state(one, other):
    assert one[0].keys() == other[0].keys()
    for name, value in one[0].items():
        assert torch.equal(value, other[0][name]), name
    assert one[1] == other[1]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    run = start_run(tmp_path_factory.mktemp("unbroken") / "run")
    return run, train_quietly(run)


@pytest.mark.parametrize("stops", [[1], [6, 8], [7], [13, 14, 15, 35], [36]])
def test_a_stopped_and_resumed_run_equals_an_unbroken_one(unbroken, tmp_path, stops):
    run = start_run(tmp_path / "run")
    for stop in stops:
        with pytest.raises(KeyboardInterrupt):
            train_quietly(run, stop_at=stop)
    train_quietly(run)
    assert_same_state(final_state(run), final_state(unbroken[0]))
    assert run.checkpoints().best() == unbroken[0].checkpoints().best()


def test_the_state_holds_what_resuming_needs(unbroken):
    names = final_state(unbroken[0])[0]
    for part in (
        "model/prior.weight",
        "model/posterior.smoothing.beta",
        "chains/z",
    ):
        assert part in names
    assert "optimizer/prior.weight/exp_avg" in names
    assert any(name.endswith("running_mean") for name in names)


def test_another_thread_count_gives_the_same_weights(unbroken, tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run = start_run(tmp_path / "run")
        train_quietly(run)
    finally:
        torch.set_num_threads(threads)
    assert_same_state(final_state(run), final_state(unbroken[0]))


def test_another_seed_gives_other_weights(unbroken, tmp_path):
    config = CONFIG.model_copy(update={"seed": 1})
    run = start_run(tmp_path / "run", config)
    train_quietly(run, config)
    mine, other = (final_state(each)[0]["model/prior.weight"] for each in (run, unbroken[0]))
    assert not torch.equal(mine, other)


def test_metrics(unbroken):
    records = unbroken[0].metrics().read()
    training = [record for record in records if "elbo" in record]
    assert [record["step"] for record in training] == [5, 7, 10, 14, 15, 20, 21, 25, 28, 30, 35, 36]
    for record in training:
        total = record["reconstruction"] - record["kl_discrete"] - record["kl_continuous"]
        assert record["elbo"] == pytest.approx(total, abs=1e-3)
        assert {"epoch", "seconds", "beta", "log_partition", "learning_rate"} <= record.keys()
    validations = {
        record["step"]: record["validation_elbo"] for record in records if "validation_elbo" in record
    }
    assert sorted(validations) == [7, 14, 21, 28, 35, 36]
    best = unbroken[1]
    assert validations[best.best_step] == best.best_elbo == max(validations.values())


def test_the_log_knows_log_z(unbroken):
    """Chains that lag behind the prior, as these of three sweeps per step, must not shift the logged values."""
    run = unbroken[0]
    prior = load_run(run, NUM_STEPS).model.prior
    last = [record for record in run.metrics().read() if "elbo" in record][-1]
    assert last["log_partition"] == exact_log_partition(prior).value
    assert last["log_partition_std_error"] == 0.0


def test_the_error_of_a_validation_contains_that_of_log_z(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "discrete_vae.training.state.comparable_log_partition",
        lambda prior, **_: LogPartition(exact_log_partition(prior).value, 0.5, "annealed forward", 200),
    )
    run = start_run(tmp_path / "run")
    train_quietly(run)
    errors = [record.get("validation_elbo_std_error", 1.0) for record in run.metrics().read()]
    assert min(errors) > 0.5
    assert max(error for error in errors if error != 1.0) < 1.0


def test_means_over_steps_take_log_z_to_change_evenly():
    sums = ElboSums()
    for kl in (3.0, 5.0):
        sums.add((-8.0, kl - 2, 1.0), 2.0)
    assert sums.means(0.5) == {
        "elbo": -13.25,
        "reconstruction": -8.0,
        "kl_discrete": 4.25,
        "kl_continuous": 1.0,
    }


def test_metrics_of_a_resumed_run_have_no_doubles(tmp_path):
    run = start_run(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train_quietly(run, stop_at=13)
    train_quietly(run)
    steps = [record["step"] for record in run.metrics().read() if "elbo" in record]
    assert steps == sorted(set(steps))


def test_a_finished_run_trains_no_further(unbroken):
    assert train_quietly(unbroken[0]).num_steps == NUM_STEPS
    assert unbroken[0].checkpoints().steps()[-1] == NUM_STEPS


def test_load_run(unbroken):
    loaded = load_run(unbroken[0], "last")
    assert loaded.step == NUM_STEPS
    assert not loaded.model.training
    raw, _ = final_state(unbroken[0])
    assert torch.equal(
        loaded.model.prior.weight.detach().flatten().view(torch.uint8), raw["model/prior.weight"]
    )
    assert loaded.chains.step(1).shape == (30, 9)


@pytest.mark.parametrize("term", ["reconstruction", "kl_discrete"])
def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, monkeypatch, term):
    run = start_run(tmp_path / "run")
    monkeypatch.setattr(step_module, "_why_not", lambda *parts: "the test counts calls")
    calls = {"count": 0}
    original = BernoulliLikelihood.log_prob

    def broken(self, parameters, x, observed=None):
        calls["count"] += self.training
        value = original(self, parameters, x, observed)
        return value * math.nan if calls["count"] == 10 and term == "reconstruction" else value

    monkeypatch.setattr(BernoulliLikelihood, "log_prob", broken)
    if term == "kl_discrete":
        from discrete_vae.objectives import elbo

        kl = elbo.kl_without_log_partition
        monkeypatch.setattr(
            elbo,
            "kl_without_log_partition",
            lambda *a, **k: kl(*a, **k) * (math.inf if calls["count"] == 10 else 1),
        )
    with pytest.raises(
        NonFiniteLossError, match=f"{term} is .* at step 9; .* checkpoint is that of step 7"
    ) as caught:
        train_quietly(run)
    assert (caught.value.step, caught.value.term, caught.value.last_checkpoint) == (9, term, 7)
    monkeypatch.undo()
    assert all(bool(value.isfinite().all()) for value in run.checkpoints().load("last").tensors.values())
    assert train_quietly(run).num_steps == NUM_STEPS


@pytest.mark.parametrize("name", ["posterior.smoothing.beta", "posterior.norms.0.scale"])
def test_an_infinite_parameter_with_bounds_stops_the_run(tmp_path, monkeypatch, name):
    from discrete_vae.training import loop

    original = loop.training_step

    def step(state, *arguments):
        elbo = original(state, *arguments)
        if state.step == 8:
            with torch.no_grad():
                state.model.get_parameter(name).fill_(math.inf)
            state.model.project_()
        return elbo

    monkeypatch.setattr(loop, "training_step", step)
    run = start_run(tmp_path / "run")
    with pytest.raises(NonFiniteLossError, match="is nan at step 9; .* checkpoint is that of step 7"):
        train_quietly(run)


def test_a_full_disk_during_a_checkpoint_loses_nothing(tmp_path, monkeypatch):
    run = start_run(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train_quietly(run, stop_at=8)
    from discrete_vae.runs import checkpoints as store

    def full(*arguments, **keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "write_checkpoint", full)
    with pytest.raises(CheckpointWriteError, match="No space left .* step 7"):
        train_quietly(run)
    monkeypatch.undo()
    assert run.checkpoints().steps() == (7,)
    assert train_quietly(run).num_steps == NUM_STEPS


def test_a_foreign_checkpoint_is_refused(unbroken, tmp_path):
    config = CONFIG.model_copy(
        update={
            "model": ModelConfig(
                **(CONFIG.model.model_dump() | {"prior": RBMConfig(num_left=4, num_right=5)})
            )
        }
    )
    run = start_run(tmp_path / "run", config)
    run.checkpoints_path.symlink_to(unbroken[0].checkpoints_path)
    with pytest.raises(InvalidInputError, match=r"config\.json must be the file .* --accept-changed-config"):
        train_quietly(run, config)
    with (
        pytest.warns(UserWarning, match="is not the file that the run was trained with"),
        pytest.raises(InvalidInputError, match=r"step-36: \S+ must be .* It belongs to another model"),
    ):
        train_quietly(run, config, accept_changed_config=True)


def test_data_of_another_width_are_refused(tmp_path):
    config = CONFIG.model_copy(update={"model": CONFIG.model.model_copy(update={"num_features": 65})})
    run = start_run(tmp_path / "run", config)
    with pytest.raises(
        InvalidInputError, match="model.num_features must have the data's 64 values; received 65"
    ):
        train_quietly(run, config)


def test_best_json_names_the_best_checkpoint(unbroken):
    best = json.loads(unbroken[0].best_path.read_text())
    assert best["step"] == unbroken[1].best_step
    assert best["step"] in unbroken[0].checkpoints().steps()


def test_random_stops(unbroken, tmp_path):
    """Ten stops at random steps, as ten kills would end the process."""
    run, stops = start_run(tmp_path / "run"), random.Random(0)
    for _ in range(10):
        last = run.checkpoints().steps()
        low = (last[-1] if last else 0) + 1
        if low > NUM_STEPS:
            break
        with pytest.raises(KeyboardInterrupt):
            train_quietly(run, stop_at=stops.randint(low, min(low + 8, NUM_STEPS)))
    train_quietly(run)
    assert_same_state(final_state(run), final_state(unbroken[0]))
