"""The files of a run: lost, cut, forged, replaced by pipes, kept from the user, left behind by kills."""

import errno
import functools
import json
import math
import os
import shutil
import stat
import time
from dataclasses import replace

import pytest
import torch

from discrete_vae.cli import main
from discrete_vae.runs import io
from discrete_vae.runs.checkpoints import RECORD_FILE, STATE_FILE, read_checkpoint
from discrete_vae.runs.io import read_json, write_json
from discrete_vae.runs.results import evaluation_store, log_partition_store
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.system import computing_on
from discrete_vae.training import loop
from tests.cli.conftest import FEW, TINY, flip_a_byte, forge, forget_after, snapshot

no_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
resume = ("train", "--resume", "--run-dir")


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
    return run


@pytest.mark.parametrize("content", [None, '{"step": 1', '{"step": 8, "validation_elbo": -1.0}'])
def test_a_lost_or_wrong_best_json_loses_nothing(done, early_best, early_best_once, content):
    if content is None:
        (early_best / "best.json").unlink()
    else:
        (early_best / "best.json").write_text(content)
    assert "checkpoint of step 2" in done("evaluate", early_best)[0]
    assert "Best checkpoint: step 2," in done(*resume, early_best)[0]
    for file in ("best.json", f"checkpoints/step-2/{STATE_FILE}"):
        assert (early_best / file).read_bytes() == (early_best_once / file).read_bytes()


@pytest.mark.filterwarnings("always")
def test_a_damaged_best_checkpoint_is_told_when_a_run_is_resumed(cli, early_best):
    state = early_best / "checkpoints" / "step-2" / STATE_FILE
    flip_a_byte(state)
    for _ in range(2):  # first to its end, then finished
        status, out, err = cli(*resume, early_best)
        assert (status, "Next" in out) == (2, False)
        assert "warning: the best checkpoint so far cannot be used: " in err
        assert f"error: {state} must" in err.splitlines()[-1]
        assert state.exists()


@no_pipes
@pytest.mark.parametrize("name", ["config.json", "environment.json", "metrics.jsonl"])
def test_pipes_among_the_files_are_refused(cli, trained, name):
    forget_after(trained, 4)
    (trained / name).unlink()
    os.mkfifo(trained / name)
    verb = ("sample", trained, *FEW) if name == "metrics.jsonl" else ("evaluate", trained)
    for words in ((*resume, trained), verb):
        status, _, err = cli(*words)
        assert (status, f"error: {trained / name} must be a readable" in err.splitlines()[-1]) == (2, True)


DAMAGED = ["", '{"name": "x", "model": {"num_features": "many"}}', '{"name": ' + "[" * 900 + "]" * 900 + "}"]


@pytest.mark.parametrize("content", DAMAGED, ids=["empty", "words", "brackets"])
def test_a_damaged_config_is_named(refused, trained, content):
    (trained / "config.json").write_text(content)
    for words in ((*resume, trained), ("evaluate", trained)):
        error = refused(*words)
        assert f"error: {trained / 'config.json'}" in error
        assert len(error) < 1000


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("content", [None, b'{"step": 1'])
def test_samples_are_drawn_without_a_log(done, trained, content):
    (trained / "metrics.jsonl").unlink()
    if content is not None:
        (trained / "metrics.jsonl").write_bytes(content)
    out, err = done("sample", trained, *FEW)
    assert "Course of training" not in out
    assert err.splitlines()[0] == computing_on(torch.device("cpu"))
    assert f"warning: {trained / 'metrics.jsonl'} holds no training ELBO" in err
    names = {path.name for path in (trained / "figures").iterdir()}
    assert names == {"reconstructions.png", "samples.png"}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_all_files_follow_the_umask(tmp_path, mask, mode):
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
    original = os.open

    def denied(path, *arguments, **keywords):
        if str(path).endswith(name):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return original(path, *arguments, **keywords)

    monkeypatch.setattr(os, "open", denied)
    status, _, err = cli(*verb, trained)
    assert (status, "Permission denied" in err, name in err) == (2, True, True)
    assert "must hold what was saved" not in err


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot tell whether a process lives")
def test_leftovers_of_kills_are_removed_and_those_of_the_living_stay(done, trained, tmp_path):
    (trained / "figures").mkdir()
    dead = os.fork()
    if dead == 0:
        os._exit(0)
    os.waitpid(dead, 0)
    here, other, living = io._machine(), "00000000", os.getpid()
    assert other != here

    def left(name, machine=here, process=dead):
        return trained / name.format(f"{machine}-{process}-0123456789abcdef")

    old = [left(".tmp-old-{}", other, living), left(".tmp-older-{}", here, living)]
    gone = [left(".tmp-config.json-{}"), left("figures/.tmp-samples.png-{}"), *old]
    gone.append(left("checkpoints/.tmp-step-8-{}", here, living))
    kept = [left(".tmp-evaluation.json-{}", here, living), left("figures/.tmp-samples.png-{}", other)]
    kept += [left("../linked/.tmp-x-{}"), trained / ".tmp-of-the-user"]
    (tmp_path / "linked").mkdir()
    (trained / "link").symlink_to(tmp_path / "linked")
    for path in gone + kept:
        path.touch()
    for path in (*old, kept[-1]):
        os.utime(path, (time.time() - 25 * 3600,) * 2)
    done(*resume, trained)
    assert [path.name for path in gone if path.exists()] == []
    assert [path.name for path in kept if not path.exists()] == []


