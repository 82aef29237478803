"""Aligned sequences in FASTA files as codes of an alphabet, and their weights."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from discrete_vae.checks import check_number, check_tensor
from discrete_vae.data.arrays import check_is_file, reading_errors
from discrete_vae.errors import InvalidInputError
from discrete_vae.system import check_memory

ALPHABETS = {"protein": "ACDEFGHIKLMNPQRSTVWY", "dna": "ACGT", "rna": "ACGU"}
"""Letters of the alphabets that have a name."""

_GAPS, _UNKNOWN, _OTHER = b"-.", 254, 255
_UNKNOWN_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ*?"
_SHOWN = 40  # letters of a name


def read_fasta(path: Path, alphabet: str | None) -> np.ndarray:
    r"""Read aligned sequences, all of one length, as codes, (sequence, place) float32; a .gz file is unpacked.

    Code 0 is the gap, ``-`` or ``.``, and the letters of the alphabet, which is a name of `ALPHABETS` or its letters,
    follow in their order. Letters outside it, such as X or N, and ``?`` and ``*``, are NaN. Case does not matter.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "two.fasta")
        ...     _ = path.write_text(">first\nAC-T\n>second\nan\nGG\n")
        ...     read_fasta(path, "dna")
        array([[ 1.,  2.,  0.,  4.],
               [ 1., nan,  3.,  3.]], dtype=float32)
    """
    table = _table(path, alphabet)
    rows: list[np.ndarray] = []
    for name, letters in _records(path):
        where = f"{path}, sequence {name[:_SHOWN]!r},"
        codes = table[np.frombuffer(letters, np.uint8)]
        if (wrong := np.flatnonzero(codes == _OTHER)).size:
            received = repr(chr(letters[wrong[0]]))
            raise InvalidInputError(where, "must hold letters and gaps", received, "Write gaps as -.")
        if rows and len(codes) != len(rows[0]):
            rule = f"must have the {len(rows[0])} places of the first sequence"
            raise InvalidInputError(where, rule, len(codes), "Align the sequences.")
        rows.append(codes)
    if not rows or len(rows[0]) == 0:
        repair = "Give lines '>name', each followed by its sequence."
        raise InvalidInputError(str(path), "must hold sequences in FASTA", "none", repair)
    check_memory(str(path), 5 * len(rows) * len(rows[0]), "Give fewer sequences.", what="for their codes")
    codes = np.stack(rows)
    return np.where(codes == _UNKNOWN, np.float32(np.nan), codes.astype(np.float32))


def to_fasta(codes: np.ndarray, alphabet: str, names: Iterable[object]) -> str:
    r"""The text of a FASTA file of codes, (sequence, place), as `read_fasta` reads them, each under its name.

    Examples:
        >>> to_fasta(np.array([[1.0, 2.0, 0.0], [4.0, 4.0, 1.0]]), "dna", ["first", 2])
        '>first\nAC-\n>2\nTTA\n'
    """
    words = np.array(["-", *letters_of(alphabet)])[codes.astype(np.intp)]
    return "".join(f">{name}\n{''.join(word)}\n" for name, word in zip(names, words, strict=True))


def letters_of(alphabet: str) -> str:
    """The letters of an alphabet, which is a name of `ALPHABETS` or its letters."""
    return ALPHABETS.get(alphabet.lower(), alphabet).upper()


def _table(path: Path, alphabet: str | None) -> np.ndarray:
    """The code of each byte, (256,) uint8."""
    letters = letters_of(alphabet or "")
    if not 2 <= len(letters) == len(set(letters)) or not (letters.isascii() and letters.isalpha()):
        rule = f"must be {', '.join(ALPHABETS)} or different letters to read {path}"
        repair = "Train with --data.alphabet protein, for example."
        raise InvalidInputError("alphabet", rule, repr(alphabet)[:80], repair)
    table = np.full(256, _OTHER, np.uint8)
    table[list(_UNKNOWN_LETTERS + _UNKNOWN_LETTERS.lower())] = _UNKNOWN
    table[list(_GAPS)] = 0
    for code, letter in enumerate(letters, start=1):
        table[[ord(letter), ord(letter.lower())]] = code
    return table


def _records(path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and letters of each sequence."""
    check_is_file(path)
    name, parts = None, []
    is_packed = path.suffix.lower() == ".gz"
    with reading_errors(str(path), "FASTA file"), gzip.open(path) if is_packed else path.open("rb") as file:
        for line in map(bytes.strip, file):
            if line.startswith(b">"):
                if name is not None:
                    yield name, b"".join(parts)
                name, parts = line[1:].decode("utf-8", "replace"), []
            elif line and name is None:
                repair = "Write '>' and its name before each sequence."
                raise InvalidInputError(str(path), "must start with a line '>name'", "another", repair)
            else:
                parts.append(line)
    if name is not None:
        yield name, b"".join(parts)


_PAIRS = 1 << 24  # places of pairs that are compared together


def sequence_weights(codes: Tensor, identity: float = 0.8) -> Tensor:
    """Weigh each sequence by 1 / (number of sequences that share so much with it, itself among them).

    Two sequences share the places where both have the same code, as a share of all places; a missing value shares
    nothing. The sum of the weights is the effective number of sequences.

    Source: Ekeberg et al. 2013, "Improved contact prediction in proteins", section II.A.

    Args:
        codes: (sequence, place), whole numbers; NaN is a missing value.
        identity: Least share of equal places, above 0 and at most 1.

    Returns:
        (sequence,) float64, in (0, 1].

    Examples:
        >>> sequence_weights(torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 0.0], [3.0, 3.0, 3.0]]), identity=0.6)
        tensor([0.5000, 0.5000, 1.0000], dtype=torch.float64)
    """
    check_tensor("codes", codes, ("sequence", "place"))
    check_number("identity", identity, above=0.0, at_most=1.0, repair="The usual one is 0.8.")
    found = codes.detach().cpu().numpy()
    seen = ~np.isnan(found)
    known: np.ndarray = np.unique(found[seen])
    small = np.zeros(found.shape, np.min_scalar_type(len(known)))  # 0 stands for what is missing
    small[seen] = np.searchsorted(known, found[seen]) + 1
    count, num_places = codes.shape
    # a share of 4 in 5 is 0.8, although 5 * 0.8 in floating point may exceed 4
    least = identity * num_places - 1e-9
    neighbors = np.ones(count, np.int64)
    step = max(1, _PAIRS // max(1, count * num_places))
    for first in range(0, count, step):
        rows = small[first : first + step, None]
        equal = ((rows == small[first:]) & (rows > 0)).sum(2) >= least  # earlier rows have met these
        np.fill_diagonal(equal, False)
        neighbors[first : first + step] += equal.sum(1)
        neighbors[first + step :] += equal[:, step:].sum(0)
    return torch.from_numpy(1.0 / neighbors)
