"""What fills gaps has the law given the observed entries: against quadrature over the latents of small models."""

import numpy as np
import pytest
import torch

from discrete_vae import (
    RBM,
    BernoulliLikelihood,
    CategoricalLikelihood,
    DiscreteVAE,
    GaussianHierarchy,
    GaussianLikelihood,
    HierarchicalPosterior,
    NegativeBinomialLikelihood,
    NoSharing,
    SpikeExponential,
)
from discrete_vae.inference.impute import (
    GappedRow,
    ImputationSettings,
    IteratedResampling,
    Proposals,
    WeightedMoments,
    _summary,
    impute,
)
from discrete_vae.testing import check_frequencies, check_mean, enumerate_machine
from tests.oracles.quadrature import joint_nodes, normal_nodes

NAN = float("nan")
NUM_NODES = 24
ERRORS = 5.5  # standard errors: alpha about 1e-6 for some tens of entries

LIKELIHOODS = {
    "bernoulli": (BernoulliLikelihood, [[1.0, NAN, 1, NAN], [NAN, 0, 0, 1]]),
    "gaussian": (GaussianLikelihood, [[1.5, NAN, -300.0, NAN], [NAN, 0.2, 700.0, 1]]),
    "categorical": (lambda shape: CategoricalLikelihood(shape, 3), [[2.0, NAN, 0, NAN], [NAN, 1, 1, 2]]),
    "negative-binomial": (NegativeBinomialLikelihood, [[3.0, NAN, 25, NAN], [NAN, 7, 40, 1]]),
    "exposure": (
        lambda shape: NegativeBinomialLikelihood(shape, exposure="total"),
        [[3.0, NAN, 12, NAN], [NAN, 15, 80, 1]],
    ),
}
TRAINING = {
    "gaussian": torch.tensor([1.0, 1, 500, 1])
    * torch.randn(50, 4, generator=torch.Generator().manual_seed(0)),
    "negative-binomial": torch.tensor([2.0, 5, 20, 1]).expand(50, 4)
    + torch.arange(50)[:, None] % torch.tensor([3, 7, 30, 2]),
}
TRAINING["exposure"] = TRAINING["negative-binomial"]


def build(kind="bernoulli", *, layers=0, missing=False):
    torch.manual_seed(5)
    make, rows = LIKELIHOODS[kind]
    likelihood = make((4,))
    num_features = likelihood.input_shape[0] + 4 * missing
    prior = RBM(1, 1)
    hierarchy = None
    if layers:
        hierarchy = GaussianHierarchy(
            num_features, NoSharing(2, layers, 1, hidden=(), log_std_bound=0.6), (), log_std_bound=0.6
        )
    model = DiscreteVAE(
        prior=prior,
        posterior=HierarchicalPosterior(num_features, [[0], [1]], (), SpikeExponential(beta=2.0)),
        likelihood=likelihood,
        hierarchy=hierarchy,
        missing=missing,
    )
    if kind in TRAINING:
        model.likelihood.initialize_(TRAINING[kind].round())
    with torch.no_grad():
        for parameter in [*prior.parameters(), *model.decoder.parameters()]:
            parameter.copy_(
                (0.4 if kind in ("negative-binomial", "exposure") else 1.5) * torch.randn_like(parameter)
            )
    return model.double().eval(), torch.tensor(rows, dtype=torch.float64)


def latent_nodes(model):
    """What the decoder makes of nodes over all latents, and their log-probabilities."""
    nodes = joint_nodes(model.smoothing, 2, NUM_NODES)
    log_prob = (
        nodes.weight.log()
        + enumerate_machine(model.prior).log_prob[(nodes.z.long() * torch.tensor([1, 2])).sum(-1)]
    )
    zeta, h = nodes.zeta, nodes.zeta.new_zeros(len(nodes.zeta), 0, 0)
    if model.hierarchy.num_layers:
        noise, weight = normal_nodes(1, NUM_NODES)
        zeta = zeta.repeat_interleave(len(noise), 0)
        law = model.hierarchy.prior_at(zeta, zeta.new_zeros(len(zeta), 1, 1))
        h = law.mean + law.log_std.exp() * noise.repeat(len(nodes.zeta), 1)[:, :, None]
        log_prob = (log_prob[:, None] + weight.log()).flatten()
    return model.decoder(model.hierarchy.decoder_input(zeta, h)).detach(), log_prob.detach()


