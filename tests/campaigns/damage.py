"""Ways to damage a file: bits, cuts, altered JSON values, other kinds of files; and checkpoints that are forged."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from discrete_vae.runs.checkpoints import read_checkpoint, write_checkpoint

_STRANGE = (
    None,
    True,
    -1,
    0,
    1e308,
    10**30,
    "",
    "x" * 1000,
    "\u202e\x1b[31m",
    [],
    {},
    [[[]]],
    "nan",
    -1e-300,
)
_STRANGE += (0.5, 3, float("nan"), float("inf"))


def flip_bits(content: bytes, chosen: random.Random) -> bytes:
    """Flip one to four bits."""
    altered = bytearray(content)
    for bit in chosen.sample(range(8 * len(content)), chosen.choice([1, 1, 2, 4])):  # none is flipped back
        altered[bit // 8] ^= 1 << bit % 8
    return bytes(altered)


def cut(content: bytes, chosen: random.Random) -> bytes:
    """Cut the content short, or out of its middle."""
    at = chosen.randrange(len(content))
    return content[:at] if chosen.random() < 0.7 else content[:at] + content[at + chosen.randint(1, 64) :]


def overwrite(content: bytes, chosen: random.Random) -> bytes:
    """Write other bytes over a stretch, as a lost block of a disk does."""
    altered = content
    while altered == content:  # what is written may be what was there
        at, length = chosen.randrange(len(content)), chosen.choice([1, 16, 512])
        block = bytes(length) if chosen.random() < 0.5 else chosen.randbytes(length)
        altered = (content[:at] + block + content[at + length :])[: len(content)]
    return altered


def extend(content: bytes, chosen: random.Random) -> bytes:
    """Add bytes at the end."""
    return content + (chosen.randbytes(chosen.randint(1, 100)) if chosen.random() < 0.5 else content)


def empty(content: bytes, chosen: random.Random) -> bytes:
    """Leave nothing, or zeros."""
    return b"" if chosen.random() < 0.5 else bytes(len(content))


def alter_json(content: bytes, chosen: random.Random) -> bytes:
    """Give one value of a JSON object another one, take it out, or bury it."""
    record = json.loads(content)
    while record == json.loads(content):  # what is put there may be what was there: -0 is 0
        place, key = chosen.choice(list(_places(record)))
        old, kind = place[key], chosen.random()
        if kind < 0.15:
            del place[key]
        elif kind < 0.2:
            return b"[" * 100_000
        elif kind < 0.25:
            return re.sub(rb"\d", b"9" * 5000, json.dumps(record).encode(), count=1)
        elif kind < 0.6 and isinstance(old, (int, float)) and not isinstance(old, bool):
            place[key] = chosen.choice([old + 1, -old, old * 10 + 1, str(old), [old]])
        else:
            place[key] = chosen.choice(_STRANGE)
    return json.dumps(record, indent=2).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if not isinstance(value, dict | list):
        return
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        yield from _places(part)


BYTES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    flip_bits,
    flip_bits,
    cut,
    overwrite,
    extend,
    empty,
)


def remove(file: Path) -> None:
    """No file."""
    file.unlink()


def folder(file: Path) -> None:
    """A folder of that name."""
    file.unlink()
    file.mkdir()


def pipe(file: Path) -> None:
    """A pipe that nobody writes to."""
    file.unlink()
    os.mkfifo(file)


def loop(file: Path) -> None:
    """A link to itself."""
    file.unlink()
    file.symlink_to(file.name)


def dangling(file: Path) -> None:
    """A link to nothing."""
    file.unlink()
    file.symlink_to("nowhere")


def device(file: Path) -> None:
    """A link to an endless file."""
    file.unlink()
    file.symlink_to("/dev/zero")


def forbid(file: Path) -> None:
    """A file that may not be read; the superuser reads it all the same."""
    file.chmod(0)


def swap(file: Path, other: Path) -> None:
    """The file of that name of another run."""
    shutil.copyfile(other, file)


KINDS: tuple[Callable[[Path], None], ...] = (remove, remove, folder, pipe, loop, dangling, device, forbid)


# Checkpoints that are whole by their sums and hold what training never wrote.


_STRANGE_VALUES = (None, -1, 1.5, 10**30, "1", [], {}, [[1]], True, "x" * 300)


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
    strange = [value for value in _STRANGE_VALUES if type(value) is not type(place[name])]
    place[name] = chosen.choice(strange)
    return f"meta with {name} = {str(place[name])[:40]}"
