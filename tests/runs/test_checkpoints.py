"""Checkpoints: their files bit for bit, every damage noticed, the best never lost."""

import errno
import json
import shutil
import threading
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from discrete_vae.nets.weights import check_weights
from discrete_vae.runs import checkpoints
from discrete_vae.runs.checkpoints import (
    FORMAT,
    RECORD_FILE,
    STATE_FILE,
    CheckpointRecord,
    CheckpointStore,
    CheckpointWriteError,
    DamagedCheckpointError,
    read_checkpoint,
    verify_checkpoint,
    widened_weights,
    write_checkpoint,
)
from tests.refusals import refused, refused_argument

META = {"epoch": 2, "rate": 0.1 + 0.2, "sizes": [1, 2], "none": None}


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1).contiguous().view(torch.uint8)


@pytest.fixture
def folder(tmp_path):
    write_checkpoint(tmp_path, CheckpointRecord(5, META), {"weight": torch.arange(6.0).reshape(2, 3)})
    return tmp_path


def test_every_kind_of_tensor_and_plain_values_come_back_bit_for_bit(tmp_path):
    base = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    tensors = {
        "whole": base,
        "transposed": base.t(),
        "overlapping": base[:, :4],
        "same": base,
        "expanded": torch.ones(3, 1).expand(3, 5),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "empty": torch.zeros(0, 3),
        "half": base.bfloat16(),
        "words": torch.tensor([2**62, -1]),
        "bits": torch.tensor([True, False]),
        "special": torch.tensor([float("nan"), float("inf"), -0.0]),
        "parameter": torch.nn.Parameter(base.clone()),
    }
    write_checkpoint(tmp_path, CheckpointRecord(5, META), tensors)
    assert verify_checkpoint(tmp_path, 5) == CheckpointRecord(5, META)
    loaded = read_checkpoint(tmp_path, 5)
    assert loaded.meta == META
    assert loaded.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        found = loaded.tensors[name]
        assert (found.dtype, found.shape, found.requires_grad) == (tensor.dtype, tensor.shape, False)
        assert torch.equal(as_bytes(found), as_bytes(tensor))


def test_every_flipped_byte_of_the_state_is_noticed(folder):
    path = folder / STATE_FILE
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert damaged_file(read_checkpoint, folder, 5) == str(path)


def damaged_file(read, *arguments):
    """The file that reading a checkpoint finds damaged."""
    with pytest.raises(DamagedCheckpointError) as caught:
        read(*arguments)
    return caught.value.argument


def test_changed_records_are_noticed(folder):
    path = folder / RECORD_FILE
    right = json.loads(path.read_text())
    for change in (
        *({"meta": meta} for meta in ({**META, "epoch": 3}, [1])),
        *({"format": form} for form in (FORMAT + 1, "2")),  # all but that as it was saved
        {"sha256": None},
        {"step": 6},
        {"best": {"step": 1}},
        {"interim": True},
    ):
        path.write_text(json.dumps(right | change))
        assert damaged_file(verify_checkpoint, folder, 5) == str(path)


@pytest.mark.parametrize("name", [RECORD_FILE, STATE_FILE])
def test_missing_and_truncated_files_are_noticed(folder, name):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    assert damaged_file(read_checkpoint, folder, 5) == str(folder / name)
    (folder / name).unlink()
    assert damaged_file(read_checkpoint, folder, 5) == str(folder / name)


# The store of a run.


def state(step: int) -> dict[str, torch.Tensor]:
    return {"bias": torch.full((3,), float(step))}


