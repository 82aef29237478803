"""Small models with continuous layers whose log p(x), ELBO and every gradient are known by quadrature."""

import pytest
import torch
from torch.distributions import Normal

from discrete_vae import (
    RBM,
    CompleteSharing,
    DiscreteVAE,
    GaussianHierarchy,
    GroupSharing,
    HierarchicalPosterior,
    NoSharing,
    SpikeExponential,
    exact_log_partition,
)
from discrete_vae.hierarchy.base import Gaussian, HierarchySample
from discrete_vae.likelihoods.base import BernoulliLikelihood
from discrete_vae.testing import check_mean, enumerate_machine
from tests.exact_paths import EXACT, STEPS, by_path, flat_gradient, log_prior, randomize_norms
from tests.hierarchy.test_contract import OwnSample
from tests.oracles.quadrature import joint_nodes, normal_nodes, posterior_quadrature

NUM_FEATURES = 4
BOUND = 0.6  # of the log standard deviations; a wide one gives the KL's gradients heavy tails
X = torch.tensor([[1, 0, 1, 1], [0, 0, 1, 0], [1, 1, 0, 0]], dtype=torch.float64)
UNCONDITIONAL = torch.zeros(len(X), 0, dtype=torch.float64)  # features of a condition that there is not


# name -> (prior of h, its layers, hidden layers of all networks, quadrature nodes of a binary unit and of a normal one)
CASES = {
    "one layer, no sharing": (NoSharing, 1, (), 12, 24),
    "one layer, networks": (NoSharing, 1, (3,), 60, 60),
    "two layers, no sharing": (NoSharing, 2, (), 12, 14),
    "two layers, complete sharing": (CompleteSharing, 2, (), 12, 14),
    "two layers, two groups": (lambda *sizes, **kw: GroupSharing(*sizes, num_groups=2, **kw), 2, (), 12, 14),
}

NETWORKS = ("one layer, networks", "two layers, complete sharing")


def build(name, hierarchy_class=GaussianHierarchy, prior_class=None):
    """A model in evaluation mode with every parameter and running statistic drawn at random."""
    kind, num_layers, hidden, *num_nodes = CASES[name]
    torch.manual_seed(7)
    smoothing, prior = SpikeExponential(beta=2.0), RBM(1, 1)
    gaussian_prior = (prior_class or kind)(2, num_layers, 1, hidden=hidden, log_std_bound=BOUND)
    model = DiscreteVAE(
        prior=prior,
        posterior=HierarchicalPosterior(NUM_FEATURES, [[0], [1]], (), smoothing),
        hierarchy=hierarchy_class(NUM_FEATURES, gaussian_prior, hidden, log_std_bound=BOUND),
        likelihood=BernoulliLikelihood((NUM_FEATURES,)),
    ).double()
    with torch.no_grad():
        for part, scale in ((prior, 1.0), (model.decoder, 0.5), (model.hierarchy, 0.25)):
            for parameter in part.parameters():
                parameter.copy_(scale * torch.randn_like(parameter))
        for network in model.hierarchy.posterior:
            network.network.output.bias[1] += 0.5  # wide tails keep importance weights bounded
    randomize_norms(model, offsets=False)
    return model.eval(), num_nodes


def normal(layer):
    return Normal(layer.mean, layer.log_std.exp())


def follow(layer_of, zeta, noise):
    """Layers (row, layer, unit) made from noise (row, layer) one after another, and their log-density (row,)."""
    h, log_prob = zeta.new_zeros(len(zeta), 0, 1), zeta.new_zeros(len(zeta))
    for eps in noise.T:
        layer = normal(layer_of(zeta, h))
        new = layer.mean + layer.stddev * eps[:, None]
        log_prob = log_prob + layer.log_prob(new).sum(-1)
        h = torch.cat([h, new[:, None]], 1)
    return h, log_prob


def grid(zeta, noise):
    """All pairs of rows."""
    return zeta.repeat_interleave(len(noise), 0), noise.repeat(len(zeta), 1)


