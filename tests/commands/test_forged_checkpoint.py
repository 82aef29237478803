"""Checkpoints with right sums and wrong content: refused by name, before anything uses them."""

import json
import math

import pytest
import torch

from discrete_vae.runs.checkpoints import RECORD_FILE, CheckpointRecord, read_checkpoint, write_checkpoint
from tests.commands.test_train import forget_after

WEIGHT, MOMENT = "model/prior.weight", "optimizer/prior.weight/exp_avg"


def forge(folder, tensors=None, meta=None, **record):
    """Write a checkpoint anew with other tensors and values; None as a value takes one away."""
    there = read_checkpoint(folder, int(folder.name.removeprefix("step-")))
    changed = {**there.tensors, **(tensors or {})}
    values = {**there.meta, **(meta or {})}
    for file in folder.iterdir():
        file.unlink()
    fields = {"best": there.record.best, "interim": False} | record
    write_checkpoint(
        folder,
        CheckpointRecord(
            there.step, {name: value for name, value in values.items() if value != "gone"}, **fields
        ),
        {name: value for name, value in changed.items() if value is not None},
    )


@pytest.fixture
def last(trained):
    forget_after(trained, 4)
    return trained / "checkpoints" / "step-4"


TENSORS = {
    "short moment": ({MOMENT: torch.zeros(1)}, MOMENT),
    "long moment": ({MOMENT: torch.zeros(3000, 2)}, MOMENT),
    "double moment": ({MOMENT: torch.zeros(3, 2, dtype=torch.float64)}, MOMENT),
    "missing moment": ({MOMENT: None}, MOMENT),
    "missing step": ({"optimizer/prior.weight/step": None}, "optimizer/prior.weight/step"),
    "wide step": ({"optimizer/prior.weight/step": torch.zeros(9)}, "optimizer/prior.weight/step"),
    "integer step": ({"optimizer/prior.weight/step": torch.tensor(3)}, "optimizer/prior.weight/step"),
    "foreign moment": ({"optimizer/prior.other/step": torch.tensor(3.0)}, "optimizer/prior.other/step"),
    "double weight": ({WEIGHT: torch.zeros(3, 2, dtype=torch.float64)}, WEIGHT),
    "missing weight": ({WEIGHT: None}, WEIGHT),
    "weight of another shape": ({WEIGHT: torch.zeros(2, 3)}, WEIGHT),
    "chains of another type": ({"chains/z": torch.zeros(20, 1)}, "chains/z"),
    "chains of another shape": ({"chains/z": torch.zeros(20, 9, dtype=torch.uint8)}, "state['z']"),
    "missing chains": ({"chains/z": None}, "chains/z"),
    "missing sweep": ({"chains/sweep": None}, "chains/sweep"),
    "sweep as a real": ({"chains/sweep": torch.tensor(4.0)}, "chains/sweep"),
    "negative sweep": ({"chains/sweep": torch.tensor(-4)}, "state['sweep']"),
    "several seeds": ({"chains/seed": torch.tensor([1, 2])}, "chains/seed"),
    "units as a real": ({"chains/num_units": torch.tensor(5.0)}, "chains/num_units"),
    "chains of another machine": ({"chains/num_units": torch.tensor(6)}, "state['num_units']"),
}


@pytest.mark.parametrize(("tensors", "named"), TENSORS.values(), ids=TENSORS)
def test_tensors_that_do_not_fit_are_refused(cli, trained, last, tensors, named):
    forge(last, tensors)
    verbs = [("train", "--resume", "--run-dir", trained)]
    if not named.startswith("optimizer"):
        verbs.append(("evaluate", trained, "--checkpoint", "last"))
    for words in verbs:
        status, out, err = cli(*words)
        assert (status, out) == (2, "")
        assert err.splitlines()[-1].startswith(f"error: {last}: {named} must ")


@pytest.mark.parametrize(
    ("verb", "value"),
    [
        ("train --resume --run-dir", math.nan),
        ("evaluate", math.inf),
        ("sample", -math.inf),
        ("encode", math.nan),
    ],
)
def test_weights_that_are_not_finite_are_refused_by_every_verb(cli, trained, last, verb, value):
    tensors = read_checkpoint(last, 4).tensors
    name = next(name for name in tensors if name.startswith("model/likelihood"))
    bad = tensors[name].clone()
    bad.view(-1)[-1] = value
    forge(last, {name: bad})
    more = [] if verb.startswith("train") else ["--checkpoint", "last"]
    more += ["--out", trained / "x.npz"] if verb == "encode" else []
    status, out, err = cli(*verb.split(), trained, *more)
    assert (status, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: {last}: {name} must hold finite weights")


HUGE = 10**400
METAS = {
    "no step": ({"step": "gone"}, "step"),
    "step true": ({"step": True}, "step"),
    "another step": ({"step": 3}, "step"),
    "huge step": ({"step": HUGE}, "step"),
    "log Z as text": ({"log_partition": "3.4"}, "log_partition"),
    "huge log Z": ({"log_partition": HUGE}, "log_partition"),
    "negative error": ({"log_partition_std_error": -1.0}, "log_partition_std_error"),
    "no sums": ({"sums": "gone"}, "sums"),
    "short sums": ({"sums": {"parts": [0.0], "count": 0}}, "sums"),
    "wrong count": ({"sums": {"parts": [0.0] * 4, "count": True}}, "sums"),
    "changes as text": ({"config_changes": "none"}, "config_changes"),
}


@pytest.mark.parametrize(("meta", "named"), METAS.values(), ids=METAS)
def test_plain_values_that_do_not_fit_are_refused(cli, trained, last, meta, named):
    forge(last, meta=meta)
    status, out, err = cli("train", "--resume", "--run-dir", trained)
    assert (status, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: {last}: {named} must "), err


@pytest.mark.parametrize(
    ("best", "message"),
    [
        (None, "best must name a checkpoint"),
        ({"step": 4, "validation_elbo": "x"}, "best validation_elbo must be a finite number"),
        ({"step": 4, "validation_elbo": -1.0}, "best validation_score must be a finite number"),
        ({"step": 5, "validation_elbo": -1.0}, "checkpoint.json must hold what was saved"),
        ({"step": True, "validation_elbo": -1.0}, "checkpoint.json must hold what was saved"),
    ],
)
def test_a_best_that_cannot_be_is_refused(cli, trained, last, best, message):
    forge(last, best=best)
    status, _, err = cli("train", "--resume", "--run-dir", trained)
    assert status == 2
    assert f"error: {last}" in err.splitlines()[-1]
    assert message in err


@pytest.mark.parametrize(
    ("verb", "form", "writer"), [("train --resume --run-dir", 1, None), ("evaluate", 4, "9.9")]
)
def test_other_formats_are_not_called_damaged(refused, trained, last, verb, form, writer):
    fields = json.loads((last / RECORD_FILE).read_text())
    fields["format"], fields["sha256"]["record"] = form, "as that version does it"
    fields.pop("discrete_vae")
    if writer is not None:
        fields["discrete_vae"] = writer
    (last / RECORD_FILE).write_text(json.dumps(fields))
    error = refused(*verb.split(), trained)
    assert f"{last / RECORD_FILE} must be of format 3; received format {form}" in error
