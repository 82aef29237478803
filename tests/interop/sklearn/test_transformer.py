import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from joblib import parallel_config
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from discrete_vae.errors import InvalidInputError
from discrete_vae.interop.sklearn import DiscreteVAETransformer
from discrete_vae.rng import key_to_seed

KIND = np.random.default_rng(0).integers(0, 4, 400)
TINY = {"num_left": 3, "num_right": 3, "hidden": (8,), "num_epochs": 3, "random_state": 0}


def clustered_bits(num_features=24, flips=0.08, seed=1):
    random = np.random.default_rng(seed)
    prototypes = random.random((4, num_features)) < 0.5
    return (prototypes[KIND] ^ (random.random((len(KIND), num_features)) < flips)).astype(int)


@pytest.fixture(scope="module")
def fitted():
    coder = DiscreteVAETransformer(num_left=4, num_right=4, hidden=(32,), num_epochs=120, random_state=0)
    return coder.fit(clustered_bits())


@pytest.fixture(scope="module")
def tiny():
    return DiscreteVAETransformer(**TINY).fit(clustered_bits())


def test_codes_are_bits_that_tell_the_clusters(fitted):
    codes = fitted.transform(clustered_bits())
    assert codes.shape == (400, 8)
    assert set(np.unique(codes)) <= {0.0, 1.0}
    found = KMeans(4, n_init=10, random_state=0).fit_predict(codes)
    assert adjusted_mutual_info_score(KIND, found) > 0.9


def test_codes_are_the_probabilities_above_a_half(fitted):
    other = pickle.loads(pickle.dumps(fitted)).set_params(output="probabilities")
    probabilities = other.transform(clustered_bits())
    assert np.array_equal(probabilities > 0.5, fitted.transform(clustered_bits()) == 1)
    assert bool(((probabilities > 0.001) & (probabilities < 0.999)).any())


def test_rows_come_back_from_their_codes_without_the_noise(fitted):
    rows, clean = clustered_bits(), clustered_bits(flips=0.0)
    back = fitted.inverse_transform(fitted.transform(rows))
    assert back.shape == rows.shape
    assert np.mean((back > 0.5) == clean) > 0.97
    assert np.mean(rows == clean) < 0.94  # so that a copy of the rows would fail


def test_scores_are_the_models_log_likelihood(fitted):
    rows = clustered_bits()[:20]
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
    rows = clustered_bits()[:10]
    alone = np.concatenate([tiny.score_samples(row[None]) for row in rows])
    np.testing.assert_allclose(tiny.score_samples(rows), alone, rtol=1e-10)
    first, second = tiny.score_samples(np.repeat(rows[:1], 2, 0))
    assert first == second


def test_samples_resemble_the_rows_and_follow_the_seed(fitted):
    draws = fitted.sample(500, random_state=0)
    assert set(np.unique(draws)) == {0.0, 1.0}
    assert np.abs(draws.mean(0) - clustered_bits().mean(0)).mean() < 0.08
    assert np.array_equal(draws, fitted.sample(500, random_state=0))
    assert not np.array_equal(draws, fitted.sample(500, random_state=1))
    assert fitted.sample().shape == (1, 24)


def test_one_seed_gives_one_model_and_pickles_whole(tiny):
    rows = clustered_bits()
    again = clone(tiny).fit(rows)
    for name, value in tiny.model_.state_dict().items():
        assert torch.equal(value, again.model_.state_dict()[name]), name
    other = clone(tiny).set_params(random_state=1).fit(rows)
    assert not torch.equal(other.model_.prior.bias, tiny.model_.prior.bias)
    loaded = pickle.loads(pickle.dumps(tiny))
    assert np.array_equal(loaded.score_samples(rows[:5]), tiny.score_samples(rows[:5]))
    assert np.array_equal(loaded.sample(3, random_state=0), tiny.sample(3, random_state=0))


def test_a_random_state_is_drawn_from_and_none_is_new_each_time(tiny):
    rows, state = clustered_bits(), np.random.RandomState(0)
    one, two = (clone(tiny).set_params(random_state=state).fit(rows) for _ in range(2))
    assert not torch.equal(one.model_.prior.bias, two.model_.prior.bias)


def test_data_frames_keep_their_index_and_get_names(tiny):
    frame = pd.DataFrame(clustered_bits(), columns=[f"gene {i}" for i in range(24)], index=np.arange(400) + 7)
    coder = clone(tiny).set_output(transform="pandas").fit(frame)
    codes = coder.transform(frame[:10])
    assert list(codes.columns) == [f"discretevaetransformer{i}" for i in range(6)]
    assert list(codes.columns) == list(coder.get_feature_names_out())
    assert list(codes.index) == list(range(7, 17))
    assert list(coder.feature_names_in_)[:2] == ["gene 0", "gene 1"]


@pytest.mark.parametrize(
    ("values", "likelihood"),
    [
        (clustered_bits(), "bernoulli"),
        (clustered_bits() * 0.5, "gaussian"),
        (np.random.default_rng(0).poisson(5, (50, 3)), "negative-binomial"),
        (np.random.default_rng(0).normal(size=(50, 3)), "gaussian"),
    ],
)
def test_values_tell_how_they_are_read(values, likelihood):
    coder = DiscreteVAETransformer(**TINY).fit(values)
    assert coder.likelihood_ == likelihood == coder.model_.config.likelihood.kind
    assert np.isfinite(coder.score_samples(values[:5])).all()
    assert coder.sample(4, random_state=0).shape == (4, values.shape[1])


