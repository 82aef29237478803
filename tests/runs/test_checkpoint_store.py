import errno
import threading

import pytest
import torch
from safetensors import SafetensorError

from discrete_vae.errors import InvalidInputError
from discrete_vae.runs import checkpoints
from discrete_vae.runs.checkpoints import (
    RECORD_FILE,
    STATE_FILE,
    CheckpointStore,
    CheckpointWriteError,
    DamagedCheckpointError,
)


def state(step: int) -> dict[str, torch.Tensor]:
    return {"bias": torch.full((3,), float(step))}


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path / "checkpoints", tmp_path / "best.json", keep_last=3)


@pytest.fixture
def filled(store):
    for step in (10, 20, 30):
        store.save(step, state(step), {"epoch": step // 10})
    return store


def damage(store, step):
    path = store.folder(step) / STATE_FILE
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def names(store):
    return sorted(entry.name for entry in store.path.iterdir())


def test_a_new_run_has_no_checkpoint(store):
    assert store.steps() == ()
    assert store.best() is None
    with pytest.raises(InvalidInputError, match=r"'last'.*has saved no checkpoint yet"):
        store.load("last")
    assert not store.path.exists()


def test_checkpoints_are_loaded_by_step_and_as_the_last(filled):
    assert filled.steps() == (10, 20, 30)
    assert filled.load("last").step == 30
    assert filled.load(20).meta == {"epoch": 2}
    assert torch.equal(filled.load(20).tensors["bias"], state(20)["bias"])
    assert sorted(entry.name for entry in filled.folder(20).iterdir()) == [RECORD_FILE, STATE_FILE]


@pytest.mark.parametrize("step", [15, -1, True, "first"])
def test_a_checkpoint_that_is_not_there_is_refused_with_a_list(filled, step):
    with pytest.raises(InvalidInputError, match=r"There are: 10, 20, 30\."):
        filled.load(step)


def test_the_newest_and_the_best_stay(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints", tmp_path / "best.json", keep_last=2)
    for step in range(10, 70, 10):
        store.save(step, state(step), {}, best={"elbo": -80.0} if step == 20 else None)
    assert store.steps() == (20, 50, 60)
    assert store.best() == {"step": 20, "elbo": -80.0}
    assert store.load("best").step == 20
    store.save(70, state(70), {}, best={"elbo": -79.0})
    assert store.steps() == (60, 70)
    assert store.load("best").step == 70


def test_without_a_best_one_the_message_offers_others(filled):
    with pytest.raises(InvalidInputError, match=r"'best'.*There are: 10, 20, 30"):
        filled.load("best")


@pytest.mark.parametrize(
    "content", [None, '{"step": 3', "{}", '{"step": NaN}', '{"step": "x"}', '{"step": 30, "elbo": -80.0}']
)
def test_the_best_is_what_the_newest_checkpoint_says_whatever_best_json_says(tmp_path, content):
    store = CheckpointStore(tmp_path / "checkpoints", tmp_path / "best.json", keep_last=2)
    for step in (10, 20, 30):
        store.save(step, state(step), {}, best={"elbo": -80.0} if step == 10 else None)
    whole = store.best_path.read_text()
    if content is None:
        store.best_path.unlink()
    else:
        store.best_path.write_text(content)
    assert store.load("best").step == 10
    assert not store.best_path.exists() if content is None else store.best_path.read_text() == content
    store.save(40, state(40), {})
    store.save(50, state(50), {})
    assert store.steps() == (10, 40, 50)
    assert store.best_path.read_text() == whole
    assert store.load("best").step == 10


def test_best_json_is_repaired(filled):
    filled.save(40, state(40), {}, best={"elbo": -1.0})
    before = filled.best_path.stat()
    filled.repair_best()
    assert filled.best_path.stat().st_ino == before.st_ino
    filled.best_path.write_text('{"step": 20, "elbo": -1.0}')
    filled.repair_best()
    assert filled.best_path.read_text() == '{\n  "step": 40,\n  "elbo": -1.0\n}\n'


def test_the_best_without_its_folder_is_named(filled):
    filled.save(40, state(40), {}, best={"elbo": -1.0})
    filled.save(50, state(50), {})
    filled.folder(40).rename(filled.path / "elsewhere")
    with pytest.raises(InvalidInputError, match="the best, step 40, whose folder is gone.*There are: 30, 50"):
        filled.load("best")


def test_a_damaged_newest_record_is_told_when_the_best_is_loaded(filled):
    filled.save(40, state(40), {}, best={"elbo": -1.0})
    filled.save(50, state(50), {}, best={"elbo": -0.5})
    (filled.folder(50) / RECORD_FILE).write_text("{}")
    with pytest.warns(UserWarning, match="step-50 is damaged; the best up to step 40 is taken"):
        assert filled.load("best").step == 40


def test_what_may_be_the_best_is_never_removed(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints", tmp_path / "best.json", keep_last=1)
    store.save(10, state(10), {}, best={"elbo": -80.0})
    store.save(20, state(20), {}, best={"elbo": -70.0})
    (store.folder(20) / RECORD_FILE).write_text("{}")
    for step in (30, 40, 50):
        store.save(step, state(step), {})
    assert store.steps() == (
        20,
        50,
    )  # step 10 was removed by the save of step 20, when it was not the best any more
    assert store.best() is None


def test_checkpoints_without_an_intact_record_are_kept(filled):
    for step in filled.steps():
        (filled.folder(step) / RECORD_FILE).unlink()
    assert filled.newest() is None
    filled.repair_best()
    filled.keep_last = 1
    filled.save(40, state(40), {})
    assert filled.steps() == (10, 20, 30, 40)


def test_an_interim_checkpoint_is_removed_by_the_next_and_takes_no_ones_place(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints", tmp_path / "best.json", keep_last=2)
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


def test_a_step_before_the_newest_is_refused(filled):
    with pytest.raises(InvalidInputError, match="step must be an integer of at least 30"):
        filled.save(25, state(25), {})


@pytest.mark.parametrize("which", ["best", "last"])
def test_a_checkpoint_that_is_removed_while_it_is_read_is_chosen_anew(tmp_path, monkeypatch, which):
    from discrete_vae.runs import checkpoints

    store = CheckpointStore(tmp_path / "checkpoints", tmp_path / "best.json", keep_last=1)
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
    with pytest.raises(InvalidInputError, match="There are: 20"):
        store.load(10)


def test_a_record_that_is_removed_while_it_is_read_is_chosen_anew(tmp_path, monkeypatch):
    from discrete_vae.runs import checkpoints

    store = CheckpointStore(tmp_path / "checkpoints", tmp_path / "best.json", keep_last=1)
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
    with pytest.raises(
        DamagedCheckpointError, match=r"step-30 must hold what was saved.*Step 20, before it, is good"
    ):
        filled.load("last")
    damage(filled, 20)
    with pytest.raises(DamagedCheckpointError, match=r"step-30.*Step 10, before it, is good"):
        filled.load("last")
    damage(filled, 10)
    with pytest.raises(DamagedCheckpointError, match=r"step-30.*There is no good one before it"):
        filled.load("last")


def test_removing_the_damaged_folder_resumes_from_the_one_before(filled):
    damage(filled, 30)
    for file in filled.folder(30).iterdir():
        file.unlink()
    filled.folder(30).rmdir()
    assert filled.load("last").step == 20


def test_leftovers_are_ignored_and_removed_by_the_next_save(filled):
    leftover = filled.path / ".tmp-step-40-0123"
    leftover.mkdir()
    (leftover / STATE_FILE).write_bytes(b"half")
    assert filled.load("last").step == 30
    filled.save(50, state(50), {})
    assert names(filled) == ["step-20", "step-30", "step-50"]


def test_saving_a_step_again(filled):
    before = (filled.folder(30) / STATE_FILE).stat().st_ino
    filled.save(30, state(30), {"epoch": 3})  # the same: the good one is not put at risk
    assert (filled.folder(30) / STATE_FILE).stat().st_ino == before
    filled.save(30, state(31), {"epoch": 3})
    assert torch.equal(filled.load(30).tensors["bias"], state(31)["bias"])
    filled.save(30, state(31), {"epoch": 4})
    assert filled.load(30).meta == {"epoch": 4}
    filled.save(30, {**state(31), "more": torch.zeros(1)}, {"epoch": 4})
    assert set(filled.load(30).tensors) == {"bias", "more"}
    assert names(filled) == ["step-10", "step-20", "step-30"]


def test_saving_replaces_a_damaged_checkpoint(filled):
    damage(filled, 30)
    filled.save(30, state(30), {"epoch": 3})
    assert filled.load("last").step == 30


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), SafetensorError("I/O error: No space left on device")],
)
def test_a_full_disk_leaves_the_checkpoints_before_intact(filled, monkeypatch, error):
    def full(tensors, path):
        path.write_bytes(b"half a file")
        raise error

    monkeypatch.setattr(checkpoints, "save_file", full)
    with pytest.raises(
        CheckpointWriteError, match=r"step-40 must be written.*No space left.*step 30, the last before it"
    ):
        filled.save(40, state(40), {})
    monkeypatch.undo()
    assert names(filled) == ["step-10", "step-20", "step-30"]
    assert [filled.load(step).step for step in filled.steps()] == [10, 20, 30]
    filled.save(40, state(40), {})
    assert filled.load("last").step == 40


def test_a_full_disk_at_the_first_save(store, monkeypatch):
    def full(tensors, path):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints, "save_file", full)
    with pytest.raises(CheckpointWriteError, match="there is none before it"):
        store.save(1, state(1), {})
    assert store.steps() == ()


def test_an_interrupt_while_saving_leaves_no_half_checkpoint(filled, monkeypatch):
    def interrupted(tensors, path):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        filled.save(40, state(40), {})
    assert names(filled) == ["step-10", "step-20", "step-30"]


@pytest.mark.parametrize("step", [-1, 1.0, True])
def test_bad_steps_are_refused(store, step):
    with pytest.raises(InvalidInputError, match="step must be a non-negative integer"):
        store.save(step, state(1), {})


def test_bad_values_are_refused_and_nothing_is_written(store):
    with pytest.raises(InvalidInputError, match="meta must hold only"):
        store.save(1, state(1), {"elbo": float("inf")})
    with pytest.raises(InvalidInputError, match="best must hold only"):
        store.save(1, state(1), {}, best={"elbo": float("nan")})
    assert store.steps() == ()
    assert not store.best_path.exists()


def test_at_least_one_checkpoint_is_kept(tmp_path):
    with pytest.raises(InvalidInputError, match="keep_last must be a positive integer"):
        CheckpointStore(tmp_path, tmp_path / "best.json", keep_last=0)


def test_a_reader_beside_the_writer_always_finds_a_whole_checkpoint(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints", tmp_path / "best.json", keep_last=1)
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
