"""Checkpoints that are whole by their sums and hold what training never wrote."""

from __future__ import annotations

import dataclasses
import random
import shutil
from pathlib import Path
from typing import Any

import torch

from discrete_vae.runs.checkpoints import read_checkpoint, write_checkpoint

_STRANGE = (None, -1, 1.5, 10**30, "1", [], {}, [[1]], True, "x" * 300)


def forge(folder: Path, chosen: random.Random) -> str:
    """Write a checkpoint anew with one tensor or plain value that cannot be right; returns what was done."""
    saved = read_checkpoint(folder, int(folder.name.removeprefix("step-")))
    tensors, meta = dict(saved.tensors), dict(saved.record.meta)
    if chosen.random() < 0.7:
        name = chosen.choice(sorted(tensors))
        done = f"{name} {_forge_tensor(tensors, name, chosen)}"
    else:
        done = _forge_value(meta, chosen)
    shutil.rmtree(folder)
    folder.mkdir()
    write_checkpoint(folder, dataclasses.replace(saved.record, meta=meta), tensors)
    return f"forged {folder.name}: {done}"


def _forge_tensor(tensors: dict[str, torch.Tensor], name: str, chosen: random.Random) -> str:
    old = tensors[name]
    kinds = ["missing", "larger", "empty", "flat", "complex", "another type", "renamed"]
    if old.is_floating_point() and name.startswith(("model/", "optimizer/")):
        kinds += ["NaN", "infinite"]
    kind = chosen.choice(kinds)
    if kind in ("missing", "renamed"):
        del tensors[name]
    if kind == "renamed":
        tensors[f"{name}x"] = old
    if kind == "larger":
        tensors[name] = torch.zeros((*old.shape, 1000), dtype=old.dtype)
    if kind == "empty":
        tensors[name] = torch.zeros((*old.shape, 0), dtype=old.dtype)
    if kind == "flat":
        tensors[name] = torch.cat([old.flatten(), old.flatten()])
    if kind == "complex":
        tensors[name] = old.to(torch.complex64)
    if kind == "another type":
        tensors[name] = old.to(torch.float64 if old.dtype == torch.float32 else torch.float32)
    if kind in ("NaN", "infinite"):
        tensors[name] = torch.full_like(old, float("nan" if kind == "NaN" else "inf"))
    return kind


def _forge_value(meta: dict[str, Any], chosen: random.Random) -> str:
    name = chosen.choice(sorted(meta))
    if chosen.random() < 0.3:
        del meta[name]
        return f"meta without {name}"
    place: dict[str, Any] = meta
    if isinstance(meta[name], dict) and meta[name] and chosen.random() < 0.7:
        place = meta[name] = dict(meta[name])
        name = chosen.choice(sorted(place))
    strange = [value for value in _STRANGE if type(value) is not type(place[name])]
    place[name] = chosen.choice(strange)
    return f"meta with {name} = {str(place[name])[:40]}"
