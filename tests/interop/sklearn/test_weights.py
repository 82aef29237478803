"""Weights of rows, and outliers at a contamination."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

from discrete_vae.interop.sklearn import BoltzmannDensity, DiscreteVAETransformer
from tests.refusals import refused_argument

CODER = DiscreteVAETransformer(
    num_left=2, num_right=2, hidden=(8,), num_epochs=1, num_samples=20, random_state=0
)
DENSITY = BoltzmannDensity(num_hidden=3, num_epochs=20, random_state=0)
BOTH = pytest.mark.parametrize("estimator", [CODER, DENSITY], ids=["coder", "density"])
RANDOM = np.random.default_rng(0)
ROWS = np.repeat(RANDOM.integers(0, 2, (200, 3)), 2, 1)
WEIGHTS = RANDOM.exponential(size=200) * (RANDOM.random(200) < 0.9)


def scores(estimator, rows, sample_weight=None):
    return clone(estimator).fit(rows, sample_weight=sample_weight).score_samples(ROWS)


@BOTH
def test_what_weights_mean(estimator):
    weighted, plain = scores(estimator, ROWS, WEIGHTS), scores(estimator, ROWS)
    kept, order, counts = WEIGHTS > 0, RANDOM.permutation(200), RANDOM.integers(0, 3, 200)
    assert np.array_equal(weighted, scores(estimator, ROWS[kept], WEIGHTS[kept]))
    assert np.array_equal(weighted, scores(estimator, ROWS, 4 * WEIGHTS))
    assert np.array_equal(plain, scores(estimator, ROWS, np.full(200, 0.25)))
    assert np.array_equal(scores(estimator, ROWS, counts), scores(estimator, ROWS.repeat(counts, 0)))
    assert scores(estimator, ROWS[order], WEIGHTS[order]) == pytest.approx(weighted, rel=1e-6)


def test_a_row_without_weight_tells_nothing_of_a_table():
    frame = pd.DataFrame({"w": RANDOM.choice(["a", "b"], 60), "x": RANDOM.normal(size=60)})
    frame.loc[0, "w"], counts = "only", RANDOM.integers(1, 3, 60)
    counts[0] = 0
    coder = clone(CODER).set_params(kinds={"x": "real"})
    repeated, weighed = frame.loc[frame.index.repeat(counts)], clone(coder).fit(frame, sample_weight=counts)
    assert np.array_equal(weighed.score_samples(repeated), coder.fit(repeated).score_samples(repeated))
    assert {*weighed.sample(50)["w"]} == {"a", "b"}


def test_the_density_is_that_of_the_weighted_rows():
    """Independent bits; the rows with the first one weigh 0.7, and are half of all."""
    rows = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], 50, 0)
    weights = np.where(rows[:, 0], 0.7, 0.3)
    density = BoltzmannDensity(num_hidden=1, num_epochs=150, random_state=0).fit(rows, sample_weight=weights)
    found = np.exp(density.score_samples(rows[::50]))
    assert found == pytest.approx([0.15, 0.15, 0.35, 0.35], abs=0.03)
    coder = clone(CODER).set_params(num_epochs=100, num_samples=200).fit(rows, sample_weight=weights)
    found = np.exp(coder.score_samples(rows[::50]))
    assert found[2:].sum() / found.sum() == pytest.approx(0.7, abs=0.12)


@BOTH
def test_a_score_is_the_weighted_mean_and_curves_are_shown_when_asked(estimator, capsys):
    fitted = clone(estimator).fit(ROWS)
    wanted = np.average(fitted.score_samples(ROWS), weights=WEIGHTS)
    assert fitted.score(ROWS, sample_weight=WEIGHTS) == pytest.approx(wanted)
    assert capsys.readouterr().err == ""
    clone(estimator).set_params(verbose=1).fit(ROWS[:50])
    assert "mean error of frequencies" in (err := capsys.readouterr().err) or "validation ELBO" in err


def test_weights_are_routed_through_a_search():
    with sklearn.config_context(enable_metadata_routing=True):
        routed = clone(DENSITY).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(routed, {"num_hidden": [1, 2]}, cv=2).fit(ROWS, sample_weight=WEIGHTS)
        assert np.isfinite(search.best_score_)


@BOTH
@pytest.mark.parametrize(
    "weights",
    [
        np.zeros(200),
        -WEIGHTS,
        np.where(WEIGHTS > 0, WEIGHTS, np.nan),
        WEIGHTS[:5],
        np.full(200, 1000),
        ["heavy"] * 200,
    ],
    ids=["zero", "negative", "nan", "few", "counts", "words"],
)
def test_wrong_weights_are_refused_by_name(estimator, weights):
    assert refused_argument(clone(estimator).fit, ROWS, sample_weight=weights) == "sample_weight"


# Outliers.


def clustered(count, seed):
    random = np.random.default_rng(seed)
    noise = 0.3 * random.normal(size=(count, 3))
    return noise + np.array([[-3.0, 0, 3], [3, 3, 0]])[random.integers(0, 2, count)]


def test_outliers_are_the_least_probable_rows():
    coder = clone(CODER).set_params(contamination=0.1, num_epochs=40, num_samples=100)
    rows = clustered(300, 0)
    judged = coder.fit_predict(rows)
    assert set(judged) == {-1, 1}
    assert (judged == -1).sum() == 30
    assert np.array_equal(judged == -1, coder.score_samples(rows) < coder.offset_)
    assert np.array_equal(coder.decision_function(rows) < 0, judged == -1)
    assert (coder.predict(np.tile([0, -3, -3], (5, 1))) == -1).all()
    assert (coder.predict(clustered(300, 1)) == -1).mean() < 0.25


def test_the_share_of_outliers_is_that_of_the_weights():
    coder = clone(CODER).set_params(contamination=0.2, num_epochs=3)
    rows, weights = clustered(200, 2), np.random.default_rng(1).exponential(size=200)
    judged = coder.fit_predict(rows, sample_weight=weights)
    share = weights[judged == -1].sum() / weights.sum()
    assert 0.2 - weights.max() / weights.sum() <= share <= 0.2


@BOTH
def test_a_fit_leaves_nothing_of_the_one_before(estimator):
    rows = np.random.default_rng(0).integers(0, 2, (60, 4)).astype(float)
    one = clone(estimator).set_params(contamination=0.1).fit(rows)
    one.set_params(contamination=None).fit(1 - rows)
    with pytest.raises(NotFittedError):
        one.set_params(contamination=0.1).predict(rows)
    one.fit(rows)
    with pytest.raises(ValueError, match="infinity"):
        one.fit(np.full((60, 4), np.inf))
    for call in (one.transform, one.score_samples, one.sample, lambda _: one.log_partition_):
        with pytest.raises(NotFittedError):
            call(rows)


@BOTH
def test_without_a_contamination_nothing_is_judged(estimator):
    assert not hasattr(estimator, "predict")
    for wrong in (0, 0.6, "auto"):
        assert refused_argument(clone(estimator).set_params(contamination=wrong).fit, ROWS) == "contamination"


def test_gaps_of_either_sign_are_one():
    rows = np.where(RANDOM.random((40, 3)) < 0.3, np.nan, RANDOM.normal(size=(40, 3)))
    fitted = clone(CODER).set_params(likelihood="gaussian").fit(rows)
    other = np.where(np.isnan(rows), -np.float64(np.nan), rows)
    assert np.signbit(other[np.isnan(other)]).all()
    assert np.array_equal(fitted.score_samples(other), fitted.score_samples(rows))
    assert np.array_equal(clone(fitted).fit(other).score_samples(rows), fitted.score_samples(rows))
