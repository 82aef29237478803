"""Aligned sequences: codes of an alphabet, what is refused by name, and their weights."""

import gzip

import numpy as np
import pytest
import torch

from discrete_vae.data.files import TableReading
from discrete_vae.data.rows import load_file, read_rows
from discrete_vae.data.sequences import read_fasta, sequence_weights
from discrete_vae.own_data import own_experiment
from tests.refusals import refused_argument

NAN = np.nan


@pytest.fixture
def fasta(tmp_path):
    def write(text, name="mine.fasta"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


@pytest.mark.parametrize("name", ["mine.fasta", "mine.fa", "mine.fasta.gz"])
@pytest.mark.parametrize(
    ("alphabet", "text", "codes"),
    [
        ("protein", ">1\nACY-\n>2 of two\r\nwx.*\r\n", [[1, 2, 20, 0], [19, NAN, 0, NAN]]),
        ("DNA", ">1\nAC\n\nGT\n>2\nNNN-", [[1, 2, 3, 4], [NAN, NAN, NAN, 0]]),
        ("rna", ">1\nACGU\n>2\nTTTT", [[1, 2, 3, 4], [NAN] * 4]),
        ("HP", ">1\nhp\n>2\nPA", [[1, 2], [2, NAN]]),
    ],
)
def test_letters_become_codes(fasta, name, alphabet, text, codes):
    found = read_fasta(fasta(text, name), alphabet)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.array(codes, np.float32))


@pytest.mark.parametrize(
    ("text", "alphabet", "named"),
    [
        (">one\nAC\n>two\nACG\n", "dna", "'two'"),
        (">one\nA1\n", "dna", "'one'"),
        ("AC\n", "dna", "mine.fasta"),
        ("", "dna", "mine.fasta"),
        (">one\n>two\n", "dna", "mine.fasta"),
        (">one\nAC\n", None, "alphabet"),
        (">one\nAC\n", "A", "alphabet"),
        (">one\nAC\n", "AAC", "alphabet"),
        (">one\nAC\n", "A-", "alphabet"),
    ],
)
def test_what_is_no_alignment_is_refused_by_name(fasta, text, alphabet, named):
    assert named in refused_argument(read_fasta, fasta(text), alphabet)


def test_a_packed_file_that_was_cut_short_is_refused(fasta):
    path = fasta(">one\n" + "ACGT" * 500, "mine.fa.gz")
    path.write_bytes(path.read_bytes()[:-12])
    assert "mine.fa.gz" in refused_argument(read_fasta, path, "dna")


def test_a_file_of_sequences_is_a_data_set(fasta):
    letters = np.array(list("-ACGTN"))[np.random.default_rng(0).integers(0, 6, (40, 9))]
    path = fasta("".join(f">{number}\n{''.join(row)}\n" for number, row in enumerate(letters)))
    dataset = load_file(path=path, alphabet="dna")
    assert dataset.event_shape == (9,)
    assert dataset.summaries["train"].high == 4
    assert dataset.summaries["train"].num_missing > 0


def test_a_model_of_sequences_reads_letters_that_its_own_file_lacks(fasta):
    path = fasta(">1\nAC-\n>2\nACC\n" * 10)
    config = own_experiment(path, alphabet="dna")  # categories, unless another likelihood is given
    assert config.model.likelihood.num_categories == 5
    rows = read_rows(fasta(">3\nTTA\n", "new.fasta"), config.model, reading=TableReading.of(config.data))
    assert rows.x.tolist() == [[4, 4, 1]]


def test_sequences_are_weighed_by_their_relatives_in_the_whole_file(fasta):
    """Copies weigh as much together as a sequence alone, whichever parts they fall into."""
    random = np.random.default_rng(0)
    letters = np.array(list("ACGT"))[random.integers(0, 4, (30, 12))]
    letters = letters[np.minimum(np.arange(60), 29)]  # the last is there 31 times
    path = fasta("".join(f">{number}\n{''.join(row)}\n" for number, row in enumerate(letters)))
    plain = load_file(path=path, alphabet="dna")
    dataset = load_file(path=path, alphabet="dna", sequence_weights=1.0)
    assert not plain.weights
    last = torch.tensor(["ACGT".index(letter) + 1.0 for letter in letters[-1]])
    for part in ("train", "valid", "test"):
        rows = getattr(dataset, part)
        assert torch.equal(rows, getattr(plain, part))
        wanted = np.where((rows == last).all(1), 1 / 31, 1)
        np.testing.assert_allclose(dataset.weights[part], wanted)
    refused = refused_argument(load_file, path=path, alphabet="dna", sequence_weights=1.5)
    assert "sequence_weights" in refused


@pytest.mark.parametrize("identity", [0.3, 0.8, 1.0])
def test_weights_count_neighbors_as_two_loops_do(identity):
    random = np.random.default_rng(1)
    codes = random.integers(0, 3, (12, 10))[random.integers(0, 12, 60)].astype(np.float32)
    codes = np.where(random.random(codes.shape) < 0.1, random.integers(0, 3, codes.shape), codes)
    codes[random.random(codes.shape) < 0.05] = NAN
    wanted = []
    for one in codes:
        shares = [sum(a == b for a, b in zip(one, other, strict=True)) for other in codes]
        # whole numbers: a share of 8 places in 10 is 0.8 exactly
        itself = sum(a == a for a in one)
        neighbors = sum(share * 10 >= round(identity * 10) * 10 for share in shares)
        wanted.append(1 / (neighbors + (itself * 10 < round(identity * 10) * 10)))
    np.testing.assert_array_equal(sequence_weights(torch.tensor(codes), identity), wanted)


def test_weights_of_equal_sequences_share_one():
    assert sequence_weights(torch.ones(4, 6)).tolist() == [0.25] * 4
    assert sequence_weights(torch.full((3, 6), NAN)).tolist() == [1.0] * 3
    two_kinds = (torch.arange(3000.0) % 2)[:, None].expand(-1, 6)  # that are compared in several blocks
    assert sequence_weights(two_kinds).tolist() == [1 / 1500] * 3000
