"""Released runs: what they hold, that they are checked, and that nothing half is left."""

import json
import shlex
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from discrete_vae import load_dataset, load_run, train
from discrete_vae.cli import main
from discrete_vae.data.splits import subset_indices
from discrete_vae.inference.score import elbo_rows
from discrete_vae.interop import hub
from discrete_vae.interop.hub import card_of_run, release_run, save_for_hub, thinned
from discrete_vae.model import DiscreteVAE
from discrete_vae.runs.checkpoints import STATE_FILE
from discrete_vae.runs.run_directory import RunDirectory
from tests.cli.conftest import snapshot
from tests.refusals import refused, refused_argument
from tests.training.tiny import CONFIG, QuietProgress, changed

QUICK = {"license": "mit", "num_examples": 40, "num_samples": 2}


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory, digits):
    folder = tmp_path_factory.mktemp("release") / "run"
    train(CONFIG, digits, folder, progress=QuietProgress())
    assert main(["evaluate", str(folder), "--num-examples", "20", "--device", "cpu"]) == 0
    return folder


@pytest.fixture
def trained(trained_once, tmp_path):
    return RunDirectory.open(shutil.copytree(trained_once, tmp_path / "run"))


@pytest.fixture(scope="module")
def released(trained_once, digits):
    run = RunDirectory.open(trained_once)
    out = trained_once.parent / "tiny"
    found = release_run(run, load_run(run), digits, out, **QUICK)
    return RunDirectory.open(out), found


def test_it_loads_as_float32_with_the_prior_and_the_chains_bit_for_bit(trained_once, released):
    before, after = load_run(trained_once), load_run(released[0])
    assert (after.step, after.config, after.changed_config) == (before.step, before.config, None)
    assert after.chains.z.equal(before.chains.z)
    matrices = {name for name, value in before.model.named_parameters() if value.ndim > 1}
    for name, value in after.model.state_dict().items():
        own = before.model.state_dict()[name]
        wanted = own.bfloat16().float() if name in matrices - {"prior.weight"} else own
        assert value.dtype == torch.float32
        assert value.equal(wanted), name
    assert after.chains.step(3).equal(before.chains.step(3))


def test_it_has_nothing_of_the_optimizer_and_half_the_bytes(trained_once, released):
    (file,) = released[0].checkpoints_path.glob(f"*/{STATE_FILE}")
    tensors = load_file(file)
    assert {name.partition("/")[0] for name in tensors} == {"model", "chains"}
    kinds = {torch.bfloat16, torch.float32, torch.uint8, torch.int64}
    assert {value.dtype for value in tensors.values()} == kinds
    (whole,) = trained_once.glob(f"checkpoints/step-{released[1].step}/{STATE_FILE}")
    assert file.stat().st_size < whole.stat().st_size / 4


def test_the_difference_is_that_of_the_released_weights_on_the_same_noise(trained_once, released, digits):
    found = released[1]
    x = digits.valid[subset_indices(len(digits.valid), 40)]
    values = [
        elbo_rows(load_run(run).model, x, log_partition=0.0, num_samples=2).value
        for run in (trained_once, released[0])
    ]
    change = values[1] - values[0]
    assert change.any()
    assert found.difference == pytest.approx(change.mean(), abs=1e-9)
    assert found.difference_std_error == pytest.approx(change.std(ddof=1) / np.sqrt(40), rel=1e-6)
    assert found.after - found.before == pytest.approx(found.difference, abs=1e-9)
    said = json.loads(released[0].release_path.read_text())
    assert said["difference"] == found.difference
    assert (said["precision"], said["num_examples"], said["num_samples"]) == ("bfloat16", 40, 2)


def test_weights_of_examples_count_in_the_comparison(trained, digits, tmp_path):
    weights = np.where(np.arange(len(digits.valid)) % 2, 1.0, 1e-9)
    parts = release_run(trained, load_run(trained), digits, tmp_path / "a", **QUICK | {"num_examples": 200})
    weighted = replace(digits, weights={"valid": weights})
    found = release_run(trained, load_run(trained), weighted, tmp_path / "b", **QUICK | {"num_examples": 200})
    chosen = subset_indices(len(digits.valid), 200)
    values = elbo_rows(load_run(trained).model, digits.valid[chosen], log_partition=0.0, num_samples=2).value
    away = values[weights[chosen] == 1].mean() - values.mean()
    assert found.before - parts.before == pytest.approx(away, abs=1e-5)
    assert abs(away) > 0.01


