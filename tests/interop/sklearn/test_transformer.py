import pickle
from copy import copy

import numpy as np
import pytest
import torch
from joblib import parallel_config
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score
from sklearn.model_selection import cross_val_score

from discrete_vae.interop.sklearn import DiscreteVAETransformer
from tests.refusals import refused_argument

KIND = np.random.default_rng(0).integers(0, 4, 400)
TINY = {"num_left": 3, "num_right": 3, "hidden": (8,), "num_epochs": 3, "random_state": 0}


def clustered_bits(num_features=24, flips=0.08, seed=1):
    random = np.random.default_rng(seed)
    prototypes = random.random((4, num_features)) < 0.5
    return (prototypes[KIND] ^ (random.random((len(KIND), num_features)) < flips)).astype(int)


ROWS = clustered_bits()


@pytest.fixture(scope="module")
def fitted():
    coder = DiscreteVAETransformer(num_left=4, num_right=4, hidden=(32,), num_epochs=120, random_state=0)
    return coder.fit(ROWS)


@pytest.fixture(scope="module")
def tiny():
    return DiscreteVAETransformer(**TINY).fit(ROWS)


def test_codes_are_bits_that_tell_the_clusters_and_give_the_rows_back_without_the_noise(fitted):
    codes, clean = fitted.transform(ROWS), clustered_bits(flips=0.0)
    assert codes.shape == (400, 8)
    assert set(np.unique(codes)) <= {0.0, 1.0}
    found = KMeans(4, n_init=10, random_state=0).fit_predict(codes)
    assert adjusted_mutual_info_score(KIND, found) > 0.9
    probabilities = pickle.loads(pickle.dumps(fitted)).set_params(output="probabilities").transform(ROWS)
    assert np.array_equal(probabilities > 0.5, codes == 1)
    assert bool(((probabilities > 0.001) & (probabilities < 0.999)).any())
    assert np.mean((fitted.inverse_transform(codes) > 0.5) == clean) > 0.97
    assert np.mean(clean == ROWS) < 0.94  # so that a copy of the rows would fail


def test_scores_are_the_models_log_likelihood(fitted):
    rows = ROWS[:20]
    wanted = fitted.model_.log_likelihood(
        torch.tensor(rows, dtype=torch.float64),
        2000,
        log_partition=fitted.log_partition_,
        generator=torch.Generator().manual_seed(0),
    )
    scores = fitted.score_samples(rows)
    assert np.abs(scores - wanted.value.numpy()).mean() < 0.3
    assert fitted.score(rows) == pytest.approx(scores.mean())
    strange = np.random.default_rng(0).integers(0, 2, (20, 24))
    assert fitted.score(strange) < fitted.score(rows) - 3


def test_scores_do_not_depend_on_the_rows_beside_them(tiny):
    rows = ROWS[:10]
    alone = np.concatenate([tiny.score_samples(row[None]) for row in rows])
    np.testing.assert_allclose(tiny.score_samples(rows), alone, rtol=1e-10)
    first, second = tiny.score_samples(np.repeat(rows[:1], 2, 0))
    assert first == second


def test_samples_resemble_the_rows_and_follow_the_seed(fitted):
    draws = fitted.sample(500, random_state=0)
    assert set(np.unique(draws)) == {0.0, 1.0}
    assert np.abs(draws.mean(0) - ROWS.mean(0)).mean() < 0.08
    assert np.array_equal(draws, fitted.sample(500, random_state=0))
    assert not np.array_equal(draws, fitted.sample(500, random_state=1))
    assert fitted.sample().shape == (1, 24)


def test_one_seed_gives_one_model_and_pickles_whole(tiny):
    again = clone(tiny).set_params(hidden=[np.int32(8)], num_left=np.int64(3)).fit(ROWS)
    for name, value in tiny.model_.state_dict().items():
        assert torch.equal(value, again.model_.state_dict()[name]), name
    state = np.random.RandomState(0)
    one, two = (clone(tiny).set_params(random_state=state).fit(ROWS[:50]) for _ in range(2))
    assert not torch.equal(one.model_.prior.bias, two.model_.prior.bias)
    loaded = pickle.loads(pickle.dumps(tiny))
    assert np.array_equal(loaded.score_samples(ROWS[:5]), tiny.score_samples(ROWS[:5]))
    assert np.array_equal(loaded.sample(3, random_state=0), tiny.sample(3, random_state=0))


