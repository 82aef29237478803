"""Fitting the posterior anew: the generative half keeps every bit, and the bound rises."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from discrete_vae import exact_log_partition, load_dataset
from discrete_vae.errors import NonFiniteLossError
from discrete_vae.runs.load import initial_model, load_run
from discrete_vae.samplers.gibbs import BlockGibbs
from discrete_vae.training.refit import refit_posterior
from tests.refusals import refused_argument
from tests.training.test_state import LAYERS
from tests.training.tiny import start_run, train_quietly

GENERATIVE = ("prior.", "decoder.", "likelihood.", "hierarchy.prior.", "posterior.smoothing.")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = start_run(tmp_path_factory.mktemp("refit") / "run", LAYERS)
    train_quietly(run, LAYERS)
    return run


def forgetful(run):
    """A model whose x depends much on zeta, with a posterior that has learned nothing yet."""
    model, fresh = load_run(run).model, initial_model(LAYERS).state_dict()
    with torch.no_grad():
        model.decoder.network.output.weight.mul_(6)
    state = model.state_dict()
    for name, value in fresh.items():
        if not name.startswith(GENERATIVE):
            state[name].copy_(value)
    return model


class TiedEncoder(nn.Module):
    """An encoder that reads x by the decoder's last weights."""

    def __init__(self, output, num_features):
        super().__init__()
        self.tied, self.own = output, nn.Linear(output.in_features, num_features)

    def forward(self, x):
        return self.own(x @ self.tied.weight)


def refit(model, **changes):
    chains = BlockGibbs(model.prior, 100, seed=1)
    settings = {"num_steps": 60, "num_sweeps": 3, "learning_rate": 1e-2}
    log_z = exact_log_partition(model.prior).value
    return refit_posterior(model, load_dataset("digits"), chains, log_partition=log_z, **(settings | changes))


@pytest.mark.parametrize(("model_share", "dtype"), [(0.5, torch.float32), (0.0, torch.bfloat16)])
def test_the_bound_rises_and_the_generative_half_keeps_every_bit(run, model_share, dtype):
    model = forgetful(run)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trains = [p.requires_grad for p in model.parameters()]
    found = refit(model, model_share=model_share, precision=dtype)
    assert found.after.elbo > found.before.elbo + 1.0
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert not any(name.startswith(GENERATIVE) for name in changed)
    assert any(name.startswith("posterior.norms") and name.endswith("running_mean") for name in changed)
    assert any(name.startswith("hierarchy.posterior") for name in changed)
    assert [p.requires_grad for p in model.parameters()] == trains
    assert not any(module.training for module in model.modules())
    assert {value.dtype for value in before.values()} == {
        value.dtype for value in model.state_dict().values()
    }
    assert all(getattr(part, "mixed_precision", None) is None for part in model.modules())


def test_weights_that_the_decoder_has_too_stay(run):
    model = load_run(run).model
    model.encoder = TiedEncoder(model.decoder.network.output, model.posterior.num_features)
    before = model.decoder.network.output.weight.clone()
    refit(model, num_steps=3)
    assert torch.equal(model.decoder.network.output.weight, before)
    assert model.decoder.network.output.weight.requires_grad


def test_each_step_is_reported_and_few_chains_do(run):
    model, told = load_run(run).model, []
    chains = BlockGibbs(model.prior, 3, seed=1)
    settings = {"log_partition": 3.0, "num_steps": 4, "num_sweeps": 1, "batch_size": 20}
    refit_posterior(model, load_dataset("digits"), chains, report=lambda *step: told.append(step), **settings)
    assert [step for step, _ in told] == [1, 2, 3, 4]
    assert all(loss > 0 for _, loss in told)


def test_a_diverged_weight_is_named(run):
    with pytest.raises(NonFiniteLossError, match=r"the weight [a-z]+\..* is (nan|-?inf) at step 1;"):
        refit(load_run(run).model, learning_rate=1e38, num_steps=3)


def test_it_is_repeated_by_the_seed(run):
    models = [forgetful(run) for _ in range(3)]
    for model, seed in zip(models, (0, 0, 1), strict=True):
        refit(model, num_steps=3, seed=seed)
    weights = [model.posterior.norms[0].offset for model in models]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_what_does_not_fit_is_refused(run):
    model, data = load_run(run).model, load_dataset("digits")
    for name, value in (("model_share", 1.5), ("num_steps", 0), ("num_sweeps", 0), ("batch_size", 1)):
        assert refused_argument(refit, model, **{name: value}) == name
    alone, chains = replace(data, valid=data.valid[:1]), BlockGibbs(model.prior, 3, seed=1)
    refused = refused_argument(refit_posterior, model, alone, chains, log_partition=3.0, num_steps=4)
    assert refused == "dataset"  # one example tells no error
