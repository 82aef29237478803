"""Files of arrays are damaged or made up: they are refused, or read as exactly what strict reading gives."""

import io
import struct
import warnings
import zipfile

import numpy as np
import torch

from discrete_vae.data.rows import load_file
from discrete_vae.errors import InvalidInputError
from tests.campaigns import damage
from tests.campaigns.engine import Campaign, Finding, Outcome

_PARTS = ("train", "valid", "test")


def prepare(folder):
    """Write arrays of several kinds, alone and in archives."""
    noise = np.random.default_rng(0)
    bits = noise.random((40, 12)) < 0.4
    types = {"bits": bool, "bytes": np.uint8, "whole": np.int64, "float": np.float32}
    arrays = {name: bits.astype(dtype) for name, dtype in types.items()} | {
        "probabilities": noise.random((30, 9)),
        "columns": np.asfortranarray(bits),
        "images": noise.random((25, 4, 5)).astype(np.float32),
    }
    parts = {"train": bits, "valid": bits[:9], "test": bits[9:20]}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    for name, save in (("", np.savez), ("-deflated", np.savez_compressed)):
        save(folder / f"single{name}.npz", bits)
        save(folder / f"parts{name}.npz", **parts)
    return sorted(folder.glob("*.np?"))


@Campaign(
    "arrays", "a .npy or .npz file damaged or made up", bounded=80, long=6000, prepare=prepare, limit=20.0
)
def arrays(files, chosen, number, folder):
    """Every fifth case is a made-up file."""
    source = files[number % len(files)]
    file = folder / source.name
    if number % 5 == 4:
        source, done, file = None, *_made_up(folder, chosen)
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


def _damaged(source, chosen):
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


def _equal(one, other):
    return one.image_shape == other.image_shape and all(
        a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
        for a, b in ((getattr(one, part), getattr(other, part)) for part in _PARTS)
    )


def _strict(file):
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


# Files that NumPy did not write: headers, types and archives that somebody made up.


_MAGIC = b"\x93NUMPY"
_SHAPES = """(40, 12)|(12, 40)|(480,)|(40, 12, 1)|()|(0, 12)|(40, 0)|(10**30, 1)|(-40, -12)|(-1, 12)|(True, True)
(40.0, 12)|('40', 12)|[40, 12]|40|None|(40, (12,))|(40, 1200000000)|(1,) * 3""".replace("\n", "|").split("|")
_SHAPES += [f"({10**30}, 1)", f"({2**62}, 4)", f"({2**32}, {2**32})", "(1, " * 50 + "1" + ")" * 50]
_TYPES = """|b1 |u1 <f4 >f4 <f8 <f2 <f16 <c8 |O <U3 |S4 |V8 <M8[D] <m8 nonsense <i8 >i2 <u8 |b float object |S0 |V0"""
_TYPES = [f"'{name}'" for name in ["", *_TYPES.split()]]
_TYPES += ["[('a', '<f4')]", "[('a', '<f4', (2,))]", "('<f4', (2,))", "None", "3", "[('a', '|O')]"]
_RIGHT = b"'descr': '<f4', 'fortran_order': False, 'shape': (40, 12)"
_HEADERS = (
    *(b"", b"{", b"{[]: 1}", b"(" * 3000, b"[" * 60 + b"]" * 60, b"9**9**9", b"__import__('os').abort()"),
    *(b"{'descr': '<f4'}", b"{" + _RIGHT.replace(b"False", b"3") + b"}", b"\xff\xfe\x00", b"'a" * 30),
    *(b"{" + _RIGHT.replace(b"40, 12", b"40L, 12L") + b"}", b"{**{}}", b"f'{1}'", b"-" * 3000 + b"1"),
    *(b"{" + _RIGHT + b", 'more': 1}", b"lambda: 0", b"\\N{x}", b"0x"),
)
_MEMBERS = (
    *(["train", "valid", "test"], ["train", "valid"], ["train", "valid", "test", "more"], ["train", "train"]),
    *(["../../etc/out", "/etc/out"], ["\x1b[31mred\x1b[0m\n", "b"], [str(number) for number in range(3000)]),
    *(["\u202e", "b" * 5000], ["a"], []),
)


def _made_up(folder, chosen):
    """Write such a file; returns what it is, and its path."""
    if chosen.random() < 0.4:
        return _npz(folder / "made-up.npz", chosen), folder / "made-up.npz"
    content, done = _npy(chosen)
    (folder / "made-up.npy").write_bytes(content)
    return done, folder / "made-up.npy"


def _npy(chosen):
    kind = chosen.random()
    if kind < 0.3:
        header = chosen.choice(_HEADERS)
    else:
        shape, dtype = chosen.choice(_SHAPES), chosen.choice(_TYPES)
        order = chosen.choice(["False", "True"])
        header = f"{{'descr': {dtype}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    version = chosen.choice([(1, 0)] * 6 + [(2, 0), (3, 0), (0, 0), (9, 9), (255, 255)])
    padded = header + b" " * (-(len(header) + 11) % 64) + b"\n"
    count = len(padded) + chosen.choice([0] * 8 + [1, 60000, -5])
    length = struct.pack("<H" if version[0] == 1 else "<I", count)
    zeros = [bytes(size) for size in (480, 1920, 3840, 0)]
    body = chosen.choice([*zeros, b"\x01" * 480, b"\xff" * 1920, chosen.randbytes(500)])
    return _MAGIC + bytes(version) + length + padded + body, f"version {version}, header {header[:200]!r}"


def _npz(file, chosen):
    """An archive with strange members or a strange directory."""
    array = np.eye(30, 12, dtype=bool)
    names = chosen.choice(_MEMBERS)
    method = chosen.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    suffix = chosen.choice([".npy"] * 6 + ["", ".txt", "/"])
    with io.BytesIO() as member, zipfile.ZipFile(file, "w", method) as archive:
        np.save(member, array)
        made_up = _npy(chosen)[0]
        for name in names:
            content = member.getvalue() if chosen.random() < 0.8 else made_up
            with warnings.catch_warnings(action="ignore"):
                archive.writestr(zipfile.ZipInfo(name + suffix), content, compress_type=method)
    content = bytearray(file.read_bytes())
    done = f"archive of {str(names)[:80]} {suffix!r}, method {method}"
    if chosen.random() < 0.4 and names:
        entry = content.rfind(b"PK\x01\x02")
        changes = [(8, 1), (10, 98), (10, 14), (6, 99), (24, 0xFF), (20, 0xFF), (42, 0xFF), (16, 1)]
        place, value = chosen.choice(changes)
        content[entry + place] ^= value
        done += f", byte {place} of the last entry altered"
        file.write_bytes(bytes(content))
    return done
