"""The step: repeated recordings are the steps of the model, to the last bit; the precision of products."""

from __future__ import annotations

import copy
import math
from itertools import islice

import pytest
import torch
from torch import nn

from discrete_vae import load_dataset, train
from discrete_vae.errors import InvalidInputError, KernelWarning
from discrete_vae.kernels.adam import Adam
from discrete_vae.nets.mlp import MLP, ConcatLinear, L1BatchNorm
from discrete_vae.nets.modes import gains_by_bfloat16
from discrete_vae.objectives.elbo import Batch, loss_gradients, loss_terms, weighted_sum
from discrete_vae.presets import load_experiment
from discrete_vae.rng import reseed
from discrete_vae.runs.io import write_json
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training import step
from discrete_vae.training.loop import training_step
from discrete_vae.training.state import TrainingState
from discrete_vae.training.step import RecordedStep, choose_precision
from tests.models import small_model
from tests.training.tiny import CONFIG, LAYERS, changed
from tests.transformations import SMOOTHINGS

STEPS = 5
IMPORTANCE = {"training.num-importance-samples": "3", "training.importance-start": "0.5"}
GRAPH = {"model.prior": "graph", "model.prior.num-units": "32"}
BFLOAT16 = {"training.precision": "bfloat16"}
TRAINED = {"model.smoothing": "overlapping-exponential", "model.smoothing.trainable": "true"}
IMAGES = {"model.encoder": "convolutional", "model.decoder": "convolutional", "model.event-shape": "1 8 8"}
CASES = {
    "bfloat16": BFLOAT16 | LAYERS,
    "layers": LAYERS,
    "shared layers": LAYERS | {"model.hierarchy.sharing": "complete"},
    "importance samples": LAYERS | IMPORTANCE,
    **{kind: {"model.smoothing": kind} for kind in [*SMOOTHINGS, "straight-through"]},
    "importance samples of zeta": IMPORTANCE | TRAINED | {"training.warm-up.prior-epochs": "20"},
    "missing": {"model.missing": "true"},
    "probabilities": {"model.likelihood": "gaussian"},
    "averages": {"training.averaging.decay": "0.9"},
    "REINFORCE": {"training.gradient": "reinforce", "training.gradient.baseline": "learned"},
    "leave-one-out": {"training.gradient": "leave-one-out"} | LAYERS,
    "DisARM": {"training.gradient": "disarm"} | BFLOAT16 | LAYERS,
    "naive KL": {"training.gradient": "naive-kl"},
    "convolutions": BFLOAT16 | IMAGES,
    "factorial": {"model.prior": "factorial", "model.prior.num-units": "32", "model.posterior.groups": "1"},
    "graph": GRAPH | {"model.prior.edges": "[[0,1],[1,2],[2,31],[31,0]]"},
    "complete graph": GRAPH | {"model.prior.edges": "complete"},
    "importance samples of a graph": GRAPH | IMPORTANCE | TRAINED | {"model.prior.edges": "complete"},
}


def with_settings(settings):
    settings = settings | {"training.warm-up.epochs": "0.05", "training.num-epochs": "10"}
    return changed(load_experiment("digits", "smoke"), settings)


def config_of(case, more=()):
    return with_settings(CASES[case] | dict(more))


def batches(missing=False):
    generator = torch.Generator().manual_seed(5)
    for _ in range(STEPS):
        x = torch.bernoulli(torch.full((20, 64), 0.3), generator=generator)
        if missing:
            x[torch.rand(x.shape, generator=generator) < 0.1] = torch.nan
        yield x


def started(config, recorded=True):
    """The state before the first step of a run that records its steps or not."""
    settings = config.training.model_copy(update={"record": recorded})
    return TrainingState.initial(config.model_copy(update={"training": settings}), torch.full((30, 64), 0.3))


def run(config, *, recorded=True, missing=False):
    state, values = started(config, recorded), []
    for x in batches(missing):
        epoch = state.step / 5 + 0.1  # beta's bound and the warm-up change from step to step
        values.append(training_step(state, config, x, epoch, state.step / STEPS).value)
        state.step += 1
    return state, torch.stack(values)


@pytest.mark.parametrize("case", CASES)
def test_recorded_steps_are_the_steps(case):
    config, missing = config_of(case), case == "missing"
    fast, fast_values = run(config, missing=missing)
    slow, slow_values = run(config, recorded=False, missing=missing)
    assert fast.recorded.functions.reason is None
    assert slow.recorded.functions.reason is not None
    assert torch.equal(fast_values, slow_values)
    assert_same(fast, slow)