@pytest.mark.parametrize(
    ("values", "given", "likelihood"),
    [
        (ROWS, {}, "bernoulli"),
        (ROWS * 0.5, {}, "gaussian"),
        (np.random.default_rng(0).poisson(5, (50, 3)), {}, "negative-binomial"),
        (np.random.default_rng(0).normal(size=(50, 3)), {}, "gaussian"),
        (np.random.default_rng(0).integers(0, 3, (60, 4)), {"likelihood": "categorical"}, "categorical"),
        (np.random.default_rng(0).random((60, 5)), {"likelihood": "bernoulli"}, "bernoulli"),
    ],
)
def test_values_tell_how_they_are_read(values, given, likelihood):
    coder = DiscreteVAETransformer(**TINY, **given).fit(values)
    assert coder.likelihood_ == likelihood == coder.model_.config.likelihood.kind
    drawn = coder.sample(4, random_state=0)
    assert drawn.shape == (4, values.shape[1])
    back = coder.inverse_transform(coder.transform(values))
    if likelihood == "categorical":
        assert {*np.unique(drawn), *np.unique(back)} <= {0.0, 1.0, 2.0}
    if "bernoulli" in given.values():  # probabilities of bits train, but have no likelihood
        assert refused_argument(coder.score_samples, values) == "X"
    else:
        assert np.isfinite(coder.score_samples(values[:5])).all()


def test_gaps_are_read_where_fit_saw_some(tiny):
    rows = ROWS.astype(float)
    gaps = np.where(np.random.default_rng(0).random(rows.shape) < 0.2, np.nan, rows)
    coder = clone(tiny).fit(gaps)
    assert coder.transform(gaps).shape == (400, 6)
    seen = coder.score_samples(np.where(np.arange(24) < 12, rows[:50], np.nan))
    assert seen.mean() > coder.score_samples(rows[:50]).mean() + 3  # half of the bits are more probable


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"num_left": 0}, "num_left"),
        ({"hidden": "200"}, "hidden"),
        ({"hidden": (0,)}, "hidden[0]"),
        ({"likelihood": "poisson"}, "likelihood"),
        ({"batch_size": 1}, "batch_size"),
        ({"num_epochs": 1.5}, "num_epochs"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"validation_fraction": 0.9}, "validation_fraction"),
        ({"random_state": "one"}, "random_state"),
        ({"verbose": "yes"}, "verbose"),
        ({"likelihood": "categorical"}, "X"),
        ({"output": "codes"}, "output"),
        ({"num_samples": 0}, "num_samples"),
        ({"log_partition_sweeps": 0}, "log_partition_sweeps"),
        ({"likelihood": "bernoulli", "contamination": 0.1, "validation_fraction": 0.1}, "contamination"),
    ],
)
def test_wrong_parameters_are_named(change, name):
    assert refused_argument(DiscreteVAETransformer(**(TINY | change)).fit, ROWS[:5] * 0.3) == name


@pytest.mark.parametrize(
    "call",
    [
        lambda coder: coder.transform(np.full((2, 24), 2.0)),
        lambda coder: coder.transform(np.where(ROWS, np.nan, ROWS)),  # no gaps in fit
        lambda coder: coder.score_samples(np.full((2, 24), 0.5)),
        lambda coder: coder.set_params(output="codes").transform(ROWS),
        lambda coder: coder.fit(np.zeros((2, 3))),
        lambda coder: coder.inverse_transform(np.zeros((2, 5))),
        lambda coder: coder.inverse_transform(np.zeros(6)),
        lambda coder: coder.inverse_transform(np.full((2, 6), 2.0)),
        lambda coder: coder.inverse_transform(np.full((2, 6), np.nan)),
        lambda coder: coder.inverse_transform("codes"),
    ],
)
def test_wrong_arrays_and_outputs_are_refused(tiny, call):
    with pytest.raises(ValueError):  # noqa: PT011 (scikit-learn's own for some)
        call(copy(tiny))


def test_scores_are_the_same_however_jobs_run():
    """Jobs of joblib have one thread each, and torch's sums are rounded otherwise with two."""
    coder = DiscreteVAETransformer(num_left=2, num_right=2, hidden=(4,), num_epochs=1, random_state=0)
    before, scores = torch.get_num_threads(), []
    try:
        for threads, backend in ((1, "sequential"), (2, "sequential"), (1, "threading")):
            torch.set_num_threads(threads)
            with parallel_config(backend, n_jobs=2):
                scores.append(cross_val_score(coder, ROWS[:100], cv=2))
    finally:
        torch.set_num_threads(before)
    assert np.isfinite(scores).all()
    assert all(np.array_equal(scores[0], other) for other in scores[1:])
