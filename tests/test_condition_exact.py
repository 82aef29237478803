"""Small models of p(x | c) whose log p(x | c), bounds and every gradient are known by quadrature."""

import math

import numpy as np
import pytest
import torch

import discrete_vae as dv
from discrete_vae import RBM, DiscreteVAE, HierarchicalPosterior, SpikeExponential, exact_log_partition
from discrete_vae.config import (
    CategoryColumnConfig,
    CountColumnConfig,
    ExposureColumnConfig,
    RealColumnConfig,
)
from discrete_vae.hierarchy.base import Hierarchy
from discrete_vae.inference.impute import ImputationSettings, impute
from discrete_vae.likelihoods.base import BernoulliLikelihood
from discrete_vae.nets.condition import ConditionEmbedding
from discrete_vae.nets.mlp import MLPDecoder
from discrete_vae.objectives.gradients import DisARM, NaiveKL
from discrete_vae.testing import check_mean
from tests.exact_paths import STEPS, by_path, flat_gradient, randomize_norms
from tests.test_hierarchy_exact import BOUND, exact_log_likelihood, exact_terms, kl_of, posterior_grid

NUM_FEATURES = 4
X = torch.tensor([[1, 0, 1, 1], [0, 0, 1, 0], [1, 1, 0, 0], [0, 1, 1, 0]], dtype=torch.float64)
COLUMNS = (CategoryColumnConfig(name="batch", values=("A", "B")), RealColumnConfig(name="energy"))
NAN = torch.nan
C = torch.tensor([[0.0, 0.5], [1.0, -1.0], [NAN, 0.3], [1.0, NAN]], dtype=torch.float64)
# what is read of C before anything was learned: one-hot batches, energies; means of gaps
READ = torch.tensor([[1, 0, 0.5], [0, 1, -1], [0.5, 0.5, 0.3], [0, 1, 0]], dtype=torch.float64)
GAPS = torch.tensor([[0, 0], [0, 0], [1, 0], [0, 1]], dtype=torch.float64)

CASES = {
    "no layers": (None, 0, (), 14, 1),
    "no layers, networks": (None, 0, (3,), 60, 1),
    "one layer, networks": (dv.NoSharing, 1, (3,), 50, 50),
    "two layers, complete sharing": (dv.CompleteSharing, 2, (), 12, 14),
}


ONE_LAYER = (dv.NoSharing, 1, (), 12, 20)


def build(name):
    """A model in evaluation mode with every parameter and running statistic drawn at random."""
    kind, num_layers, hidden, *num_nodes = CASES.get(name, ONE_LAYER)
    torch.manual_seed(5)
    prior, embedding = RBM(1, 1), ConditionEmbedding(COLUMNS)
    num_features, num_latents = NUM_FEATURES + embedding.num_features, 2 + embedding.num_features
    hierarchy = None
    if kind is not None:
        of_prior = kind(num_latents, num_layers, 1, hidden=hidden, log_std_bound=BOUND)
        hierarchy = dv.GaussianHierarchy(num_features, of_prior, hidden, log_std_bound=BOUND)
    decoder_size = num_latents if hierarchy is None else hierarchy.decoder_size
    model = DiscreteVAE(
        prior=prior,
        posterior=HierarchicalPosterior(num_features, [[0], [1]], hidden, SpikeExponential(beta=2.0)),
        hierarchy=hierarchy,
        decoder=MLPDecoder(decoder_size, (NUM_FEATURES,), hidden),
        likelihood=BernoulliLikelihood((NUM_FEATURES,)),
        condition=embedding,
    ).double()
    with torch.no_grad():
        for part, scale in ((prior, 1.0), (model.decoder, 0.6), (model.hierarchy, 0.25), (embedding, 0.7)):
            for parameter in part.parameters():
                parameter.copy_(scale * torch.randn_like(parameter))
        if hierarchy is not None:
            for network in hierarchy.posterior:
                network.network.output.bias[1] += 0.5  # wide tails keep importance weights bounded
    randomize_norms(model, offsets=False)
    return model.eval(), num_nodes


def features_of(model):
    """e(c) of each row of C, written out."""
    return READ + GAPS @ model.condition.missing


def terms_of(model, num_nodes):
    """Means over X and C of reconstruction, KL of z and KL of h."""
    return exact_terms(model, num_nodes, X, features_of(model))


def expected(model, num_nodes):
    terms = terms_of(model, num_nodes)
    return torch.cat([terms.detach(), flat_gradient(terms[0] - terms[1] - terms[2], model)])


def estimates(model, path):
    found = path.estimates(model, X.repeat(400, 1), 40, condition=C.repeat(400, 1))
    return torch.stack([torch.cat(each) for each in found])


@pytest.mark.parametrize(
    ("name", "path"), by_path(CASES, ["no layers, networks", "one layer, networks"], STEPS), ids=str
)
def test_elbo_and_every_gradient_are_unbiased(name, path):
    model, num_nodes = build(name)
    with path.taken(model) as computed:
        found = estimates(computed, path)
    check_mean(found, expected(model, num_nodes), resolution=0.03, rounding=path.rounding)


@pytest.mark.parametrize(
    ("name", "path"), by_path(CASES, ["no layers, networks", "two layers, complete sharing"]), ids=str
)
def test_bounds_lie_below_the_exact_log_likelihood_and_converge_to_it(name, path):
    model, num_nodes = build(name)
    exact = exact_log_likelihood(model, num_nodes, X, features_of(model))
    terms = terms_of(model, num_nodes).detach()
    assert float(terms[0] - terms[1] - terms[2]) < float(exact.mean())
    generator = torch.Generator().manual_seed(1)
    with path.taken(model) as computed:
        dtype = computed.prior.bias.dtype
        got = computed.log_likelihood(
            X.to(dtype), 40_000, condition=C.to(dtype), log_partition=exact_log_partition(model.prior),
            chunk_size=9001, generator=generator,
        )  # fmt: skip
    assert float(got.std_error.max()) < 0.05
    off = (got.value - exact).abs()
    assert bool((off < 5.5 * got.std_error + 1e-4 + 10 * path.rounding).all())  # alpha 1e-6