def test_the_card_has_the_figure_its_error_and_what_rounding_did(released):
    run, found = released
    evaluation = json.loads(run.evaluation_path.read_text())["log_likelihood"]
    card = (run.path / "README.md").read_text()
    assert f"| test log-likelihood | {evaluation['value']:.3f} | {evaluation['std_error']:.3f} |" in card
    assert f"by {found.difference:+.4f} ± {found.difference_std_error:.4f} nats" in card
    assert 'load_run("tiny")' in card
    assert "from_pretrained" not in card


def test_a_released_run_goes_to_the_hub_with_both(released, tmp_path):
    folder = save_for_hub(released[0], tmp_path / "hub", name="ada/tiny", license="mit")
    card = (folder / "README.md").read_text()
    assert 'DiscreteVAE.from_pretrained("ada/tiny")' in card
    assert "rounded to bfloat16" in card
    model = DiscreteVAE.from_pretrained(tmp_path / "hub")
    wanted = load_run(released[0]).model
    assert model.decoder.network.output.weight.equal(wanted.decoder.network.output.weight)


def test_cards_tell_of_moved_images_and_of_a_refit(digits, tmp_path):
    moves = {"max-shift": "1", "horizontal-flip": "true", "end": "0.75"}
    config = changed(CONFIG, {f"training.augmentation.{name}": word for name, word in moves.items()})
    run, refitted, small = (str(tmp_path / name) for name in ("run", "refitted", "small"))
    train(config, digits, run, progress=QuietProgress())
    assert main(["refit", run, "--out", refitted, "--num-steps", "3", "--device", "cpu"]) == 0
    assert main(["evaluate", refitted, "--num-examples", "20", "--device", "cpu"]) == 0
    release_run(RunDirectory.open(refitted), load_run(refitted), digits, small, **QUICK)
    for folder in (refitted, small):
        card = card_of_run(RunDirectory.open(folder), name="a/b", license="mit")
        assert "until 0.75 of the run: shifts of at most 1 px, mirrored" in card
        assert "fitted the posterior anew in 3 steps" in card
    assert str(tmp_path) not in (tmp_path / "small/release.json").read_text()
    plain = card_of_run(RunDirectory.open(run), name="a/b", license="mit")
    assert "anew" not in plain


def test_the_card_of_a_later_evaluation_says_so(released, tmp_path):
    folder = shutil.copytree(released[0].path, tmp_path / "copy")
    assert "of the weights as they were trained" in (folder / "README.md").read_text()
    assert main(["evaluate", str(folder), "--num-examples", "21", "--device", "cpu"]) == 0
    card = card_of_run(RunDirectory.open(folder), name="a/b", license="mit")
    assert "These are figures of the weights as they are here." in card
    assert "21 test examples" in card


def test_what_the_run_says_of_itself_is_completed_and_gives_a_card_no_lines(trained, digits, tmp_path):
    said = json.loads(trained.environment_path.read_text())
    said["data"] |= {"name": "a\x1b[2J", "source": "b\n# Forged", "split": "\u202ec"}
    del said["data"]["picture"]  # as in runs of before
    trained.environment_path.write_text(json.dumps(said))
    out = tmp_path / "d\x07"
    release_run(trained, load_run(trained), digits, out, **QUICK)
    lines = (out / "README.md").read_text().split("\n")
    assert all(line.isprintable() for line in lines)
    assert "# Forged" not in lines
    assert any("a\\x1b[2J" in line for line in lines)
    found = json.loads((out / "environment.json").read_text())
    assert found["data"].pop("picture") == {"event_shape": [1, 8, 8], "low": 0.0, "high": 1.0}
    assert found == said


