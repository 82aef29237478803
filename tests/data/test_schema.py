"""Columns of a table: the rules by which their kinds are found, and tables that come back as they were."""

import re

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from discrete_vae.config import ModelConfig, TableLikelihoodConfig
from discrete_vae.data import infer_schema
from discrete_vae.data.schema import raw_column
from tests.models import small_model
from tests.refusals import refused, refused_argument

NUMBER = r"[+-]?\d+([.,']\d+)*"  # a word that a reader of files takes for a number, or asks about

RANDOM = np.random.default_rng(0)


def mixed(rows=60):
    """A table of every kind, with gaps."""
    random = np.random.default_rng(1)
    table = {
        "age": random.integers(18, 90, rows).astype(float),
        "sex": random.choice(["f", "m"], rows).astype(object),
        "city": random.choice(["Köln", "Lyon", "Brno"], rows).astype(object),
        "visits": random.poisson(9.0, rows) * (random.random(rows) < 0.7),
        "pain": random.integers(1, 6, rows),
        "weight": random.normal(70.0, 10.0, rows),
        "ok": random.random(rows) < 0.5,
        "land": np.full(rows, "EU", object),
    }
    table["age"][3], table["sex"][5], table["weight"][7] = np.nan, None, np.nan
    return table


@pytest.mark.parametrize(
    ("values", "kind", "is_guess"),
    [
        ([None, None, np.nan], "left out", None),
        ([3, 3, None, 3], "constant", False),
        (["yes", "yes"], "constant", False),
        ([1, 2, 2, 1], "binary", False),
        (["a", "b", None, "b"], "binary", False),
        ([True, False, True], "binary", False),
        ([-1, 1, 1, -1], "binary", False),
        (["a", "b", "c", "a"], "category", False),
        ([*"abc", 1, 2, 1], "category", False),
        ([f"name {k}" for k in range(30)], "left out", False),
        (list(range(100, 140)), "left out", True),
        ([*range(100, 140), *(20 * [None])], "left out", True),  # empty lines below an index
        ([*range(30), *(40 * [None])], "count", True),
        ([f"2024-01-{day:02}" for day in range(1, 6)] * 20, "left out", True),
        ([f"{day}.01.2020 10:15" for day in range(1, 30)], "left out", True),
        (["1.2.3", "a", "b"] * 9, "category", False),
        (list(RANDOM.normal(size=40)), "real", False),
        ([0.5, 1.5, 2.5, 0.5], "real", True),
        (10 * [-1, 0, 1], "ordinal", True),
        (10 * [0.5, 1.5, 2.5], "ordinal", True),
        (10 * [0.1, 1.0, 10.0], "category", True),
        ([1, 2, 3, 2], "ordinal", True),
        ([*range(39), 3], "count", True),
        ([*range(18, 79), 40], "real", True),
        (list(np.exp(3 * RANDOM.normal(size=400))), "real:asinh", False),
    ],
)
def test_the_rules(values, kind, is_guess):
    schema = infer_schema({"x": values, "y": np.arange(len(values)) + 0.5})
    line = str(schema.readings[0])
    assert line.startswith(f"x: {kind} (")
    assert bool(schema.readings[0].hint) == is_guess or kind == "left out"


def test_whole_numbers_may_be_codes_however_many_they_are():
    for values in (10 * [2110, 5120, 9210], [*range(1110, 1137)] * 3):
        assert "category" in infer_schema({"occupation": values}).readings[0].hint


def test_columns_of_pandas_keep_what_they_declare():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "size": pandas.Categorical(["S", "L", None, "S"], categories=["S", "M", "L"], ordered=True),
            "color": pandas.Categorical(["red", "blue", "red", "red"], categories=["red", "green", "blue"]),
            "number": pandas.array([1, None, 3, 1], dtype="Int64"),
            "word": pandas.array(["u", None, "v", "w"], dtype="string"),
        }
    )
    schema = infer_schema(frame)
    assert [column.kind for column in schema.columns] == ["ordinal", "category", "binary", "category"]
    assert [schema.columns[place].values for place in (0, 1)] == [("S", "M", "L"), ("red", "green", "blue")]
    decoded = schema.decode(schema.encode(frame))
    assert decoded["size"].tolist() == ["S", "L", None, "S"]
    assert decoded["word"].tolist() == ["u", None, "v", "w"]


def test_booleans_beside_gaps_come_back_as_booleans():
    schema = infer_schema({"a": np.array([True, None, False, True], object)})
    found = schema.decode(schema.encode({"a": np.array([False, True, None], object)}))["a"]
    assert found.tolist() == [False, True, None]


