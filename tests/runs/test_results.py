"""Results that are kept: which file each goes to, which one is the most complete, what is damaged."""

import itertools
from unittest.mock import Mock

import pytest

from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.io import Schema, read_json, write_json
from discrete_vae.runs.results import ResultStore, digest


class Result(Schema):
    n: int
    by: int = 0


def store(folder):
    """Results with a size n, settings "by" and a value."""
    return ResultStore(
        folder / "result.json",
        folder / "results",
        Result,
        name=lambda fields: f"n-{fields['n']}-by-{fields['by']}",
        completeness=lambda fields: (fields["n"],),
    )


@pytest.fixture
def kept(tmp_path):
    return store(tmp_path)


def result(n, by=0, value=0.0):
    return {"n": n, "by": by, "value": value}


def without_sum(fields):
    return {name: value for name, value in fields.items() if name != "sha256"}


def contents(kept):
    return {path.name: without_sum(read_json(path)) for path in sorted(kept.folder.iterdir())}


def test_no_order_of_adding_loses_a_result_or_hides_the_most_complete(tmp_path):
    for number, order in enumerate(itertools.permutations([result(1), result(5), result(3)])):
        folder = tmp_path / str(number)
        folder.mkdir()
        kept = store(folder)
        for fields in order:
            kept.add(fields)
        assert list(contents(kept).values()) == [result(1), result(3), result(5)]
        assert without_sum(kept.most_complete()) == result(5)


def test_what_another_process_adds_meanwhile_is_not_hidden(kept, tmp_path):
    others = iter([result(9), result(7)])

    def completeness(fields):
        for other in others:
            store(tmp_path).add(other)
        return (fields["n"],)

    slow = ResultStore(
        kept.most_complete_path, kept.folder, Result, name=lambda fields: "own", completeness=completeness
    )
    slow.add(result(1))
    assert without_sum(kept.most_complete()) == result(9)


def test_the_same_settings_replace_their_own_file_alone(kept):
    kept.add(result(5, value=1.0))
    kept.add(result(5, by=1, value=2.0))
    assert kept.add(result(5, value=3.0)) == [kept.folder / "n-5-by-0.json", kept.most_complete_path]
    assert contents(kept) == {
        "n-5-by-0.json": result(5, value=3.0),
        "n-5-by-1.json": result(5, by=1, value=2.0),
    }
    assert without_sum(kept.most_complete()) == result(5, value=3.0)


def test_of_equals_the_one_kept_last_stays_the_most_complete(kept):
    for by in (2, 0, 1):
        kept.add(result(5, by=by))
    assert without_sum(kept.most_complete()) == result(5, by=1)
    assert kept.add(result(2)) == [kept.folder / "n-2-by-0.json"]
    assert without_sum(kept.most_complete()) == result(5, by=1)


def test_what_an_earlier_version_left_is_kept(kept):
    write_json(kept.most_complete_path, result(9, value=-67.4))
    kept.add(result(1))
    assert contents(kept) == {"n-1-by-0.json": result(1), "n-9-by-0.json": result(9, value=-67.4)}
    assert without_sum(kept.most_complete()) == result(9, value=-67.4)


def test_a_damaged_result_is_found_first_and_stays(kept):
    kept.add(result(1))
    path = kept.folder / "n-1-by-0.json"
    for text in ("{", '{"by": 0}', '{"n": "1"}', path.read_text().replace("0.0", "0.5")):
        path.write_text(text)
        with pytest.raises(InvalidInputError, match=path.name):
            kept.check()
        assert path.read_text() == text


def test_a_disk_that_refuses_is_one_error_and_loses_nothing(kept, monkeypatch):
    kept.add(result(1))
    full = OSError(28, "No space left on device")
    monkeypatch.setattr("discrete_vae.runs.results.write_json", Mock(side_effect=full))
    with pytest.raises(InvalidInputError, match=r"n-2-by-0\.json"):
        kept.add(result(2))
    assert without_sum(kept.most_complete()) == result(1)


def test_the_digest_does_not_depend_on_the_order_of_settings():
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})