def test_a_step_with_importance_samples_has_the_gradient_of_their_bound():
    model = small_model(5, smoothing={"kind": "ramps"}, groups=2)
    step, noise = RecordedStep(model, Adam(model.parameters())), (3, 1)
    x, states = torch.bernoulli(torch.full((20, 5), 0.3)), torch.bernoulli(torch.full((30, 4), 0.5))
    weights = {"discrete": 0.3, "continuous": 1.0}
    step.take_gradients(x, states, **weights, num_importance_samples=3, noise_key=noise)
    found = [parameter.grad.clone() for parameter in model.parameters()]
    of_prior, generator = model.prior.compute_negative_phase(states), reseed(torch.Generator(), *noise)
    terms = loss_terms(model, Batch(x, None, of_prior, 3, weights["discrete"], generator))
    loss = weighted_sum(terms, loss_gradients(len(x), **weights, like=x))
    torch.testing.assert_close(found, list(torch.autograd.grad(loss, list(model.parameters()))))


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
    for parameter in model.decoder.parameters():
        parameter.data.mul_(0.5)


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


def frozen_alone(name):
    def freeze(model):
        model.requires_grad_(name != "everything")
        if name not in ("everything", "nothing"):
            getattr(model, name).requires_grad_(False)

    return freeze


# one after the other, on one model; those come last after which weights are there that no optimizer has
CHANGES = {
    "storage moved": move_all,
    "parameters as one vector": as_one_vector,
    "moved to where they are": lambda model: model.to("cpu"),
    "settings of norms": settings_of_norms,
    "another buffer": other_statistics,
    "written through data": write_through_data,
    "a patched method": patched,
    "the method of its class again": lambda model: vars(model.decoder).pop("forward", None),
    "rounded products": lambda _: torch.set_float32_matmul_precision("medium"),
    **{
        f"{part} frozen": frozen_alone(part)
        for part in ("prior", "posterior", "everything", "hierarchy", "decoder", "smoothing", "nothing")
    },
    "a part in evaluation mode": lambda model: model.posterior.eval(),
    "another parameter": other_parameter,
    "another decoder": other_decoder,
    "weights assigned": lambda model: model.load_state_dict(
        {name: value * 0.9 for name, value in model.state_dict().items()}, assign=True
    ),
}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_steps_after_a_change_are_those_of_the_changed_model(precision):
    """Every change is noticed, and recorded anew; what is frozen keeps every bit, and what is not moves."""
    settings = LAYERS | {"training.precision": precision, "training.optimizer.decoder-weight-decay": "0.1"}
    config = with_settings(settings)
    states = [run(config, recorded=recorded)[0] for recorded in (True, False)]
    for name, change in CHANGES.items():
        ends = []
        for state in states:
            try:
                change(state.model)
                filled = [torch.full((1 << 20,), 7.0) for _ in range(4)]  # in memory that has been given back
                before = copy.deepcopy(state.model.state_dict())
                for x in islice(batches(), 3):  # noticed, recorded anew, repeated
                    found = training_step(state, config, x, 1.0, 0.5)
                    state.step += 1
                assert len(filled) == 4
            finally:
                torch.set_float32_matmul_precision("highest")
            ends.append(torch.stack([found.reconstruction, found.kl_relative, found.kl_continuous]))
            trained = {id(each) for group in state.optimizer.param_groups for each in group["params"]}
            for weight, parameter in state.model.named_parameters():
                if not parameter.requires_grad:
                    assert torch.equal(parameter, before[weight]), (name, weight)
                elif id(parameter) in trained and weight.endswith("weight"):
                    assert not torch.equal(parameter, before[weight]), (name, weight)
        assert states[0].recorded.functions.reason is None, name
        assert torch.equal(*ends), name
        assert_same(*states)


def test_a_recording_comes_back_after_a_step_with_everything_frozen(monkeypatch):
    config = config_of("layers")
    state, _ = run(config)
    for trains in (False, True):
        state.model.requires_grad_(trains)
        for x in batches():
            training_step(state, config, x, 1.0, 0.5)
    monkeypatch.setattr(torch.autograd, "grad", None)  # a repeated recording asks it for nothing
    training_step(state, config, torch.ones(20, 64), 1.0, 0.5)
    assert state.recorded.functions.reason is None