def exact(model, rows):
    """E[summary of each entry | observed entries], (row, ...)."""
    parameters, log_prob = latent_nodes(model)
    means = []
    for row in rows:
        seen = ~row.isnan()
        log_px = model.likelihood.log_prob(
            parameters, row.expand(len(parameters), -1), seen.expand(len(parameters), -1)
        )
        weights = torch.softmax(log_prob + log_px, 0)
        exposed = model.likelihood.at_exposure(parameters, row[None], seen[None])
        means.append(torch.tensordot(weights, _summary(model.likelihood, exposed).double(), 1))
    return torch.stack(means).detach()


@pytest.mark.parametrize("missing", [False, True], ids=["trained on whole rows", "trained with gaps"])
@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_importance_gives_the_conditional_mean(kind, missing):
    model, x = build(kind, missing=missing)
    expected = exact(model, x)
    found = impute(model, x, settings=ImputationSettings(num_samples=20_000, num_rounds=3, num_fills=2))
    gaps = x.isnan().numpy()
    assert (found.filled[~gaps] == x.numpy()[~gaps]).all()
    assert not found.std_error[~gaps].any()
    filled, error = torch.from_numpy(found.filled), torch.from_numpy(found.std_error)
    if kind == "categorical":
        assert torch.equal(filled[x.isnan()], expected.argmax(1).double()[x.isnan()])
        assert 0 < float(error[x.isnan()].max()) < 0.02
        return
    off = ((filled - expected).abs() / error)[x.isnan()]
    assert float(off.max()) < ERRORS
    scale = (expected - model.likelihood.mean(latent_nodes(model)[0]).mean(0)).abs()
    small = error < 0.25 * scale + 0.05 * expected.abs()  # enough samples to mean something
    assert bool(small[x.isnan()].all())


@pytest.mark.parametrize(("kind", "layers"), [("categorical", 0), ("bernoulli", 1)])
def test_importance_of_codes_and_of_gaussian_layers(kind, layers):
    model, x = build(kind, layers=layers)
    for row, mean in zip(x, exact(model, x), strict=True):
        moments = moments_of(model, row, 20_000)
        assert float(((moments.mean - mean).abs() / moments.std_error).max()) < ERRORS
        assert float(moments.std_error.max()) < 0.02


@torch.no_grad()
def moments_of(model, row, num_samples, *, tamper=lambda log_weights: log_weights):
    one = GappedRow(row[None], ~row[None].isnan(), 3)
    moments = WeightedMoments()
    with model.importance_sampler(0.0) as sampler:
        proposals = Proposals(model, sampler, one, num_rounds=2, num_fills=2)
        for log_weights, parameters in proposals.draw(num_samples, 5000):
            moments.add(tamper(log_weights), _summary(model.likelihood, parameters))
    return moments


def test_draws_from_the_posterior_without_weights_are_rejected():
    """The planted fault: the posterior is taken for p(latents | observed entries), as a plain reconstruction does."""
    model, x = build()
    expected = exact(model, x)
    for row, mean in zip(x, expected, strict=True):
        moments = moments_of(model, row, 20_000, tamper=torch.zeros_like)
        assert float(((moments.mean - mean).abs() / moments.std_error).max()) > ERRORS


