"""Checkpoints with right sums and wrong content: refused by name, before anything uses them."""

import math

import pytest
import torch

from discrete_vae.runs.checkpoints import RECORD_FILE, CheckpointRecord, read_checkpoint, write_checkpoint
from discrete_vae.runs.io import read_json, write_json
from tests.commands.test_train import forget_after

WEIGHT, MOMENT = "model/prior.weight", "optimizer/prior.weight/exp_avg"


def forge(folder, tensors=None, meta=None, **record):
    """Write a checkpoint anew with other tensors and values; None or "gone" as a value takes one away."""
    there = read_checkpoint(folder, int(folder.name.removeprefix("step-")))
    tensors = {name: value for name, value in (there.tensors | (tensors or {})).items() if value is not None}
    meta = {name: value for name, value in (there.meta | (meta or {})).items() if value != "gone"}
    for file in folder.iterdir():
        file.unlink()
    fields = {"best": there.record.best, "interim": False} | record
    write_checkpoint(folder, CheckpointRecord(there.step, meta, **fields), tensors)


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
    *(
        (MOMENT, value)
        for value in (None, torch.zeros(1), torch.zeros(3000, 2), torch.zeros(3, 2, dtype=torch.float64))
    ),
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
    *(
        ("sums", value)
        for value in ("gone", {"parts": [0.0], "count": 0}, {"parts": [0.0] * 4, "count": True})
    ),
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
