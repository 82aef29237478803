"""What fills gaps has the law given the observed entries: against quadrature over the latents of small models."""

from dataclasses import replace

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
from discrete_vae.config import (
    BinaryColumnConfig,
    CategoryColumnConfig,
    ConstantColumnConfig,
    CountColumnConfig,
    OrdinalColumnConfig,
    RealColumnConfig,
)
from discrete_vae.inference.impute import (
    GappedRow,
    ImputationSettings,
    IteratedResampling,
    Proposals,
    impute,
    prior_draws,
)
from discrete_vae.likelihoods import TableLikelihood
from discrete_vae.objectives.importance import tempered, weighted_mean
from discrete_vae.testing import all_states, check_frequencies, check_mean, enumerate_machine
from tests.oracles.quadrature import joint_nodes, normal_nodes

NAN = float("nan")
NUM_NODES = 24
ERRORS = 5.5  # standard errors: alpha about 1e-6 for some tens of entries

COLUMNS = (
    BinaryColumnConfig(name="a"),
    CategoryColumnConfig(name="b", values=("x", "y", "z")),
    RealColumnConfig(name="c"),
    ConstantColumnConfig(name="d", values=("one",)),
    OrdinalColumnConfig(name="e"),
    CountColumnConfig(name="f"),
    CategoryColumnConfig(name="g", values=("x", "y", "z", "u", "v")),
)
TABLE_ROWS = [[1, NAN, 0.7, 0, 2, NAN, 4], [NAN, 2, NAN, NAN, NAN, 2, NAN], [0, NAN, NAN, NAN, 0, 5, 1]]
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


def model_of(likelihood, num_features, **parts):
    """A model of two units in two groups, whose networks have no hidden layers."""
    posterior = HierarchicalPosterior(num_features, [[0], [1]], (), SpikeExponential(beta=2.0))
    return DiscreteVAE(prior=RBM(1, 1), posterior=posterior, likelihood=likelihood, **parts)


def build(kind="bernoulli", *, layers=0, missing=False):
    torch.manual_seed(5)
    make, rows = LIKELIHOODS[kind]
    likelihood = make((len(rows[0]),))
    num_features = likelihood.input_shape[0] + len(rows[0]) * missing
    hierarchy = None
    if layers:
        sharing = NoSharing(2, layers, 1, hidden=(), log_std_bound=0.6)
        hierarchy = GaussianHierarchy(num_features, sharing, (), log_std_bound=0.6)
    model = model_of(likelihood, num_features, hierarchy=hierarchy, missing=missing)
    if kind in TRAINING:
        model.likelihood.initialize_(TRAINING[kind].round())
    scale = 0.4 if kind in ("negative-binomial", "exposure") else 1.5
    with torch.no_grad():
        for parameter in [*model.prior.parameters(), *model.decoder.parameters()]:
            parameter.copy_(scale * torch.randn_like(parameter))
    return model.double().eval(), torch.tensor(rows, dtype=torch.float64)


def table():
    """A table in which an average of codes is not the most probable one."""
    torch.manual_seed(6)
    likelihood = TableLikelihood((len(COLUMNS),), COLUMNS)
    model = model_of(likelihood, likelihood.input_shape[0])
    x = torch.tensor([[0.0, 0, -1, 0, 0, 1, 0], [1, 1, 1, 0, 1, 9, 3], [1, 2, 0.5, 0, 2, 3, 4]])
    model.initialize_(x)
    with torch.no_grad():
        for parameter in [*model.prior.parameters(), *model.decoder.parameters()]:
            parameter.copy_(torch.randn_like(parameter))
        bias = dict(model.decoder.named_parameters())["network.output.bias"]
        bias[1:4] = torch.tensor([2.0, -2.0, 1.9])  # of column b, whose mean code is near 1
    return model.double().eval(), torch.tensor(TABLE_ROWS, dtype=torch.float64)


