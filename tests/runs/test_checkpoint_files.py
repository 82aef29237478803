import json

import pytest
import torch

from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.checkpoints import (
    FORMAT,
    RECORD_FILE,
    STATE_FILE,
    CheckpointRecord,
    DamagedCheckpointError,
    read_checkpoint,
    verify_checkpoint,
)
from discrete_vae.runs.checkpoints import write_checkpoint as write

META = {"epoch": 2, "rate": 0.1 + 0.2, "sizes": [1, 2], "none": None}


def write_checkpoint(folder, step, tensors, meta):
    write(folder, CheckpointRecord(step, meta), tensors)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1).contiguous().view(torch.uint8)


@pytest.fixture
def folder(tmp_path):
    write_checkpoint(tmp_path, 5, {"weight": torch.arange(6.0).reshape(2, 3)}, META)
    return tmp_path


def test_every_kind_of_tensor_comes_back_bit_for_bit(tmp_path):
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
    write_checkpoint(tmp_path, 1, tensors, {})
    loaded = read_checkpoint(tmp_path, 1).tensors
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert loaded[name].shape == tensor.shape
        assert torch.equal(as_bytes(loaded[name]), as_bytes(tensor))
        assert not loaded[name].requires_grad


def test_a_checkpoint_may_hold_no_tensors(tmp_path):
    write_checkpoint(tmp_path, 0, {}, {"only": "values"})
    assert read_checkpoint(tmp_path, 0).meta == {"only": "values"}


def test_plain_values_come_back_exactly(folder):
    assert read_checkpoint(folder, 5).meta == META
    assert verify_checkpoint(folder, 5) == CheckpointRecord(5, META)


def test_every_flipped_byte_of_the_state_is_noticed(folder):
    path = folder / STATE_FILE
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(DamagedCheckpointError, match=f"a {STATE_FILE} with another SHA-256"):
            read_checkpoint(folder, 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"meta": {**META, "epoch": 3}}, "other values"),
        ({"meta": [1]}, "unknown form"),
        ({"format": FORMAT + 1}, "unknown form"),  # all but that digit as it was saved
        ({"format": "2"}, "unknown form"),
        ({"sha256": None}, "unknown form"),
        ({"step": 6}, "other values"),
        ({"best": {"step": 1}}, "other values"),
        ({"interim": True}, "other values"),
    ],
)
def test_changed_records_are_noticed(folder, change, message):
    path = folder / RECORD_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DamagedCheckpointError, match=message):
        verify_checkpoint(folder, 5)


@pytest.mark.parametrize("name", [RECORD_FILE, STATE_FILE])
def test_missing_and_truncated_files_are_noticed(folder, name):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(DamagedCheckpointError, match=name) as caught:
        read_checkpoint(folder, 5)
    assert str(folder) in str(caught.value)
    (folder / name).unlink()
    with pytest.raises(DamagedCheckpointError, match=f"No such file.*{name}"):
        read_checkpoint(folder, 5)


def test_plain_values_among_the_tensors_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=r"tensors\['step'\] must be a torch.Tensor; received a int"):
        write_checkpoint(tmp_path, 1, {"step": 3}, {})  # pyright: ignore


def test_values_that_json_cannot_express_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="meta must hold only what JSON can express"):
        write_checkpoint(tmp_path, 1, {}, {"elbo": float("nan")})
    assert list(tmp_path.iterdir()) == []