RESUMED = ((*resume, "RUN"), ("evaluate", "RUN", "--num-samples", 2))
DRAWN = (("sample", "RUN", *FEW), ("report", "RUN", "--num-examples", 20))


@pytest.mark.parametrize(
    ("place", "exists", "verbs"),
    [
        ("evaluations", True, RESUMED),
        ("evaluations", False, RESUMED),
        ("log_partitions", True, [("log-partition", "RUN", "--health-sweeps", 20)]),
        ("evaluation-parts", True, RESUMED),
        ("figures", True, DRAWN),
        ("figures/gone", False, DRAWN),
        ("checkpoints", True, RESUMED),
        ("checkpoints/step-6", True, RESUMED),
        ("tensorboard", True, RESUMED),
        ("metrics.jsonl", True, RESUMED),
        ("metrics.jsonl", False, RESUMED),
        ("best.json", True, RESUMED),
    ],
)
@pytest.mark.filterwarnings("always")
def test_a_link_out_of_a_run_writes_nothing_there(cli, trained, tmp_path, place, exists, verbs):
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
    before = contents_of(outside)
    for words in verbs:
        status, _, err = cli(*(trained if word == "RUN" else word for word in words))
        assert status == 0 or (status, str(path) in err) == (2, True), err
        assert contents_of(outside) == before


def contents_of(path):
    return snapshot(path) if path.is_dir() else path.exists() and path.read_bytes()


def test_a_link_that_stays_in_the_run_and_one_to_a_file_that_is_read_are_no_matter(done, trained, tmp_path):
    (trained / "pictures").mkdir()
    (trained / "figures").symlink_to("pictures")
    shutil.move(trained / "config.json", tmp_path / "config.json")
    (trained / "config.json").symlink_to(tmp_path / "config.json")  # as in the hub's cache
    done("sample", trained, *FEW)
    assert (trained / "pictures" / "samples.png").exists()


@pytest.fixture(scope="module")
def evaluated_once(trained_once, tmp_path_factory):
    run = shutil.copytree(trained_once, tmp_path_factory.mktemp("evaluated") / "run")
    for words in (["evaluate"], ["log-partition", "--health-sweeps", "20"]):
        assert main([*words, str(run)]) == 0
    return run


