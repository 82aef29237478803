"""Ways to damage a file: bits, cuts, altered JSON values, other kinds of files; and checkpoints that are forged."""

import dataclasses
import json
import os
import re
import shutil
from pathlib import Path

import torch

from discrete_vae.runs.checkpoints import read_checkpoint, write_checkpoint

_STRANGE = (None, True, -1, 0, 1e308, 10**30, "", "x" * 1000, "\u202e\x1b[31m", [], {}, [[[]]], "nan")
_STRANGE += (-1e-300, 0.5, 3, float("nan"), float("inf"))


def flip_bits(content, chosen):
    """Flip one to four bits."""
    altered = bytearray(content)
    for bit in chosen.sample(range(8 * len(content)), chosen.choice([1, 1, 2, 4])):  # none is flipped back
        altered[bit // 8] ^= 1 << bit % 8
    return bytes(altered)


def cut(content, chosen):
    """Cut the content short, or out of its middle."""
    at = chosen.randrange(len(content))
    return content[:at] if chosen.random() < 0.7 else content[:at] + content[at + chosen.randint(1, 64) :]


def overwrite(content, chosen):
    """Write other bytes over a stretch, as a lost block of a disk does."""
    altered = content
    while altered == content:  # what is written may be what was there
        at, length = chosen.randrange(len(content)), chosen.choice([1, 16, 512])
        block = bytes(length) if chosen.random() < 0.5 else chosen.randbytes(length)
        altered = (content[:at] + block + content[at + length :])[: len(content)]
    return altered


def extend(content, chosen):
    """Add bytes at the end."""
    return content + (chosen.randbytes(chosen.randint(1, 100)) if chosen.random() < 0.5 else content)


def empty(content, chosen):
    """Leave nothing, or zeros."""
    return b"" if chosen.random() < 0.5 else bytes(len(content))


BYTES = (flip_bits, flip_bits, cut, overwrite, extend, empty)


def alter_bytes(file, chosen):
    """Alter the bytes of a file; returns the name of what was done."""
    alter = chosen.choice(BYTES)
    file.write_bytes(alter(file.read_bytes(), chosen))
    return alter.__name__


def alter_json(content, chosen):
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


def _places(value):
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield value, key
            yield from _places(part)


def remove(file):
    """No file."""
    file.unlink()


def forbid(file):
    """A file that may not be read; the superuser reads it all the same."""
    file.chmod(0)


def _in_its_place(name, make):
    def replace(file):
        file.unlink()
        make(file)

    replace.__name__ = name
    return replace


_OTHERS = {
    "folder": Path.mkdir,
    "pipe that nobody writes to": os.mkfifo,
    "link to itself": lambda file: file.symlink_to(file.name),
    "link to nothing": lambda file: file.symlink_to("nowhere"),
    "link to an endless file": lambda file: file.symlink_to("/dev/zero"),
}
KINDS = (remove, remove, *(_in_its_place(*each) for each in _OTHERS.items()), forbid)


# Checkpoints that are whole by their sums and hold what training never wrote.


_STRANGE_VALUES = (None, -1, 1.5, 10**30, "1", [], {}, [[1]], True, "x" * 300)
_FORGED = {
    "larger": lambda old: torch.zeros((*old.shape, 1000), dtype=old.dtype),
    "empty": lambda old: torch.zeros((*old.shape, 0), dtype=old.dtype),
    "flat": lambda old: torch.cat([old.flatten(), old.flatten()]),
    "complex": lambda old: old.to(torch.complex64),
    "another type": lambda old: old.to(torch.float64 if old.dtype == torch.float32 else torch.float32),
}
_FORGED_NUMBERS = {
    "NaN": lambda old: torch.full_like(old, float("nan")),
    "infinite": lambda old: torch.full_like(old, float("inf")),
}


def forge(folder, chosen):
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


def _forge_tensor(tensors, name, chosen):
    old = tensors.pop(name)
    numbers = old.is_floating_point() and name.startswith(("model/", "optimizer/"))
    forged = _FORGED | (_FORGED_NUMBERS if numbers else {})
    kind = chosen.choice(["missing", "renamed", *forged])
    if kind != "missing":
        tensors[f"{name}x" if kind == "renamed" else name] = forged.get(kind, torch.clone)(old)
    return kind


def _forge_value(meta, chosen):
    name = chosen.choice(sorted(meta))
    if chosen.random() < 0.3:
        del meta[name]
        return f"meta without {name}"
    place = meta
    if isinstance(meta[name], dict) and meta[name] and chosen.random() < 0.7:
        place = meta[name] = dict(meta[name])
        name = chosen.choice(sorted(place))
    place[name] = chosen.choice([value for value in _STRANGE_VALUES if type(value) is not type(place[name])])
    return f"meta with {name} = {str(place[name])[:40]}"