@pytest.mark.parametrize("block", [torch.no_grad, torch.inference_mode])
def test_a_step_needs_gradients(block):
    state, config = run(with_settings({}))[0], with_settings({})
    with block(), pytest.raises(InvalidInputError):
        training_step(state, config, torch.ones(20, 64), 1.0, 0.2)
    training_step(state, config, torch.ones(20, 64), 1.0, 0.2)


CONSTANT = {
    "bits": {},
    "logits without hidden layers": {"model.posterior.hidden": ""},
    "parameters of x": {"model.smoothing": "spike-gaussian"} | LAYERS,
    "bfloat16": BFLOAT16,
    "codes": {"model.likelihood": "categorical"},
    "columns without a gap": {"model.missing": "true", "model.mask": "observed"},
}


@pytest.mark.parametrize("case", CONSTANT)
def test_weights_of_inputs_that_are_constant_keep_their_start(case):
    """Behind a norm their gradient is zero; of its rounding Adam would make full steps."""
    config = with_settings(CONSTANT[case])
    state = TrainingState.initial(config, torch.eye(64))
    named = state.model.named_modules()
    networks = [part for name, part in named if isinstance(part, MLP) and "posterior" in name]
    weights = [([*network.layers, network.output][0]).weight for network in networks]
    before = [weight.detach().clone() for weight in weights]
    for x in batches():
        x[:, :5] = 1
        training_step(state, config, x, 1.0, 0.1)
        state.step += 1
    columns = {"codes": [*range(5), *range(64, 69)], "columns without a gap": [*range(5), *range(64, 128)]}
    held = columns.get(case, range(5))
    for weight, start in zip(weights, before, strict=True):
        assert torch.equal(weight[:, held], start[:, held])
        assert not torch.equal(weight[:, 5:64], start[:, 5:64])


def test_batches_of_two_shapes_take_turns():
    config = with_settings({})
    states = [run(config, recorded=recorded)[0] for recorded in (True, False)]
    for state in states:
        for size in (20, 10, 10, 20, 10):
            elbo = training_step(state, config, torch.ones(size, 64), 1.0, 0.5)
            assert elbo.value.shape == (size,)
            state.step += 1
    assert_same(*states)
    state.restore(*state.capture())
    training_step(state, config, torch.ones(20, 64), 1.0, 0.5)


def test_the_first_batch_may_lie_in_memory_in_any_order():
    config = with_settings({})
    first = torch.bernoulli(torch.full((100,), 0.3), generator=torch.Generator().manual_seed(0))
    for start in (first[:64].expand(20, 64), first.unfold(0, 64, 1)[:20], first.as_strided((20, 64), (1, 1))):
        states = [started(config, recorded) for recorded in (True, False)]
        for state in states:
            for x in (start, *batches()):
                training_step(state, config, x, 1.0, 0.5)
                state.step += 1
        assert states[0].recorded.functions.reason is None
        assert_same(*states)


def test_a_parameter_that_the_optimizer_gets_later_has_a_gradient():
    state = run(with_settings({}))[0]
    late = [*state.model.decoder.parameters()]
    for group in state.optimizer.param_groups:
        group["params"] = [each for each in group["params"] if all(each is not other for other in late)]
    step = RecordedStep(state.model, state.optimizer)
    given = {"discrete": 1.0, "continuous": 1.0, "num_importance_samples": 1, "noise_key": (1,)}
    z = torch.bernoulli(torch.full((10, state.model.prior.num_units), 0.5))
    for number in range(4):
        if number == 2:
            state.optimizer.add_param_group({"params": late})
        step.take_gradients(torch.ones(20, 64), z, **given)
    assert all(each.grad is not None for each in late)


def test_weights_that_are_written_from_outside_are_seen():
    config = config_of("bfloat16")
    state, _ = run(config)
    with torch.no_grad():
        for parameter in state.model.decoder.parameters():
            parameter.zero_()
    elbo = training_step(state, config, torch.ones(20, 64), 1.0, 0.2)
    torch.testing.assert_close(elbo.reconstruction, torch.full((20,), -64 * 0.6931472), rtol=1e-5, atol=0)


class Mine(nn.Module):
    def forward(self, x):
        return x.flatten(1)


