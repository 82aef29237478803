"""Ways to damage a file: bits, cuts, altered JSON values, other kinds of files in its place."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_STRANGE = (
    *(
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
        0.5,
        3,
    ),
    *(float("nan"), float("inf")),
)


def flip_bits(content: bytes, chosen: random.Random) -> bytes:
    """Flip one to four bits."""
    altered = bytearray(content)
    for _ in range(chosen.choice([1, 1, 2, 4])):
        altered[chosen.randrange(len(altered))] ^= 1 << chosen.randrange(8)
    return bytes(altered)


def cut(content: bytes, chosen: random.Random) -> bytes:
    """Cut the content short, or out of its middle."""
    at = chosen.randrange(len(content))
    return content[:at] if chosen.random() < 0.7 else content[:at] + content[at + chosen.randint(1, 64) :]


def overwrite(content: bytes, chosen: random.Random) -> bytes:
    """Write other bytes over a stretch, as a lost block of a disk does."""
    at, length = chosen.randrange(len(content)), chosen.choice([1, 16, 512])
    block = bytes(length) if chosen.random() < 0.5 else chosen.randbytes(length)
    return (content[:at] + block + content[at + length :])[: len(content)]


def extend(content: bytes, chosen: random.Random) -> bytes:
    """Add bytes at the end."""
    return content + (chosen.randbytes(chosen.randint(1, 100)) if chosen.random() < 0.5 else content)


def empty(content: bytes, chosen: random.Random) -> bytes:
    """Leave nothing, or zeros."""
    return b"" if chosen.random() < 0.5 else bytes(len(content))


def alter_json(content: bytes, chosen: random.Random) -> bytes:
    """Give one value of a JSON object another one, take it out, or bury it."""
    record = json.loads(content)
    place, key = chosen.choice(list(_places(record)))
    old, kind = place[key], chosen.random()
    if kind < 0.15:
        del place[key]
    elif kind < 0.25:
        return (
            b"[" * 100_000
            if chosen.random() < 0.5
            else re.sub(rb"\d", b"9" * 5000, json.dumps(record).encode(), count=1)
        )
    elif kind < 0.6 and isinstance(old, (int, float)) and not isinstance(old, bool):
        place[key] = chosen.choice([old + 1, -old, old * 10 + 1, str(old), [old]])
    else:
        place[key] = chosen.choice(_STRANGE)
    unchanged = record == json.loads(content)  # -0 is 0
    return content if unchanged else json.dumps(record, indent=2).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, part in entries:
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