def test_float32_keeps_every_bit_and_the_run_stays_as_it_is(trained, digits, tmp_path):
    before = snapshot(trained.path)
    found = release_run(trained, load_run(trained), digits, tmp_path / "new", precision="float32", **QUICK)
    assert snapshot(trained.path) == before
    assert (found.difference, found.difference_std_error, found.before) == (0.0, 0.0, found.after)
    weights = load_run(trained).model.state_dict()
    released = load_run(tmp_path / "new").model.state_dict()
    assert all(value.equal(weights[name]) for name, value in released.items())
    assert "bfloat16" not in (tmp_path / "new" / "README.md").read_text()


def coarse(tensors, names, rounded=hub.rounded_weights):  # two bits
    return rounded({k: v.mul(2).round().div(2) if k in names else v for k, v in tensors.items()}, names)


def no_space(*_, **__):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("part", "fault", "said"),
    [("rounded_weights", coarse, "precision bfloat16"), ("card_of_run", no_space, "new must be writable")],
)
def test_what_fails_leaves_nothing(trained, digits, tmp_path, monkeypatch, part, fault, said):
    monkeypatch.setattr(hub, part, fault)
    error = refused(release_run, trained, load_run(trained), digits, tmp_path / "new", **QUICK)
    assert said in str(error)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_checkpoint_that_is_not_the_best_takes_its_own_evaluation(trained, digits, tmp_path):
    step = min(set(trained.checkpoints().steps()) - {load_run(trained).step})
    loaded = load_run(trained, step)
    repair = refused(release_run, trained, loaded, digits, tmp_path / "new", **QUICK).repair
    words = shlex.split(repair.removeprefix("Evaluate it: dvae ").rstrip("."))
    assert main([*words, "--num-examples", "20", "--device", "cpu"]) == 0
    for _ in range(2):  # the second finds the first
        release_run(trained, loaded, digits, tmp_path / "new", **QUICK)
    assert json.loads((tmp_path / "new" / "evaluation.json").read_text())["step"] == step
    assert json.loads(trained.evaluation_path.read_text())["step"] != step


def test_training_does_not_go_on_with_it_and_it_is_not_released_again(released, digits, tmp_path):
    run = released[0]
    before = sorted(run.path.rglob("*"))
    assert refused_argument(train, CONFIG, digits, run, progress=QuietProgress()) == "run_dir"
    assert sorted(run.path.rglob("*")) == before
    argument = refused_argument(release_run, run, load_run(run), digits, tmp_path / "again", **QUICK)
    assert argument == str(run.path)


def test_a_long_log_is_thinned_evenly_with_its_ends():
    lines = [{"step": step} | ({"validation_elbo": 0.0} if step % 10 == 0 else {}) for step in range(1, 1001)]
    kept = thinned(lines)
    steps = [line["step"] for line in kept]
    validated = [line["step"] for line in kept if "validation_elbo" in line]
    assert len(kept) == 100
    assert steps == sorted(steps)
    assert (steps[0], steps[-1], validated[0], validated[-1], len(validated)) == (1, 1000, 10, 1000, 50)
    assert max(np.diff(validated)) == 30
    assert thinned(lines[:20]) == lines[:20]
    assert thinned([]) == []


def full(folder):
    folder.mkdir()
    (folder / "a").touch()
    return folder


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        (lambda run: {"precision": "float16"}, "precision"),
        (lambda run: {"license": " "}, "license"),
        (lambda run: {"num_examples": 1}, "precision"),  # one example is no check
        (lambda run: {"num_examples": -5}, "num_examples"),
        (lambda run: {"num_samples": 0}, "num_samples"),
        (lambda run: {"out": full(run.path.parent / "full")}, "--out"),
        (lambda run: {"out": run.path / "new"}, "--out"),
        (lambda run: {"step": min(set(run.checkpoints().steps()) - {load_run(run).step})}, "evaluation.json"),
        (
            lambda run: run.evaluation_path.unlink() or shutil.rmtree(run.path / "evaluations") or {},
            "evaluation.json",
        ),
    ],
)
def test_what_cannot_be_released_is_refused_and_leaves_nothing(trained, digits, tmp_path, change, argument):
    asked = {"out": tmp_path / "new"} | QUICK | change(trained)
    loaded = load_run(trained, asked.pop("step", "best"))
    assert argument in refused_argument(release_run, trained, loaded, digits, asked.pop("out"), **asked)
    assert {path.name for path in tmp_path.iterdir()} <= {"run", "full"}
