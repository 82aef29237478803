"""The public door: what x may be, and what is said where it is not."""

import pytest
import torch
from torch._subclasses import FakeTensorMode

from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    GaussianLikelihood,
    NegativeBinomialLikelihood,
)
from discrete_vae.likelihoods.base import Likelihood
from tests.refusals import refused_argument

BERNOULLI, GAUSSIAN = BernoulliLikelihood((2,)), GaussianLikelihood((2,))
CATEGORICAL, COUNTS = CategoricalLikelihood((2,), 3), NegativeBinomialLikelihood((2,))
SHARES = NegativeBinomialLikelihood((2,), zero_inflated=True, exposure="total")


@pytest.mark.parametrize(
    ("likelihood", "inside", "value"),
    [
        (BERNOULLI, 0.3, 255.0),
        (BERNOULLI, torch.nan, -0.5),
        (GAUSSIAN, -1e30, torch.inf),
        (CATEGORICAL, 2.0, 3.0),
        (CATEGORICAL, 0.0, 0.5),
        (COUNTS, 1e6, -1.0),
        (COUNTS, 0.0, 1.5),
        (COUNTS, 0.0, torch.inf),
    ],
)
def test_values_outside_of_the_domain_are_named(likelihood, inside, value):
    for dtype in (torch.float32, torch.float64):
        right = torch.tensor([[0.0, inside]], dtype=dtype)
        assert likelihood.check(right) is right
    x = torch.tensor([[0.0, 1.0], [torch.nan, value]])
    with pytest.raises(InvalidInputError, match=f"^x .*{value:g}"):
        likelihood.check(x)
    hidden = torch.tensor([[True, True], [False, False]])
    assert likelihood.check(x, hidden) is x


SOFT, NAN = torch.tensor([[0.0, 0.25]]), torch.tensor([[torch.nan, 0.0]])
REFUSED = [
    ("x", lambda: BERNOULLI.check(SOFT, exact=True)),
    ("x", lambda: GAUSSIAN.check(NAN, torch.ones(1, 2, dtype=torch.bool))),
    ("x", lambda: COUNTS.check(torch.zeros(3, 2, dtype=torch.int64))),
    ("x", lambda: COUNTS.check(torch.zeros(3, 4))),
    ("x", lambda: COUNTS.check(torch.zeros(2))),
    ("observed", lambda: COUNTS.check(torch.zeros(3, 2), torch.ones(3, 2))),
    ("observed", lambda: COUNTS.check(torch.zeros(3, 2), torch.ones(2, dtype=torch.bool))),
    ("observed", lambda: COUNTS.check(torch.zeros(3, 2), [[True]])),
    # one row is not repeated without a word
    ("parameters", lambda: CATEGORICAL.log_prob(torch.zeros(1, 6), torch.zeros(3, 2))),
    ("parameters", lambda: CATEGORICAL.mean(torch.zeros(1, 2))),
    ("event_shape", lambda: GaussianLikelihood(())),
    ("event_shape", lambda: GaussianLikelihood(4)),
    ("event_shape[1]", lambda: GaussianLikelihood((2, 0))),
    ("num_categories", lambda: CategoricalLikelihood((3,), 1)),
    *(
        ("min_scale", lambda floor=floor: GaussianLikelihood((1,), min_scale=floor))
        for floor in (0.0, -1.0, 1.0, torch.nan)
    ),
]


@pytest.mark.parametrize(("argument", "call"), REFUSED)
def test_refusals(argument, call):
    assert BERNOULLI.check(SOFT) is SOFT
    assert refused_argument(call) == argument


def test_no_value_is_read_where_that_would_wait():
    outside = torch.full((1, 2), 9.0)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(outside)
        assert BERNOULLI.check(fake) is fake
        assert Likelihood.observed_mask(fake).shape == (1, 2)
    compiled = torch.compile(BERNOULLI.check, backend="eager", fullgraph=True)
    assert torch.equal(compiled(outside), outside)


@pytest.mark.parametrize("likelihood", [BERNOULLI, GAUSSIAN, CATEGORICAL, COUNTS, SHARES])
def test_nothing_behind_the_door_reads_values(likelihood):
    """Fake tensors have no values: what would wait for an accelerator raises here; nor does a graph break."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        x, parameters = torch.ones(5, 2), torch.ones(3, 5, *likelihood.parameter_shape)
        observed = likelihood.observed_mask(likelihood.check(x))
        assert likelihood.network_input(x, observed).shape == (5, *likelihood.input_shape)
        assert likelihood.log_prob(parameters, x, observed).shape == (3, 5)
        for draw in (likelihood.sample, likelihood.mean, likelihood.mode):
            assert draw(parameters).shape == (3, 5, 2)
    x = torch.tensor([[0.0, torch.nan]])
    parameters, observed = torch.randn(4, 1, *likelihood.parameter_shape), ~x.isnan()
    compiled = torch.compile(likelihood.log_prob, backend="eager", fullgraph=True)
    assert torch.equal(compiled(parameters, x, observed), likelihood.log_prob(parameters, x, observed))


def test_observed_mask():
    x, whole = torch.tensor([[1.0, torch.nan]]), torch.ones(1, 2)
    mine = torch.tensor([[False, True]])
    assert Likelihood.observed_mask(x, mine) is mine
    assert Likelihood.observed_mask(x).tolist() == [[True, False]]
    assert Likelihood.observed_mask(whole) is None
    assert Likelihood.observed_mask(whole, missing=True).tolist() == [[True, True]]
    assert Likelihood.observed_mask(x, missing=False) is None