def test_a_module_of_the_users_own_or_a_hook_of_a_parameter_ends_the_recording():
    config, seen = with_settings({}), []
    changes = {
        "Mine": lambda model: setattr(model, "encoder", Mine()),
        r"prior\.bias": lambda model: model.prior.bias.register_hook(lambda slope: seen.append(slope.shape)),
    }
    for named, change in changes.items():
        state, _ = run(config)
        change(state.model)
        with pytest.warns(KernelWarning, match=named):
            training_step(state, config, torch.ones(20, 64), 1.0, 0.2)
    assert seen == [state.model.prior.bias.shape]


def test_a_hook_that_comes_later_is_called_and_ends_the_recording():
    config, seen, x = with_settings({}), [], torch.ones(20, 64)
    (state, _), (twin, _) = run(config), run(config, recorded=False)
    other = nn.Linear(2, 2).register_forward_hook(lambda *_: None)
    training_step(state, config, x, 1.0, 0.2)
    assert state.recorded.functions.reason is None  # it was none of the model's
    other.remove()
    state.model.decoder.register_forward_hook(lambda *_: seen.append(1))
    with pytest.warns(KernelWarning, match="MLPDecoder"):
        training_step(state, config, x, 1.0, 0.2)
    training_step(state, config, x, 1.0, 0.2)
    assert seen == [1, 1]
    for _ in range(3):
        training_step(twin, config, x, 1.0, 0.2)
    for mine, expected in zip(state.model.parameters(), twin.model.parameters(), strict=True):
        assert torch.equal(mine, expected)


# Precision of the products.


HIDDEN = {"hidden": (400, 400)}
WIDE = CONFIG.model.model_copy(update={"posterior": CONFIG.model.posterior.model_copy(update=HIDDEN)})


def config_in(name, model=CONFIG.model, **more):
    settings = CONFIG.training.model_copy(update={"precision": name, **more})
    return CONFIG.model_copy(update={"training": settings, "model": model})


@pytest.fixture(params=[True, False], ids=["fast", "slow"])
def fast(request, monkeypatch):
    monkeypatch.setattr(step, "has_fast_bfloat16", lambda device: request.param)
    return request.param


def test_auto_goes_by_processor_and_networks_unless_a_precision_was_asked_for_or_begun(fast):
    for config, begun, expected in (
        (config_in("auto"), None, "float32"),
        (config_in("auto", WIDE, batch_size=10), None, "float32"),
        (config_in("auto", WIDE), None, "bfloat16" if fast else "float32"),
        (config_in("float32", WIDE), None, "float32"),
        (config_in("bfloat16"), None, "bfloat16"),
        (config_in("auto"), {"precision": "bfloat16"}, "bfloat16"),
        (config_in("auto", WIDE), {"seed": 1}, "float32"),
    ):
        chosen = choose_precision(config, device="cpu", begun=begun)
        assert (chosen.name, chosen.dtype) == (expected, getattr(torch, expected))
        if config.training.precision == "bfloat16":
            assert ("slow" in chosen.reason) is not fast


def test_a_gain_goes_by_the_multiplications_of_a_product():
    network = nn.Sequential(ConcatLinear([784], 400), ConcatLinear([400], 10))
    enough = math.ceil(2e6 * 2 / (400 * 784 + 10 * 400))
    assert gains_by_bfloat16(network, enough)
    assert not gains_by_bfloat16(network, enough - 1)
    no_network_of_ours = nn.Linear(10_000, 10_000, device="meta")
    assert not gains_by_bfloat16(no_network_of_ours, 1000)


def test_the_folder_names_it(tmp_path, fast):
    train(config_in("auto", WIDE), load_dataset("digits"), tmp_path / "run", stop=lambda: True)
    run = RunDirectory.open(tmp_path / "run")
    assert run.read_environment()["precision"] == ("bfloat16" if fast else "float32")
    write_json(run.environment_path, run.read_environment() | {"precision": 5})
    with pytest.raises(InvalidInputError, match="precision"):
        train(config_in("auto", WIDE), load_dataset("digits"), tmp_path / "run", stop=lambda: True)


def test_a_state_in_bfloat16_keeps_float32_weights_and_names():
    zeros = torch.zeros(9, 64)
    state, plain = (TrainingState.initial(config_in(name), zeros) for name in ("bfloat16", "float32"))
    assert all(parameter.dtype == torch.float32 for parameter in state.model.parameters())
    assert state.capture()[0].keys() == plain.capture()[0].keys()