def test_categories_are_the_same_as_whole_numbers_and_as_floats_beside_a_gap():
    pandas = pytest.importorskip("pandas")
    whole = pandas.DataFrame({"code": pandas.Categorical([10, 20, 30, 20])})
    gaps = pandas.DataFrame({"code": pandas.Categorical([20.0, None, 10.0])})
    for fitted, other in ((whole, gaps), (gaps, whole[:2])):
        schema = infer_schema(fitted, {"code": "category"})
        codes = {value: code for code, value in enumerate(schema.columns[0].values)}
        found = schema.encode(other)[:, 0].tolist()
        expected = [codes.get(f"{value:.0f}", np.nan) for value in other["code"].astype(float)]
        np.testing.assert_array_equal(found, expected)


def test_the_user_has_the_last_word():
    table = {"a": [1, 2, 3, 2], "b": ["low", "high", "mid", "low"], "c": [0, 10, 900, 3.5], "d": [1, 2, 3, 4]}
    kinds = {"a": "category", "b": "ordinal:low<mid<high", "c": "real:log1p", "d": "ignore"}
    schema = infer_schema(table, kinds)
    assert [column.kind for column in schema.columns] == ["category", "ordinal", "real"]
    assert schema.encode(table)[:, 1].tolist() == [0.0, 2.0, 1.0, 0.0]
    assert schema.columns[2].scale == "log1p"


def test_a_table_goes_to_numbers_and_back():
    table = mixed()
    schema = infer_schema(table)
    back = schema.decode(schema.encode(table))
    assert list(back) == list(table)
    for name, values in table.items():
        for was, found in zip(values.tolist(), back[name].tolist(), strict=True):
            if was is None or was != was:
                assert found is None or found != found
            else:
                assert str(was) == str(found) or was == pytest.approx(float(found), rel=1e-6), name


WORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Zs", "Zl", "Zp")), min_size=1, max_size=4
).filter(lambda word: word not in ("NaT", "<NA>") and not re.fullmatch(NUMBER, word))


@settings(max_examples=15, deadline=None, phases=[Phase.generate])
@given(st.data())
def test_any_table_trains_a_step_and_generates_its_own_values(data):
    """Words, order and gaps of any mixed table survive; what is drawn are values that the table has, of its kinds."""
    rows = data.draw(st.integers(6, 20))
    cells = {
        "word": st.sampled_from([*data.draw(st.lists(WORDS, min_size=1, max_size=4, unique=True)), None]),
        "real": st.one_of(st.none(), st.floats(-1e4, 1e4, width=32)),
        "whole": st.one_of(st.none(), st.integers(0, 50)),
        "flag": st.sampled_from([True, False]),
    }
    table = {name: data.draw(st.lists(each, min_size=rows, max_size=rows)) for name, each in cells.items()}
    schema = infer_schema(table)
    x = schema.encode(table)
    likelihood = TableLikelihoodConfig(columns=schema.columns)
    model = small_model(len(schema.columns), hidden=(4,), likelihood=likelihood, missing=True)
    model.initialize_(x)
    loss = model.elbo(x).loss
    assert loss.isfinite()
    loss.backward()
    with torch.no_grad():
        latents = model.eval().sample(5, num_sweeps=2)
        parameters = model.parameters_of(model.hierarchy.decoder_input(latents.zeta, latents.h))
        drawn = schema.decode(model.likelihood.sample(parameters))
    assert list(drawn) == [column.name for column in schema.columns]
    for column in schema.columns:
        if column.kind in ("binary", "category", "ordinal", "constant"):
            assert set(drawn[column.name]) <= {*table[column.name]}
            declared = ("False", "True") if column.name == "flag" else ()
            assert set(column.values) <= {*raw_column("", table[column.name]).values(), *declared}
        elif column.kind == "count" or column.whole:
            assert (drawn[column.name] % 1 == 0).all()


def test_values_come_back_as_what_they_are_in_the_table():
    grade = np.arange(6)
    table = {"flag": grade % 2 == 0, "bit": grade % 2, "grade": grade, "half": grade / 2}
    table |= {"word": np.array([*"ab1ab1"], object), "gaps": [0, None, 1, 0, 1, None]}
    kinds = {"grade": "ordinal", "half": "ordinal"}
    schema = infer_schema(table, kinds)
    for name, column in schema.decode(schema.encode(table)).items():
        assert [*map(type, column.tolist())] == [*map(type, np.array(table[name]).tolist())], name
        assert column.tolist() == [*table[name]]


