"""The step: repeated recordings are the steps of the model, to the last bit; the precision of products."""

from __future__ import annotations

import copy
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from discrete_vae import load_dataset, train
from discrete_vae.errors import InvalidInputError, KernelWarning
from discrete_vae.nets.mlp import MLP, ConcatLinear, L1BatchNorm
from discrete_vae.nets.precision import gains_by_bfloat16
from discrete_vae.overrides import apply_overrides
from discrete_vae.presets import load_experiment
from discrete_vae.runs.io import write_json
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training import step
from discrete_vae.training.loop import training_step
from discrete_vae.training.state import TrainingState
from discrete_vae.training.step import RecordedStep, _why_not, choose_precision
from tests.training.tiny import CONFIG, start_run, train_quietly
from tests.transformations import SMOOTHINGS

STEPS = 6
LAYERS = {
    "model.hierarchy": "gaussian",
    "model.hierarchy.num-layers": "2",
    "model.hierarchy.num-units": "3",
    "model.hierarchy.posterior-hidden": "7",
    "model.hierarchy.prior-hidden": "5",
}
CASES = {
    "plain": {},
    "bfloat16": {"training.precision": "bfloat16"} | LAYERS,
    "layers": LAYERS,
    "shared layers": LAYERS | {"model.hierarchy.sharing": "complete"},
    "importance samples": LAYERS
    | {"training.num-importance-samples": "3", "training.importance-start": "0.5"},
    **{f"{kind} smoothing": {"model.smoothing": kind} for kind in SMOOTHINGS},
    "importance samples of zeta": {
        "model.smoothing": "overlapping-exponential",
        "model.smoothing.trainable": "true",
        "training.num-importance-samples": "3",
        "training.importance-start": "0.5",
        "training.warm-up.prior-epochs": "20",
    },
    "trained overlap": {"model.smoothing": "overlapping-exponential", "model.smoothing.trainable": "true"},
    "missing": {"model.missing": "true"},
    "probabilities": {"model.likelihood": "gaussian"},
    "averages": {"training.averaging.decay": "0.9"},
    "REINFORCE": {"training.gradient": "reinforce", "training.gradient.baseline": "learned"},
    "leave-one-out": {"training.gradient": "leave-one-out"} | LAYERS,
    "DisARM": {"training.gradient": "disarm", "training.precision": "bfloat16"} | LAYERS,
    "naive KL": {"training.gradient": "naive-kl"},
    "convolutions": {
        "model.encoder": "convolutional",
        "model.decoder": "convolutional",
        "model.event-shape": "1 8 8",
        "training.precision": "bfloat16",
    },
    "factorial": {"model.prior": "factorial", "model.prior.num-units": "32", "model.posterior.groups": "1"},
    "graph": {
        "model.prior": "graph",
        "model.prior.num-units": "32",
        "model.prior.edges": "[[0,1],[1,2],[2,31],[31,0]]",
    },
    "complete graph": {
        "model.prior": "graph",
        "model.prior.num-units": "32",
        "model.prior.edges": "complete",
    },
}


def config_of(case, more=()):
    return with_settings(CASES[case] | dict(more))


def with_settings(settings):
    base = load_experiment("digits", "smoke")
    settings = settings | {"training.warm-up.epochs": "0.05", "training.num-epochs": "10"}
    return apply_overrides(base, [(name, value.split()) for name, value in settings.items()])


def batches(config, missing):
    generator = torch.Generator().manual_seed(5)
    for _ in range(STEPS):
        x = torch.bernoulli(torch.full((20, 64), 0.3), generator=generator)
        if missing:
            x[torch.rand(x.shape, generator=generator) < 0.1] = torch.nan
        yield x


