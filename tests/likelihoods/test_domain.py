"""The public door: what x may be, and what is said where it is not."""

import pytest
import torch
from torch._subclasses import FakeTensorMode

from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.base import Likelihood
from discrete_vae.likelihoods.families import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    GaussianLikelihood,
    NegativeBinomialLikelihood,
)

BERNOULLI, GAUSSIAN = BernoulliLikelihood((2,)), GaussianLikelihood((2,))
CATEGORICAL, COUNTS = CategoricalLikelihood((2,), 3), NegativeBinomialLikelihood((2,))


@pytest.mark.parametrize(
    ("likelihood", "values"),
    [
        (BERNOULLI, [0.0, 0.3]),
        (GAUSSIAN, [-1e30, 2.5]),
        (CATEGORICAL, [0.0, 2.0]),
        (COUNTS, [0.0, 1e6]),
        (BERNOULLI, [torch.nan, 1.0]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_of_the_domain_pass(likelihood, values, dtype):
    x = torch.tensor([values], dtype=dtype)
    assert likelihood.check(x) is x


@pytest.mark.parametrize(
    ("likelihood", "value", "message"),
    [
        (BERNOULLI, 255.0, r"x must hold values in \[0, 1\]; received a value of 255. Divide 0..255"),
        (BERNOULLI, -0.5, r"x must hold values in \[0, 1\]; received a value of -0.5. Remove negative"),
        (GAUSSIAN, torch.inf, "x must hold finite values; received a value of inf. Remove infinite"),
        (CATEGORICAL, 3.0, "x must hold whole numbers from 0 to 2; received a value of 3. Number the"),
        (CATEGORICAL, 0.5, "received a value of 0.5"),
        (COUNTS, -1.0, "x must hold whole numbers of at least 0; received a value of -1. Give raw counts"),
        (COUNTS, 1.5, "received a value of 1.5"),
        (COUNTS, torch.inf, "received a value of inf"),
    ],
)
def test_values_outside_are_named(likelihood, value, message):
    x = torch.tensor([[0.0, 1.0], [torch.nan, value]])
    with pytest.raises(InvalidInputError, match=message):
        likelihood.check(x)
    hidden = torch.tensor([[True, True], [False, False]])
    assert likelihood.check(x, hidden) is x


def test_exact_values_of_bits():
    soft = torch.tensor([[0.0, 0.25]])
    BERNOULLI.check(soft)
    with pytest.raises(
        InvalidInputError, match="only the values 0 and 1; received a value of 0.25. Binarize"
    ):
        BERNOULLI.check(soft, exact=True)


def test_nan_that_was_declared_observed():
    with pytest.raises(InvalidInputError, match="x must hold no NaN where observed is True; received NaN"):
        GAUSSIAN.check(torch.tensor([[torch.nan, 0.0]]), torch.ones(1, 2, dtype=torch.bool))


@pytest.mark.parametrize(
    ("x", "observed", "message"),
    [
        (torch.zeros(3, 2, dtype=torch.int64), None, r"floating-point dtype; received torch.int64. .*x\.float\(\)"),
        (torch.zeros(3, 4), None, r"x must have shape \(batch, 2\)"),
        (torch.zeros(2), None, r"x must have shape \(batch, 2\)"),
        (torch.zeros(3, 2), torch.ones(3, 2), "observed must be a bool tensor of x's shape .* received torch.float32"),
        (torch.zeros(3, 2), torch.ones(2, dtype=torch.bool), r"observed must .* received torch.bool of shape \(2,\)"),
        (torch.zeros(3, 2), [[True]], "observed must be .* received a list"),
    ],
)  # fmt: skip
def test_shapes_and_dtypes(x, observed, message):
    with pytest.raises(InvalidInputError, match=message):
        COUNTS.check(x, observed)


def test_parameters_must_match_x():
    with pytest.raises(InvalidInputError, match=r"parameters must have shape \(\.\.\., 3, 6\)"):
        CATEGORICAL.log_prob(torch.zeros(1, 6), torch.zeros(3, 2))  # one row is not repeated without a word
    with pytest.raises(InvalidInputError, match=r"parameters must have shape \(\.\.\., 6\)"):
        CATEGORICAL.mean(torch.zeros(1, 2))


@pytest.mark.parametrize("event", [(), 4, (2, 0)])
def test_event_shape(event):
    with pytest.raises(InvalidInputError, match="event_shape"):
        GaussianLikelihood(event)


def test_no_value_is_read_where_that_would_wait():
    outside = torch.full((1, 2), 9.0)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(outside)
        assert BERNOULLI.check(fake) is fake
        assert Likelihood.observed_mask(fake).shape == (1, 2)
    compiled = torch.compile(BERNOULLI.check, backend="eager", fullgraph=True)
    assert torch.equal(compiled(outside), outside)


@pytest.mark.parametrize("likelihood", [BERNOULLI, GAUSSIAN, CATEGORICAL, COUNTS])
def test_nothing_behind_the_door_reads_values(likelihood):
    """Fake tensors have no values: what would wait for an accelerator raises here."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        x, parameters = torch.ones(5, 2), torch.ones(3, 5, *likelihood.parameter_shape)
        observed = likelihood.observed_mask(likelihood.check(x))
        assert likelihood.network_input(x, observed).shape == (5, *likelihood.input_shape)
        assert likelihood.log_prob(parameters, x, observed).shape == (3, 5)
        for draw in (likelihood.sample, likelihood.mean, likelihood.mode):
            assert draw(parameters).shape == (3, 5, 2)


def test_log_prob_compiles_without_a_break():
    x = torch.tensor([[0.0, torch.nan]])
    observed = ~x.isnan()
    for likelihood in (BERNOULLI, CATEGORICAL, COUNTS, GAUSSIAN):
        compiled = torch.compile(likelihood.log_prob, backend="eager", fullgraph=True)
        parameters = torch.randn(4, 1, *likelihood.parameter_shape)
        assert torch.equal(compiled(parameters, x, observed), likelihood.log_prob(parameters, x, observed))


def test_observed_mask():
    x, whole = torch.tensor([[1.0, torch.nan]]), torch.ones(1, 2)
    mine = torch.tensor([[False, True]])
    assert Likelihood.observed_mask(x, mine) is mine
    assert Likelihood.observed_mask(x).tolist() == [[True, False]]
    assert Likelihood.observed_mask(whole) is None
    assert Likelihood.observed_mask(whole, missing=True).tolist() == [[True, True]]
    assert Likelihood.observed_mask(x, missing=False) is None
