"""Weights in bfloat16 in a checkpoint, float32 out of it, and no way for other tensors to pass for them."""

import pytest
import torch

from discrete_vae.errors import InvalidInputError
from discrete_vae.nets.weights import check_weights
from discrete_vae.runs.checkpoints import (
    STATE_FILE,
    CheckpointRecord,
    load_tensors,
    read_checkpoint,
    rounded_weights,
    widened_weights,
    write_checkpoint,
)

LAYER = torch.nn.Linear(70, 30)
TENSORS = {name: value.detach() for name, value in LAYER.state_dict().items()}


def written(folder, names, **meta):
    tensors, rounded = rounded_weights(TENSORS, names)
    write_checkpoint(folder, CheckpointRecord(3, {**rounded, **meta}), tensors)
    return read_checkpoint(folder, 3).tensors


def test_what_is_rounded_comes_back_as_float32_and_all_else_bit_for_bit(tmp_path):
    found = written(tmp_path, ["weight"])
    assert found["bias"].equal(TENSORS["bias"])
    assert found["weight"].dtype == torch.float32
    error = (found["weight"] / TENSORS["weight"] - 1).abs().max()
    assert 0 < error <= 2**-8  # bfloat16 has 8 significant bits
    assert load_tensors(tmp_path / STATE_FILE)["weight"].dtype == torch.bfloat16
    check_weights(LAYER, found)


def test_the_file_takes_half_the_bytes(tmp_path):
    sizes = []
    for names in ([], ["weight"]):
        folder = tmp_path / f"{len(names)}"
        folder.mkdir()
        written(folder, names)
        sizes.append((folder / STATE_FILE).stat().st_size)
    assert sizes[0] - sizes[1] == pytest.approx(2 * 70 * 30, abs=8)


def test_nothing_rounded_says_nothing():
    assert rounded_weights(TENSORS, [])[1] == {}


@pytest.mark.parametrize("meta", [{}, {"rounded": "weight"}, {"rounded": ["other"]}, {"rounded": None}])
def test_half_precision_that_no_record_names_stays_what_it_is(meta):
    tensors = TENSORS | {"weight": TENSORS["weight"].to(torch.bfloat16)}
    found = widened_weights(tensors, meta)
    assert found["weight"].dtype == torch.bfloat16
    with pytest.raises(InvalidInputError, match="weight must be float32"):
        check_weights(LAYER, found)


def test_other_types_are_not_widened():
    tensors = TENSORS | {"weight": TENSORS["weight"].half()}
    assert widened_weights(tensors, {"rounded": ["weight"]})["weight"].dtype == torch.float16