def run(config, *, recorded, missing=False):
    settings = config.training.model_copy(update={"record": recorded})
    state = TrainingState.initial(config.model_copy(update={"training": settings}), torch.full((30, 64), 0.3))
    values = []
    for x in batches(config, missing):
        epoch = (
            state.step / 5 + 0.1
        )  # beta's bound and, in the first case, the warm-up change from step to step
        values.append(training_step(state, config, x, epoch, state.step / STEPS).value)
        state.step += 1
    return state, torch.stack(values)


@pytest.mark.parametrize("case", CASES)
def test_recorded_steps_are_the_steps(case):
    config, missing = config_of(case), case == "missing"
    fast, fast_values = run(config, recorded=True, missing=missing)
    slow, slow_values = run(config, recorded=False, missing=missing)
    assert fast.recorded.functions.reason is None
    assert len(fast.recorded.functions._checked) == (3 if "importance samples" in case else 2)
    assert slow.recorded.functions.reason == "training.record is false"
    assert torch.equal(fast_values, slow_values)
    assert_same(fast, slow)


def assert_same(fast, slow):
    mine, other = fast.capture(), slow.capture()
    assert mine[1] == other[1]
    for name, tensor in mine[0].items():
        assert torch.equal(tensor, other[0][name]), name


def move_all(model):
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()


def as_one_vector(model):
    parameters = list(model.parameters())
    nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(parameters) * 1.01, parameters)


def other_decoder(model):
    model.decoder = copy.deepcopy(model.decoder)
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            parameter.mul_(0.5)


def patched(model):
    usual = model.decoder.forward
    model.decoder.forward = lambda *inputs: usual(*inputs) + 0.25


def settings_of_norms(model):
    for part in model.modules():
        if isinstance(part, L1BatchNorm):
            part.momentum, part.eps = 0.3, 0.01


def other_statistics(model):
    for part in model.modules():
        if isinstance(part, L1BatchNorm):
            part.running_mean = torch.full_like(part.running_mean, 0.2)


def other_parameter(model):
    model.prior.bias = nn.Parameter(torch.full_like(model.prior.bias, 0.1))


def write_through_data(model):
    for parameter in model.decoder.parameters():
        parameter.data.mul_(0.5)


CHANGES = {
    "storage moved": move_all,
    "parameters as one vector": as_one_vector,
    "moved to where they are": lambda model: model.to("cpu"),
    "a part in evaluation mode": lambda model: model.posterior.eval(),
    "another decoder": other_decoder,
    "a patched method": patched,
    "weights assigned": lambda model: model.load_state_dict(
        {name: value * 0.9 for name, value in model.state_dict().items()}, assign=True
    ),
    "settings of norms": settings_of_norms,
    "another buffer": other_statistics,
    "another parameter": other_parameter,
    "written through data": write_through_data,
    **{
        f"{part} frozen": lambda model, part=part: getattr(model, part).requires_grad_(False)
        for part in ("prior", "posterior", "hierarchy", "decoder", "smoothing")
    },
    "rounded products": lambda _: torch.set_float32_matmul_precision("medium"),
}


@pytest.fixture
def products():
    yield
    torch.set_float32_matmul_precision("highest")


@pytest.mark.usefixtures("products")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("change", CHANGES)
def test_steps_after_a_change_are_those_of_the_changed_model(change, precision):
    settings = LAYERS | {"training.precision": precision, "training.optimizer.decoder-weight-decay": "0.1"}
    states = [run(config_of("layers", settings), recorded=recorded)[0] for recorded in (True, False)]
    before = copy.deepcopy(states[0].model.state_dict())
    functions = states[0].recorded.functions
    values = []
    for state in states:
        torch.set_float32_matmul_precision("highest")
        CHANGES[change](state.model)
        filled = [torch.full((1 << 20,), 7.0) for _ in range(4)]  # takes memory that has been given back
        for x in batches(config_of("layers"), missing=False):
            found = training_step(state, config_of("layers", settings), x, 1.0, 0.5)
            values.append(torch.stack([found.reconstruction, found.kl_relative, found.kl_continuous]))
            state.step += 1
        assert len(filled) == 4
        if change == "moved to where they are":  # what it trains is what it computes with
            for name, tensor in state.model.state_dict().items():
                if name.endswith("weight"):
                    assert not torch.equal(tensor, before[name]), name
    assert functions is states[0].recorded.functions
    assert functions.reason is None
    assert torch.equal(torch.stack(values[:STEPS]), torch.stack(values[STEPS:]))
    assert_same(*states)
    for name, parameter in states[0].model.named_parameters():
        if not parameter.requires_grad:
            assert torch.equal(parameter, before[name]), name


