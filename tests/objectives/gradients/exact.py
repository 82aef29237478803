"""Small models, the exact gradient of their bound, and the exact expectation of each estimator, by enumeration.

An estimator draws nothing but uniforms for z and noise for zeta, so its expectation is a finite sum over the pieces on
which z does not change, times a quadrature over the noise of zeta. Each piece is a row of one batch; its probability is
the weight of the row's loss, so one call gives the whole expectation.
"""

from itertools import product

import numpy as np
import torch

from discrete_vae import (
    RBM,
    DisARM,
    DiscreteVAE,
    FactorialBernoulli,
    GraphBoltzmann,
    HierarchicalPosterior,
    LeaveOneOut,
    OverlappingExponential,
    SpikeSlab,
)
from discrete_vae.boltzmann.base import enumerate_log_partition
from discrete_vae.likelihoods.base import BernoulliLikelihood
from discrete_vae.objectives.elbo import Batch, loss_gradients
from discrete_vae.rng import DrawnNoise
from discrete_vae.smoothing.spike import SharpLimit
from discrete_vae.testing import all_states
from tests.exact_paths import flat, log_prior, randomize_norms
from tests.test_model_exact import exact_elbo, log_likelihood_of
from tests.transformations import spike

NUM_FEATURES = 5
X = torch.tensor([[1, 0, 1, 1, 0]], dtype=torch.float64)
WEIGHTS = (0.7, 1.3)  # of the two KLs, as warm-up has them

# name -> (prior, groups, smoothing)
CASES = {
    "RBM": (lambda: RBM(2, 2), [[0, 1], [2, 3]], spike(0.6)),
    "factorial prior": (lambda: FactorialBernoulli(4), [[0, 1], [2, 3]], spike(0.6)),
    "interleaved groups": (lambda: RBM(2, 2), [[3, 0], [1, 2]], SpikeSlab),
    "graph, three groups": (lambda: GraphBoltzmann(4, "complete"), [[2], [0, 3], [1]], SharpLimit),
    "without a spike": (
        lambda: RBM(2, 2),
        [[0, 1], [2, 3]],
        lambda: OverlappingExponential(beta=0.6, trainable=True),
    ),
    "one group": (lambda: RBM(2, 2), [[0, 1, 2, 3]], spike(0.6)),
}


def build(name):
    """A model in evaluation mode with every parameter drawn at random."""
    make_prior, groups, make_smoothing = CASES[name]
    torch.manual_seed(3)
    prior = make_prior()
    model = DiscreteVAE(
        prior=prior,
        posterior=HierarchicalPosterior(NUM_FEATURES, groups, (), make_smoothing()),
        likelihood=BernoulliLikelihood((NUM_FEATURES,)),
    ).double()
    with torch.no_grad():
        for parameter in [*prior.parameters(), *model.decoder.parameters()]:
            parameter.add_(torch.randn_like(parameter))
    randomize_norms(model)
    return model.eval()


def flat_gradient(value, model):
    """All gradients in a row; zero where there is none."""
    return flat(torch.autograd.grad(value, [*model.parameters()], allow_unused=True, materialize_grads=True))


def exact_gradient(model, num_nodes=10):
    """Of WEIGHTS[0] KL - E log p(x | zeta), by quadrature over zeta; shares nothing with the estimators."""
    if isinstance(model.smoothing, SharpLimit):
        return _enumerated_gradient(model)
    reconstruction, kl = exact_elbo(model, num_nodes, X)
    return flat_gradient(WEIGHTS[0] * kl - reconstruction, model)


def _enumerated_gradient(model):
    """The same with zeta = z."""
    posterior, z, log_q = model.posterior, all_states(4), 0
    for index, units in enumerate(posterior.groups):
        earlier = [z[:, list(before)] for before in posterior.groups[:index]]
        logits = posterior.norms[index](posterior.networks[index](X.expand(len(z), -1), *earlier))
        law = torch.distributions.Bernoulli(logits=logits)
        log_q = log_q + law.log_prob(z[:, list(units)]).sum(-1)
    loss = WEIGHTS[0] * (log_q - log_prior(model.prior)(z)) - log_likelihood_of(model, X[0], z)
    return flat_gradient((log_q.exp() * loss).sum(), model)