def latent_nodes(model):
    """What the decoder makes of nodes over all latents, and their log-probabilities."""
    nodes = joint_nodes(model.smoothing, 2, NUM_NODES)
    log_prior = enumerate_machine(model.prior).log_prob
    log_prob = nodes.weight.log() + log_prior[(nodes.z.long() * torch.tensor([1, 2])).sum(-1)]
    zeta, h = nodes.zeta, nodes.zeta.new_zeros(len(nodes.zeta), 0, 0)
    if model.hierarchy.num_layers:
        noise, weight = normal_nodes(1, NUM_NODES)
        zeta = zeta.repeat_interleave(len(noise), 0)
        law = model.hierarchy.prior_at(zeta, zeta.new_zeros(len(zeta), 1, 1))
        h = law.mean + law.log_std.exp() * noise.repeat(len(nodes.zeta), 1)[:, :, None]
        log_prob = (log_prob[:, None] + weight.log()).flatten()
    return model.decoder(model.hierarchy.decoder_input(zeta, h)).detach(), log_prob.detach()


def nodes_given(model, row):
    """The same, with the probabilities given the observed entries of a row."""
    parameters, log_prob = latent_nodes(model)
    size = (len(parameters), -1)
    log_px = model.likelihood.log_prob(parameters, row.expand(size), ~row.isnan().expand(size))
    return parameters, torch.softmax(log_prob + log_px, 0)


def exact(model, rows, summarize=None):
    """E[T(x) | observed entries], (row, ...)."""
    summarize, means = summarize or model.likelihood.expected_statistics, []
    for row in rows:
        parameters, weights = nodes_given(model, row)
        exposed = model.likelihood.at_exposure(parameters, row[None], ~row[None].isnan())
        means.append(torch.tensordot(weights, summarize(exposed).double(), 1))
    return torch.stack(means).detach()


@pytest.mark.parametrize(
    ("kind", "layers", "missing"),
    [
        ("bernoulli", 0, False),
        ("bernoulli", 1, False),
        ("gaussian", 0, True),
        ("categorical", 0, False),
        ("negative-binomial", 0, True),
        ("exposure", 0, False),
    ],
)
def test_importance_gives_the_conditional_mean(kind, layers, missing):
    model, x = build(kind, layers=layers, missing=missing)
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


def law_of_code(model, row, column):
    """P(code | observed entries) of one column, from the densities of a row with each code in turn."""
    (parameters, weights), laws = nodes_given(model, row), []
    for code in range(len(COLUMNS[column].values)):
        x = row.nan_to_num(0).index_fill(0, torch.tensor([column]), code).expand(len(parameters), -1)
        laws.append(weights @ model.likelihood.feature_log_prob(parameters, x)[:, column].exp())
    return torch.stack(laws).detach()


def test_columns_of_all_kinds_are_filled_by_what_suits_them():
    model, x = table()
    settings = ImputationSettings(num_samples=10_000, num_rounds=3, num_draws=400)
    found, gaps, rounded = impute(model, x, settings=settings), x.isnan(), []
    for number, row in enumerate(x):
        (estimate, its_error), mean = mean_of(model, row, 10_000), exact(model, x[number : number + 1])[0]
        assert float(((estimate - mean).abs() / its_error.clamp_min(1e-9)).max()) < ERRORS
        for column in gaps[number].nonzero()[:, 0].tolist():
            filled, error = found.filled[number, column], found.std_error[number, column]
            if not hasattr(COLUMNS[column], "values"):
                weighted = exact(model, row[None], model.likelihood.mean)[0, column]
                assert abs(filled - weighted) < ERRORS * error
                assert 0 < error < 0.05 * (1 + abs(weighted))
                continue
            law = law_of_code(model, row, column)
            assert filled == law.argmax()
            assert error < 0.02
            share = (found.draws[number, :, column] == filled).mean()
            assert abs(share - float(law.max())) < 5 * (0.25 / 400) ** 0.5
            rounded.append(int((law * torch.arange(len(law))).sum().round()) == filled)
    assert not all(rounded)  # a planted fault: averages of codes
    model, x = build()
    for row, mean in zip(x, exact(model, x), strict=True):
        # another: draws of the posterior without weights, as a plain reconstruction makes them
        estimate, error = mean_of(model, row, 20_000, tamper=torch.zeros_like)
        assert float(((estimate - mean).abs() / error).max()) > ERRORS