def noise_nodes(model, num_nodes):
    """Nodes of the layers' noise, (node, layer), and their weights; one node where there is no layer."""
    if model.hierarchy.num_layers:
        return normal_nodes(model.hierarchy.num_layers, num_nodes)
    return torch.zeros(1, 0, dtype=torch.float64), torch.ones(1, dtype=torch.float64)


def beside(rows, of_c):
    """Rows with the features of a condition, (feature,), after each."""
    return torch.cat([rows, of_c.expand(len(rows), -1)], 1)


def log_joint(model, x, zeta, h):
    """log p(x | zeta, h, c) at rows of [zeta, e(c)] and h."""
    latents = model.hierarchy.prior.decoder_input(zeta, h) if h.shape[1] else zeta
    return model.likelihood.log_prob(model.decoder(latents), x.expand(len(zeta), -1))


def posterior_grid(model, x, num_nodes, of_c=UNCONDITIONAL[0]):
    """The posterior of one x, and of the features of one condition.

    Returns it on nodes of zeta, the weights of the noise's nodes, and on the grid of both log p(x | zeta, h) and
    log q(h) - log p(h), (zeta node, noise node).
    """
    networks, norms = model.posterior.networks, model.posterior.norms
    noise, weight = noise_nodes(model, num_nodes[1])
    features = beside(x[None], of_c)
    q = posterior_quadrature(
        lambda index, zeta: norms[index](
            networks[index](features.expand(len(zeta), -1), *[zeta[:, :1]][:index])
        ),
        model.posterior.groups,
        model.smoothing,
        num_nodes[0],
    )
    rows, eps = grid(beside(q.nodes.zeta, of_c), noise)

    def posterior_layer(zeta, h):
        network = model.hierarchy.posterior[h.shape[1]]
        return network(features.expand(len(zeta), -1), torch.cat([zeta, h.flatten(1)], 1))

    h, of_h = follow(posterior_layer, rows, eps)
    for m in range(h.shape[1]):
        of_h = of_h - normal(model.hierarchy.prior.next_layer(rows, h[:, :m])).log_prob(h[:, m]).sum(-1)
    found = log_joint(model, x, rows, h), of_h
    return q, weight, *(part.unflatten(0, (-1, len(noise))) for part in found)


def kl_of(model, q):
    """log q(z | zeta) - log p(z) on the nodes."""
    return q.log_q - log_prior(model.prior)(q.nodes.z)


def exact_terms(model, num_nodes, x=X, of_c=UNCONDITIONAL):
    """Mean over x of reconstruction, KL of z and KL of h, from densities alone, no closed-form KL."""
    means = []
    for row, features in zip(x, of_c, strict=True):
        q, weight, log_px, of_h = posterior_grid(model, row, num_nodes, features)
        means.append(q.expectation(torch.stack([log_px @ weight, kl_of(model, q), of_h @ weight], -1)))
    return torch.stack(means).mean(0)


def exact_log_likelihood(model, num_nodes, x=X, of_c=UNCONDITIONAL):
    """log p(x | c) of each row."""
    nodes = joint_nodes(model.smoothing, 2, num_nodes[0])
    noise, weight = noise_nodes(model, num_nodes[1])
    log_weight = (nodes.weight.log() + log_prior(model.prior)(nodes.z))[:, None] + weight.log()
    found = []
    for row, features in zip(x, of_c, strict=True):
        latents, eps = grid(beside(nodes.zeta, features), noise)
        h, _ = follow(lambda zeta, h: model.hierarchy.prior.next_layer(zeta, h), latents, eps)
        found.append(torch.logsumexp(log_weight.flatten() + log_joint(model, row, latents, h), 0))
    return torch.stack(found).detach()


def estimates(model, path=EXACT):
    """Rows of the three terms and of the gradient of the ELBO."""
    return torch.stack([torch.cat(found) for found in path.estimates(model, X.repeat(500, 1), 40)])


def expected(model, num_nodes):
    terms = exact_terms(model, num_nodes)
    return torch.cat([terms.detach(), flat_gradient(terms[0] - terms[1] - terms[2], model)])


