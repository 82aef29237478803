"""The state of a run: groups of parameters, averages, times, captured and restored whole."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from discrete_vae import DiscreteVAE, exact_log_partition, load_dataset
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import evaluate_elbo
from discrete_vae.nets.convolutional import ConvolutionalDecoder
from discrete_vae.rng import key_to_seed
from discrete_vae.runs.load import initial_model, load_run
from discrete_vae.training import state
from discrete_vae.training.loop import _VALIDATION_STREAM, training_step
from discrete_vae.training.state import (
    PARTS,
    TIME_METRICS,
    AveragedWeights,
    StepTimes,
    TrainingState,
    decay_weights,
    parameter_groups,
)
from tests.training import tiny
from tests.training.tiny import (
    CONFIG,
    NUM_STEPS,
    assert_same_run,
    changed,
    last_tensors,
    start_run,
    train_quietly,
)

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
    with torch.device("meta"):  # nor on the default device
        elsewhere = initial_model(CONFIG)
    mine, other = (model.decoder.network for model in (one.model, elsewhere))
    assert torch.equal(mine.layers[0].weight, other.layers[0].weight)
    torch.testing.assert_close(torch.sigmoid(mine.output.bias), TRAIN[0])  # the mean of the data


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


AVERAGED = changed(CONFIG, {"training.averaging.decay": "0.8"})
REPLICAS = {"training.sampler": "parallel-tempering", "training.sampler.num-chains": "30"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model/prior.bias", None),
        ("model/prior.bias", torch.zeros(3)),
        ("model/hierarchy.weight", torch.zeros(3)),
        ("raw/prior.bias", None),
        ("chains/swap_sum", torch.zeros(13, dtype=torch.int64)),
    ],
)
def test_a_forged_state_is_refused_and_changes_nothing(name, value):
    state = TrainingState.initial(changed(AVERAGED, REPLICAS), TRAIN)
    tensors, meta = state.capture()
    before = {key: part.clone() for key, part in tensors.items()}
    assert len(tensors["chains/swap_sum"]) == 13
    forged = {key: part + key.startswith(("model/", "raw/")) for key, part in tensors.items()} | {name: value}
    with pytest.raises(InvalidInputError, match=name.partition("/")[2]):
        state.restore({key: part for key, part in forged.items() if part is not None}, meta)
    assert all(torch.equal(part, before[key]) for key, part in state.capture()[0].items())


def test_averaged_weights_without_their_setting_are_refused():
    with pytest.raises(InvalidInputError, match="raw/"):
        TrainingState.initial(CONFIG, TRAIN).restore(*TrainingState.initial(AVERAGED, TRAIN).capture())


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
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


def test_a_weight_of_two_names_is_averaged_once():
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    model[1].weight = model[0].weight
    averages = AveragedWeights(model, 0.5)
    for step, value in enumerate((3.0, 6.0), start=1):
        nn.init.constant_(model[0].weight, value)
        averages.update(model, step)
    torch.testing.assert_close(averages.model[1].weight, torch.full((2, 2), 5.0))


def test_training_goes_on_with_the_raw_weights(averaged, unbroken):
    """The weights that train are those of a run without averages, bit for bit."""
    found, raw = last_tensors(averaged), last_tensors(unbroken[0])
    names = [name for name in raw if name.startswith("model/")]
    assert len(names) > 10
    for name in names:
        assert torch.equal(found[name.replace("model/", "raw/")], raw[name])
    assert not torch.equal(found["model/prior.weight"], found["raw/prior.weight"])


def test_the_model_of_a_checkpoint_is_the_average_and_was_validated_with_its_own_log_z(averaged):
    loaded = load_run(averaged, NUM_STEPS)
    saved = averaged.checkpoints().load(NUM_STEPS).tensors
    assert torch.equal(loaded.model.prior.weight, saved["model/prior.weight"])
    log_z = exact_log_partition(loaded.model.prior).value
    seed = key_to_seed(AVERAGED.seed, _VALIDATION_STREAM)
    found = evaluate_elbo(loaded.model, load_dataset("digits").valid, log_partition=log_z, seed=seed)
    records = averaged.metrics().read()
    elbos = [record["validation_elbo"] for record in records if "validation_elbo" in record]
    assert elbos[-1] == pytest.approx(found.elbo, abs=1e-9)
    # what was logged for the step is of the weights that train
    logged = [r["log_partition"] for r in records if "elbo" in r][-1]
    assert abs(logged - log_z) > 1e-6
    raw = {name: saved[f"raw/prior.{name}"] for name in loaded.model.prior.state_dict()}
    loaded.model.prior.load_state_dict(raw)
    assert logged == exact_log_partition(loaded.model.prior).value


LAYERS = changed(CONFIG, {"training.warm-up.epochs": "0"} | tiny.LAYERS)
MEASURES = {
    "optimizer.prior-learning-rate-factor": "0.25",
    "optimizer.layers-weight-decay": "0.1",
    "optimizer.decoder-weight-decay": "0.2",
    "num-importance-samples": "3",
    "importance-start": "0.5",
    "averaging.decay": "0.9",
    "precision": "bfloat16",
}
ALL = changed(LAYERS, {f"training.{name}": value for name, value in MEASURES.items()})


def test_every_parameter_is_in_one_group_and_neutral_settings_make_only_one():
    model = initial_model(ALL)
    (group,) = parameter_groups(model, LAYERS.training.optimizer)
    assert [id(p) for p in group["params"]] == [id(p) for p in model.parameters()]
    groups = parameter_groups(model, ALL.training.optimizer)
    listed = [id(p) for group in groups for p in group["params"]]
    assert sorted(listed) == sorted(id(p) for p in model.parameters())
    assert [id(p) for p in groups[1]["params"]] == [id(p) for p in model.prior.parameters()]
    names = {id(p): name for name, p in model.named_parameters()}
    decayed = {names[id(p)] for p in groups[2]["params"]}
    assert all(name.startswith("hierarchy.prior.") and name.endswith("weight") for name in decayed)
    assert len(decayed) == 4  # a hidden and an output layer for each of two layers
    matrices = {name for name, p in model.named_parameters() if name.startswith("decoder.") and p.dim() == 2}
    assert {names[id(p)] for p in groups[3]["params"]} == matrices != set()
    assert [group["decoupled_decay"] for group in groups] == [0.0, 0.0, 0.1, 0.2]


def test_biases_of_images_do_not_decay():
    model = initial_model(ALL)
    model.decoder = ConvolutionalDecoder(model.hierarchy.decoder_size, (1, 8, 8), (4,))
    decayed = {id(p) for p in parameter_groups(model, ALL.training.optimizer)[3]["params"]}
    assert decayed == {
        id(p) for name, p in model.decoder.named_parameters() if p.dim() > 1 and name != "output_bias"
    }
    assert model.decoder.output_bias.dim() == 3


def one_step(config):
    """The parameters before a step and after it."""
    state = TrainingState.initial(config, TRAIN)
    x = torch.bernoulli(torch.full((20, 64), 0.3), generator=torch.Generator().manual_seed(0))
    before = {key: p.detach().clone() for key, p in state.model.named_parameters()}
    training_step(state, config, x, 0.0, 0.0)
    return before, {key: p.detach() for key, p in state.model.named_parameters()}


def test_the_decoder_alone_decays():
    """From the same start, with the same noise, a step leaves each of its matrices smaller by step size times decay."""
    decay = changed(LAYERS, {"training.optimizer.decoder-weight-decay": "0.5"})
    (start, plain), (_, decayed) = one_step(LAYERS), one_step(decay)
    rate = LAYERS.training.optimizer.learning_rate
    for name, value in start.items():
        wanted = 0.5 * rate * value * (name.startswith("decoder.") and value.dim() == 2)
        torch.testing.assert_close(plain[name] - decayed[name], wanted, rtol=1e-3, atol=1e-7)


def test_the_machine_takes_smaller_steps():
    """Adam's first step moves each weight by the step size."""
    rate = LAYERS.training.optimizer.learning_rate
    for config, share in ((LAYERS, 1.0), (ALL, 0.25)):
        before, after = one_step(config)
        moved = {key: float((after[key] - value).abs().max()) for key, value in before.items()}
        assert moved["prior.bias"] == pytest.approx(share * rate, rel=1e-3)
        network = next(key for key in moved if key.startswith("posterior.") and key.endswith("weight"))
        assert moved[network] == pytest.approx(rate, rel=1e-3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    run = start_run(tmp_path_factory.mktemp("whole") / "run", ALL)
    train_quietly(run, ALL)
    return run


def test_a_run_with_every_measure_resumes_bit_for_bit(whole, tmp_path):
    run = start_run(tmp_path / "run", ALL)
    for stop in (5, 9, 25):
        with pytest.raises(KeyboardInterrupt):
            train_quietly(run, ALL, stop_at=stop)
    train_quietly(run, ALL)
    assert_same_run(run, whole)


def test_products_and_importance_samples_make_another_run_and_the_latter_begin_in_the_middle(whole, tmp_path):
    runs = {"whole": whole}
    for name, setting in (("num-importance-samples", "1"), ("precision", "float32")):
        config = changed(ALL, {f"training.{name}": setting})
        runs[name] = start_run(tmp_path / name, config)
        train_quietly(runs[name], config)
    ends = {name: run.checkpoints().load(NUM_STEPS).tensors for name, run in runs.items()}
    for name in ("num-importance-samples", "precision"):
        assert not torch.equal(ends[name]["raw/prior.weight"], ends["whole"]["raw/prior.weight"])
    lines = {name: run.metrics().read() for name, run in runs.items()}
    early = {name: [line["elbo"] for line in each if "elbo" in line][:5] for name, each in lines.items()}
    assert early["whole"] == early["num-importance-samples"] != early["precision"]  # of the first 15 steps


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on when it is told to."""
    now = [100.0]
    monkeypatch.setattr(state.time, "perf_counter", lambda: now[0])

    def pass_(seconds):
        now[0] += seconds

    return pass_


def test_shares_are_those_of_the_time_and_the_rate_counts_all_of_it(clock):
    times = StepTimes()
    for _ in range(2):
        clock(0.5)  # data
        for part, seconds in zip(PARTS, (1.0, 2.0, 1.5), strict=True):
            times.begin(part)
            clock(seconds)
        times.end_step()
    found = times.metrics(100, torch.device("cpu"))
    assert found == {
        "examples_per_second": pytest.approx(20.0),
        "chains_share": pytest.approx(0.2),
        "networks_share": pytest.approx(0.4),
        "optimizer_share": pytest.approx(0.3),
    }
    assert set(found) < set(TIME_METRICS)
    clock(50.0)
    times.restart()
    assert times.metrics(100, torch.device("cpu")) == {}
    times.begin("chains")
    clock(2.0)
    times.end_step()
    assert times.metrics(10, torch.device("cuda")) == {"examples_per_second": 5.0}  # and no shares


def test_decay_shrinks_without_entering_the_moments():
    weight, other = (torch.nn.Parameter(torch.tensor([2.0])) for _ in range(2))
    groups = [
        {"params": [other], "rate_factor": 1.0, "decoupled_decay": 0.0},
        {"params": [weight], "rate_factor": 1.0, "decoupled_decay": 0.5},
    ]
    optimizer, right = torch.optim.Adam(groups, lr=0.1), torch.optim.AdamW([weight.detach().clone()], lr=0.1)
    reference = right.param_groups[0]["params"][0].requires_grad_()
    right.param_groups[0]["weight_decay"] = 0.5
    for gradient in (1.0, -0.3, 0.2):
        for parameter in (weight, other, reference):
            parameter.grad = torch.tensor([gradient])
        decay_weights(optimizer)
        optimizer.step()
        right.step()
    assert float(weight.detach()) == pytest.approx(float(reference.detach()), rel=1e-6)
    assert float(other.detach()) > float(weight.detach()) + 0.1
