"""Labels from a file beside the data."""

import os

import numpy as np
import pytest

from discrete_vae.config import DigitsConfig, FileDataConfig
from discrete_vae.data.datasets import load_digits
from discrete_vae.data.rows import labels_of_part, load_file, read_label_file
from discrete_vae.errors import InvalidInputError


def test_labels_of_a_cut_file_stay_with_its_rows(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, np.arange(40.0)[:, None] * [1, 2])
    config = FileDataConfig(path=path, split_seed=3)
    data = load_file(path=path, split_seed=3)
    labels = np.array([f"row {row}" for row in range(40)])
    of_training = labels_of_part(labels, data, config)
    assert of_training.tolist() == [f"row {int(row)}" for row in data.train[:, 0]]
    assert labels_of_part(labels[: len(data.train)], data, config).tolist() == labels[:32].tolist()


def test_another_number_of_labels_is_refused(tmp_path):
    np.savez(tmp_path / "parts.npz", train=np.zeros((20, 2)), test=np.zeros((4, 2)))
    config = FileDataConfig(path=tmp_path / "parts.npz")
    data = load_file(path=config.path)
    with pytest.raises(
        InvalidInputError, match="labels must be as many as the 18 training examples; received 24"
    ):
        labels_of_part(np.zeros(24), data, config)  # which rows are whose, such a file does not say
    with pytest.raises(InvalidInputError, match="1297 training examples; received 1797"):
        labels_of_part(np.zeros(1797), load_digits(), DigitsConfig())


def test_words_and_numbers_are_read(tmp_path):
    (tmp_path / "kinds.csv").write_text('kind\n"a, b"\n c \n""\n')
    assert read_label_file(tmp_path / "kinds.csv").tolist() == ["a, b", "c", ""]
    (tmp_path / "numbers.csv").write_text("kind\n10\n9\n")
    assert read_label_file(tmp_path / "numbers.csv").tolist() == [10, 9]  # which words would sort otherwise
    np.save(tmp_path / "kinds.npy", np.array([3, 1]))
    assert read_label_file(tmp_path / "kinds.npy").tolist() == [3, 1]


@pytest.mark.parametrize(
    ("text", "line"), [("kind\na\n\nb\n", 3), ('kind\n"a\nb"\n\n', 4), ("\nkind\na\n", 1)]
)
def test_a_blank_line_is_refused_by_its_number(tmp_path, text, line):
    (tmp_path / "kinds.csv").write_text(text)
    with pytest.raises(InvalidInputError, match=rf"labels .*\b{line} in "):
        read_label_file(tmp_path / "kinds.csv")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
@pytest.mark.parametrize("ending", [".csv", ".npy"])
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path, ending):
    os.mkfifo(tmp_path / f"kinds{ending}")
    with pytest.raises(InvalidInputError, match="received a pipe"):
        read_label_file(tmp_path / f"kinds{ending}")


def test_a_file_of_text_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "kinds.csv").write_bytes(b"kind\n\xff\n")
    with pytest.raises(InvalidInputError, match="must be a readable .csv file"):
        read_label_file(tmp_path / "kinds.csv")