@pytest.mark.parametrize(("name", "path"), by_path(CASES, NETWORKS, STEPS), ids=str)
def test_elbo_and_every_gradient_are_unbiased(name, path):
    model, num_nodes = build(name)
    with path.taken(model) as computed:
        found = estimates(computed, path)
    check_mean(found, expected(model, num_nodes), resolution=0.03, rounding=path.rounding)


@pytest.mark.parametrize(("name", "path"), by_path(CASES, ["one layer, networks"]), ids=str)
def test_importance_weighting_finds_the_exact_log_likelihood(name, path):
    model, num_nodes = build(name)
    exact = exact_log_likelihood(model, num_nodes)
    terms = exact_terms(model, num_nodes).detach()
    assert float(terms[0] - terms[1] - terms[2]) < float(exact.mean())
    generator = torch.Generator().manual_seed(1)
    with path.taken(model) as computed:
        x, log_z = X.to(computed.prior.bias.dtype), exact_log_partition(model.prior)
        got = computed.log_likelihood(x, 40_000, chunk_size=9001, log_partition=log_z, generator=generator)
    assert float(got.std_error.max()) < 0.04
    off = (got.value - exact).abs()
    assert bool((off < 5.5 * got.std_error + 1e-4 + path.rounding).all())  # alpha 1e-6


@pytest.mark.parametrize("name", ["one layer, no sharing", "two layers, no sharing"])
def test_generated_samples_have_the_exact_mean(name):
    model, num_nodes = build(name)
    nodes = joint_nodes(model.smoothing, 2, num_nodes[0])
    noise, weight = noise_nodes(model, num_nodes[1])
    rows, eps = grid(nodes.zeta, noise)
    with torch.no_grad():
        h, _ = follow(model.hierarchy.prior.next_layer, rows, eps)
        mean = model.likelihood.mean(model.decoder(model.hierarchy.prior.decoder_input(rows, h)))
        prob = nodes.weight * log_prior(model.prior)(nodes.z).exp()
        exact = (prob[:, None] * weight).flatten() @ mean
        machine = enumerate_machine(model.prior)
        generator = torch.Generator().manual_seed(1)
        batches = []
        for _ in range(40):
            states = machine.states[torch.multinomial(machine.prob, 500, True, generator=generator)]
            batches.append(model.sample(500, z=states, generator=generator).mean.mean(0))
    check_mean(torch.stack(batches), exact, resolution=0.01)


class Reversed(GaussianHierarchy):
    """A fault: the posterior samples the last layer first."""

    def rsample(self, x, zeta, *, generator=None):
        sample = super().rsample(x, zeta, generator=generator)
        h = sample.h.flip(-2)
        posterior = Gaussian(sample.posterior.mean.flip(-2), sample.posterior.log_std.flip(-2))
        return HierarchySample(h, posterior, self.prior.layers(zeta, h), self.decoder_input(zeta, h))


class Exchanged(GaussianHierarchy):
    """A fault: the closed-form KL runs from prior to posterior."""

    class Sample(HierarchySample):
        def kl(self):
            return self.prior.kl_to(self.posterior).sum((-2, -1))

    def rsample(self, x, zeta, *, generator=None):
        right = super().rsample(x, zeta, generator=generator)
        return self.Sample(right.h, right.posterior, right.prior, right.decoder_input)


@pytest.mark.parametrize(
    ("hierarchy_class", "prior_class"),
    [(Exchanged, None), (Reversed, None), (GaussianHierarchy, OwnSample)],
    ids=["exchanged KL", "reversed posterior", "own sample"],
)
def test_planted_faults_are_rejected(hierarchy_class, prior_class):
    right, num_nodes = build("two layers, complete sharing")
    faulty, _ = build("two layers, complete sharing", hierarchy_class, prior_class)
    faulty.load_state_dict(right.state_dict())
    with pytest.raises(AssertionError, match="standard errors apart"):
        check_mean(estimates(faulty), expected(right, num_nodes))