@torch.no_grad()
def mean_of(model, row, num_samples, *, tamper=lambda log_weights: log_weights):
    """E[T(x) | observed entries] by weighted draws, and its standard error."""
    one = GappedRow(row[None], ~row[None].isnan(), 3)
    settings = ImputationSettings(num_samples=num_samples, num_rounds=2, num_fills=2)
    with model.importance_sampler(0.0) as sampler:
        proposals = Proposals(model, sampler, one, prior_draws(model, 0), settings, 5000)
        log_weights, _, expected = proposals.draw()
    return weighted_mean(tamper(log_weights), expected)[:2]


def chain_states(model, row, *, num_steps, num_candidates=3, forget=False):
    """Means of x at the states of 2000 chains with few candidates per step."""
    one = GappedRow(row[None], ~row[None].isnan(), 4)
    settings = ImputationSettings(num_samples=100, num_rounds=2, num_fills=2)
    with torch.no_grad(), model.importance_sampler(0.0) as sampler:
        proposals = Proposals(model, sampler, one, prior_draws(model, 0), settings, 10**5)
        proposals.draw()
        chains = IteratedResampling(proposals, num_chains=2000, num_candidates=num_candidates)
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
    if not layers:  # the planted fault: importance resampling of three, of which the state is none
        states = chain_states(model, x[0], num_steps=1, forget=True)
        with pytest.raises(AssertionError):
            check_mean(states.unflatten(0, (40, 50)).mean(1), expected[0])


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


def two_modes():
    """A column of two spikes, and a posterior that believes what it reads there and takes a gap for one of them."""
    torch.manual_seed(7)
    model = model_of(GaussianLikelihood((2,)), 2)
    with torch.no_grad():
        for parameter in model.posterior.parameters():
            parameter.zero_()
        for norm in model.posterior.norms:
            norm.scale.fill_(1)
        model.posterior.networks[0].output.weight[0, 0] = 60
        model.posterior.norms[0].running_mean.fill_(-30)
        model.prior.bias[0] = -0.5
        model.prior.bias[1] = 0.3
        model.decoder.network.output.weight.copy_(torch.tensor([[2.0, 0.0], [1.0, 0.5]]))
        model.decoder.network.output.bias.copy_(torch.tensor([-1.0, -0.5]))
        model.likelihood.log_scale[0] = -6
    return model.double().eval().discretized(), torch.tensor([[NAN, 0.4], [NAN, -1.5]], dtype=torch.float64)


@pytest.mark.parametrize("method", ["importance", "chains"])
def test_modes_between_which_no_proposal_goes_count_once(method):
    model, x = two_modes()
    z = all_states(2).double()
    with torch.no_grad():
        parameters, log_prior = model.parameters_of(z), -model.prior.compute_energy(z)
    log_joint = log_prior + model.likelihood.feature_log_prob(parameters, x[:, None])[..., 1]
    right = (torch.softmax(log_joint, 1) @ model.likelihood.mean(parameters)[:, 0]).detach().numpy()
    assert (abs(right) < 0.9).all()  # between the modes
    found = impute(model, x, settings=ImputationSettings(method=method))
    off = abs(found.filled[:, 0] - right)
    assert (off < ERRORS * found.std_error[:, 0]).all()
    assert (off < 0.25).all()
    assert (found.effective_samples > 50).all()
    # the planted fault: weights of a posterior that stays in one mode, which look healthy
    alone = impute(model, x, settings=ImputationSettings(num_rounds=1))
    assert (abs(alone.filled[:, 0] - right) > 100 * alone.std_error[:, 0]).all()
    assert (alone.effective_samples > 50).all()