@pytest.fixture
def make(tmp_path):
    """Make a store, with checkpoints of 10, 20 and 30 steps if asked."""

    def store(keep_last, *, filled=False, best=None):
        made = CheckpointStore(tmp_path / "checkpoints", tmp_path / "best.json", keep_last=keep_last)
        for step in (10, 20, 30) if filled else ():
            reason = {"elbo": -80.0} if step == best else None
            made.save(step, state(step), {"epoch": step // 10}, best=reason)
        return made

    return store


@pytest.fixture
def filled(make):
    return make(3, filled=True)


def damage(store, step):
    path = store.folder(step) / STATE_FILE
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def names(store):
    return sorted(entry.name for entry in store.path.iterdir())


def test_a_new_run_has_no_checkpoint(make):
    store = make(3)
    assert (store.steps(), store.best()) == ((), None)
    assert refused_argument(store.load, "last") == "checkpoint"
    assert not store.path.exists()


def test_checkpoints_are_loaded_by_step_and_as_the_last(filled):
    assert filled.steps() == (10, 20, 30)
    assert filled.load("last").step == 30
    assert filled.load(20).meta == {"epoch": 2}
    assert torch.equal(filled.load(20).tensors["bias"], state(20)["bias"])
    assert sorted(entry.name for entry in filled.folder(20).iterdir()) == [RECORD_FILE, STATE_FILE]
    for step in (15, -1, True, "first", "best"):
        error = refused(filled.load, step)
        assert (error.argument, "10, 20, 30" in error.repair) == ("checkpoint", True)


def test_the_newest_and_the_best_stay(make):
    store = make(2, filled=True, best=20)
    for step in (40, 50, 60):
        store.save(step, state(step), {})
    assert store.steps() == (20, 50, 60)
    assert store.best() == {"step": 20, "elbo": -80.0}
    assert store.load("best").step == 20
    store.save(70, state(70), {}, best={"elbo": -79.0})
    assert store.steps() == (60, 70)
    assert store.load("best").step == 70


def test_a_checkpoint_that_cannot_be_removed_stays_until_it_can(make, monkeypatch):
    store, rename = make(1, filled=True), Path.rename

    def across_layers(self, target):
        if self == store.folder(30):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", across_layers)
        store.save(40, state(40), {})
    assert store.steps() == (30, 40)
    store.save(50, state(50), {})
    assert store.steps() == (50,)


@pytest.mark.parametrize(
    "content", [None, '{"step": 3', "{}", '{"step": NaN}', '{"step": "x"}', '{"step": 30, "elbo": -80.0}']
)
def test_the_best_is_what_the_newest_checkpoint_says_whatever_best_json_says(make, content):
    store = make(2, filled=True, best=10)
    whole = store.best_path.read_text()
    store.best_path.unlink() if content is None else store.best_path.write_text(content)
    assert store.load("best").step == 10
    assert (store.best_path.read_text() if store.best_path.exists() else None) == content
    store.save(40, state(40), {})
    store.save(50, state(50), {})
    assert store.steps() == (10, 40, 50)
    assert store.best_path.read_text() == whole
    assert store.load("best").step == 10


def test_the_best_without_its_folder_is_named_and_a_damaged_newest_record_told(filled):
    filled.save(40, state(40), {}, best={"elbo": -1.0})
    filled.save(50, state(50), {}, best={"elbo": -0.5})
    (filled.folder(50) / RECORD_FILE).write_text("{}")
    with pytest.warns(UserWarning, match="step-50"):
        assert filled.load("best").step == 40
    shutil.rmtree(filled.folder(50))
    filled.save(50, state(50), {})
    filled.folder(40).rename(filled.path / "elsewhere")
    error = str(refused(filled.load, "best"))
    assert "step 40" in error
    assert "30, 50" in error


def test_what_may_be_the_best_is_never_removed(make):
    store = make(1)
    store.save(10, state(10), {}, best={"elbo": -80.0})
    store.save(20, state(20), {}, best={"elbo": -70.0})
    (store.folder(20) / RECORD_FILE).write_text("{}")
    for step in (30, 40, 50):
        store.save(step, state(step), {})
    assert store.steps() == (20, 50)  # the save of step 20 removed step 10, which was not the best any more
    assert store.best() is None


def test_checkpoints_without_an_intact_record_are_kept(filled):
    for step in filled.steps():
        (filled.folder(step) / RECORD_FILE).unlink()
    assert filled.newest() is None
    filled.repair_best()
    filled.keep_last = 1
    filled.save(40, state(40), {})
    assert filled.steps() == (10, 20, 30, 40)


def test_an_interim_checkpoint_is_removed_by_the_next_and_takes_no_ones_place(make):
    store = make(2)
    store.save(3, state(3), {}, interim=True)
    store.save(10, state(10), {}, best={"elbo": -80.0})
    assert store.steps() == (10,)
    store.save(20, state(20), {})
    store.save(30, state(30), {})
    store.save(33, state(33), {}, interim=True)
    assert store.steps() == (10, 20, 30, 33)
    store.save(35, state(35), {}, interim=True)
    assert store.steps() == (10, 20, 30, 35)
    assert (store.load("last").step, store.load("best").step) == (35, 10)
    store.save(40, state(40), {})
    assert store.steps() == (10, 30, 40)


@pytest.mark.parametrize("which", ["best", "last"])
def test_a_checkpoint_that_is_removed_while_it_is_read_is_chosen_anew(make, monkeypatch, which):
    store = make(1)
    store.save(10, state(10), {}, best={"elbo": -80.0})
    original, calls = checkpoints.read_checkpoint, []

    def slow(folder, step):
        calls.append(step)
        if step == 10:  # meanwhile the writer goes on
            store.save(20, state(20), {}, best={"elbo": -70.0})
        return original(folder, step)

    monkeypatch.setattr(checkpoints, "read_checkpoint", slow)
    assert store.load(which).step == 20
    assert calls == [10, 20]
    assert refused_argument(store.load, 10) == "checkpoint"


def test_a_record_that_is_removed_while_it_is_read_is_chosen_anew(make, monkeypatch):
    store = make(1)
    store.save(10, state(10), {}, best={"elbo": -80.0})
    original = checkpoints.read_record

    def slow(folder, step):
        monkeypatch.undo()
        store.save(20, state(20), {}, best={"elbo": -70.0})
        return original(folder, step)

    monkeypatch.setattr(checkpoints, "read_record", slow)
    assert store.newest() == checkpoints.CheckpointRecord(20, {}, {"step": 20, "elbo": -70.0})


def test_a_damaged_checkpoint_is_refused_by_name_and_the_one_before_is_offered(filled):
    damage(filled, 30)
    for good in (20, 10, None):
        for read in (filled.load, filled.verify):
            with pytest.raises(DamagedCheckpointError) as caught:
                read("last")
            assert caught.value.argument == str(filled.folder(30) / STATE_FILE)
            assert [step for step in (10, 20) if str(step) in caught.value.repair] == [good] * bool(good)
        if good:
            damage(filled, good)
    for step in (20, 30):
        shutil.rmtree(filled.folder(step))
    filled.save(20, state(20), {})
    assert filled.load("last").step == 20


def test_leftovers_are_ignored_and_removed_by_the_next_save(filled):
    leftover = filled.path / ".tmp-step-40-0123"
    leftover.mkdir()
    (leftover / STATE_FILE).write_bytes(b"half")
    assert filled.load("last").step == 30
    filled.save(50, state(50), {})
    assert names(filled) == ["step-20", "step-30", "step-50"]


def test_saving_a_step_again(filled):
    for tensors, epoch in (
        (state(31), 3),
        (state(31), 4),
        ({**state(31), "more": torch.zeros(1)}, 4),
        (state(30), 3),
    ):
        filled.save(30, tensors, {"epoch": epoch})
        found = filled.load("last")
        assert (found.step, found.meta, found.tensors.keys()) == (30, {"epoch": epoch}, tensors.keys())
        assert torch.equal(found.tensors["bias"], tensors["bias"])
        assert names(filled) == ["step-10", "step-20", "step-30"]
        damage(filled, 30)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), CheckpointWriteError),
        (SafetensorError("I/O error: No space left on device"), CheckpointWriteError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_save_that_fails_leaves_the_checkpoints_before_intact(make, monkeypatch, error, raised):
    def full(tensors, path):
        path.write_bytes(b"half a file")
        raise error

    store = make(3)
    for step, left in ((30, ()), (40, (30,))):
        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "save_file", full)
            with pytest.raises(raised) as caught:
                store.save(step, state(step), {})
        assert store.steps() == left
        assert names(store) == [f"step-{each}" for each in left]
        assert raised is KeyboardInterrupt or not left or "step 30 is intact" in caught.value.repair
        store.save(step, state(step), {})
        assert store.load("last").step == step