def noise_grid(num_nodes, num_units=4):
    """Gauss-Legendre nodes of the noise of zeta, (node, unit), and their weights (node,)."""
    points, widths = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(num_nodes))
    index = torch.cartesian_prod(*[torch.arange(num_nodes)] * num_units)
    return ((points + 1) / 2)[index], (widths / 2)[index].prod(-1)


def draw(model, uniforms, noise):
    """The posterior's draws, (sample, row, unit)."""
    with torch.no_grad():
        x = X.expand(len(noise), -1)
        return model.posterior.sample_discretely(x, uniforms, generator=DrawnNoise([by_group(model, noise)]))


def pieces(model, noise, weight, spread):
    """Uniforms in the middle of each piece on which no z changes, group after group.

    Args:
        model: The model.
        noise: (row, unit), of zeta.
        weight: (row,), of each row.
        spread: Uniforms (row, unit) of the posterior -> those of all draws that the estimator makes of it, (draw, row,
            unit), each entry u or 1 - u.

    Returns:
        Uniforms (row, unit), noise (row, unit) and weight (row,), of many more rows.
    """
    uniforms = torch.full_like(noise, 0.25)
    for group in model.posterior.groups:
        for unit in group:
            # where this unit changes: q or 1 - q of each draw, none of which knows of later units
            q = torch.sigmoid(draw(model, spread(uniforms), noise).logits[..., unit])
            marks = spread(torch.full_like(uniforms, 0.25))[..., unit]  # 0.25 for u, 0.75 for 1 - u
            ends = torch.where(marks < 0.5, q, 1 - q)
            zero, one = torch.zeros_like(ends[:1]), torch.ones_like(ends[:1])
            ends = torch.cat([zero, ends, one]).sort(0).values
            lengths, middles = ends.diff(dim=0), (ends[1:] + ends[:-1]) / 2
            rows, piece = (lengths.T > 1e-12).nonzero().T
            uniforms, noise = uniforms[rows].clone(), noise[rows]
            uniforms[:, unit] = middles[piece, rows]
            weight = weight[rows] * lengths[piece, rows]
    return uniforms, noise, weight


def by_group(model, noise):
    """Noise (row, unit) in the order in which the posterior asks for it."""
    return noise[:, [unit for group in model.posterior.groups for unit in group]]


def of_one_draw(model, noise, weight):
    return pieces(model, noise, weight, lambda u: u[None])


def of_several_draws(model, noise, weight, num_samples):
    """All combinations of pieces of several draws with the same noise, uniforms (sample, row, unit)."""
    found = [], [], []
    for node, of_node in zip(noise, weight, strict=True):
        uniforms, _, share = of_one_draw(model, node[None], of_node[None])
        share = share / of_node
        index = torch.tensor(list(product(range(len(share)), repeat=num_samples))).T
        found[0].append(uniforms[index])
        found[1].append(node.expand(index.shape[1], -1))
        found[2].append(of_node * share[index].prod(0))
    return torch.cat(found[0], 1), torch.cat(found[1]), torch.cat(found[2])


def expectation(model, estimator, num_nodes=2):
    """The gradient that an estimator has in expectation, exactly but for the quadrature over the noise of zeta."""
    noise, weight = noise_grid(1 if isinstance(model.smoothing, SharpLimit) else num_nodes)
    if isinstance(estimator, DisARM):
        flipped = estimator.flipped
        uniforms, noise, weight = pieces(model, noise, weight, lambda u: torch.where(flipped, 1 - u, u))
    elif isinstance(estimator, LeaveOneOut):
        uniforms, noise, weight = of_several_draws(model, noise, weight, estimator.num_samples)
    else:
        uniforms, noise, weight = of_one_draw(model, noise, weight)
        uniforms = uniforms[None]
    return gradient_of(model, estimator, [uniforms, by_group(model, noise)], weight)


def gradient_of(model, estimator, drawn, weight):
    """The weighted mean of the gradients of the rows, for noise that is drawn."""
    x = X.expand(len(weight), -1)
    log_z = enumerate_log_partition(model.prior)
    of_prior, grad_outputs = log_z - log_z.detach(), loss_gradients(len(x), *WEIGHTS, like=log_z)
    batch = Batch(x, None, of_prior, 1, grad_outputs[1] * len(x), DrawnNoise(drawn))
    estimate = estimator.estimate(model, batch, grad_outputs)
    rows = [(part, seed * len(x) * weight) for part, seed in estimate.outputs()]
    return flat_gradient(sum((part * seed).sum() for part, seed in rows), model)