def law_of_gaps(model, row):
    """Both gaps together, since their dependence is what a mean does not have."""
    pairs = torch.tensor([[0.0, 0.0], [0, 1], [1, 0], [1, 1]], dtype=torch.float64)
    completed = row.repeat(4, 1)
    completed[:, row.isnan()] = pairs
    parameters, log_prob = latent_nodes(model)
    log_px = [model.likelihood.log_prob(parameters, one.expand(len(parameters), -1)) for one in completed]
    return pairs, torch.softmax(torch.logsumexp(log_prob + torch.stack(log_px), 1).detach(), 0)


@pytest.mark.filterwarnings("ignore:.*have fewer than 10")
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
    assert np.min(effective, 0).max() < 1000  # one may be right by luck


@pytest.mark.filterwarnings("ignore:.*have fewer than 10")
def test_a_feature_that_never_varies_takes_no_effective_samples():
    model, x = build("gaussian")
    training = TRAINING["gaussian"].double()
    training[:, 3] = 1000 / 3  # sums of its squares round
    model.likelihood.initialize_(training)
    settings = ImputationSettings(method="chains", num_steps=25)
    known = x[:1].clone()
    known[:, 3] = 1000 / 3
    found, without = (impute(model, rows, settings=settings) for rows in (x[:1], known))
    assert found.filled[0, 3] == pytest.approx(1000 / 3)
    assert found.effective_samples == pytest.approx(without.effective_samples)


def test_an_example_is_filled_alike_whatever_the_others():
    model, x = build()
    settings = ImputationSettings(num_samples=300, num_rounds=2, num_draws=2)
    both = impute(model, x, settings=settings)
    second = impute(model, x[1:], settings=settings, numbers=[1])
    assert (both.filled[1] == second.filled[0]).all()
    assert (both.draws[1] == second.draws[0]).all()
    assert (both.filled != impute(model, x, settings=settings, seed=1).filled).any()
    mode = impute(model, x, settings=replace(settings, filling="mode")).filled
    mean = impute(model, x, settings=replace(settings, filling="mean")).filled
    assert ((mean > 0.5) == mode).all()
    ends = torch.tensor([[1.0, 0, 1, 1], [NAN] * 4], dtype=torch.float64)  # no gap, and nothing but gaps
    found = impute(model, ends, settings=settings)
    assert (found.filled[0] == ends[0].numpy()).all()
    assert (found.draws[0] == ends[0].numpy()).all()
    assert np.isnan(found.effective_samples[0])
    assert np.isfinite(found.filled[1]).all()
    again = impute(model, ends.nan_to_num(7), observed=~ends.isnan(), settings=settings)
    assert (again.filled == found.filled).all()


def test_few_effective_samples_are_said():
    model, x = build()
    for more, names in (
        ({"num_fills": 2}, "--num-samples 32.*num_samples=32"),
        ({"method": "chains", "num_steps": 1}, "--num-steps 4.*num_steps=4"),
    ):
        settings = ImputationSettings(num_samples=8, num_rounds=2, **more)
        with pytest.warns(UserWarning, match=rf"2 of 2 .*example 7.*{names}"):
            impute(model, x, numbers=[71, 72], settings=settings)


def test_tempered_weights_have_the_effective_samples_that_are_asked_for():
    torch.manual_seed(0)
    log_weights = 20 * torch.randn(200, dtype=torch.float64)
    for least in (5, 50):
        weights = torch.softmax(tempered(log_weights, least), 0)
        assert float(1 / weights.square().sum()) == pytest.approx(least, abs=0.01)
        assert (weights.argsort() == log_weights.argsort()).all()
    assert torch.equal(tempered(0.01 * log_weights, 50), 0.01 * log_weights)
    assert not tempered(log_weights, 1000).any()


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