@pytest.mark.parametrize("name", ["no layers, networks", "two layers, complete sharing"])
def test_gaps_are_filled_given_c(name):
    model, num_nodes = build(name)
    gaps = torch.tensor([1, 3])
    bits = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    fillings = [X.index_copy(1, gaps, pair.expand(len(X), 2)) for pair in bits]
    of_c = features_of(model)
    weights = torch.stack([exact_log_likelihood(model, num_nodes, x, of_c) for x in fillings]).softmax(0)
    right = torch.einsum("fr,frc->rc", weights, torch.stack(fillings))[:, gaps]
    settings = ImputationSettings(filling="mean", num_samples=20_000, num_rounds=3, num_fills=2)

    def errors_apart(c):
        found = impute(model, X.index_fill(1, gaps, NAN), condition=c, settings=settings)
        apart = np.abs(found.filled[:, gaps] - right.numpy()) / found.std_error[:, gaps]
        assert float(found.std_error.max()) < 0.02
        return float(apart.max())

    assert errors_apart(C) < 5.5  # alpha 1e-6
    assert errors_apart(C.flip(0)) > 15  # the planted fault: c of other rows


def test_the_bound_of_two_samples_of_layers_and_its_gradient_are_unbiased():
    """E log (1/2) (w_1 + w_2) of two draws of h at each zeta, less the KL of z."""
    model, num_nodes = build("one layer")
    means = []
    for x, of_c in zip(X, features_of(model), strict=True):
        q, weight, log_px, of_h = posterior_grid(model, x, num_nodes, of_c)
        log_weights = log_px - of_h
        pairs = torch.logaddexp(log_weights[..., :, None], log_weights[..., None, :]) - math.log(2)
        means.append(q.expectation(pairs @ weight @ weight - kl_of(model, q)))
    value = torch.stack(means).mean()
    right = torch.cat([value.detach()[None], flat_gradient(value, model)])
    rows, generator = [], torch.Generator().manual_seed(0)
    given = {"condition": C.repeat(300, 1), "num_importance_samples": 2, "generator": generator}
    for _ in range(40):
        bound = model.elbo(X.repeat(300, 1), **given).value.mean()
        rows.append(torch.cat([bound.detach()[None], flat_gradient(bound, model)]))
    check_mean(torch.stack(rows), right, resolution=0.03)


def encoder_ignores(model, monkeypatch):
    monkeypatch.setattr(model, "read", lambda x, observed, c: torch.cat([x, torch.zeros(len(x), 3).to(x)], 1))


def decoder_ignores(model, monkeypatch):
    """Neither the layers' prior nor the decoder read c, though they have places for it."""
    monkeypatch.setattr(
        Hierarchy,
        "with_condition",
        lambda self, zeta, features: torch.cat([zeta, torch.zeros(*zeta.shape[:-1], 3).to(zeta)], -1),
    )


def no_vector_for_gaps(model, monkeypatch):
    right = ConditionEmbedding.forward
    monkeypatch.setattr(ConditionEmbedding, "forward", lambda self, c: right(self, c.nan_to_num(nan=0.0)))


@pytest.mark.parametrize("fault", [encoder_ignores, decoder_ignores, no_vector_for_gaps])
def test_planted_faults_are_rejected(fault, monkeypatch):
    model, num_nodes = build("no layers")
    right = terms_of(model, num_nodes).detach()[:2]
    fault(model, monkeypatch)
    with torch.no_grad():
        found = [model.elbo(X.repeat(400, 1), condition=C.repeat(400, 1)) for _ in range(40)]
    rows = [torch.stack([each.reconstruction.mean(), each.kl_discrete.mean()]) for each in found]
    with pytest.raises(AssertionError, match="standard errors apart"):
        check_mean(torch.stack(rows), right)


@pytest.mark.parametrize("estimator", [DisARM, NaiveKL])
def test_other_estimators_have_the_same_expectation(estimator):
    model, num_nodes = build("no layers")
    terms = terms_of(model, num_nodes)
    right = flat_gradient(terms[1] + terms[2] - terms[0], model)
    made, rows = estimator.of(model), []
    for _ in range(40):
        found = model.estimate_gradient(made, X.repeat(400, 1), condition=C.repeat(400, 1))
        rows.append(flat_gradient(found.loss, model))
    check_mean(torch.stack(rows), right, resolution=0.05)


def test_a_count_without_its_exposure_is_not_known():
    columns = (CountColumnConfig(name="visits", exposure_column="days"), ExposureColumnConfig(name="days"))
    embedding = ConditionEmbedding(columns)
    embedding.initialize_(torch.tensor([[2.0, 1.0], [5.0, 4.0], [1.0, 3.0]]))
    with torch.no_grad():
        embedding.missing.copy_(torch.arange(embedding.missing.numel()).reshape(embedding.missing.shape))
    one, other, none = embedding(torch.tensor([[2.0, NAN], [5.0, NAN], [NAN, NAN]]))
    assert one.isfinite().all()
    torch.testing.assert_close(one, none)
    torch.testing.assert_close(other, none)
    assert not torch.equal(embedding(torch.tensor([[2.0, 2.0]]))[0], one)