@pytest.mark.filterwarnings("ignore:Operations are called one by one")
def test_a_step_with_everything_frozen_gives_the_terms_and_changes_nothing():
    config = config_of("layers")
    state = run(config, recorded=True)[0]
    before = copy.deepcopy(dict(state.model.named_parameters()))
    state.model.requires_grad_(False)
    found = training_step(state, config, next(batches(config, missing=False)), 1.0, 0.5)
    assert bool(found.reconstruction.isfinite().all())
    for name, parameter in state.model.named_parameters():
        assert torch.equal(parameter, before[name]), name


def test_what_changes_all_the_time_is_not_recorded():
    state, config = run(config_of("plain"), recorded=True)[0], config_of("plain")

    def change_and_step():
        for _ in range(20):
            move_all(state.model)
            training_step(state, config, torch.ones(20, 64), 1.0, 0.2)

    with pytest.warns(KernelWarning, match="the model changes from call to call"):
        change_and_step()


def test_a_shape_too_many_is_said():
    state, config = run(config_of("plain"), recorded=True)[0], config_of("plain")

    def steps():
        for size in range(2, 20):
            training_step(state, config, torch.ones(size, 64), 1.0, 0.2)

    with pytest.warns(KernelWarning, match="no more than 16 shapes"):
        steps()
    assert state.recorded.functions.reason is None


@pytest.mark.parametrize("block", [torch.no_grad, torch.inference_mode])
def test_a_step_needs_gradients(block):
    state, config = run(config_of("plain"), recorded=True)[0], config_of("plain")
    with block(), pytest.raises(InvalidInputError, match="records gradients"):
        training_step(state, config, torch.ones(20, 64), 1.0, 0.2)
    training_step(state, config, torch.ones(20, 64), 1.0, 0.2)


def test_two_threads_record_and_a_third_evaluates():
    config = config_of("layers")
    expected = run(config, recorded=False)
    results, model = [], run(config, recorded=False)[0].model.eval()
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(run, config, recorded=True) for _ in range(3)]
        while not all(job.done() for job in jobs):
            with torch.no_grad():
                model.elbo(torch.ones(5, 64), log_partition=0.0)
        results = [job.result() for job in jobs]
    for state, values in results:
        assert state.recorded.functions.reason is None
        assert torch.equal(values, expected[1])
        assert_same(state, expected[0])


CONSTANT = {
    "bits": {},
    "logits without hidden layers": {"model.posterior.hidden": ""},
    "parameters of x": {"model.smoothing": "spike-gaussian"} | LAYERS,
    "bfloat16": {"training.precision": "bfloat16"},
    "codes": {"model.likelihood": "categorical"},
    "columns without a gap": {"model.missing": "true", "model.mask": "observed"},
}


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "plain"])
@pytest.mark.parametrize("case", CONSTANT)
def test_weights_of_inputs_that_are_constant_keep_their_start(case, recorded):
    """Behind a norm their gradient is zero; of its rounding Adam would make full steps."""
    config = with_settings(CONSTANT[case])
    state = TrainingState.initial(config, torch.eye(64))
    if not recorded:
        state.recorded.functions.reason = "for comparison"
    model = state.model
    networks = [part for name, part in model.named_modules() if isinstance(part, MLP) and "posterior" in name]
    weights = [([*network.layers, network.output][0]).weight for network in networks]
    before = [weight.detach().clone() for weight in weights]
    for x in batches(config, missing=False):
        x[:, :5] = 1
        training_step(state, config, x, 1.0, 0.1)
        state.step += 1
    columns = {"codes": [*range(5), *range(64, 69)], "columns without a gap": [*range(5), *range(64, 128)]}
    held = columns.get(case, range(5))
    for weight, start in zip(weights, before, strict=True):
        assert torch.equal(weight[:, held], start[:, held])
        assert not torch.equal(weight[:, 5:64], start[:, 5:64])