def chain_states(model, row, *, num_steps, num_candidates=3, forget=False):
    """Means of x at the states of 2000 chains with few candidates per step."""
    one = GappedRow(row[None], ~row[None].isnan(), 4)
    sizes = {"num_chains": 2000, "num_candidates": num_candidates, "chunk_size": 10**5}
    with torch.no_grad(), model.importance_sampler(0.0) as sampler:
        proposals = Proposals(model, sampler, one, num_rounds=2, num_fills=2)
        list(proposals.draw(100, 100))
        chains = IteratedResampling(proposals, one, **sizes)
        for _ in range(num_steps):
            if forget:
                chains._kept = None
            chains.step()
        assert forget or chains.num_moves > 2000
        return model.likelihood.mean(chains.parameters)


@pytest.mark.parametrize(("layers", "num_candidates"), [(0, 3), (1, 10)])
def test_chains_with_few_candidates_are_exact(layers, num_candidates):
    model, x = build(layers=layers)
    expected = exact(model, x)
    for row, mean in zip(x, expected, strict=True):
        states = chain_states(model, row, num_steps=20, num_candidates=num_candidates)
        check_mean(states.unflatten(0, (40, 50)).mean(1), mean, resolution=0.03)


def test_a_chain_that_forgets_its_state_is_rejected():
    """The planted fault: each step picks among new candidates alone, which is importance resampling of three."""
    model, x = build()
    states = chain_states(model, x[0], num_steps=1, forget=True)
    with pytest.raises(AssertionError):
        check_mean(states.unflatten(0, (40, 50)).mean(1), exact(model, x)[0])


def entangled():
    """A model in which one latent decides over both gaps of a row."""
    model, x = build()
    weight, bias = model.decoder.parameters()
    with torch.no_grad():
        weight.copy_(torch.tensor([[0.0, 1], [9, 0], [0, 1], [9, 0]]))
        bias.copy_(torch.tensor([0.0, -4, 0, -4]))
    return model, x[:1]


@pytest.mark.parametrize("method", ["importance", "chains"])
def test_draws_have_the_law_and_means_agree(method):
    model, x = entangled()
    sizes = {"num_samples": 4000 if method == "importance" else 50, "num_rounds": 2, "num_draws": 300}
    settings = ImputationSettings(method=method, num_steps=30, num_candidates=4, **sizes)
    found, gaps = impute(model, x, settings=settings), x[0].isnan()
    off = np.abs(found.filled[0] - exact(model, x)[0].numpy())[gaps] / found.std_error[0][gaps]
    assert off.max() < ERRORS
    assert found.std_error[0].max() < 0.05
    pairs, law = law_of_gaps(model, x[0])
    drawn = torch.from_numpy(found.draws[0])
    assert torch.equal(drawn[:, ~gaps], x[0][~gaps].expand(len(drawn), -1))
    numbers = (drawn[:, gaps] @ torch.tensor([2.0, 1.0], dtype=torch.float64)).long()
    counts = torch.bincount(numbers, minlength=4)
    check_frequencies(counts, law)
    ones = exact(model, x)[0][gaps]  # the planted fault: gaps drawn one by one
    alone = (pairs * ones + (1 - pairs) * (1 - ones)).prod(1)
    with pytest.raises(AssertionError):
        check_frequencies(counts, alone)


def law_of_gaps(model, row):
    """Both gaps together, since their dependence is what a mean does not have."""
    pairs = torch.tensor([[0.0, 0.0], [0, 1], [1, 0], [1, 1]], dtype=torch.float64)
    completed = row.repeat(4, 1)
    completed[:, row.isnan()] = pairs
    parameters, log_prob = latent_nodes(model)
    joint = [
        torch.logsumexp(log_prob + model.likelihood.log_prob(parameters, one.expand(len(parameters), -1)), 0)
        for one in completed
    ]
    return pairs, torch.softmax(torch.stack(joint).detach(), 0)


