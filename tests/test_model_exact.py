"""Small discrete VAEs whose log p(x), ELBO and every gradient are known by quadrature."""

import pytest
import torch
from torch import nn

from discrete_vae import (
    RBM,
    DiscreteVAE,
    FactorialBernoulli,
    GraphBoltzmann,
    HierarchicalPosterior,
    SpikeGaussian,
    SpikeSlab,
)
from discrete_vae.likelihoods.base import BernoulliLikelihood
from discrete_vae.nets.mlp import MLPDecoder
from discrete_vae.testing import check_mean
from tests.exact_paths import STEPS, by_path, flat_gradient, log_prior, randomize_norms
from tests.oracles.quadrature import exact_kl, joint_nodes, posterior_quadrature
from tests.transformations import OVERLAPPING, SMOOTHINGS, spike

NUM_FEATURES = 5
X = torch.tensor([[1, 0, 1, 1, 0], [0, 0, 1, 0, 1], [1, 1, 1, 0, 0]], dtype=torch.float64)

# name -> (prior, groups, hidden layers of posterior and decoder, smoothing, quadrature nodes per unit)
CASES = {
    "two groups, one across both sides": (lambda: RBM(2, 1), [[0, 2], [1]], (), spike(2.5), 16),
    "two groups, networks": (lambda: RBM(1, 1), [[0], [1]], (4,), spike(1.5), 250),
    "two groups, slab": (lambda: RBM(1, 2), [[1, 2], [0]], (), SpikeSlab, 16),
    "triangle, first unit last": (lambda: GraphBoltzmann(3, "complete"), [[1, 2], [0]], (), spike(2.0), 16),
    "own convolutions": (lambda: RBM(1, 2), [[0, 2], [1]], (), spike(2.0), 16),
    "own convolutions, networks": (lambda: RBM(1, 1), [[0], [1]], (3,), spike(1.5), 60),
    "depends on x": (lambda: RBM(1, 2), [[0, 2], [1]], (), lambda: SpikeGaussian(prior_loc=0.5), 32),
    "factorial": (lambda: FactorialBernoulli(2), [[0, 1]], (), spike(3.0), 16),
}
CASES |= {kind: (lambda: RBM(2, 1), [[0, 2], [1]], (), SMOOTHINGS[kind], 12) for kind in OVERLAPPING}

NETWORKS = ("two groups, one across both sides", "two groups, networks", "triangle, first unit last")
CONVOLUTIONAL = ("own convolutions", "own convolutions, networks")


class OwnEncoder(nn.Module):
    """What a user brings: (batch, 1, 1, 5) -> (batch, 3)."""

    def __init__(self):
        super().__init__()
        self.filters, self.out = nn.Conv2d(1, 2, (1, 3)), nn.Linear(6, 3)

    def forward(self, x):
        assert x.shape[1:] == (1, 1, 5)
        return self.out(torch.tanh(self.filters(x)).flatten(1))


class OwnDecoder(nn.Module):
    """What a user brings: (row, latent) -> (row, 1, 1, 5)."""

    def __init__(self, num_latents):
        super().__init__()
        self.first, self.filters = nn.Linear(num_latents, 6), nn.ConvTranspose2d(2, 1, (1, 3))

    def forward(self, latents):
        assert latents.dim() == 2
        return self.filters(torch.tanh(self.first(latents)).reshape(-1, 2, 1, 3))


def build(name):
    """A model in evaluation mode with every parameter and running statistic drawn at random."""
    make_prior, groups, hidden, make_smoothing, num_nodes = CASES[name]
    torch.manual_seed(4)
    smoothing = make_smoothing()
    prior = make_prior()
    if name in CONVOLUTIONAL:
        encoder, decoder, num_features, event_shape = OwnEncoder(), OwnDecoder(prior.num_units), 3, (1, 1, 5)
    else:
        encoder, num_features, event_shape = None, NUM_FEATURES, (NUM_FEATURES,)
        decoder = MLPDecoder(prior.num_units, event_shape, hidden)
    model = DiscreteVAE(
        prior=prior,
        posterior=HierarchicalPosterior(num_features, groups, hidden, smoothing),
        likelihood=BernoulliLikelihood(event_shape),
        encoder=encoder,
        decoder=decoder,
    ).double()
    with torch.no_grad():
        for parameter in [*prior.parameters(), *model.encoder.parameters(), *model.decoder.parameters()]:
            parameter.add_(torch.randn_like(parameter))
    randomize_norms(model)
    return model.eval(), num_nodes