def test_bad_values_are_refused_and_nothing_is_written(filled):
    for argument, step, tensors, meta, best in (
        *(("step", step, {}, {}, None) for step in (-1, 29, 31.0, True)),  # the newest is of step 30
        ("tensors['step']", 31, {"step": 3}, {}, None),
        ("meta", 31, {}, {"elbo": float("inf")}, None),
        ("best", 31, {}, {}, {"elbo": float("nan")}),
    ):
        assert refused_argument(filled.save, step, tensors, meta, best=best) == argument
    assert names(filled) == ["step-10", "step-20", "step-30"]
    assert not filled.best_path.exists()
    assert refused_argument(CheckpointStore, filled.path, filled.best_path, keep_last=0) == "keep_last"


def test_a_reader_beside_the_writer_always_finds_a_whole_checkpoint(make):
    store = make(1)
    store.save(1, state(1), {}, best={"elbo": 0.0})

    def write():
        for step in range(2, 60):
            store.save(step, state(step), {}, best={"elbo": 1.0} if step % 2 else None)

    writer = threading.Thread(target=write)
    writer.start()
    seen = {"best": [0], "last": [0]}
    while writer.is_alive():
        for which, steps in seen.items():
            checkpoint = store.load(which)
            assert torch.equal(checkpoint.tensors["bias"], state(checkpoint.step)["bias"])
            steps.append(checkpoint.step)
    writer.join()
    for which, steps in seen.items():
        assert steps == sorted(steps), which
        assert len(set(steps)) > 3, which


# Other tensors do not pass for weights that a released checkpoint keeps in bfloat16.

LAYER = torch.nn.Linear(70, 30)
TENSORS = {name: value.detach() for name, value in LAYER.state_dict().items()}


def test_half_precision_that_no_record_names_stays_what_it_is():
    tensors = TENSORS | {"weight": TENSORS["weight"].to(torch.bfloat16)}
    for meta in ({}, {"rounded": "weight"}, {"rounded": ["other"]}, {"rounded": None}):
        found = widened_weights(tensors, meta)
        assert found["weight"].dtype == torch.bfloat16
        assert refused_argument(check_weights, LAYER, found) == "weight"
    tensors = TENSORS | {"weight": TENSORS["weight"].half()}
    assert widened_weights(tensors, {"rounded": ["weight"]})["weight"].dtype == torch.float16
