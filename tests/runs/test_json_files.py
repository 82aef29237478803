import pytest

from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.io import read_json, write_json


def test_what_is_written_is_read(tmp_path):
    fields = {"step": 3, "elbo": -81.00000000000001, "words": ["ζ", None, True]}
    write_json(tmp_path / "a.json", fields)
    assert read_json(tmp_path / "a.json") == fields


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_what_json_cannot_express_is_refused(tmp_path, value):
    with pytest.raises(InvalidInputError, match=r"a\.json must hold only what JSON can express"):
        write_json(tmp_path / "a.json", {"elbo": value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"step": ', "must hold valid JSON"),
        (b"\xff\xfe", "must hold valid JSON"),
        (b"[1]", "must hold a JSON object"),
    ],
)
def test_damage_is_named(tmp_path, content, message):
    path = tmp_path / "best.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=message) as caught:
        read_json(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match="must be a readable file; received No such file"):
        read_json(tmp_path / "best.json")