LOG, ENVIRONMENT, EVALUATION = "metrics.jsonl", "environment.json", "evaluation.json"
OF_ANOTHER_TYPE = [
    (LOG, "elbo", "x", "sample curves"),
    (LOG, "validation_elbo", None, "report"),
    (LOG, "seconds", [1.0], "release resume"),
    (LOG, "step", 10**400, "curves resume"),
    (ENVIRONMENT, "device", [], "report resume"),
    (ENVIRONMENT, "packages", 3, "resume evaluate"),
    (ENVIRONMENT, "data.columns", 5, "evaluate"),
    (ENVIRONMENT, "data.picture.event_shape", [4, "x"], "sample"),
    (EVALUATION, "log_likelihood.value", "x", "report release evaluate"),
    (EVALUATION, "log_partition.best", None, "score release"),
    (EVALUATION, "log_partition.best.value", 10**400, "score evaluate"),
    (EVALUATION, "config.num_examples", "all", "evaluate"),
    (EVALUATION, "step", "6", "score evaluate"),
    ("evaluations", "config", None, "evaluate"),
    ("log_partition.json", "estimates", {}, "score histogram log-partition"),
    ("log_partition.json", "estimates.0.value", "x", "report score histogram"),
    ("log_partition.json", "exact", "x", "histogram"),
    ("log_partitions", "config.std_error", "x", "log-partition"),
]
WORDS = {
    "resume": resume,
    "sample": ("sample", *FEW),
    "report": ("report", "--num-examples", "20"),
    "curves": ("figure", "training-curves"),
    "histogram": ("figure", "log-partition-histogram"),
    "release": ("release", "--license", "mit", "--out", "released"),
}


@pytest.mark.parametrize(("name", "field", "value", "verbs"), OF_ANOTHER_TYPE)
def test_a_value_of_another_type_is_refused_with_its_file_and_field(
    cli, evaluated_once, tmp_path, monkeypatch, name, field, value, verbs
):
    monkeypatch.chdir(tmp_path)
    run = shutil.copytree(evaluated_once, tmp_path / "run")
    file = run / name if (run / name).is_file() else next((run / name).iterdir())
    if "resume" in verbs:
        forget_after(run, 4)
    lines = [json.loads(line) for line in file.read_text().splitlines()] if name == LOG else []
    fields = next(line for line in lines if field in line) if lines else read_json(file)
    *places, last = (int(word) if word.isdigit() else word for word in field.split("."))
    place = functools.reduce(lambda place, each: place[each], places, fields)
    place[last] = value
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines) if lines else json.dumps(fields))
    for verb in verbs.split():
        status, _, err = cli(*WORDS.get(verb, (verb,)), run)
        assert (status, str(file) in err.splitlines()[-1]) == (2, True), err
        if value != 10**400:  # which Python does not read
            assert f"'{field}" in err.splitlines()[-1]


def test_results_of_other_weights_at_the_same_step_do_not_count(cli, done, evaluated_once, tmp_path):
    """A released run takes up those of its original; after another training in the folder there are none."""
    run, released = shutil.copytree(evaluated_once, tmp_path / "run"), tmp_path / "released"
    done("release", run, "--out", released, "--license", "mit")
    for folder in (run, released):
        assert "kept in evaluation.json" in done("score", folder)[0]
    for folder in (run, released):
        saved = RunDirectory.open(folder).checkpoints().load("best")
        bias = {"model/prior.bias": saved.tensors["model/prior.bias"] + 1}
        forge(saved.folder, bias, {"released_from": "gone"})
        assert "kept in" not in done("score", folder)[0]
    assert cli("release", run, "--out", tmp_path / "again", "--license", "mit")[0] == 2
    done("evaluate", run)
    assert "kept in evaluation.json" in done("score", run)[0]


def test_an_estimate_that_did_not_converge_stands_back(done, evaluated_once, tmp_path):
    run = shutil.copytree(evaluated_once, tmp_path / "run")
    done("log-partition", run)
    directory, evaluation = RunDirectory.open(run), read_json(run / "evaluation.json")
    evaluation["log_partition"]["best"]["std_error"] = 0.003
    evaluation["config"]["num_samples"] *= 2  # more complete than what is there, as are more repeats
    evaluation_store(directory).add(evaluation)
    fields = read_json(run / "log_partition.json")
    for exact, error, converged, wanted in (
        (fields["exact"], 0.1, True, "log_partition"),
        (None, 0.001, False, "evaluation"),
        (None, 0.001, True, "log_partition"),
    ):
        estimates = 2 * [each | {"std_error": error, "converged": converged} for each in fields["estimates"]]
        fields |= {"exact": exact, "estimates": estimates}  # one that is exact goes before estimates
        log_partition_store(directory).add(fields)
        assert f"kept in {wanted}.json" in done("score", run)[0]


# Checkpoints with right sums and wrong content, refused by name before anything uses them.

WEIGHT, MOMENT = "model/prior.weight", "optimizer/prior.weight/exp_avg"


