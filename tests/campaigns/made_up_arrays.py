"""Files that NumPy did not write: headers, types and archives that somebody made up."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from pathlib import Path

import numpy as np

_MAGIC = b"\x93NUMPY"
_SHAPES = (
    *(
        "(40, 12)",
        "(12, 40)",
        "(480,)",
        "(40, 12, 1)",
        "()",
        "(0, 12)",
        "(40, 0)",
        "(10**30, 1)",
        f"({10**30}, 1)",
    ),
    *(
        "(-40, -12)",
        "(-1, 12)",
        "(True, True)",
        "(40.0, 12)",
        "('40', 12)",
        "[40, 12]",
        "40",
        "None",
        "(40, (12,))",
    ),
    *(f"({2**62}, 4)", f"({2**32}, {2**32})", "(40, 1200000000)", "(1, " * 50 + "1" + ")" * 50, "(1,) * 3"),
)
_TYPES = (
    *(
        "'|b1'",
        "'|u1'",
        "'<f4'",
        "'>f4'",
        "'<f8'",
        "'<f2'",
        "'<f16'",
        "'<c8'",
        "'|O'",
        "'<U3'",
        "'|S4'",
        "'|V8'",
    ),
    *(
        "'<M8[D]'",
        "'<m8'",
        "[('a', '<f4')]",
        "[('a', '<f4', (2,))]",
        "('<f4', (2,))",
        "'nonsense'",
        "''",
        "None",
    ),
    *("3", "'<i8'", "'>i2'", "'<u8'", "'|b'", "'float'", "'object'", "[('a', '|O')]", "'|S0'", "'|V0'"),
)
_HEADERS = (
    *(b"", b"{", b"{[]: 1}", b"(" * 3000, b"[" * 60 + b"]" * 60, b"9**9**9", b"__import__('os').abort()"),
    *(
        b"{'descr': '<f4'}",
        b"{'descr': '<f4', 'fortran_order': 3, 'shape': (40, 12)}",
        b"\xff\xfe\x00",
        b"'a" * 30,
    ),
    *(
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (40L, 12L)}",
        b"{**{}}",
        b"f'{1}'",
        b"-" * 3000 + b"1",
    ),
    *(
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (40, 12), 'more': 1}",
        b"lambda: 0",
        b"\\N{x}",
        b"0x",
    ),
)


def make_up(folder: Path, chosen: random.Random) -> tuple[str, Path]:
    """Write such a file; returns what it is, and its path."""
    if chosen.random() < 0.6:
        content, done = _npy(chosen)
        file = folder / "made-up.npy"
        file.write_bytes(content)
    else:
        file = folder / "made-up.npz"
        done = _npz(file, chosen)
    return done, file


def _npy(chosen: random.Random) -> tuple[bytes, str]:
    kind = chosen.random()
    if kind < 0.3:
        header = chosen.choice(_HEADERS)
    else:
        shape, dtype = chosen.choice(_SHAPES), chosen.choice(_TYPES)
        order = chosen.choice(["False", "True"])
        header = f"{{'descr': {dtype}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    version = chosen.choice([(1, 0)] * 6 + [(2, 0), (3, 0), (0, 0), (9, 9), (255, 255)])
    padded = header + b" " * (-(len(header) + 11) % 64) + b"\n"
    length = struct.pack(
        "<H" if version[0] == 1 else "<I", len(padded) + chosen.choice([0] * 8 + [1, 60000, -5])
    )
    body = chosen.choice(
        [bytes(480), bytes(1920), bytes(3840), b"\x01" * 480, b"\xff" * 1920, b"", chosen.randbytes(500)]
    )
    return _MAGIC + bytes(version) + length + padded + body, f"version {version}, header {header[:200]!r}"


def _npz(file: Path, chosen: random.Random) -> str:
    """An archive with strange members or a strange directory."""
    array = np.eye(30, 12, dtype=bool)
    names = chosen.choice(
        [
            ["train", "valid", "test"],
            ["train", "valid"],
            ["train", "valid", "test", "more"],
            ["train", "train"],
            ["../../etc/out", "/etc/out"],
            ["\x1b[31mred\x1b[0m\n", "b"],
            [str(number) for number in range(3000)],
            ["\u202e", "b" * 5000],
            ["a"],
            [],
        ]
    )
    method = chosen.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    suffix = chosen.choice([".npy"] * 6 + ["", ".txt", "/"])
    with io.BytesIO() as member, zipfile.ZipFile(file, "w", method) as archive:
        np.save(member, array)
        made_up = _npy(chosen)[0]
        for name in names:
            content = member.getvalue() if chosen.random() < 0.8 else made_up
            with _no_warning():
                archive.writestr(zipfile.ZipInfo(name + suffix), content, compress_type=method)
    content = bytearray(file.read_bytes())
    done = f"archive of {str(names)[:80]} {suffix!r}, method {method}"
    if chosen.random() < 0.4 and names:
        entry = content.rfind(b"PK\x01\x02")
        place, value = chosen.choice(
            [(8, 1), (10, 98), (10, 14), (6, 99), (24, 0xFF), (20, 0xFF), (42, 0xFF), (16, 1)]
        )
        content[entry + place] ^= value
        done += f", byte {place} of the last entry altered"
        file.write_bytes(bytes(content))
    return done


def _no_warning():
    import warnings

    return warnings.catch_warnings(action="ignore")
