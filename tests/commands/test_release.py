"""dvae release: a run that the other verbs take, and what is refused."""

import json

import pytest

from discrete_vae.load import load_run
from tests.commands.conftest import snapshot

WORDS = ("--license", "mit", "--precision", "float32")  # four validation examples of a tiny run tell little


@pytest.fixture
def evaluated(cli, trained):
    assert cli("evaluate", trained, "--num-samples", "10")[0] == 0
    return trained


def test_the_released_run_is_evaluated_and_sampled(cli, evaluated, tmp_path):
    new = tmp_path / "released" / "mine"
    status, out, err = cli("release", evaluated, "--out", new, *WORDS)
    assert status == 0, err
    assert "a difference of +0.0000 +- 0.0000" in out
    total = sum(path.stat().st_size for path in new.rglob("*") if path.is_file())
    (state,) = new.rglob("*.safetensors")
    assert f"Written to {new}: {total:,} bytes, {state.stat().st_size:,} of them weights and chains" in out
    assert out.endswith(f"Next: dvae sample {new}\n")
    assert (new / "README.md").read_text().splitlines()[1] == 'license: "mit"'
    assert load_run(new).step == load_run(evaluated).step
    for words in (
        ["evaluate", "--num-samples", "10"],
        ["sample", "--num-rows", "2", "--num-sweeps", "2"],
    ):
        status, _, err = cli(words[0], new, *words[1:])
        assert (status, "warning" in err.lower()) == (0, False), err


def test_the_number_of_examples_is_given(cli, evaluated, tmp_path):
    assert cli("release", evaluated, "--out", tmp_path / "new", *WORDS, "--num-examples", "2")[0] == 0
    assert json.loads((tmp_path / "new" / "release.json").read_text())["num_examples"] == 2


def test_the_same_request_finds_its_result_and_another_one_is_refused(cli, refused, evaluated, tmp_path):
    words = ["release", evaluated, "--out", tmp_path / "new", *WORDS]
    _, first, _ = cli(*words)
    before = snapshot(tmp_path)
    status, again, err = cli(*words)
    assert status == 0, err
    assert snapshot(tmp_path) == before
    assert first.splitlines()[:2] == again.splitlines()[:2]
    for other in (["--seed", "1"], ["--num-samples", "3"]):
        assert "--out must" in refused(*words, *other)
    assert "--out must" in refused(*words[:-4], "--license", "x", *WORDS[2:])


def test_what_is_refused(refused, trained, tmp_path):
    new = tmp_path / "new"
    assert "evaluation.json must" in refused("release", trained, "--out", new, *WORDS)
    assert "--out must" in refused("release", trained, *WORDS)
    assert "--license must" in refused("release", trained, "--out", new)
    assert "--precision must" in refused("release", trained, "--out", new, *WORDS[:3], "half")


def test_training_does_not_go_on_with_it(cli, refused, evaluated, tmp_path):
    cli("release", evaluated, "--out", tmp_path / "new", *WORDS)
    assert "--run-dir must" in refused("train", "--resume", "--run-dir", tmp_path / "new")
