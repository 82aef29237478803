"""The files of a run: lost, cut, replaced by pipes, kept from the user, left behind by kills."""

import errno
import json
import os
import shutil
import stat
import time
from dataclasses import replace

import pytest

from discrete_vae.cli import main
from discrete_vae.runs import io
from discrete_vae.runs.checkpoints import STATE_FILE
from discrete_vae.runs.run_directory import MetricsLog, RunDirectory
from discrete_vae.training import loop
from tests.commands.conftest import TINY, snapshot
from tests.commands.test_forged_checkpoint import forge
from tests.commands.test_train import flip_a_byte, forget_after

no_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
resume = ("train", "--resume", "--run-dir")
SMALL = ("--num-rows", 2, "--num-sweeps", 3, "--num-chains", 2, "--num-draws", 2)


def let_validation_fall(patch):
    """Make each validation worse than the one before, as in a run that fits its training part too closely."""
    original = loop._validate

    def validate(state, *arguments, **keywords):
        estimate, examples = original(state, *arguments, **keywords)
        return replace(estimate, elbo=estimate.elbo - state.step), examples

    patch.setattr(loop, "_validate", validate)


@pytest.fixture(scope="module")
def early_best_once(tmp_path_factory, data_file):
    """A run whose best checkpoint is its first, long before its last."""
    run = tmp_path_factory.mktemp("early") / "run"
    more = ["--training.num-epochs", "10"]
    with pytest.MonkeyPatch.context() as patch:
        let_validation_fall(patch)
        assert main(["train", "--data", str(data_file), "--run-dir", str(run), *TINY, *more]) == 0
    return run


@pytest.fixture
def early_best(early_best_once, tmp_path, monkeypatch):
    """A copy of it, brought back to step 8, with the best at step 2."""
    let_validation_fall(monkeypatch)
    run = shutil.copytree(early_best_once, tmp_path / "early")
    forget_after(run, 8)
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-2", "step-8"]
    return run


@pytest.mark.parametrize("content", [None, '{"step": 1', '{"step": 8, "validation_elbo": -1.0}'])
def test_a_lost_or_wrong_best_json_loses_nothing(cli, done, early_best, early_best_once, content):
    run = early_best
    if content is None:
        (run / "best.json").unlink()
    else:
        (run / "best.json").write_text(content)
    assert "checkpoint of step 2" in cli("evaluate", run)[1]
    out, _ = done(*resume, run)
    assert "Best checkpoint: step 2," in out
    assert (run / "checkpoints" / "step-2").is_dir()
    for file in ("best.json", f"checkpoints/step-2/{STATE_FILE}"):
        assert (run / file).read_bytes() == (early_best_once / file).read_bytes()


@pytest.mark.filterwarnings("always")
def test_a_damaged_best_checkpoint_is_told_when_a_run_is_resumed(cli, early_best):
    run = early_best
    flip_a_byte(run / "checkpoints" / "step-2" / STATE_FILE)
    for _ in range(2):  # first to its end, then finished
        status, out, err = cli(*resume, run)
        assert status == 2
        assert "Next" not in out
        assert "warning: the best checkpoint so far cannot be used: " in err
        assert f"error: {run / 'checkpoints' / 'step-2' / STATE_FILE} must" in err.splitlines()[-1]
        assert (run / "checkpoints" / "step-2").is_dir()


def test_an_empty_run_dir_is_refused(refused, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert "--run-dir must" in refused(*resume, "")
    assert "RUN must" in refused("evaluate", "")


@no_pipes
@pytest.mark.parametrize("name", ["config.json", "environment.json", "metrics.jsonl"])
def test_pipes_among_the_files_are_refused(cli, trained, name):
    forget_after(trained, 4)
    (trained / name).unlink()
    os.mkfifo(trained / name)
    verb = ("sample", trained, *SMALL) if name == "metrics.jsonl" else ("evaluate", trained)
    for words in ((*resume, trained), verb):
        status, _, err = cli(*words)
        assert status == 2
        assert f"error: {trained / name} must be a readable" in err.splitlines()[-1]


DEEP = ["[" * 100_000, '{"seed": ' + "1" * 5_000 + "}", '{"name": ' + "[" * 900 + "]" * 900 + "}"]


@pytest.mark.parametrize("content", DEEP, ids=["brackets", "digits", "900 brackets"])
def test_json_beyond_pythons_limits_is_an_error_that_names_the_file(refused, trained, content):
    (trained / "config.json").write_text(content)
    error = refused("evaluate", trained)
    assert f"error: {trained / 'config.json'}" in error
    assert len(error) < 1000


@pytest.mark.filterwarnings("always")
def test_a_lost_log_is_told_and_training_goes_on(done, trained):
    forget_after(trained, 4)
    (trained / "metrics.jsonl").unlink()
    _, err = done(*resume, trained)
    assert f"warning: {trained / 'metrics.jsonl'} lacks 4 lines, of the steps 1, 2, 3, 4;" in err
    assert [r["step"] for r in MetricsLog(trained / "metrics.jsonl").read() if "elbo" in r] == [5, 6]


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("content", [None, b"", b'{"step": 1'])
def test_samples_are_drawn_without_a_log(done, trained, content):
    (trained / "metrics.jsonl").unlink()
    if content is not None:
        (trained / "metrics.jsonl").write_bytes(content)
    out, err = done("sample", trained, *SMALL)
    assert "Course of training" not in out
    assert f"warning: {trained / 'metrics.jsonl'} holds no training ELBO" in err
    assert sorted(path.name for path in (trained / "figures").iterdir()) == [
        "reconstructions.png",
        "samples.png",
    ]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_all_files_follow_the_umask(tmp_path, mask, mode):
    import torch

    before = os.umask(mask)
    try:
        run = RunDirectory.create(tmp_path / "run")
        run.write_config("{}")
        run.metrics().append({"step": 1})
        run.checkpoints().save(1, {"bias": torch.ones(2)}, {}, best={"elbo": -1.0})
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in run.path.rglob("*") if path.is_file()}
    assert set(modes) == {"config.json", "metrics.jsonl", "best.json", "checkpoint.json", STATE_FILE}
    assert set(modes.values()) == {mode}


