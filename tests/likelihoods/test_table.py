"""Columns of different kinds: each kind obeys the laws of a likelihood, and a table is the product of its columns."""

import copy
import re

import numpy as np
import pytest
import torch
from scipy.stats import nbinom

from discrete_vae import DiscreteVAE, exact_log_partition
from discrete_vae.config import (
    BinaryColumnConfig,
    CategoryColumnConfig,
    ConstantColumnConfig,
    CountColumnConfig,
    ExposureColumnConfig,
    ModelConfig,
    OrdinalColumnConfig,
    RealColumnConfig,
    TableLikelihoodConfig,
    instantiate,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.latents import flip_effects
from discrete_vae.inference import ImputationSettings, denoise_rows, impute, reconstruct_rows
from discrete_vae.likelihoods import CategoricalLikelihood
from discrete_vae.likelihoods.table import OrdinalLikelihood, RealLikelihood, TableLikelihood
from discrete_vae.testing import all_states, check_mean
from discrete_vae.testing import likelihoods as contracts
from discrete_vae.testing.likelihoods import Support
from tests.models import small_config

COLUMNS = (
    BinaryColumnConfig(name="smokes"),
    RealColumnConfig(name="pressure"),
    CategoryColumnConfig(name="city", values=("a", "b", "c")),
    CountColumnConfig(name="visits"),
    OrdinalColumnConfig(name="pain", values=("none", "some", "much", "all")),
    RealColumnConfig(name="income", scale="log1p"),
    BinaryColumnConfig(name="sex", values=("f", "m")),
    CategoryColumnConfig(name="job", values=("a", "b", "c", "d", "e", "f", "g")),
    RealColumnConfig(name="debt", scale="asinh"),
    ConstantColumnConfig(name="country", values=("here",)),
)
NUMBER = len(COLUMNS)


def rows(number, seed=0):
    """Rows whose columns depend on one hidden number."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(number, generator=generator)

    def noisy(scale=1.0):
        return hidden + scale * torch.randn(number, generator=generator)

    def codes(size):
        return (size / 2 + noisy()).floor().clamp(0, size - 1)

    return torch.stack(
        [
            (noisy() > 0).float(),
            120 + 15 * noisy(),
            codes(3),
            torch.poisson((1 + 0.5 * noisy(0.3)).exp(), generator=generator),
            codes(4),
            (3 + noisy(0.5)).exp(),
            (noisy() > 0.5).float(),
            codes(7),
            (2 * noisy(0.5)).exp() - 1,
            torch.zeros(number),
        ],
        1,
    )


@pytest.fixture
def table():
    likelihood = TableLikelihood((NUMBER,), COLUMNS)
    likelihood.initialize_(rows(300))
    return likelihood


def test_statistics_know_their_columns_and_codes(table):
    x = rows(50)
    expected = [
        x[:, place] if code is None else (x[:, place] == code).float()
        for place, code in table.statistic_columns
    ]
    torch.testing.assert_close(table.statistics(x), torch.stack(expected, 1))
    assert len(expected) == table.statistic_shape[0]


def outputs(likelihood, number, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return 0.5 * torch.randn(number, *likelihood.parameter_shape, generator=generator)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [(CategoricalLikelihood, (4, 4, 4)), (OrdinalLikelihood, (2, 3, 5)), (OrdinalLikelihood, (6, 3))],
)
def test_codes_obey_the_laws_of_a_likelihood(kind, sizes):
    generator = torch.Generator().manual_seed(0)
    x = torch.stack([torch.randint(size, (200,), generator=generator) for size in sizes], 1).float()
    contracts.check_likelihood(kind((len(sizes),), sizes), x, Support.whole_numbers(max(sizes)))


def test_categories_of_different_numbers_leave_codes_out():
    likelihood = CategoricalLikelihood((3,), (2, 3, 4))
    x = torch.tensor([[0.0, 1.0, 3.0], [1.0, 2.0, 0.0], [1.0, 0.0, 2.0]])
    start = likelihood.initialize_(x)
    parameters = (start + outputs(likelihood, 3)).double()
    contracts.check_normalized(likelihood.double(), parameters, Support.whole_numbers(4))
    contracts.check_gradients(likelihood, parameters, x.double())
    contracts.check_sample_law(likelihood, parameters[0], Support.whole_numbers(4))
    assert (likelihood.distribution(parameters).probs[:, 0, 2:] == 0).all()
    beyond = torch.tensor([[2.0, 0.0, 0.0], [0.0, 3.0, 0.0]], dtype=torch.float64)  # codes of other features
    assert (likelihood.log_prob(parameters[:2], beyond) == -torch.inf).all()


@pytest.mark.parametrize(
    ("scale", "support"),
    [
        ("plain", Support.interval(-40, 40)),
        ("log1p", Support.interval(-1, 300, 200_001)),
        ("asinh", Support.interval(-600, 600, 200_001)),
    ],
)
def test_real_columns_have_the_density_of_their_own_scale(scale, support):
    x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 0.5])
    x = x if scale == "plain" else (0.5 * x).exp()
    contracts.check_likelihood(RealLikelihood((2,), scale=scale), x, support)


def test_a_table_is_the_product_of_its_columns(table):
    """Each column has the density that it has alone, whatever stands beside it and in which order."""
    x, parameters = rows(5, seed=3), outputs(table, 5)
    terms = table.feature_log_prob(parameters, x)
    assert torch.allclose(terms.sum(1), table.log_prob(parameters, x), atol=1e-4)
    assert torch.allclose(table.distribution(parameters).log_prob(x), terms, atol=1e-5)
    for place in range(NUMBER):
        observed = torch.arange(NUMBER).expand(5, -1) == place
        hidden = x.masked_fill(~observed, torch.nan)
        assert torch.allclose(table.log_prob(parameters, hidden, observed), terms[:, place], atol=1e-5)
    turned = [*reversed(range(NUMBER))]
    other = TableLikelihood((NUMBER,), [COLUMNS[place] for place in turned])
    start, begun = table.initialize_(rows(300)), other.initialize_(rows(300)[:, turned])
    mine = table.feature_log_prob(start.expand(5, -1), x)
    others = other.feature_log_prob(begun.expand(5, -1), x[:, turned])
    assert torch.allclose(mine, others.flip(1), atol=1e-4)


def test_draws_have_the_means_of_the_columns(table):
    parameters = outputs(table, 1).expand(4000, -1)
    drawn = table.sample(parameters, generator=torch.Generator().manual_seed(4))
    light = [place for place in range(NUMBER) if place not in (5, 8)]  # heavy tails have no useful error
    batches = drawn[:, light].unflatten(0, (40, 100)).mean(1)
    check_mean(batches, table.mean(parameters)[0, light].detach())
    with pytest.raises(AssertionError):
        check_mean(batches, table.mode(parameters)[0, light].detach())


def test_draws_of_the_distribution_are_those_of_the_table():
    table = TableLikelihood((2,), [COLUMNS[2], COLUMNS[1]])  # codes before numbers
    table.initialize_(rows(300)[:, [2, 1]])
    parameters = outputs(table, 1)
    drawn = table.distribution(parameters).sample((4000,))[:, 0, 1:]
    check_mean(drawn.unflatten(0, (40, 100)).mean(1), table.mean(parameters)[0, 1:].detach())
    assert bool((drawn % 1 != 0).any())


def test_a_constant_column_adds_nothing_whatever_its_scale():
    law = RealLikelihood((1,), scale="log1p")
    parameters = law.initialize_(torch.full((50, 1), 999.0))
    found = law.log_prob(parameters.expand(2, -1), torch.tensor([[999.0], [9.0]]))
    assert found.tolist() == [0.0, 0.0]


def test_whatever_the_logarithm_the_value_is_in_the_domain():
    law = RealLikelihood((1,), scale="log1p")
    assert law.domain().contains(law.tails.invert(torch.tensor([-1e3, -20.0, -14.0, 1e3]))).all()


def made(columns, x):
    """A model of a table, with missing entries."""
    parts = {"likelihood": TableLikelihoodConfig(columns=columns), "missing": True}
    config = small_config(len(columns), units=(3, 3), groups=2, hidden=(8,), **parts)
    model = DiscreteVAE.from_config(ModelConfig.from_json(config.model_dump_json()))
    model.initialize_(x)
    with torch.no_grad():
        for parameter in model.prior.parameters():
            parameter.normal_(0, 0.5)
        for parameter in model.decoder.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return made(COLUMNS, rows(300))


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda _: TableLikelihood((3,), COLUMNS), "columns"),
        (lambda _: TableLikelihood((4,), EXPOSED[:4]), "'days'"),
        (lambda _: TableLikelihood((2,), EXPOSED[1:2] + EXPOSED[4:]), "'days'"),
        (lambda _: CategoricalLikelihood((2,), (2, 1)), "num_categories"),
        (lambda _: CategoricalLikelihood((2,), (2, 3, 4)), "num_categories"),
        (lambda _: CategoricalLikelihood((2, 1), (2, 3)), "num_categories"),
        (lambda _: instantiate(TableLikelihoodConfig(columns=COLUMNS), event_shape=(2,)), "columns"),
        (lambda _: TableLikelihoodConfig(columns=()), "TableLikelihoodConfig.columns"),
        (lambda _: OrdinalColumnConfig(values=("low", "high")), "OrdinalColumnConfig.values"),
        (lambda m: impute(m, rows(3), settings=ImputationSettings(filling="mean")), "filling"),
        (lambda m: impute(m, rows(3), settings=ImputationSettings(filling="mode")), "filling"),
        (lambda m: denoise_rows(m, rows(3), noise=0.1), "noise"),
    ],
)
def test_what_does_not_fit_is_named(model, make, argument):
    with pytest.raises(InvalidInputError, match=re.escape(argument)):
        make(model)


@pytest.mark.parametrize(
    ("place", "value"), [(0, 2.0), (2, 3.0), (3, -1.0), (4, 4.0), (5, -2.0), (8, torch.inf)]
)
def test_values_of_another_kind_are_refused(model, place, value):
    x = rows(2)
    x[1, place] = value
    with pytest.raises(InvalidInputError, match="^x must"):
        model.elbo(x)


def test_several_reconstructions_are_averaged_by_probabilities(model):
    """An average of codes is no value: a table comes back with codes that its columns have."""
    x = rows(6, seed=7)
    many = reconstruct_rows(model, x, num_draws=5)
    for place, column in enumerate(COLUMNS):
        if not isinstance(column, RealColumnConfig | CountColumnConfig):
            assert set(many[:, place]) <= set(range(len(column.values)))
    clean = denoise_rows(model, x, num_draws=5)
    assert set(clean[:, 2]) <= {0.0, 1.0, 2.0}


def test_flips_change_the_probabilities_of_words_as_they_change_the_mean_code(model):
    columns = model.likelihood.statistic_columns
    of_statistics = flip_effects(model, rows(30), statistics=True).change
    of_means = flip_effects(model, rows(30), statistics=False).change
    for column in (2, 4, 7):
        own = [(place, code) for place, (each, code) in enumerate(columns) if each == column]
        change = of_statistics[:, [place for place, _ in own]]
        assert float(change.abs().max()) > 0.01
        torch.testing.assert_close(change.sum(1), torch.zeros(6, dtype=torch.float64), atol=1e-6, rtol=0)
        of_code = change @ torch.tensor([code for _, code in own], dtype=torch.float64)
        torch.testing.assert_close(of_code, of_means[:, column], atol=1e-5, rtol=0)


SHARES = (
    CountColumnConfig(name="reads", exposure="total"),
    RealColumnConfig(name="pressure"),
    CountColumnConfig(name="visits"),
    CountColumnConfig(name="more reads", exposure="total"),
    CountColumnConfig(name="drops", zero_inflated=True),
)


def of_shares(number):
    x = rows(number)[:, [3, 1, 3, 3, 3]]
    x[:, 0], x[:, 3] = 3 * x[:, 0] + 1, 2 * x[:, 3].flip(0)
    return x


def test_counts_have_the_exposure_of_their_own_columns():
    """The total is that of the columns that say so; the law of each group is that which it has alone."""
    x, table = of_shares(300), TableLikelihood((5,), SHARES)
    assert [kind.num_features for kind in table.kinds] == [2, 1, 1, 1]
    assert table.initialize_(x).shape == table.parameter_shape == (6,)
    parameters, few = outputs(table, 4), x[:4].clone()
    few[1, 0], few[2] = torch.nan, torch.nan
    own, places = table.kinds[0], torch.tensor([0, 3])
    others = torch.tensor([True, False, False, True, False]).expand_as(few)
    got = table.log_prob(parameters, few, others & ~few.isnan())
    want = own.log_prob(parameters[:, :2], few[:, places], ~few[:, places].isnan())
    torch.testing.assert_close(got, want)
    assert got[2] == 0
    assert not TableLikelihood((NUMBER,), COLUMNS).has_exposure


# Counts whose exposure is a column.

EXPOSED = (
    CountColumnConfig(name="visits", exposure_column="days"),
    RealColumnConfig(name="age"),
    CountColumnConfig(name="falls", exposure_column="days", zero_inflated=True),
    CountColumnConfig(name="calls", exposure_column="days"),
    ExposureColumnConfig(name="days"),
)


def exposed_rows(number, seed=0):
    """Counts at rates 2 and 0.5 per unit, zero-inflated ones at 1, over exposures from 0.2 to 12."""
    generator = torch.Generator().manual_seed(seed)
    days = (0.2 + 11.8 * torch.rand(number, generator=generator)).round(decimals=2)
    visits, falls, calls = (torch.poisson(rate * days, generator=generator) for rate in (2.0, 1.0, 0.5))
    falls[torch.rand(number, generator=generator) < 0.4] = 0
    return torch.stack([visits, torch.randn(number, generator=generator), falls, calls, days], 1)


@pytest.mark.parametrize(("columns", "make"), [(COLUMNS, rows), (SHARES, of_shares), (EXPOSED, exposed_rows)])
def test_a_table_is_a_module_as_every_likelihood(columns, make):
    table, x = TableLikelihood((len(columns),), columns), make(300)
    contracts.check_initialization(copy.deepcopy(table), x)
    table.initialize_(x)
    parameters = outputs(table, 4)
    contracts.check_interface(table, parameters, x[:4])
    contracts.check_extremes(table, x[:4])
    wide = copy.deepcopy(table).double()
    contracts.check_gradients(wide, parameters.double(), x[:4].double())
    if columns is not COLUMNS:
        contracts.check_exposure(wide, parameters.double(), x[:4].double())


@pytest.fixture
def exposed():
    likelihood = TableLikelihood((5,), EXPOSED)
    likelihood.start = likelihood.initialize_(exposed_rows(4000)).detach()
    return likelihood


def count_law(likelihood, parameters, days):
    """log p(count) of the columns visits and calls by SciPy, a function of the count; (column, row) laws."""
    own = likelihood.kinds[1]
    mean = (own.log_start + parameters[:, 1:3]).exp() * (days / likelihood.kinds[0].reference)[:, None]
    size = own.log_size.exp().double().detach().numpy()
    mean = mean.double().detach().numpy()
    return lambda x: nbinom.logpmf(x, size, size / (size + mean))


def test_an_exposure_multiplies_means_and_has_no_density(exposed):
    """Against the negative binomial of SciPy, at each exposure summing to 1 over the counts."""
    x, parameters = exposed_rows(6, seed=1), outputs(exposed, 6)
    assert exposed.kinds[1].num_features == 2
    law = count_law(exposed, parameters, x[:, 4])
    terms = exposed.feature_log_prob(exposed.at_exposure(parameters, x), x)
    np.testing.assert_allclose(terms[:, [0, 3]].detach(), law(x[:, [0, 3]].numpy()), rtol=1e-4)
    assert not terms[:, 4].any()
    torch.testing.assert_close(exposed.log_prob(parameters, x), terms.sum(1))
    counts = torch.arange(4000.0)
    for column in (0, 2, 3):
        every = x[:1].repeat(len(counts), 1)
        every[:, column] = counts
        seen = torch.zeros_like(every, dtype=torch.bool)
        seen[:, [column, 4]] = True
        with torch.no_grad():
            total = exposed.log_prob(parameters[:1].expand(len(counts), -1), every, seen).exp().sum()
        assert float(total) == pytest.approx(1, abs=1e-4)


def test_rates_are_those_of_the_data_and_a_shuffled_exposure_is_worse(exposed):
    """Of Poisson counts the rate of highest likelihood is sum x / sum e; the reference is the median exposure."""
    x = exposed_rows(4000)
    rates = x[:, [0, 3]].sum(0) / x[:, 4].sum()
    reference = x[:, 4].median()
    torch.testing.assert_close(exposed.kinds[1].log_start.exp(), rates * reference)
    start = exposed.start.expand(len(x), -1)
    drawn = exposed.sample(start[:1])
    assert drawn[0, 4] == reference
    right = exposed.log_prob(start, x)
    poisson = torch.distributions.Poisson(rates * x[:, 4:]).log_prob(x[:, [0, 3]]).mean(0)
    terms = exposed.feature_log_prob(exposed.at_exposure(start, x), x)[:, [0, 3]].mean(0)
    torch.testing.assert_close(terms, poisson, atol=2e-3, rtol=0)
    shuffled = x.clone()
    shuffled[:, 4] = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(2)), 4]
    assert exposed.log_prob(start, shuffled).mean() < right.mean() - 1


def test_a_model_given_the_exposure_against_enumeration():
    torch.manual_seed(0)
    model = made(EXPOSED, exposed_rows(300))
    sharp, x = model.discretized(), exposed_rows(4, seed=5)
    x[:, 1:3] = torch.nan
    states, log_z = all_states(6).float(), exact_log_partition(model.prior).value
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        parameters, log_prior = sharp.parameters_of(states), -sharp.prior.compute_energy(states) - log_z
        exact = []
        for row in x:
            law = count_law(model.likelihood, parameters, row[4].expand(64))
            exact.append((torch.from_numpy(law(row[[0, 3]].numpy())).sum(1) + log_prior).logsumexp(0))
        found = sharp.log_likelihood(x, num_samples=20_000, log_partition=log_z, generator=generator)
        elbo = torch.stack(
            [sharp.elbo(x, log_partition=log_z, generator=generator).value for _ in range(100)]
        )
    assert (found.value - torch.stack(exact)).abs().max() < 0.05
    assert (elbo.mean(0) <= torch.stack(exact) + 5 * elbo.std(0) / 100**0.5).all()
    back = model.reconstruct(x.nan_to_num(1.0), seed=0)
    assert torch.equal(back[:, 4], x[:, 4])
    for wrong, seen in ((torch.nan, None), (0.0, None), (1.0, False)):
        bad = x.nan_to_num(1.0)
        bad[1, 4], observed = wrong, torch.ones_like(bad, dtype=torch.bool)
        observed[1, 4] = False
        with pytest.raises(InvalidInputError, match="^x must"):
            model.elbo(bad, observed=None if seen is None else observed)