def test_a_batch_of_another_shape_has_a_recording_of_its_own():
    config = config_of("plain")
    state = TrainingState.initial(config, torch.full((30, 64), 0.3))
    for size in (20, 20, 10, 20, 10, 10):
        elbo = training_step(state, config, torch.ones(size, 64), 1.0, 0.5)
        assert elbo.value.shape == (size,)
        state.step += 1
    assert len(state.recorded.functions._checked) == 3


def test_a_restored_state_is_recorded_anew():
    config = config_of("plain")
    state, _ = run(config, recorded=True)
    before = state.recorded
    state.restore(*state.capture())
    assert state.recorded is not before


def test_weights_that_are_written_from_outside_are_seen():
    config = config_of("bfloat16")
    state, _ = run(config, recorded=True)
    x = torch.ones(20, 64)
    with torch.no_grad():
        for parameter in state.model.decoder.parameters():
            parameter.zero_()
    elbo = training_step(state, config, x, 1.0, 0.2)
    torch.testing.assert_close(elbo.reconstruction, torch.full((20,), -64 * 0.6931472), rtol=1e-5, atol=0)


class Mine(nn.Module):
    def forward(self, x):
        return x


def test_models_whose_code_may_do_more_are_not_recorded():
    state, _ = run(config_of("plain"), recorded=False)
    model = state.model
    assert _why_not(model) is None
    model.encoder.register_forward_hook(lambda *_: None)
    assert _why_not(model) == "FlattenEncoder has hooks"
    model.encoder = Mine()
    recorded = RecordedStep(model, state.optimizer)
    assert recorded.functions.reason == "Mine is a module of your own"


def test_a_hook_that_comes_later_is_called_and_ends_the_recording():
    config, seen = config_of("plain"), []
    state, _ = run(config, recorded=True)
    twin, _ = run(config, recorded=False)
    x = torch.ones(20, 64)
    other = nn.Linear(2, 2).register_forward_hook(lambda *_: None)
    training_step(state, config, x, 1.0, 0.2)
    assert state.recorded.functions.reason is None  # it was none of the model's
    other.remove()
    handle = state.model.decoder.register_forward_hook(lambda *_: seen.append(1))
    with pytest.warns(KernelWarning, match="which is slower: MLPDecoder has hooks"):
        training_step(state, config, x, 1.0, 0.2)
    assert seen == [1]
    training_step(state, config, x, 1.0, 0.2)
    assert seen == [1, 1]
    handle.remove()
    for _ in range(3):
        training_step(twin, config, x, 1.0, 0.2)
    for mine, expected in zip(state.model.parameters(), twin.model.parameters(), strict=True):
        assert torch.equal(mine, expected)


def test_a_hook_of_a_parameter_ends_the_recording():
    config, seen = config_of("plain"), []
    state, _ = run(config, recorded=True)
    state.model.prior.bias.register_hook(lambda gradient: seen.append(gradient.shape))
    with pytest.warns(KernelWarning, match="the parameter prior.bias has hooks"):
        training_step(state, config, torch.ones(20, 64), 1.0, 0.2)
    assert seen == [state.model.prior.bias.shape]


WIDE = CONFIG.model.model_copy(
    update={"posterior": CONFIG.model.posterior.model_copy(update={"hidden": (400, 400)})}
)


