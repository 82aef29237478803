"""Groups of parameters with a step size or a decay of their own."""

import pytest
import torch

from discrete_vae.load import initial_model
from discrete_vae.overrides import apply_overrides
from discrete_vae.training.loop import training_step
from discrete_vae.training.state import TrainingState, decay_weights, parameter_groups
from tests.training.test_loop import assert_same_state, final_state
from tests.training.tiny import CONFIG, NUM_STEPS, start_run, train_quietly

LAYERS = apply_overrides(
    CONFIG,
    [
        ("model.hierarchy", ["gaussian"]),
        ("model.hierarchy.num-layers", ["2"]),
        ("model.hierarchy.num-units", ["3"]),
        ("model.hierarchy.posterior-hidden", ["6"]),
        ("model.hierarchy.prior-hidden", ["6"]),
        ("training.warm-up.epochs", ["0"]),
    ],
)
ALL = apply_overrides(
    LAYERS,
    [
        ("training.optimizer.prior-learning-rate-factor", ["0.25"]),
        ("training.optimizer.layers-weight-decay", ["0.1"]),
        ("training.optimizer.decoder-weight-decay", ["0.2"]),
        ("training.optimizer.rate", ["cosine"]),
        ("training.num-importance-samples", ["3"]),
        ("training.importance-start", ["0.5"]),
        ("training.averaging.decay", ["0.9"]),
    ],
)


def test_neutral_settings_make_one_group():
    model = initial_model(LAYERS)
    (group,) = parameter_groups(model, LAYERS.training.optimizer)
    assert [id(p) for p in group["params"]] == [id(p) for p in model.parameters()]


def test_every_parameter_is_in_one_group():
    model = initial_model(ALL)
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


def test_the_decoder_alone_decays():
    """From the same start, with the same noise, a step leaves each of its matrices smaller by step size times decay."""
    ends = []
    for decay in ("0", "0.5"):
        config = apply_overrides(LAYERS, [("training.optimizer.decoder-weight-decay", [decay])])
        state = TrainingState.initial(config, torch.full((40, 64), 0.25))
        start = {key: p.detach().clone() for key, p in state.model.named_parameters()}
        x = torch.bernoulli(torch.full((20, 64), 0.3), generator=torch.Generator().manual_seed(0))
        training_step(state, config, x, 0.0, 0.0)
        ends.append({key: p.detach().clone() for key, p in state.model.named_parameters()})
    rate = LAYERS.training.optimizer.learning_rate
    for name, value in start.items():
        decays = name.startswith("decoder.") and value.dim() == 2
        torch.testing.assert_close(
            ends[0][name] - ends[1][name], 0.5 * rate * decays * value, rtol=1e-3, atol=1e-7
        )


def test_the_machine_takes_smaller_steps():
    """Adam's first step moves each weight by the step size."""
    moved = {}
    for name, config in (("plain", LAYERS), ("quarter", ALL)):
        state = TrainingState.initial(config, torch.full((40, 64), 0.25))
        before = {key: p.detach().clone() for key, p in state.model.named_parameters()}
        x = torch.bernoulli(torch.full((20, 64), 0.3), generator=torch.Generator().manual_seed(0))
        training_step(state, config, x, 0.0, 0.0)
        moved[name] = {
            key: float((p.detach() - before[key]).abs().max()) for key, p in state.model.named_parameters()
        }
    rate = LAYERS.training.optimizer.learning_rate
    assert moved["plain"]["prior.bias"] == pytest.approx(rate, rel=1e-3)
    assert moved["quarter"]["prior.bias"] == pytest.approx(rate / 4, rel=1e-3)
    network = next(key for key in moved["quarter"] if key.startswith("posterior.") and key.endswith("weight"))
    assert moved["quarter"][network] == pytest.approx(rate, rel=1e-3)


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


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_with_every_measure_resumes_bit_for_bit(tmp_path, precision):
    config = apply_overrides(ALL, [("training.precision", [precision])])
    runs = [start_run(tmp_path / name, config) for name in ("unbroken", "stopped")]
    train_quietly(runs[0], config)
    for stop in (9, 25):
        with pytest.raises(KeyboardInterrupt):
            train_quietly(runs[1], config, stop_at=stop)
    train_quietly(runs[1], config)
    assert_same_state(final_state(runs[0]), final_state(runs[1]))


def test_importance_samples_begin_in_the_middle_of_the_run(tmp_path):
    runs = [start_run(tmp_path / "run", ALL)]
    train_quietly(runs[0], ALL)
    other = apply_overrides(ALL, [("training.num-importance-samples", ["1"])])
    plain = start_run(tmp_path / "elbo", other)
    train_quietly(plain, other)
    early, late = (
        (run.checkpoints().load(NUM_STEPS)).tensors["raw/prior.weight"] for run in (runs[0], plain)
    )
    assert not torch.equal(early, late)
    first = [[r for r in run.metrics().read() if r["step"] <= 15 and "elbo" in r] for run in (runs[0], plain)]
    assert [r["elbo"] for r in first[0]] == [r["elbo"] for r in first[1]]  # the same until half of the run
