"""The compiled loss: it is the uncompiled one up to rounding, runs resume bit for bit, and nothing is compiled anew."""

import pytest
import torch
from torch._inductor import config as inductor

from discrete_vae.errors import InvalidInputError
from discrete_vae.nets.precision import set_precision
from discrete_vae.overrides import apply_overrides
from discrete_vae.rng import keyed_generator
from discrete_vae.training import step as step_module
from discrete_vae.training.loop import training_step
from discrete_vae.training.preflight import check_experiment
from discrete_vae.training.state import TrainingState
from discrete_vae.training.step import CompiledLoss, check_compiler
from tests.compilers import TRACED, needs_compiler
from tests.devices.models import build, data
from tests.training.test_loop import assert_same_state, final_state
from tests.training.tiny import CONFIG, start_run, train_quietly

COMPILED = apply_overrides(
    CONFIG, [("training.compile", ["true"]), ("training.optimizer.learning-rate", ["0.003"])]
)
BACKENDS = [TRACED, pytest.param("inductor", marks=[pytest.mark.slow, needs_compiler])]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    check_compiler.cache_clear()
    yield
    check_compiler.cache_clear()


@pytest.fixture
def traced(monkeypatch):
    """Runs compile with the backend that takes no compiler."""
    monkeypatch.setattr(step_module, "check_compiler", lambda: None)
    monkeypatch.setattr("discrete_vae.training.preflight.check_compiler", lambda: None)
    monkeypatch.setattr(
        "discrete_vae.training.state.CompiledLoss",
        lambda model, working: CompiledLoss(model, working, backend=TRACED),
    )


def gradients(model, working):
    found = {name: part.grad for name, part in model.named_parameters()}
    names = {id(part): name for name, part in model.named_parameters()}
    return found | {names[id(each.master)]: each.gradient for each in working}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("Gaussian layers", torch.bfloat16),
        *(
            pytest.param(name, torch.float32, marks=pytest.mark.slow)
            for name in (
                "Gaussian layers",
                "a graph",
                "missing entries",
                "convolutions",
                "a smoothing that depends on x",
                "power functions",
            )
        ),
    ],
)
def test_it_is_the_uncompiled_loss(name, dtype, backend):
    results = []
    for compiled in (False, True):
        model = build(name)
        x, z = data(model)
        model.initialize_(x)
        working = set_precision(model, dtype)
        model.train()
        generator = keyed_generator(0, 1)
        if compiled:
            weighted = CompiledLoss(model, working, backend=backend)
            elbo, loss = weighted(x, z, log_partition=3.0, discrete=0.7, continuous=0.9, generator=generator)
        else:
            elbo = model.elbo(x, negative_phase=z, log_partition=3.0, generator=generator)
            loss = elbo.weighted_loss(discrete=0.7, continuous=0.9)
        loss.backward()
        parts = {
            part: getattr(elbo, part).detach() for part in ("reconstruction", "kl_relative", "kl_continuous")
        }
        state = {name: value.clone() for name, value in model.state_dict().items()}
        results.append((loss.detach(), parts, gradients(model, working), state))
    rtol, atol = (1e-3, 2e-4) if dtype == torch.float32 else (0.05, 0.05)
    torch.testing.assert_close(*(result[0] for result in results), rtol=rtol, atol=atol)
    for index in (1, 2, 3):
        one, other = (result[index] for result in results)
        assert one.keys() == other.keys()
        for part, value in one.items():
            assert value is not None
            assert value.dtype == other[part].dtype
            torch.testing.assert_close(other[part].float(), value.float(), rtol=rtol, atol=atol)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_trial_leaves_nothing_in_the_model(backend):
    model = build("a group across both sides")
    x, z = data(model)
    model.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    noise = torch.get_rng_state()
    CompiledLoss(model, backend=backend).prepare(x, z)
    assert not model.training
    assert torch.equal(torch.get_rng_state(), noise)
    assert all(part.grad is None for part in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_no_step_is_compiled_anew(traced):
    """Weights of the KL terms, log Z and the bound of beta change, and weights have new values."""
    config = apply_overrides(COMPILED, [("training.precision", ["bfloat16"])])
    x, *batches = torch.bernoulli(torch.full((4, 100, 64), 0.3), generator=torch.Generator().manual_seed(0))
    state, plain = (TrainingState.initial(each, x) for each in (config, without_compiling(config)))
    assert state.compiled is not None
    state.compiled.prepare(x, state.chains.z)
    with torch.compiler.set_stance("fail_on_recompile"):
        for step, batch in enumerate(batches):
            mine, other = (
                training_step(each, config, batch, epoch=3.0 * step, progress=step / 3)
                for each in (state, plain)
            )
            torch.testing.assert_close(mine.value, other.value, rtol=0.02, atol=0.2)
            state.log_partition = plain.log_partition = state.log_partition + 1.0
            state.step = plain.step = step + 1


def without_compiling(config):
    return apply_overrides(config, [("training.compile", ["false"])])


LAYERS_OVERRIDE = ("model.hierarchy", ["gaussian"])


def check_resumption(tmp_path, config):
    unbroken, stopped = start_run(tmp_path / "one", config), start_run(tmp_path / "other", config)
    train_quietly(unbroken, config)
    with pytest.raises(KeyboardInterrupt):
        train_quietly(stopped, config, stop_at=9)
    torch._dynamo.reset()  # as in another process
    train_quietly(stopped, config)
    assert_same_state(final_state(stopped), final_state(unbroken))
    plain = start_run(tmp_path / "plain", without_compiling(config))
    train_quietly(plain, without_compiling(config))
    mine, other = (run.metrics().read()[-1]["validation_elbo"] for run in (unbroken, plain))
    assert mine == pytest.approx(other, abs=0.5)


@pytest.mark.slow
def test_a_resumed_run_equals_an_unbroken_one(tmp_path, traced):
    check_resumption(tmp_path, COMPILED)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_resumed_run_of_compiled_code_equals_an_unbroken_one(tmp_path, precision):
    config = apply_overrides(COMPILED, [LAYERS_OVERRIDE, ("training.precision", [precision])])
    check_resumption(tmp_path, config)


@pytest.mark.slow
def test_steps_with_importance_samples_run_uncompiled(tmp_path, traced):
    words = [LAYERS_OVERRIDE, ("training.num-importance-samples", ["3"]), ("training.warm-up.epochs", ["1"])]
    config = apply_overrides(COMPILED, words)
    run = start_run(tmp_path / "run", config)
    train_quietly(run, config)
    assert "validation_elbo" in run.metrics().read()[-1]


def test_without_a_compiler_it_is_refused_before_anything_starts(tmp_path, monkeypatch):
    from discrete_vae.data.datasets import load_dataset

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(inductor.cpp, "cxx", (None, "no-such-compiler"))
    with pytest.raises(
        InvalidInputError, match="training.compile must be false where torch.compile fails"
    ) as found:
        check_experiment(COMPILED, load_dataset("digits"))
    assert "C++ compiler" in str(found.value)
    check_experiment(without_compiling(COMPILED), load_dataset("digits"))


def test_what_cannot_be_traced_is_refused():
    model = build("four groups")
    x, z = data(model)
    hook = lambda module, inputs, output: output if output.sum() > 0 else -output  # noqa: E731
    model.encoder.register_forward_hook(hook)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(InvalidInputError, match="training.compile must be false"):
        CompiledLoss(model, backend=TRACED).prepare(x, z)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