@pytest.mark.parametrize(
    ("name", "verb"), [(STATE_FILE, resume), ("checkpoint.json", ("evaluate",)), ("config.json", resume)]
)
def test_what_may_not_be_read_is_not_called_damaged(cli, trained, monkeypatch, name, verb):
    def denied(path, flags, *more, **keywords):
        if str(path).endswith(name):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return original(path, flags, *more, **keywords)

    original = os.open
    monkeypatch.setattr(io.os, "open", denied)
    status, _, err = cli(*verb, trained)
    assert status == 2
    assert "Permission denied" in err
    assert name in err
    assert "must hold what was saved" not in err


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot tell whether a process lives")
def test_leftovers_of_kills_are_removed_and_those_of_the_living_stay(done, trained, tmp_path):
    (trained / "figures").mkdir()
    dead = os.fork()
    if dead == 0:
        os._exit(0)
    os.waitpid(dead, 0)
    token, other = "0123456789abcdef", "00000000"
    assert other != io._machine()
    gone = [
        trained / f".tmp-config.json-{io._machine()}-{dead}-{token}",
        trained / "figures" / f".tmp-samples.png-{io._machine()}-{dead}-{token}",
        trained / "checkpoints" / f".tmp-step-8-{io._machine()}-{os.getpid()}-{token}",
        trained / f".tmp-old-{other}-{os.getpid()}-{token}",
        trained / f".tmp-older-{io._machine()}-{os.getpid()}-{token}",
    ]
    kept = [
        trained / f".tmp-evaluation.json-{io._machine()}-{os.getpid()}-{token}",
        trained / "figures" / f".tmp-samples.png-{other}-{dead}-{token}",
        tmp_path / "linked" / f".tmp-x-{io._machine()}-{dead}-{token}",
        trained / ".tmp-of-the-user",
    ]
    (tmp_path / "linked").mkdir()
    (trained / "link").symlink_to(tmp_path / "linked")
    for path in gone + kept:
        path.touch()
    for path in (*gone[-2:], kept[-1]):
        os.utime(path, (time.time() - 25 * 3600,) * 2)
    done(*resume, trained)
    assert [path.name for path in gone if path.exists()] == []
    assert [path.name for path in kept if not path.exists()] == []


PLACES = ["evaluations", "log_partitions", "evaluation-parts", "figures", "checkpoints", "tensorboard"]


@pytest.mark.parametrize(
    ("place", "exists"),
    [
        *((place, True) for place in (*PLACES, "checkpoints/step-6", "metrics.jsonl", "best.json")),
        *((place, False) for place in ("evaluations", "metrics.jsonl", "figures/gone")),
    ],
)
@pytest.mark.filterwarnings("always")
def test_a_link_out_of_a_run_writes_nothing_there(cli, trained, tmp_path, place, exists):
    outside, path = tmp_path / "outside", trained / place
    forget_after(trained, 4)
    path.parent.mkdir(exist_ok=True)
    is_file = path.suffix in (".json", ".jsonl")
    if exists and path.is_dir():
        shutil.move(path, outside)
    elif exists:
        outside.write_bytes(path.read_bytes()) if is_file else outside.mkdir()
    if path.exists():
        path.unlink() if path.is_file() else shutil.rmtree(path)
    if outside.is_dir():
        (outside / f".tmp-x-{io._machine()}-{os.getpid()}-0123456789abcdef").touch()
    path.symlink_to(outside)
    before = snapshot(tmp_path / "outside") if outside.is_dir() else outside.exists() and outside.read_bytes()
    for words in (
        (*resume, trained),
        ("evaluate", trained, "--num-samples", 2),
        ("log-partition", trained, "--health-sweeps", 20),
        ("sample", trained, *SMALL),
        ("report", trained, "--num-examples", 20),
    ):
        status, _, err = cli(*words)
        if status != 0:
            assert (status, str(path) in err) == (2, True), err
        after = snapshot(outside) if outside.is_dir() else outside.exists() and outside.read_bytes()
        assert after == before


