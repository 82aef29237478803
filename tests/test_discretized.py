"""The limit of infinitely sharp smoothing: a model of its own on the weights of the trained one."""

import copy
from itertools import pairwise

import pytest
import torch

from discrete_vae import RBM, DiscreteVAE, HierarchicalPosterior, OverlappingPower, SpikeExponential
from discrete_vae.config import EvaluationConfig, SharpLimitConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.inference.evaluate_run import evaluate_model
from discrete_vae.likelihoods.base import BernoulliLikelihood
from discrete_vae.nets.modes import set_precision
from discrete_vae.presets import load_experiment
from discrete_vae.rng import keyed_generator
from discrete_vae.smoothing.spike import SharpLimit
from discrete_vae.testing import check_mean, enumerate_machine
from tests.models import small_config
from tests.transformations import SMOOTHINGS

LIMITED = ("spike-exponential", "overlapping-exponential", "overlapping-power")


def make_model(smoothing):
    torch.manual_seed(0)
    posterior = HierarchicalPosterior(4, [[0], [1, 2]], (5,), smoothing)
    model = DiscreteVAE(prior=RBM(2, 1), posterior=posterior, likelihood=BernoulliLikelihood((4,)))
    with torch.no_grad():
        for parameter in [*model.prior.parameters(), *model.decoder.parameters()]:
            parameter.normal_()
    return model.eval()


@pytest.mark.parametrize("kind", SMOOTHINGS)
def test_a_transformation_declares_its_limit(kind):
    model = make_model(SMOOTHINGS[kind]())
    assert (model.smoothing.sharp_limit() is not None) is (kind in LIMITED)
    if kind not in LIMITED:
        with pytest.raises(InvalidInputError, match="smoothing"):
            model.discretized()
        return
    limit = model.discretized()
    drawn = limit.encode(torch.zeros(50, 4), seed=0)
    assert torch.equal(drawn.zeta, drawn.z)
    assert 0 < float(drawn.z.mean()) < 1
    draw = limit.sample(20, num_sweeps=3, seed=0)
    assert torch.equal(draw.mean, model.decode(draw.z))
    assert torch.equal(limit.elbo(torch.zeros(5, 4)).value.isfinite(), torch.ones(5).bool())


def test_the_trained_model_is_not_touched_and_weights_are_shared():
    model = make_model(SpikeExponential(beta=2.0)).train()
    set_precision(model, torch.bfloat16)
    before, smoothing = copy.deepcopy(model.state_dict()), model.smoothing
    limit = model.discretized()
    assert limit.training
    limit.eval()
    limit.encode(torch.zeros(5, 4))
    assert all(module.training for module in model.modules())
    assert model.smoothing is smoothing
    assert set(before) - set(limit.state_dict()) == {"posterior.smoothing.beta"}
    for name, value in limit.state_dict().items():
        assert torch.equal(value, before[name])
        assert value.data_ptr() == model.state_dict()[name].data_ptr()
    with torch.no_grad():
        model.decoder.network.output.bias.fill_(50.0)
    assert limit.sample(3, num_sweeps=1).mean.tolist() == [[1.0] * 4] * 3


def test_it_is_saved_and_loaded_as_what_it_is(tmp_path):
    config = small_config(6)
    model = DiscreteVAE.from_config(config).eval()
    limit = model.discretized()
    loaded = DiscreteVAE.from_pretrained(limit.save_pretrained(tmp_path / "limit"))
    assert loaded.config == limit.config == config.model_copy(update={"smoothing": SharpLimitConfig()})
    assert model.config == config
    assert isinstance(loaded.smoothing, SharpLimit)
    x = torch.bernoulli(torch.full((4, 6), 0.5), generator=torch.Generator().manual_seed(0))
    found = (each.log_likelihood(x, 20, generator=keyed_generator(1)).value for each in (limit, loaded))
    assert torch.equal(*found)
    model.save_pretrained(tmp_path / "trained")  # its parts are still those of its config


def test_training_refuses_it():
    config = load_experiment("digits", "smoke")
    fields = config.model_dump()
    fields["model"]["smoothing"] = {"kind": "sharp"}
    with pytest.raises(InvalidInputError, match=r"model\.smoothing"):
        type(config)(**fields)


def test_it_is_the_limit_of_large_parameters():
    rho = torch.rand(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits = torch.linspace(-4, 4, 1000, dtype=torch.float64)
    sharp, steep = SharpLimit().icdf(rho, logits), SpikeExponential(beta=1e6).double().icdf(rho, logits)
    torch.testing.assert_close(sharp, steep, rtol=0, atol=1e-3)
    power = OverlappingPower(b=100).icdf(rho, logits)
    assert float((power - sharp).abs().mean()) < 0.03
    assert SharpLimit().cdf(torch.tensor([0.0, 0.5, 1.0]), torch.zeros(3)).tolist() == [0.5, 0.5, 1.0]


@pytest.mark.parametrize("kind", ["ramps", "overlapping-power"])
def test_an_evaluation_reports_the_limit_where_there_is_one(kind):
    model, x = make_model(SMOOTHINGS[kind]()), torch.tensor([[1.0, 0.0, 1.0, 1.0]])
    settings = EvaluationConfig(num_samples=30, num_annealed_chains=10, num_temperatures=20)
    found = evaluate_model(model, x, settings).log_likelihood_limit
    assert (found is None) is (kind == "ramps")
    assert kind == "ramps" or found.num_samples == 30


def test_importance_sampling_converges_to_the_sum_over_all_bits():
    """log p(x) of the limit is a finite sum; more samples do not lower the mean, and the last mean is exact."""
    model, x = make_model(SpikeExponential(beta=1.5)), torch.tensor([[1.0, 0.0, 1.0, 1.0]])
    machine = enumerate_machine(model.prior)
    log_z = float(machine.log_partition.detach())
    with torch.no_grad():
        rows, parameters = x.expand(len(machine.states), -1), model.decoder(machine.states.float())
        of_x = model.likelihood.log_prob(parameters, rows).double()
        exact = float(torch.logsumexp(of_x + machine.log_prob, 0))
    limit, generator, means = model.discretized(), torch.Generator().manual_seed(0), []
    for num_samples, repeats in ((1, 400), (4, 400), (100, 400), (2000, 60)):
        rows = x.expand(repeats, -1)
        values = limit.log_likelihood(rows, num_samples, log_partition=log_z, generator=generator).value
        means.append((float(values.mean()), float(values.std()) / repeats**0.5))
    for (low, error), (high, other) in pairwise(means):
        assert high > low - 5 * (error + other)
    assert means[0][0] < exact - 5 * means[0][1]
    check_mean(values[:, None], torch.tensor([exact]), resolution=0.01)