def test_chains_that_have_not_forgotten_their_start_state_it_in_their_error():
    """All chains begin among few candidates, so that their means are off alike; weights are far from even."""
    model, x = build("gaussian")
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in [*model.prior.parameters(), *model.decoder.parameters()]:
            parameter.copy_(3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    settings = ImputationSettings(method="chains", num_draws=100, num_steps=25)
    right, gaps, effective = exact(model, x), x.isnan().numpy(), []
    for seed in (0, 2):  # the spread between chains alone would be too small an error for both
        found = impute(model, x, settings=settings, seed=seed)
        off = np.abs(found.filled - right.numpy())[gaps]
        assert (off / found.std_error[gaps]).max() < 4
        effective.append(found.effective_samples)
    assert np.min(effective, 0).max() < 400  # one may be right by luck


def test_an_example_is_filled_alike_whatever_the_others():
    model, x = build()
    settings = ImputationSettings(num_samples=200, num_rounds=2, num_draws=2)
    both = impute(model, x, settings=settings)
    second = impute(model, x[1:], settings=settings, numbers=[1])
    assert (both.filled[1] == second.filled[0]).all()
    assert (both.draws[1] == second.draws[0]).all()
    other = impute(model, x, settings=settings, seed=1)
    assert (both.filled != other.filled).any()


def test_examples_without_gaps_and_without_anything_else():
    model, _ = build()
    x = torch.tensor([[1.0, 0, 1, 1], [NAN] * 4], dtype=torch.float64)
    settings = ImputationSettings(num_samples=500, num_rounds=2, num_draws=3)
    found = impute(model, x, settings=settings)
    assert (found.filled[0] == x[0].numpy()).all()
    assert (found.draws[0] == x[0].numpy()).all()
    assert np.isnan(found.effective_samples[0])
    assert np.isfinite(found.filled[1]).all()
    again = impute(model, x.nan_to_num(7), observed=~x.isnan(), settings=settings)
    assert (again.filled == found.filled).all()


def test_a_mode_is_a_value():
    model, x = build()
    mean, mode = (
        impute(model, x, settings=ImputationSettings(filling=filling, num_samples=300, num_rounds=2)).filled
        for filling in ("mean", "mode")
    )
    assert ((mean > 0.5) == mode).all()
    assert set(mode.flatten()) <= {0.0, 1.0}


def test_few_effective_samples_are_said():
    model, x = build()
    for more, name in (
        ({"num_fills": 2}, "num_samples=32"),
        ({"method": "chains", "num_steps": 1}, "num_steps=4"),
    ):
        settings = ImputationSettings(num_samples=8, num_rounds=2, **more)
        with pytest.warns(UserWarning, match=rf"2 of 2 .*example 7.*{name}"):
            impute(model, x, numbers=[71, 72], settings=settings)


def test_moments_in_chunks_are_those_of_all():
    torch.manual_seed(0)
    log_weights = 30 * torch.randn(50, dtype=torch.float64)
    values = 1e6 + torch.randn(50, 3, dtype=torch.float64)
    moments = WeightedMoments()
    for part in (slice(0, 1), slice(1, 20), slice(20, 50)):
        moments.add(log_weights[part], values[part])
    weights = torch.softmax(log_weights, 0)
    mean = weights @ values
    torch.testing.assert_close(moments.mean, mean)
    error = (weights.square() @ (values - mean).square()).sqrt()
    torch.testing.assert_close(moments.std_error, error)
    assert moments.effective_samples == pytest.approx(float(1 / weights.square().sum()))


@pytest.mark.filterwarnings("ignore:.*have fewer than 10")
def test_truncated_means_agree_where_weights_are_even_and_have_more_effective_samples():
    model, x = build()
    found = impute(model, x, settings=ImputationSettings(num_samples=20_000, num_rounds=2, truncated=True))
    off = (torch.from_numpy(found.filled) - exact(model, x)).abs() / torch.from_numpy(found.std_error)
    assert float(off[x.isnan()].max()) < ERRORS
    uneven, x = build("gaussian")
    cut, plain = (ImputationSettings(num_samples=9, num_rounds=1, truncated=each) for each in (True, False))
    few, more = (
        np.stack([impute(uneven, x, settings=each, seed=seed).effective_samples for seed in range(8)])
        for each in (plain, cut)
    )
    assert (more >= few - 1e-9).all()
    assert (more > few + 0.1).any()
