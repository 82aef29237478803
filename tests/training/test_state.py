"""The state: reproducible from the config, captured and restored whole."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from discrete_vae import DiscreteVAE
from discrete_vae.errors import InvalidInputError
from discrete_vae.load import initial_model
from discrete_vae.overrides import apply_overrides
from discrete_vae.training.state import TrainingState
from tests.training.tiny import CONFIG

TRAIN = torch.full((40, 64), 0.25)


def test_the_initial_state_depends_on_the_seed_alone():
    torch.manual_seed(5)
    one = TrainingState.initial(CONFIG, TRAIN)
    before = torch.random.get_rng_state()
    other = TrainingState.initial(CONFIG, TRAIN)
    assert torch.equal(before, torch.random.get_rng_state())
    for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(a, b)
    third = TrainingState.initial(CONFIG.model_copy(update={"seed": 1}), TRAIN)
    weights = [s.model.posterior.networks[0].layers[0].weight for s in (one, third)]
    assert not torch.equal(*weights)


@pytest.mark.parametrize("form", ["new", "loaded"])
def test_draws_of_other_threads_and_initial_weights_leave_each_other_alone(form, tmp_path):
    first = initial_model(CONFIG)
    folder = first.save_pretrained(tmp_path / "model")
    right = torch.rand(50_000, generator=torch.Generator().manual_seed(3))
    torch.manual_seed(3)
    with ThreadPoolExecutor(1) as pool:
        draws = pool.submit(lambda: [torch.rand(()) for _ in range(len(right))])
        while not draws.done():
            again = initial_model(CONFIG) if form == "new" else DiscreteVAE.from_pretrained(folder)
            for a, b in zip(first.parameters(), again.parameters(), strict=True):
                assert torch.equal(a, b)
    assert torch.equal(torch.stack(draws.result()), right)


def test_accelerators_keep_their_streams(monkeypatch):
    """torch.manual_seed would reseed them, and nothing would put them back."""
    seen = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seen.append)
    torch.manual_seed(0)
    assert len(seen) == 1  # this is how it would be seen
    initial_model(CONFIG)
    assert len(seen) == 1


def test_the_weights_do_not_depend_on_the_default_device():
    first = initial_model(CONFIG)
    with torch.device("meta"):
        second = initial_model(CONFIG)
    assert torch.equal(first.decoder.network.layers[0].weight, second.decoder.network.layers[0].weight)


def test_the_decoder_starts_at_the_mean_of_the_data():
    state = TrainingState.initial(CONFIG, TRAIN)
    bias = state.model.decoder.network.output.bias
    torch.testing.assert_close(torch.sigmoid(bias), TRAIN[0])


def test_a_restored_state_captures_the_same():
    state = TrainingState.initial(CONFIG, TRAIN)
    x = torch.bernoulli(torch.full((20, 64), 0.3))
    z = state.chains.step(2)
    state.model.elbo(x, negative_phase=z).loss.backward()
    state.optimizer.step()
    state.step, state.log_partition, state.log_partition_std_error = 4, 0.1 + 0.2, 0.01
    tensors, meta = state.capture()
    copy = TrainingState.initial(CONFIG.model_copy(update={"seed": 9}), TRAIN)
    copy.restore({name: value.clone() for name, value in tensors.items()}, meta)
    again, meta_again = copy.capture()
    assert meta_again == meta
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize("damage", ["missing", "shape", "extra"])
def test_a_state_of_another_model_is_refused_and_changes_nothing(damage):
    state = TrainingState.initial(CONFIG, TRAIN)
    tensors, meta = state.capture()
    tensors = {name: value.clone() for name, value in tensors.items()}
    if damage == "missing":
        del tensors["model/prior.bias"]
    elif damage == "shape":
        tensors["model/prior.bias"] = torch.zeros(3)
    else:
        tensors["model/hierarchy.weight"] = torch.zeros(3)
    before = state.model.prior.bias.clone()
    with pytest.raises(InvalidInputError, match="checkpoint: model/.* must"):
        state.restore(tensors, meta)
    assert torch.equal(before, state.model.prior.bias)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("chains/swap_sum", torch.zeros(13, dtype=torch.int64)),
        ("chains/swap_sum", torch.zeros(12, dtype=torch.float64)),
        ("chains/order", torch.zeros(30, 14, dtype=torch.int64)),
        ("chains/last_end", None),
        ("chains/inverse_temperatures", torch.full((14,), torch.nan, dtype=torch.float64)),
        ("chains/round_trips", torch.zeros(30)),
        ("chains/measured", torch.tensor(True)),
        ("chains/sweep", torch.tensor(-4)),
    ],
)
def test_a_forged_state_of_tempering_is_refused_and_changes_nothing(name, value):
    config = apply_overrides(
        CONFIG, [("training.sampler", ["parallel-tempering"]), ("training.sampler.num-chains", ["30"])]
    )
    state = TrainingState.initial(config, TRAIN)
    tensors, meta = state.capture()
    tensors = {key: part.clone() for key, part in tensors.items()}
    assert len(tensors["chains/swap_sum"]) == 13
    if value is None:
        del tensors[name]
    else:
        tensors[name] = value
    before = state.chains.state_dict()["z"]
    with pytest.raises(InvalidInputError, match=name.removeprefix("chains/")):
        state.restore(tensors, meta, source="step-0")
    assert torch.equal(before, state.chains.state_dict()["z"])