def test_codes_of_names_come_back_as_names():
    values = np.random.default_rng(0).integers(0, 3, (60, 4))
    coder = DiscreteVAETransformer(likelihood="categorical", **TINY).fit(values)
    back = coder.inverse_transform(coder.transform(values))
    assert set(np.unique(back)) <= {0.0, 1.0, 2.0}


def test_probabilities_of_bits_train_but_have_no_likelihood():
    values = np.random.default_rng(0).random((60, 5))
    coder = DiscreteVAETransformer(likelihood="bernoulli", **TINY).fit(values)
    assert coder.transform(values).shape == (60, 6)
    with pytest.raises(InvalidInputError, match="must hold only the values 0 and 1"):
        coder.score_samples(values)


def test_gaps_are_read_where_fit_saw_some(tiny):
    rows = clustered_bits().astype(float)
    gaps = rows.copy()
    gaps[np.random.default_rng(0).random(rows.shape) < 0.2] = np.nan
    coder = clone(tiny).fit(gaps)
    assert coder.transform(gaps).shape == (400, 6)
    seen = coder.score_samples(np.where(np.arange(24) < 12, rows[:50], np.nan))
    assert seen.mean() > coder.score_samples(rows[:50]).mean() + 3  # half of the bits are more probable
    with pytest.raises(ValueError, match="^X"):
        tiny.transform(gaps)


def test_training_curves_are_shown_when_asked(capsys):
    DiscreteVAETransformer(**TINY, verbose=1).fit(clustered_bits()[:50])
    assert "validation ELBO" in capsys.readouterr().err
    DiscreteVAETransformer(**TINY).fit(clustered_bits()[:50])
    assert capsys.readouterr().err == ""


def test_numpy_numbers_are_numbers():
    coder = DiscreteVAETransformer(**(TINY | {"num_left": np.int64(2), "hidden": [np.int32(5)]}))
    assert coder.set_params(learning_rate=np.float32(0.01)).fit(clustered_bits()).transform(
        clustered_bits()[:2]
    ).shape == (2, 5)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"num_left": 0}, "num_left"),
        ({"hidden": "200"}, "hidden"),
        ({"hidden": (0,)}, r"hidden\[0\]"),
        ({"likelihood": "poisson"}, "likelihood"),
        ({"batch_size": 1}, "batch_size"),
        ({"num_epochs": 1.5}, "num_epochs"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"validation_fraction": 0.9}, "validation_fraction"),
        ({"random_state": "one"}, "random_state"),
        ({"verbose": "yes"}, "verbose"),
        ({"likelihood": "categorical"}, "X"),
    ],
)
def test_wrong_parameters_are_named(change, name):
    with pytest.raises(InvalidInputError, match=f"^{name} "):
        DiscreteVAETransformer(**(TINY | change)).fit(clustered_bits()[:5] * 0.3)


@pytest.mark.parametrize(
    "codes", [np.zeros((2, 5)), np.zeros(6), np.full((2, 6), 2.0), np.full((2, 6), np.nan), "codes"]
)
def test_wrong_codes_are_refused(tiny, codes):
    with pytest.raises(ValueError):  # noqa: PT011 (scikit-learn's words for some)
        tiny.inverse_transform(codes)


def test_wrong_rows_and_outputs_are_refused(tiny):
    other = pickle.loads(pickle.dumps(tiny)).set_params(output="codes")
    for call, name in (
        (lambda: tiny.transform(np.full((2, 24), 2.0)), "X"),
        (lambda: tiny.score_samples(np.full((2, 24), 0.5)), "X"),
        (lambda: other.transform(clustered_bits()), "output"),
        (lambda: DiscreteVAETransformer(**TINY).fit(np.zeros((2, 3))), "Found array"),
    ):
        with pytest.raises(ValueError, match=f"^{name} "):
            call()


def test_it_stands_in_a_pipeline():
    values = np.random.default_rng(0).normal(size=(50, 3))
    codes = make_pipeline(StandardScaler(), DiscreteVAETransformer(**TINY)).fit_transform(values)
    assert codes.shape == (50, 6)


def test_keys_of_rows_are_of_their_values(tiny):
    from discrete_vae.interop.sklearn.transformer import row_key

    rows = torch.tensor(clustered_bits()[:100], dtype=torch.float64)
    distinct = {tuple(row.tolist()) for row in rows}
    assert len({row_key(row) for row in rows}) == len(distinct)
    assert key_to_seed(0, row_key(rows[0])) == key_to_seed(0, row_key(rows[0].float()))


def test_a_grid_search_gives_the_same_scores_however_its_jobs_run():
    """joblib lets each worker process use one thread, and torch's sums are rounded otherwise with two."""
    coder, rows = (
        DiscreteVAETransformer(num_left=2, num_right=2, num_epochs=2, random_state=0),
        clustered_bits(),
    )
    threads, scores = torch.get_num_threads(), []
    torch.set_num_threads(1)
    try:
        for backend in ("sequential", "threading", "multiprocessing", "loky"):
            search = GridSearchCV(coder, {"hidden": [(4,), (6,)]}, cv=2, refit=False)
            with parallel_config(backend, n_jobs=2):
                search.fit(rows)
            scores.append(search.cv_results_["mean_test_score"])
    finally:
        torch.set_num_threads(threads)
    assert np.isfinite(scores).all()
    assert all(np.array_equal(scores[0], other) for other in scores[1:])