def test_a_link_that_stays_in_the_run_and_one_to_a_file_that_is_read_are_no_matter(done, trained, tmp_path):
    (trained / "pictures").mkdir()
    (trained / "figures").symlink_to("pictures")
    shutil.move(trained / "config.json", tmp_path / "config.json")
    (trained / "config.json").symlink_to(tmp_path / "config.json")  # as in the hub's cache
    done("sample", trained, *SMALL)
    assert (trained / "pictures" / "samples.png").exists()


@pytest.fixture(scope="module")
def evaluated_once(trained_once, tmp_path_factory):
    run = shutil.copytree(trained_once, tmp_path_factory.mktemp("evaluated") / "run")
    for words in (["evaluate"], ["log-partition", "--health-sweeps", "20"]):
        assert main([*words, str(run)]) == 0
    return run


LOG, ENVIRONMENT, EVALUATION = "metrics.jsonl", "environment.json", "evaluation.json"
OF_ANOTHER_TYPE = [
    (LOG, "elbo", "x", ("sample", "curves")),
    (LOG, "validation_elbo", None, ("report",)),
    (LOG, "seconds", [1.0], ("release", "resume")),
    (LOG, "step", 10**400, ("curves", "resume")),
    (ENVIRONMENT, "device", [], ("report", "resume")),
    (ENVIRONMENT, "packages", 3, ("resume", "evaluate")),
    (ENVIRONMENT, "data.columns", 5, ("evaluate",)),
    (ENVIRONMENT, "data.picture.event_shape", [4, "x"], ("sample",)),
    (EVALUATION, "log_likelihood.value", "x", ("report", "release", "evaluate")),
    (EVALUATION, "log_partition.best", None, ("score", "release")),
    (EVALUATION, "log_partition.best.value", 10**400, ("score", "evaluate")),
    (EVALUATION, "config.num_examples", "all", ("evaluate",)),
    (EVALUATION, "step", "6", ("score", "evaluate")),
    ("evaluations", "config", None, ("evaluate",)),
    ("log_partition.json", "estimates", {}, ("score", "histogram", "log-partition")),
    ("log_partition.json", "estimates.0.value", "x", ("report", "score", "histogram")),
    ("log_partition.json", "exact", "x", ("histogram",)),
    ("log_partitions", "config.std_error", "x", ("log-partition",)),
]


@pytest.mark.parametrize(
    ("name", "field", "value", "verbs"),
    OF_ANOTHER_TYPE,
    ids=[f"{name} {field}" for name, field, *_ in OF_ANOTHER_TYPE],
)
def test_a_value_of_another_type_is_refused_with_its_file_and_field(
    cli, evaluated_once, tmp_path, name, field, value, verbs
):
    run = shutil.copytree(evaluated_once, tmp_path / "run")
    file = run / name if (run / name).is_file() else next((run / name).iterdir())
    if "resume" in verbs:
        forget_after(run, 4)
    lines = [json.loads(line) for line in file.read_text().splitlines()] if name == LOG else []
    fields = next(line for line in lines if field in line) if lines else json.loads(file.read_text())
    *places, last = (int(word) if word.isdigit() else word for word in field.split("."))
    place = fields
    for each in places:
        place = place[each]
    place[last] = value
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines) if lines else json.dumps(fields))
    words = {
        "resume": resume,
        "sample": ("sample", *SMALL),
        "report": ("report", "--num-examples", "20"),
        "curves": ("figure", "training-curves"),
        "histogram": ("figure", "log-partition-histogram"),
        "release": ("release", "--license", "mit", "--out", tmp_path / "released"),
    }
    for verb in verbs:
        head = words.get(verb, (verb,))
        status, _, err = cli(*head, run)
        assert (status, str(file) in err.splitlines()[-1]) == (2, True), err
        if value != 10**400:  # which Python does not read
            assert f"'{field}" in err.splitlines()[-1]


def test_results_of_other_weights_at_the_same_step_do_not_count(cli, done, evaluated_once, tmp_path):
    """A released run takes up those of its original; after another training in the folder there are none."""
    run = shutil.copytree(evaluated_once, tmp_path / "run")
    released = tmp_path / "released"
    done("release", run, "--out", released, "--license", "mit")
    for folder in (run, released):
        assert "kept in evaluation.json" in cli("score", folder)[1]
    for folder in (run, released):
        saved = RunDirectory.open(folder).checkpoints().load("best")
        forge(
            saved.folder,
            {"model/prior.bias": saved.tensors["model/prior.bias"] + 1},
            {"released_from": "gone"},
        )
        assert "kept in" not in cli("score", folder)[1]
    assert cli("release", run, "--out", tmp_path / "again", "--license", "mit")[0] == 2
    done("evaluate", run)
    assert "kept in evaluation.json" in cli("score", run)[1]