def config_in(name, model=CONFIG.model):
    settings = CONFIG.training.model_copy(update={"precision": name})
    return CONFIG.model_copy(update={"training": settings, "model": model})


@pytest.fixture(params=[True, False], ids=["fast", "slow"])
def fast(request, monkeypatch):
    monkeypatch.setattr(step, "has_fast_bfloat16", lambda device: request.param)
    return request.param


def test_auto_takes_bfloat16_where_processor_and_networks_gain(fast):
    assert choose_precision(config_in("auto"), device="cpu").name == "float32"
    wide = choose_precision(config_in("auto", WIDE), device="cpu")
    assert wide.name == ("bfloat16" if fast else "float32")
    assert ("has instructions" if fast else "has no instructions") in wide.reason


def test_auto_counts_the_multiplications_of_a_product(monkeypatch):
    monkeypatch.setattr(step, "has_fast_bfloat16", lambda device: True)
    sizes = [400 * 784, 10 * 400]
    network = nn.Sequential(ConcatLinear([784], 400), ConcatLinear([400], 10))
    enough = math.ceil(2e6 * len(sizes) / sum(sizes))
    assert gains_by_bfloat16(network, enough)
    assert not gains_by_bfloat16(network, enough - 1)
    assert not gains_by_bfloat16(
        nn.Linear(10_000, 10_000, device="meta"), 1000
    )  # no network whose products are set
    config = config_in("auto", WIDE)
    small = config.model_copy(update={"training": config.training.model_copy(update={"batch_size": 10})})
    assert choose_precision(config, device="cpu").name == "bfloat16"
    assert choose_precision(small, device="cpu").name == "float32"


def test_what_is_asked_for_is_taken(fast):
    assert choose_precision(config_in("float32", WIDE), device="cpu").dtype == torch.float32
    asked = choose_precision(config_in("bfloat16"), device="cpu")
    assert asked.dtype == torch.bfloat16
    assert ("slow" in asked.reason) is not fast


def test_a_run_goes_on_in_the_precision_that_it_began_with(fast):
    begun = {"precision": "bfloat16"}
    assert choose_precision(config_in("auto"), device="cpu", begun=begun).name == "bfloat16"
    assert choose_precision(config_in("auto", WIDE), device="cpu", begun={"seed": 1}).name == "float32"


def test_the_folder_names_it(tmp_path, fast):
    train(config_in("auto", WIDE), load_dataset("digits"), tmp_path / "run", stop=lambda: True)
    run = RunDirectory.open(tmp_path / "run")
    assert run.read_environment()["precision"] == ("bfloat16" if fast else "float32")
    write_json(run.environment_path, run.read_environment() | {"precision": 5})
    with pytest.raises(InvalidInputError, match="environment.json, field 'precision'"):
        train(config_in("auto", WIDE), load_dataset("digits"), tmp_path / "run", stop=lambda: True)


def test_a_resumed_run_in_bfloat16_equals_an_unbroken_one(tmp_path):
    config = config_in("bfloat16")
    whole, broken = start_run(tmp_path / "whole", config), start_run(tmp_path / "broken", config)
    train_quietly(whole, config)
    with pytest.raises(KeyboardInterrupt):
        train_quietly(broken, config, stop_at=17)
    train_quietly(broken, config)
    one, other = (run.checkpoints().load("last").tensors for run in (whole, broken))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    single = start_run(tmp_path / "single", config_in("float32"))
    train_quietly(single, config_in("float32"))
    name = "model/decoder.network.output.weight"
    assert not torch.equal(single.checkpoints().load("last").tensors[name], one[name])


def test_a_state_in_bfloat16_keeps_float32_weights_and_names():
    state = TrainingState.initial(config_in("bfloat16"), load_dataset("digits").train)
    assert all(parameter.dtype == torch.float32 for parameter in state.model.parameters())
    plain = TrainingState.initial(config_in("float32"), load_dataset("digits").train)
    assert state.capture()[0].keys() == plain.capture()[0].keys()