COUNTED, OF_E = {"a": [0, 2, 5]}, {"a": "count:exposure:e"}
WRONG_TABLES = [
    (([1, 2],), "table"),
    (({"a": []},), "table"),
    (({1: [0, 1], "1": [2, 3]},), "table"),
    (({"a": [None, None]},), "table"),
    (({"a": [1, 2], "b": [1]},), "column 'b'"),
    (({"a": [*range(40), "?"]},), "column 'a'"),
    (({"a": [0.5, 1.5, np.inf]},), "column 'a'"),
    (({"a": [f"{number}.5%" for number in range(40)]},), "column 'a'"),
    (({"a": [f"$1,{number}" for number in range(100, 140)]},), "column 'a'"),
    (({"a": [1, 10**400]},), "column 'a'"),
    (({"a": [[1], [1, 2]]},), "column 'a'"),
    (({"a": [1, 2]}, {"b": "real"}), "kinds"),
    (({"a": [1, 2]}, {"a": "number"}), "kind of column 'a'"),
    (({"a": ["x", "y"]}, {"a": "real"}), "column 'a'"),
    (({"a": [*range(40), "2024-01-05"]},), "column 'a'"),
    (({"a": [0.5, 2.0]}, {"a": "count"}), "column 'a'"),
    (({"a": [1, 1]}, {"a": "constant:2"}), "column 'a', read as constant,"),
    (({"a": [1, 2, 3]}, {"a": "binary"}), "column 'a', read as binary,"),
    (({"a": ["low", "high"]}, {"a": "ordinal:low<low<high"}), "column 'a', read as ordinal,"),
    (({"a": [1, 2]}, {"a": "real:log"}), "column 'a', read as real,"),
    (({"a": [2**53, 2**53 + 1]}, {"a": "category"}), "column 'a'"),
    (({"a": np.array([[1, 2], [3, 4]], object)},), "column 'a'"),
    (({"a": [-2.0, 2.0]}, {"a": "real:log1p"}), "column 'a'"),
    *(((COUNTED, {"a": f"count:{more}"}), "column 'a'") for more in ("totals", "exposure:", "exposure:a")),
    ((COUNTED | {"e": [1, 2, 3]}, {"a": "count:total:exposure:e"}), "column 'a'"),
    ((COUNTED, OF_E), "exposure"),
    *(((COUNTED | {"e": [1, 1, wrong]}, OF_E), "column 'e'") for wrong in (None, 0, "x")),
    ((COUNTED | {"e": [1, 2, 3]}, {"e": "exposure"}), "kind of column 'e'"),
    ((COUNTED | {"e": [1, 2, 3]}, OF_E | {"e": "real"}), "kind of column 'e'"),
]


@pytest.mark.parametrize(("given", "argument"), WRONG_TABLES)
def test_what_does_not_fit_is_named(given, argument):
    assert refused_argument(infer_schema, *given) == argument


def test_a_mark_among_many_numbers_is_no_word_however_often_it_is_there():
    ages = [*range(20, 80), *(["n.b."] * 25)]
    assert refused_argument(infer_schema, {"age": ages}) == "column 'age'"
    assert infer_schema({"age": ages}, {"age": "category"}).columns[0].kind == "category"
    rooms = [*range(1, 9), *(["studio"] * 4)]  # few numbers may be names
    assert infer_schema({"rooms": rooms}).columns[0].kind == "category"


def test_groups_of_digits_are_taken_for_such_however_few_they_are():
    for count in (1, 50):
        table = {"income": [*range(100, 200 - count), *(["1,000"] * count)]}
        assert "data.thousands" in str(refused(infer_schema, table))
    spaces = [*range(100, 900), "1\u202f000", "12\u202f500,5"]
    assert "data.thousands \" \" --data.decimal ','" in str(refused(infer_schema, {"income": spaces}))


def test_other_tables_than_the_schemas_are_refused():
    schema = infer_schema(mixed())
    assert refused_argument(schema.encode, {"age": [1.0]}) == "table"
    assert refused_argument(schema.encode, mixed() | {"city": np.full(60, "Rom", object)}) == "column 'city'"
    assert refused_argument(schema.decode, torch.zeros(3, 2)) == "x"
    whole = infer_schema({"a": [0.0, 5.0, 9.0]}, {"a": "real:log1p"})
    assert whole.decode(np.array([[-0.9], [2.4]]))["a"].tolist() == [0, 2]  # as the kind reads them again
    of_logarithms = infer_schema({"a": [0.5, 1.5]}, {"a": "real:log1p"})
    assert refused_argument(of_logarithms.encode, {"a": [0.5, -1.0]}) == "column 'a'"


def test_counts_as_the_user_says():
    plain = infer_schema({"reads": [1, 2]}, {"reads": "count"}).columns[0].group
    for addition in ("", ":total", ":zero-inflated", ":total:zero-inflated"):
        kind = f"count{addition}"
        schema = infer_schema({"reads": [0, 3, 8], "age": [1.5, 2.5, 0.5]}, {"reads": kind})
        reads = schema.columns[0]
        assert (reads.exposure == "total", reads.zero_inflated) == ("total" in addition, "zero" in addition)
        assert str(schema).startswith(f"reads: {kind} (")
        assert infer_schema({"reads": [1, 2, 3, 4]}, {"reads": kind}).columns[0].group == reads.group
        assert (reads.group == plain) is (kind == "count")