def quadrature_of(model, x, num_nodes):
    posterior = model.posterior
    groups, features = posterior.groups, model.encoder(x.reshape(1, *model.event_shape))

    def logits(index, zeta):
        earlier = [zeta[:, list(group)] for group in groups[:index]]
        return posterior.norms[index](posterior.networks[index](features.expand(len(zeta), -1), *earlier))

    return posterior_quadrature(logits, groups, model.smoothing, num_nodes, of_x(model, features))


def of_x(model, features):
    """What a transformation that depends on x has of it, (unit,) each, in the prior's order."""
    if not model.smoothing.parameter_names:
        return ()
    order = [unit for group in model.posterior.groups for unit in group]
    raw = model.posterior.parameter_network(features)
    return [value[0, torch.tensor(order).argsort()] for value in model.smoothing.constrain(*raw)]


def log_likelihood_of(model, x, zeta):
    """log p(x | zeta) at each row of zeta."""
    return model.likelihood.log_prob(
        model.decoder(zeta), x.expand(len(zeta), -1).unflatten(1, model.event_shape)
    )


def exact_elbo(model, num_nodes, rows=X):
    """Mean over rows of reconstruction and KL, two scalars."""
    parts = []
    for x in rows:
        posterior = quadrature_of(model, x, num_nodes)
        log_px = posterior.expectation(log_likelihood_of(model, x, posterior.nodes.zeta))
        parts.append(torch.stack([log_px, exact_kl(posterior, log_prior(model.prior))]))
    return torch.stack(parts).mean(0)


def exact_log_likelihood(model, num_nodes):
    nodes = joint_nodes(model.smoothing, model.prior.num_units, num_nodes)
    joint = nodes.weight.log() + log_prior(model.prior)(nodes.z)
    log_px = torch.stack([log_likelihood_of(model, x, nodes.zeta) for x in X])
    return torch.logsumexp(joint + log_px, -1).detach()


@pytest.mark.parametrize(("name", "path"), by_path(CASES, NETWORKS, STEPS), ids=str)
def test_elbo_and_every_gradient_are_unbiased(name, path):
    model, num_nodes = build(name)
    reconstruction, kl = exact_elbo(model, num_nodes)
    expected = torch.cat(
        [torch.stack([reconstruction, kl]).detach(), flat_gradient(reconstruction - kl, model)]
    )
    with path.taken(model) as computed:
        estimates = path.estimates(computed, X.repeat(500, 1), 40)
        rows = [torch.cat([terms[:2], gradient]) for terms, gradient in estimates]
    check_mean(torch.stack(rows), expected, resolution=0.03, rounding=path.rounding)


@pytest.mark.parametrize(("name", "path"), by_path(CASES, ["two groups, networks"]), ids=str)
def test_bounds_lie_below_the_exact_log_likelihood_and_converge_to_it(name, path):
    model, num_nodes = build(name)
    exact = exact_log_likelihood(model, num_nodes)
    reconstruction, kl = exact_elbo(model, num_nodes)
    assert float((reconstruction - kl).detach()) < float(exact.mean())
    generator = torch.Generator().manual_seed(1)
    with path.taken(model) as computed:
        x = X.to(computed.prior.bias.dtype)
        estimate = computed.log_likelihood(x, num_samples=40_000, chunk_size=7001, generator=generator)
        means = [
            computed.log_likelihood(x.repeat(2000 // k, 1), k, generator=generator).value.mean()
            for k in (1, 10, 100)
        ]
    assert float(estimate.std_error.max()) < 0.05
    # alpha 1e-6 with 3 examples
    assert bool(((estimate.value - exact).abs() < 5.5 * estimate.std_error + 10 * path.rounding).all())
    assert bool((estimate.ess <= 40_000).all())
    assert means[0] < means[1] < means[2] + 0.05


def test_weights_as_if_r_cancelled_are_rejected(monkeypatch):
    model, num_nodes = build("depends on x")
    exact = exact_log_likelihood(model, num_nodes)
    monkeypatch.setattr(SpikeGaussian, "log_ratio", lambda self, zeta, *_: torch.zeros_like(zeta))
    estimate = model.log_likelihood(X, num_samples=4000, generator=torch.Generator().manual_seed(1))
    assert not bool(((estimate.value - exact).abs() < 5.5 * estimate.std_error).all())


def test_a_doubled_kl_gradient_is_rejected():
    model, num_nodes = build("two groups, one across both sides")
    reconstruction, kl = exact_elbo(model, num_nodes)
    expected = flat_gradient(reconstruction - 2 * kl, model)
    rows = [flat_gradient(model.elbo(X.repeat(300, 1)).value.mean(), model) for _ in range(32)]
    with pytest.raises(AssertionError, match="standard errors apart"):
        check_mean(torch.stack(rows), expected)
