"""Unobserved entries are marginalized exactly: against the sum over all that they may be."""

import copy
from itertools import product

import pytest
import torch

from discrete_vae import RBM, BernoulliLikelihood, DiscreteVAE, HierarchicalPosterior, SpikeExponential
from discrete_vae.errors import InvalidInputError
from discrete_vae.objectives.gradients import Reparameterized
from discrete_vae.testing import enumerate_machine
from tests.models import small_config, small_model
from tests.oracles.quadrature import joint_nodes
from tests.refusals import refused_argument

NAN = float("nan")
X = torch.tensor([[1, NAN, 1, 1], [0, 0, NAN, NAN], [1, 1, 0, 0], [NAN] * 4], dtype=torch.float64)
OBSERVED = ~X.isnan()


@pytest.fixture
def model():
    torch.manual_seed(2)
    prior = RBM(1, 1)
    made = DiscreteVAE(
        prior=prior,
        posterior=HierarchicalPosterior(8, [[0], [1]], (3,), SpikeExponential(beta=2.0)),
        likelihood=BernoulliLikelihood((4,)),
        missing=True,
    ).double()
    made.initialize_(X)
    with torch.no_grad():
        for parameter in [*prior.parameters(), *made.decoder.parameters()]:
            parameter.normal_()
    return made.eval()


def completions(row):
    """All bits that agree with the observed ones."""
    gaps = row.isnan().nonzero().flatten()
    rows = row.repeat(2 ** len(gaps), 1)
    bits = torch.tensor(list(product([0.0, 1.0], repeat=len(gaps))), dtype=row.dtype)
    rows[:, gaps] = bits.reshape(len(rows), -1)
    return rows


def summed(model, row, zeta):
    """log of the sum over completions of p(x | zeta), at each row of zeta."""
    parameters = model.decoder(zeta)
    terms = [model.likelihood.log_prob(parameters, x.expand(len(zeta), -1)) for x in completions(row)]
    return torch.logsumexp(torch.stack(terms), 0)


def test_the_reconstruction_is_the_sum_over_completions(model):
    elbo = model.elbo(X, generator=torch.Generator().manual_seed(1))
    features = model.read(X.nan_to_num(0.5), OBSERVED)
    zeta = model.posterior.rsample(features, generator=torch.Generator().manual_seed(1)).zeta
    expected = torch.cat([summed(model, row, zeta[i : i + 1]) for i, row in enumerate(X)])
    torch.testing.assert_close(elbo.reconstruction, expected)
    assert elbo.reconstruction[3].item() == 0


def test_the_log_likelihood_is_that_of_the_observed_entries(model):
    nodes = joint_nodes(model.smoothing, 2, 20)
    machine = enumerate_machine(model.prior)
    joint = nodes.weight.log() + machine.log_prob[(nodes.z.long() * torch.tensor([1, 2])).sum(-1)]
    with torch.no_grad():
        exact = torch.stack([torch.logsumexp(joint + summed(model, row, nodes.zeta), 0) for row in X])
    found = model.log_likelihood(X, 20_000, generator=seeded(), chunk_size=5000)
    assert float(found.std_error.max()) < 0.05
    assert bool(((found.value - exact).abs() < 5.5 * found.std_error + 1e-6).all())  # alpha 1e-6
    # the planted fault: gaps taken for zeros
    filled = model.log_likelihood(X.nan_to_num(0.0), 20_000, generator=seeded(), chunk_size=5000)
    wrong = (filled.value - exact).abs() > 5.5 * filled.std_error + 1e-6
    assert wrong.tolist() == [True, True, False, True]


def started(model, x, observed):
    """The bias of the decoder's output after a start from the data."""
    twin = copy.deepcopy(model)
    twin.initialize_(x, observed)
    return twin.decoder.network.output.bias


def test_nan_and_a_mask_mean_the_same(model):
    with_classes = small_model(4, units=(3, 3), num_classes=2, missing=True).double().eval()
    estimator = Reparameterized.of(model)
    calls = {
        "elbo": lambda x, observed: model.elbo(x, observed=observed, generator=seeded()).value,
        "log_likelihood": lambda x, observed: (
            model.log_likelihood(x, 9, observed=observed, generator=seeded()).value
        ),
        "encode": lambda x, observed: model.encode(x, observed=observed, generator=seeded()).zeta,
        "reconstruct": lambda x, observed: model.reconstruct(x, observed=observed, generator=seeded()),
        "predict": lambda x, observed: (
            with_classes.predict(x, 9, observed=observed, generator=seeded()).value
        ),
        "estimate_gradient": lambda x, observed: (
            model.estimate_gradient(estimator, x, observed=observed, generator=seeded()).loss
        ),
        "initialize_": lambda x, observed: started(model, x, observed),
    }
    for call in calls.values():
        expected = call(X, None)
        assert bool(expected.isfinite().all())
        for fill in (0.0, 1.0, 77.0, NAN):
            assert torch.equal(call(X.masked_fill(~OBSERVED, fill), OBSERVED), expected)


def seeded():
    return torch.Generator().manual_seed(0)


def test_gradients_are_finite_and_reach_everything(model):
    model.train()
    model.elbo(X).loss.backward()
    for name, parameter in model.named_parameters():
        assert bool(parameter.grad.isfinite().all()), name


def test_codes_with_gaps():
    model = small_model(3, missing=True, likelihood={"kind": "categorical", "num_categories": 4})
    x = torch.tensor([[0.0, 3.0, NAN], [1.0, NAN, 2.0], [2.0, 2.0, 2.0]])
    model.initialize_(x)
    model.elbo(x).loss.backward()
    assert model.reconstruct(x).shape == (3, 3)


def test_a_model_without_missing_entries_refuses_them():
    model = small_model(4)
    for call in (lambda: model.elbo(X), lambda: model.elbo(X.nan_to_num(0.0), observed=OBSERVED)):
        assert refused_argument(call) == "x"


@pytest.mark.parametrize("mask", ["gaps", "observed"])
def test_the_encoder_reads_the_values_then_the_mask(mask):
    config, seen = small_config(4, missing=True, mask=mask, units=(1, 1), hidden=()), []

    class Encoder(torch.nn.Module):
        def forward(self, x):
            seen.append(x)
            return x

    model = DiscreteVAE.from_config(config, encoder=Encoder()).eval()
    seen.clear()
    model.encode(X.float(), seed=0)
    model.encode(torch.ones(2, 4), seed=0)  # complete rows
    marked = X.isnan() if mask == "gaps" else OBSERVED
    assert torch.equal(seen[0], torch.cat([X.nan_to_num(0.5).float(), marked.float()], 1))
    assert torch.equal(seen[1][:, 4:], torch.full((2, 4), float(mask == "observed")))


def test_a_state_of_a_model_that_read_what_is_observed_is_refused(model):
    """Models had no such choice once, and their state said so by its version alone."""
    state = model.state_dict()
    state._metadata[""]["version"] = 1
    with pytest.raises(InvalidInputError, match="state_dict"):
        model.load_state_dict(state)
    model.mask = "observed"
    model.load_state_dict(state)
