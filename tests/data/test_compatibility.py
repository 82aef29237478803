"""Which likelihood reads which data, and what is said where it does not."""

import numpy as np
import pytest
import torch

from discrete_vae.checks import ValueSummary
from discrete_vae.config import (
    BernoulliLikelihoodConfig,
    CategoricalLikelihoodConfig,
    GaussianLikelihoodConfig,
    LikelihoodConfig,
    ModelConfig,
    NegativeBinomialLikelihoodConfig,
    instantiate,
    members,
)
from discrete_vae.data.compatibility import check_compatible, likelihood_for
from discrete_vae.data.rows import load_file
from discrete_vae.errors import InvalidInputError

PROBE = torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 300.0, torch.inf, -torch.inf, torch.nan])


def data(tmp_path, array, **settings):
    np.save(tmp_path / "mine.npy", array)
    return load_file(path=tmp_path / "mine.npy", **settings)


def model(likelihood, **settings):
    return ModelConfig(num_features=3, likelihood=likelihood, **settings)


@pytest.mark.parametrize("member", members(LikelihoodConfig))
@pytest.mark.parametrize("exact", [False, True])
def test_a_config_knows_the_domain_of_what_it_builds(member, exact):
    config = member()
    built = instantiate(config, event_shape=(1,)).domain(exact=exact)
    assert torch.equal(config.domain(exact=exact).contains(PROBE), built.contains(PROBE))
    for value in PROBE[:-1].tolist():
        summary = ValueSummary(value, value, whole=value == value // 1)
        assert config.domain(exact=exact).holds(summary) == bool(built.contains(torch.tensor(value)))


REAL = np.linspace(-3.1, 7.2, 60).reshape(20, 3)
COUNTS = np.arange(600.0).reshape(200, 3)
CODES = COUNTS % 5
UNIT = REAL / 11 + 0.3
BITS = CODES % 2


@pytest.mark.parametrize(
    ("array", "readers"),
    [
        (REAL, {"gaussian"}),
        (COUNTS, {"gaussian", "negative-binomial"}),
        (CODES, {"gaussian", "negative-binomial", "categorical"}),
        (UNIT, {"gaussian", "bernoulli"}),
        (BITS, {"gaussian", "negative-binomial", "categorical", "bernoulli"}),
    ],
    ids=["real", "counts", "codes", "unit", "bits"],
)
def test_the_likelihoods_that_can_read_data_are_named_where_one_cannot(tmp_path, array, readers):
    dataset = data(tmp_path, array)
    for kind in ("bernoulli", "gaussian", "categorical", "negative-binomial"):
        if kind in readers:
            assert likelihood_for(kind, dataset).kind == kind
            continue
        with pytest.raises(InvalidInputError) as caught:
            likelihood_for(kind, dataset)
        message = str(caught.value)
        named = message.partition("; received ")[2].partition(" can read them")[0]
        assert {
            word for word in ("bernoulli", "gaussian", "categorical", "negative-binomial") if word in named
        } == readers
        assert all(f"{other} needs " in message for other in {"bernoulli", "categorical"} - readers - {kind})


def test_the_message_for_real_values(tmp_path):
    with pytest.raises(InvalidInputError) as caught:
        likelihood_for("bernoulli", data(tmp_path, REAL))
    assert str(caught.value).startswith(
        "mine.npy, part 'train', must hold values in [0, 1] to be read by --model.likelihood bernoulli; received "
        "values from -3.1 to 7.2. gaussian can read them; categorical needs whole numbers from 0 to 255; "
        "negative-binomial needs whole numbers of at least 0."
    )


def test_unknown_likelihoods_are_refused(tmp_path):
    with pytest.raises(
        InvalidInputError, match="must be one of bernoulli, gaussian, categorical, negative-binomial"
    ):
        likelihood_for("poisson", data(tmp_path, BITS))


def test_the_number_of_categories_is_that_of_the_data(tmp_path):
    assert likelihood_for("categorical", data(tmp_path, CODES)).num_categories == 5
    assert likelihood_for("categorical", data(tmp_path, BITS)).num_categories == 2
    with pytest.raises(InvalidInputError, match="must hold whole numbers from 0 to 3"):
        check_compatible(model(CategoricalLikelihoodConfig(num_categories=4)), data(tmp_path, CODES))


def test_probabilities_need_bits_for_validation_and_test(tmp_path):
    with pytest.raises(InvalidInputError, match="part 'valid', .*--data.binarize true"):
        check_compatible(model(BernoulliLikelihoodConfig()), data(tmp_path, UNIT))
    check_compatible(model(BernoulliLikelihoodConfig()), data(tmp_path, UNIT, binarize=True))
    check_compatible(
        model(NegativeBinomialLikelihoodConfig()), data(tmp_path, UNIT, binarize=True)
    )  # bits are counts


def test_gaps_need_a_model_that_reads_them(tmp_path):
    real = model(GaussianLikelihoodConfig())
    gaps = REAL.copy()
    gaps[:, 1] = np.nan
    with pytest.raises(InvalidInputError, match=r"'train', .*received 16 of 48.*missing true"):
        check_compatible(real, data(tmp_path, gaps))
    check_compatible(real.model_copy(update={"missing": True}), data(tmp_path, gaps))
