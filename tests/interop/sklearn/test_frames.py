"""Data frames of mixed columns, sparse matrices, and objects that are no rows."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from discrete_vae.interop.sklearn import BoltzmannDensity, DiscreteVAETransformer
from tests.refusals import refused, refused_argument

TINY = {"num_left": 3, "num_right": 3, "hidden": (12,), "num_epochs": 60, "random_state": 0}
RANDOM = np.random.default_rng(0)
KIND = RANDOM.integers(0, 3, 240)
OPINIONS = RANDOM.integers(0, 3, 240)
FRAME = pd.DataFrame(
    {
        "age": RANDOM.integers(18, 90, 240),
        "pay": (RANDOM.normal(size=240) + 5 * KIND).astype(np.float32),
        "town": pd.Categorical(
            np.array(["Kiel", "Ulm", "Jena"])[KIND], categories=["Ulm", "Kiel", "Jena", "Bonn"]
        ),
        "sex": RANDOM.choice(["f", "m"], 240),
        "smokes": RANDOM.random(240) < 0.3,
        "visits": RANDOM.poisson(2 + 10 * KIND),
        "opinion": pd.array(np.where(RANDOM.random(240) < 0.2, None, OPINIONS), dtype="Int64"),
        "level": pd.Categorical(OPINIONS / 2, categories=[0.0, 0.5, 1.0], ordered=True),
        "version": 1,
        "name": [f"person {row}" for row in range(240)],
    }
)
READ = [name for name in FRAME if name != "name"]  # a word of its own in each row


@pytest.fixture(scope="module")
def fitted():
    return DiscreteVAETransformer(**TINY).fit(FRAME)


def test_a_frame_with_words_is_read_by_the_kinds_of_its_columns(fitted):
    kinds = {each.name: each.config and each.config.kind for each in fitted.schema_.readings}
    assert kinds["town"] == "category"
    assert kinds["sex"] == kinds["smokes"] == "binary"
    assert kinds["level"] == kinds["opinion"] == "ordinal"
    assert kinds["visits"] == "count"
    assert kinds["name"] is None
    assert fitted.likelihood_ == "table"
    assert list(fitted.feature_names_in_) == list(FRAME.columns)
    assert np.isfinite(fitted.score_samples(FRAME[:5])).all()


def test_rows_come_back_as_a_frame_of_the_same_words_and_dtypes(fitted):
    codes = clone(fitted).set_output(transform="pandas").fit_transform(FRAME[READ][::-1])
    assert codes.index.equals(FRAME.index[::-1])
    back = fitted.inverse_transform(fitted.transform(FRAME))
    assert back.dtypes.equals(FRAME[READ].dtypes)
    assert (back["town"] == FRAME["town"]).mean() > 0.6  # a third by chance
    for name in ("sex", "smokes", "level", "version", "town"):
        assert set(back[name]) <= set(FRAME[name])
    assert not back["smokes"].all()
    drawn = fitted.sample(50, random_state=0)
    assert drawn.dtypes.equals(back.dtypes)
    # a word that no row has is about as rare as it can be
    assert set(drawn["town"]) <= {"Ulm", "Kiel", "Jena"}


def test_rows_of_codes_with_an_index_keep_their_order(fitted):
    codes = fitted.transform(FRAME[:20])
    for index in (range(19, -1, -1), [f"row {row}" for row in range(20)]):
        back = fitted.inverse_transform(pd.DataFrame(codes, index=index))
        assert list(back.index) == list(index)
        assert back.reset_index(drop=True).equals(fitted.inverse_transform(codes))


def test_columns_are_found_by_name_in_any_order(fitted):
    turned = FRAME[FRAME.columns[::-1]].assign(more=3).drop(columns="name")
    assert np.array_equal(fitted.transform(turned), fitted.transform(FRAME))
    loaded = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(loaded.score_samples(turned[:3]), fitted.score_samples(FRAME[:3]))
    pipeline = make_pipeline(clone(fitted), LogisticRegression()).fit(FRAME, KIND)
    assert pipeline.score(turned, KIND) > 0.9


def test_kinds_are_named_and_numbers_alone_stay_numbers():
    numbers = FRAME[["age", "visits"]]
    few = TINY | {"num_epochs": 1}
    plain, array = (DiscreteVAETransformer(**few).fit(rows) for rows in (numbers, numbers.to_numpy()))
    assert plain.likelihood_ == array.likelihood_ == "negative-binomial"
    assert np.array_equal(plain.transform(numbers), array.transform(numbers.to_numpy()))
    table = DiscreteVAETransformer(kinds={"age": "real:log1p"}, **few).fit(numbers)
    assert "age: real:log1p" in str(table.schema_)
    assert table.inverse_transform(table.transform(numbers)).dtypes.equals(numbers.dtypes)
    assert DiscreteVAETransformer(likelihood="table", **few).fit(numbers).likelihood_ == "table"


@pytest.mark.parametrize("gap", [pd.NA, "", None, pd.NaT], ids=repr)
def test_a_gap_among_numbers_is_one_however_it_is_written(gap):
    numbers = FRAME[["pay", "visits"]].astype(float)
    written = numbers.astype(object)
    numbers.iloc[3, 0], written.iloc[3, 0] = np.nan, gap
    coder = DiscreteVAETransformer(**(TINY | {"num_epochs": 1})).fit(written)
    assert coder.likelihood_ == "gaussian"
    assert np.array_equal(coder.transform(written), coder.transform(numbers))


def test_sparse_columns_of_counts_come_back_as_they_were():
    counts = pd.DataFrame.sparse.from_spmatrix(
        sparse.csr_array(np.eye(240, 3, dtype=np.int64)), columns=list("abc")
    )
    frame = pd.concat([FRAME[["town"]], counts], axis=1)
    coder = DiscreteVAETransformer(**(TINY | {"num_epochs": 1})).fit(frame)
    assert coder.inverse_transform(coder.transform(frame)).dtypes.equals(frame.dtypes)


def test_what_is_wrong_with_a_column_names_no_option_of_the_command():
    frame = pd.DataFrame({"price": ["1,5", "2,5", "3,25"] * 20, "town": ["Ulm", "Bonn", "Kiel"] * 20})
    error = refused(DiscreteVAETransformer(**TINY).fit, frame)
    assert "'price'" in error.argument
    assert "--" not in str(error)
    frame = frame.assign(price=1.5, day=pd.date_range("2020", periods=60), row=range(60))
    coder = DiscreteVAETransformer(**(TINY | {"num_epochs": 1})).fit(frame)
    assert coder.schema_.left_out == ("day", "row")
    assert "--" not in str(coder.schema_)


def test_columns_with_one_name_are_named():
    error = refused(DiscreteVAETransformer(**TINY).fit, FRAME[["town", "pay", "pay"]])
    assert error.argument == "X"
    assert "'pay'" in error.received


def test_numbers_and_gaps_that_fit_has_not_met_are_named_and_counts_take_any_number():
    frame = pd.DataFrame({"home": ["Ulm", "Bonn", "Kiel"] * 20, "kids": [0, 1, 2, 3, 4, 5] * 10})
    coder = DiscreteVAETransformer(**(TINY | {"num_epochs": 1})).fit(frame)
    error = refused(coder.transform, frame.assign(kids=6))
    assert "5" in error.rule
    assert "..." not in error.rule
    assert "count" in error.repair
    assert "'kids'" in refused(coder.transform, frame.assign(kids=None)).received
    counts = clone(coder).set_params(kinds={"kids": "count"}).fit(frame)
    assert np.isfinite(counts.score_samples(frame.assign(kids=6))).all()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda frame: frame.drop(columns="town"), "'town'"),
        (lambda frame: frame.assign(sex="other"), "'sex'"),
        (lambda frame: frame.assign(age="old"), "'age'"),
        (lambda frame: frame.to_numpy(), "X"),
    ],
)
def test_unknown_words_and_missing_columns_are_named(fitted, change, named):
    error = refused(fitted.transform, change(FRAME))
    assert named in f"{error.argument} {error.received}"


@pytest.mark.parametrize(
    ("settings", "rows", "name"),
    [
        ({"kinds": {"height": "real"}}, FRAME, "kinds"),
        ({"kinds": {}, "likelihood": "gaussian"}, FRAME[["age"]], "kinds"),
        ({"kinds": ["age"]}, FRAME, "kinds"),
        ({"likelihood": "table"}, np.eye(5), "X"),
        ({}, FRAME[:2], "X"),
        ({}, np.ma.masked_equal(np.eye(5), 1), "X"),  # whose mask scikit-learn would drop
    ],
)
def test_what_cannot_be_read_as_a_table_is_refused(settings, rows, name):
    assert refused_argument(DiscreteVAETransformer(**TINY, **settings).fit, rows) == name


class AnnData:
    """As the class of that name: rows with names, and several matrices of them."""

    def __init__(self):
        self.X = np.eye(5)
        self.obs, self.var, self.layers = FRAME[:5], FRAME[:5], {"counts": self.X}
        self.shape = (5, 5)

    def __len__(self):
        return 5


@pytest.mark.parametrize("rows", [AnnData(), {"a": [1, 2, 3]}, "rows.csv"], ids=["anndata", "dict", "path"])
@pytest.mark.parametrize("estimator", [DiscreteVAETransformer(**TINY), BoltzmannDensity(random_state=0)])
def test_objects_that_hold_rows_are_refused_with_what_to_give(estimator, rows):
    error = refused(estimator.fit, rows)
    assert error.argument == "X"
    assert type(rows).__name__ in error.received


def test_columns_may_have_the_names_of_parts_of_annotated_matrices():
    frame = pd.DataFrame(np.eye(5)[:, :3], columns=["obs", "var", "layers"])
    assert BoltzmannDensity(num_hidden=2, num_epochs=1).fit(frame).n_features_in_ == 3


@pytest.mark.parametrize("kind", [np.ndarray, sparse.csr_matrix])
def test_rows_of_a_view_of_an_annotated_matrix_are_read(kind):
    """Their classes are those of anndata."""
    view = type("View", (kind,), {"__module__": "anndata._core.views"})
    rows = (RANDOM.random((40, 5)) < 0.3).astype(float)
    density = BoltzmannDensity(num_hidden=2, num_epochs=1, random_state=0)
    given = rows.view(view) if kind is np.ndarray else view(rows)
    assert np.array_equal(density.fit(given).score_samples(given), density.fit(rows).score_samples(rows))


@pytest.mark.parametrize(
    "estimator",
    [
        DiscreteVAETransformer(**(TINY | {"num_epochs": 2})),
        BoltzmannDensity(num_hidden=3, num_epochs=2, random_state=0),
    ],
)
def test_sparse_matrices_are_the_arrays_that_they_say(estimator):
    rows = (RANDOM.random((100, 12)) < 0.2).astype(float)
    dense = clone(estimator).fit(rows)
    for kind in (sparse.csr_matrix, sparse.csc_array, sparse.coo_array, sparse.dok_array):
        found = clone(estimator).fit(kind(rows))
        assert np.array_equal(found.transform(kind(rows)), dense.transform(rows))
        assert np.array_equal(found.score_samples(kind(rows)), dense.score_samples(rows))