def test_an_exposure_is_a_column_that_counts_name():
    table = {"visits": [0, 3, 8, 1], "falls": [0, 1, 1, 0], "days:all": [1.5, 2.5, 0.5, 30]}
    kinds = {"visits": "count:exposure:days:all", "falls": "count:zero-inflated:exposure:days:all"}
    schema = infer_schema(table, kinds)
    assert [column.kind for column in schema.columns] == ["count", "count", "exposure"]
    assert [column.addition for column in schema.columns[:2]] == [kind[6:] for kind in kinds.values()]
    assert schema.readings[2].hint == ""
    assert infer_schema(table, kinds | {"days:all": "exposure"}).columns == schema.columns
    np.testing.assert_array_equal(schema.decode(schema.encode(table))["days:all"], table["days:all"])


def test_the_schema_survives_a_file():
    days = {"days": np.arange(1.0, 61.0)}
    schema = infer_schema(mixed() | days, {"visits": "count:exposure:days"})
    likelihood = TableLikelihoodConfig(columns=schema.columns)
    config = ModelConfig(num_features=len(schema.columns), likelihood=likelihood)
    assert ModelConfig.from_json(config.model_dump_json()).likelihood.columns == schema.columns


def test_an_index_of_some_rows_is_known_by_its_name():
    places = np.arange(0, 90, 3)
    schema = infer_schema({"Unnamed: 0": places, "count": places, "y": places + 0.5})
    assert [reading.config is None for reading in schema.readings] == [True, False, False]


def test_a_declared_column_without_a_value_is_left_out():
    pandas = pytest.importorskip("pandas")
    asked = pandas.Series(pandas.Categorical([None] * 3, categories=["no", "yes"]))
    assert infer_schema({"asked": asked, "y": [0.5, 1, 2]}).left_out == ("asked",)


def test_truths_are_the_same_in_every_spelling():
    for values in ([False, True], ["FALSE", "TRUE"], [0, 1]):
        schema = infer_schema({"smokes": values * 2})
        for other in ([False, True], ["False", "True"], ["false", "true"], ["0", "1"], [0.0, 1.0]):
            assert schema.encode({"smokes": other})[:, 0].tolist() == [0, 1]
    assert refused_argument(infer_schema({"x": ["no", "yes"]}).encode, {"x": ["true"]}) == "column 'x'"


def test_a_constant_meets_other_values_with_a_warning():
    schema = infer_schema({"rare": [0, 0, 0], "y": [0.5, 1, 2]})
    with pytest.warns(UserWarning, match="column 'rare'"):
        found = schema.encode({"rare": [0, 1, np.nan], "y": [1, 2, 3]})
    np.testing.assert_array_equal(found[:, 0], [0, 0, np.nan])


def test_rows_for_a_fitted_model_are_not_judged_by_their_own_range():
    schema = infer_schema({"latitude": [47.0, 55.0, 52.5], "views": [3.5, 2e8, 1.0]})
    two = {"latitude": [52.52001, 52.52041], "views": [225211923, 225211924]}
    assert schema.encode(two, fitted=True).shape == (2, 2)
    assert refused_argument(schema.encode, two) == "table"


def test_times_of_any_unit_are_words_and_blanks_are_gaps():
    days = np.array(["2020-01-01", "NaT", "2020-01-02"], "M8[ns]")
    read = raw_column("day", days)
    assert read.words == ("2020-01-01 00:00:00", "2020-01-02 00:00:00")
    assert read.missing.tolist() == [False, True, False]
    assert raw_column("day", days.astype("M8[s]")).words == read.words
    assert np.isnan(raw_column("lag", np.array([1, 2], "m8[ns]")).numbers).all()
    assert raw_column("a", [" ", "b"]).missing.tolist() == [True, False]


def test_words_of_digits_are_known_again_as_numbers():
    schema = infer_schema({"code": ["01", "02", "10", "01"]})
    assert schema.encode({"code": [2, 1, np.nan]})[:2, 0].tolist() == [1.0, 0.0]
    assert schema.decode(schema.encode({"code": [2, 10]}))["code"].tolist() == ["02", "10"]


def test_long_whole_numbers_keep_their_digits_as_words():
    codes = [1234567890123456, 1234567890123457]
    column = infer_schema({"code": codes * 3}).columns[0]
    assert column.values == ("1234567890123456", "1234567890123457")
