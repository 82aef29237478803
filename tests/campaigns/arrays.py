"""Files of arrays are damaged or made up: they are refused, or read as exactly what strict reading gives."""

from __future__ import annotations

import random
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from discrete_vae.data.rows import load_file
from discrete_vae.errors import InvalidInputError
from tests.campaigns import damage
from tests.campaigns.engine import Campaign, Finding, Outcome
from tests.campaigns.made_up_arrays import make_up

_PARTS = ("train", "valid", "test")


@dataclass(frozen=True)
class Stage:
    """Undamaged files, and a folder for reference copies."""

    files: list[Path]
    folder: Path


def prepare(folder: Path) -> Stage:
    """Write arrays of several kinds, alone and in archives."""
    noise = np.random.default_rng(0)
    bits = noise.random((40, 12)) < 0.4
    arrays = {
        "bits": bits,
        "bytes": bits.astype(np.uint8),
        "whole": bits.astype(np.int64),
        "float": bits.astype(np.float32),
        "probabilities": noise.random((30, 9)),
        "columns": np.asfortranarray(bits),
        "images": noise.random((25, 4, 5)).astype(np.float32),
    }
    parts = {"train": bits, "valid": bits[:9], "test": bits[9:20]}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    np.savez(folder / "single.npz", bits)
    np.savez_compressed(folder / "single-deflated.npz", bits)
    np.savez(folder / "parts.npz", **parts)  # type: ignore[arg-type]
    np.savez_compressed(folder / "parts-deflated.npz", **parts)  # type: ignore[arg-type]
    return Stage(sorted(folder.glob("*.np?")), folder)


def case(stage: Stage, chosen: random.Random, number: int, folder: Path) -> Finding:
    """Every fifth case is a made-up file."""
    source = stage.files[number % len(stage.files)]
    file = folder / source.name
    if number % 5 == 4:
        source, done, file = None, *make_up(folder, chosen)
    else:
        content, done = _damaged(source, chosen)
        file.write_bytes(content)
    shown = f"{source and source.name}: {done}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read = load_file(path=file)
    except InvalidInputError as error:
        text = str(error)
        if not text.isprintable() or "; received " not in text or len(text) > 2000:
            return Finding(Outcome.CRASHED, f"{shown}\nnot in the house's form: {text[:2000]!r}")
        return Finding(Outcome.REFUSED)
    except Exception as error:
        return Finding(Outcome.CRASHED, f"{shown}\n{type(error).__name__}: {str(error)[:500]}")
    if source is not None and _equal(read, load_file(path=source)):
        return Finding(Outcome.EQUAL)
    if source is not None and source.suffix == ".npz":  # has sums
        return Finding(Outcome.WRONG, f"{shown}\nread as something else")
    strict = _strict(file)
    if strict is None:
        return Finding(Outcome.WRONG, f"{shown}\nread, although strict reading refuses it")
    np.savez(folder / "reference.npz", **strict)
    same = _equal(read, load_file(path=folder / "reference.npz"))
    return Finding(Outcome.OTHER if same else Outcome.WRONG, f"{shown}\nread as another array")


def _damaged(source: Path, chosen: random.Random) -> tuple[bytes, str]:
    """Damage a file anywhere, or where its description stands: the first bytes, or the archive's last."""
    content, kind = source.read_bytes(), chosen.random()
    if kind < 0.5:
        alter = chosen.choice(damage.BYTES)
        return alter(content, chosen), alter.__name__
    length = chosen.choice([16, 128])
    if source.suffix == ".npz" and kind < 0.8:
        length = min(400, len(content) // 2)
        return content[:-length] + damage.flip_bits(content[-length:], chosen), "flips in the directory"
    return damage.flip_bits(content[:length], chosen) + content[length:], f"flips in the first {length} bytes"


def _equal(one: Any, other: Any) -> bool:
    return one.image_shape == other.image_shape and all(
        a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
        for a, b in ((getattr(one, part), getattr(other, part)) for part in _PARTS)
    )


def _strict(file: Path) -> dict[str, np.ndarray] | None:
    """What NumPy reads from a file if that uses each of its bytes and no truth value is a third one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if file.suffix == ".npz":
                with np.load(file, allow_pickle=False) as archive:
                    arrays = {name: archive[name] for name in archive.files}
                    if len(zipfile.ZipFile(file).namelist()) != len(arrays):
                        return None
            else:
                with file.open("rb") as opened:
                    arrays = {"single": np.lib.format.read_array(opened, allow_pickle=False)}
                    if opened.read(1):
                        return None
    except Exception:
        return None
    odd = any(array.dtype == bool and bool((array.view(np.uint8) > 1).any()) for array in arrays.values())
    return None if odd else arrays


CAMPAIGN = Campaign(
    name="arrays",
    what="a .npy or .npz file damaged or made up",
    bounded=200,
    long=6000,
    prepare=prepare,
    case=case,
    limit=20.0,
)