@pytest.fixture
def refused_of(cli, trained):
    """The last line of the error with which a verb refuses a checkpoint of the run."""

    def run(verb, *more):
        words = ("train", "--resume", "--run-dir", trained) if verb == "train" else (verb, trained, *more)
        status, out, err = cli(*words)
        assert (status, out) == (2, "")
        return err.splitlines()[-1]

    return run


@pytest.fixture
def last(trained):
    forget_after(trained, 4)
    return trained / "checkpoints" / "step-4"


TENSORS = [
    *((MOMENT, value) for value in (None, torch.zeros(1), torch.zeros(3, 2, dtype=torch.float64))),
    *(("optimizer/prior.weight/step", value) for value in (None, torch.zeros(9), torch.tensor(3))),
    ("optimizer/prior.other/step", torch.tensor(3.0)),
    *((WEIGHT, value) for value in (None, torch.zeros(2, 3), torch.zeros(3, 2, dtype=torch.float64))),
    ("chains/z", None),
    ("chains/sweep: state['sweep']", torch.tensor(-4)),
]


@pytest.mark.parametrize(("name", "value"), TENSORS)
def test_tensors_that_do_not_fit_are_refused(refused_of, last, name, value):
    name, _, named = name.partition(": ")
    forge(last, {name: value})
    assert refused_of("train").startswith(f"error: {last}: {named or name} must ")
    if not name.startswith("optimizer"):
        error = refused_of("evaluate", "--checkpoint", "last")
        assert error.startswith(f"error: {last}: {named or name} must ")


@pytest.mark.parametrize(
    ("verb", "value"),
    [("train", math.nan), ("evaluate", math.inf), ("sample", -math.inf), ("encode", math.nan)],
)
def test_weights_that_are_not_finite_are_refused_by_every_verb(refused_of, trained, last, verb, value):
    tensors = read_checkpoint(last, 4).tensors
    name = next(name for name in tensors if name.startswith("model/likelihood"))
    bad = tensors[name].clone()
    bad.view(-1)[-1] = value
    forge(last, {name: bad})
    more = ["--out", trained / "x.npz"] if verb == "encode" else []
    error = refused_of(verb, "--checkpoint", "last", *more)
    assert error.startswith(f"error: {last}: {name} must hold finite weights")


METAS = [
    *(("step", value) for value in ("gone", True, 3, 10**400)),
    *(("log_partition", value) for value in ("3.4", 10**400)),
    ("log_partition_std_error", -1.0),
    ("sums", "gone"),
    ("sums", {"parts": [0.0], "count": 0}),
    ("sums", {"parts": [0.0] * 4, "count": True}),
    ("config_changes", "none"),
    ("best_trained: best_trained std_error", {"step": 4, "score": -1.0, "lead": 0.5}),
]


def test_plain_values_that_do_not_fit_are_refused(refused_of, last):
    right = read_checkpoint(last, 4).meta
    for name, value in METAS:
        name, _, named = name.partition(": ")
        forge(last, meta=right | {name: value})
        assert refused_of("train").startswith(f"error: {last}: {named or name} must "), (name, value)


BESTS = [
    (None, "best must name a checkpoint"),
    ({"step": 4, "validation_elbo": "x"}, "best validation_elbo must be a finite number"),
    ({"step": 4, "validation_elbo": -1.0}, "best validation_score must be a finite number"),
    ({"step": 5, "validation_elbo": -1.0}, "checkpoint.json must hold what was saved"),
    ({"step": True, "validation_elbo": -1.0}, "checkpoint.json must hold what was saved"),
]


@pytest.mark.parametrize(("best", "message"), BESTS)
def test_a_best_that_cannot_be_is_refused(refused_of, last, best, message):
    forge(last, best=best)
    error = refused_of("train")
    assert f"error: {last}" in error
    assert message in error


@pytest.mark.parametrize(
    ("verb", "form", "writer"), [("train", 1, {}), ("evaluate", 4, {"discrete_vae": "9.9"})]
)
def test_other_formats_are_not_called_damaged(refused_of, last, verb, form, writer):
    fields = read_json(last / RECORD_FILE)
    fields["format"], fields["sha256"]["record"] = form, "as that version does it"
    del fields["discrete_vae"]
    write_json(last / RECORD_FILE, fields | writer)
    assert f"{last / RECORD_FILE} must be of format 3; received format {form}" in refused_of(verb)
