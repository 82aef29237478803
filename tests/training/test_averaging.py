"""Averaged weights: what they are, what a checkpoint holds of them, and whose log Z is validated."""

import pytest
import torch

from discrete_vae import exact_log_partition, load_dataset
from discrete_vae.config import AveragingConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import evaluate_elbo
from discrete_vae.load import initial_model, load_run
from discrete_vae.rng import key_to_seed
from discrete_vae.training.loop import _VALIDATION_STREAM
from discrete_vae.training.state import AveragedWeights, TrainingState
from tests.training.test_loop import assert_same_state, final_state
from tests.training.tiny import CONFIG, NUM_STEPS, start_run, train_quietly

AVERAGED = CONFIG.model_copy(
    update={"training": CONFIG.training.model_copy(update={"averaging": AveragingConfig(decay=0.8)})}
)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    run = start_run(tmp_path_factory.mktemp("averaged") / "run", AVERAGED)
    train_quietly(run, AVERAGED)
    return run


def test_the_average_is_the_formula():
    model, decay = initial_model(CONFIG), 0.7
    averages = AveragedWeights(model, decay)
    generator = torch.Generator().manual_seed(0)
    states = []
    for step in range(1, 6):
        for value in model.state_dict().values():
            value.copy_(torch.randn(value.shape, generator=generator))
        averages.update(model, step)
        states.append({name: value.double().clone() for name, value in model.state_dict().items()})
    shares = torch.tensor([decay ** (5 - s) for s in range(1, 6)], dtype=torch.float64)
    for name, value in averages.model.state_dict().items():
        stacked = torch.stack([state[name] for state in states], -1)
        torch.testing.assert_close(value.double(), stacked @ shares / shares.sum(), rtol=1e-5, atol=1e-6)


def test_training_goes_on_with_the_raw_weights(unbroken, tmp_path):
    """The weights that train are those of a run without averages, bit for bit."""
    plain = start_run(tmp_path / "run")
    train_quietly(plain)
    averaged, raw = final_state(unbroken)[0], final_state(plain)[0]
    names = [name for name in raw if name.startswith("model/")]
    assert len(names) > 10
    for name in names:
        assert torch.equal(averaged[name.replace("model/", "raw/")], raw[name])
    assert not torch.equal(averaged["model/prior.weight"], averaged["raw/prior.weight"])


@pytest.mark.parametrize("stop", [5, 20])
def test_a_stopped_and_resumed_run_equals_an_unbroken_one(unbroken, tmp_path, stop):
    run = start_run(tmp_path / "run", AVERAGED)
    with pytest.raises(KeyboardInterrupt):
        train_quietly(run, AVERAGED, stop_at=stop)
    train_quietly(run, AVERAGED)
    assert_same_state(final_state(run), final_state(unbroken))


def test_the_model_of_a_checkpoint_is_the_average_and_was_validated_with_its_own_log_z(unbroken):
    loaded = load_run(unbroken, NUM_STEPS)
    saved = unbroken.checkpoints().load(NUM_STEPS).tensors
    assert torch.equal(loaded.model.prior.weight, saved["model/prior.weight"])
    log_z = exact_log_partition(loaded.model.prior).value
    found = evaluate_elbo(
        loaded.model,
        load_dataset("digits").valid,
        log_partition=log_z,
        seed=key_to_seed(AVERAGED.seed, _VALIDATION_STREAM),
    )
    records = unbroken.metrics().read()
    assert [r["validation_elbo"] for r in records if "validation_elbo" in r][-1] == pytest.approx(
        found.elbo, abs=1e-9
    )
    # what was logged for the step is of the weights that train
    logged = [r["log_partition"] for r in records if "elbo" in r][-1]
    assert abs(logged - log_z) > 1e-6
    loaded.model.prior.load_state_dict(
        {name: saved[f"raw/prior.{name}"] for name in loaded.model.prior.state_dict()}
    )
    assert logged == exact_log_partition(loaded.model.prior).value


@pytest.mark.parametrize(
    ("config", "message"),
    [(CONFIG, "raw/.* must not be there"), (AVERAGED, "raw/prior.bias must be float32")],
)
def test_other_weights_than_the_config_asks_for_are_refused(config, message):
    train = torch.full((40, 64), 0.25)
    tensors, meta = TrainingState.initial(AVERAGED, train).capture()
    tensors = {name: value.clone() for name, value in tensors.items()}
    if config is AVERAGED:
        del tensors["raw/prior.bias"]
    with pytest.raises(InvalidInputError, match=message):
        TrainingState.initial(config, train).restore(tensors, meta)
