"""Writing pictures: whole or not at all."""

from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.curves import (
    draw_log_partition_histogram,
    draw_training_curves,
    log_partition_histogram_table,
    training_curves_table,
)
from discrete_vae.figures.results import draw_codes
from discrete_vae.figures.run import draw_feature_statistics, feature_statistics_table
from discrete_vae.figures.style import GridText, draw_image_grid, picture_file, save_figure
from discrete_vae.inference.encode import Codes


def test_a_picture_replaces_the_one_before(tmp_path):
    path = tmp_path / "a.png"
    path.write_text("old")
    save_figure(Figure(figsize=(1, 1)), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.png"]


def test_a_path_may_be_text_and_in_capitals(tmp_path):
    save_figure(Figure(figsize=(1, 1)), str(tmp_path / "A.PNG"))
    assert (tmp_path / "A.PNG").read_bytes().startswith(b"\x89PNG")


def test_a_path_that_is_taken_by_a_folder_is_refused(tmp_path):
    (tmp_path / "a.png").mkdir()
    with pytest.raises(InvalidInputError, match="a.png must be writable; received a folder of that name"):
        save_figure(Figure(figsize=(1, 1)), tmp_path / "a.png")


def test_a_note_is_kept_in_the_metadata(tmp_path):
    for suffix in (".png", ".svg", ".pdf"):
        path = save_figure(Figure(figsize=(1, 1)), tmp_path / f"a{suffix}", note="another config")
        assert b"another config" in path.read_bytes(), suffix


_NAME = "\x1b$\\frac{$"


def _codes():
    bits = np.eye(2, dtype=np.uint8)
    return draw_codes(Codes(bits / 2, bits, bits, bits, np.zeros((2, 0, 1))), np.array([_NAME, "b"]))


def _grid():
    return draw_image_grid(torch.zeros(2, 1, 1, 4), (2, 2), text=GridText("of", "kind", [_NAME, "b"]))


def _curves():
    line = {"step": 1, "epoch": 1.0, "elbo": -1.0, "kl_discrete": 1.0, "kl_continuous": 0.0}
    return draw_training_curves(training_curves_table([line]), name=_NAME)


def _histogram():
    return draw_log_partition_histogram(log_partition_histogram_table([1.0], [0.1]), name=_NAME)


def _statistics():
    return draw_feature_statistics(feature_statistics_table(torch.eye(4), torch.eye(4)[None]), name=_NAME)


@pytest.mark.parametrize("draw", [_codes, _grid, _curves, _histogram, _statistics])
def test_names_are_shown_as_they_are(draw, tmp_path):
    text = save_figure(draw(), tmp_path / "a.svg", note=_NAME).read_text(encoding="utf-8")
    assert "\x1b" not in text
    ElementTree.fromstring(text)
    assert (
        "\\x1b$\\frac{$" in text.partition("</metadata>")[2]
    )  # letters are paths, with the text beside them


def test_the_same_figure_gives_the_same_file_in_every_form(tmp_path):
    def picture():
        figure = Figure(figsize=(2, 2))
        axes = figure.add_subplot()
        axes.scatter([0, 1], [1, 0])  # markers and clips have names in an SVG
        axes.plot([0, 1], [0, 1])
        return figure

    salt = matplotlib.rcParams["svg.hashsalt"]
    for suffix in (".png", ".svg", ".pdf"):
        one, other = (save_figure(picture(), tmp_path / f"{name}{suffix}").read_bytes() for name in "ab")
        assert one == other, suffix
    assert matplotlib.rcParams["svg.hashsalt"] == salt  # the user's setting stays


def test_a_folder_that_is_not_there_is_made_when_the_picture_is_written(tmp_path):
    picture_file(tmp_path / "none" / "a.png")
    assert not (tmp_path / "none").exists()
    assert save_figure(Figure(figsize=(1, 1)), tmp_path / "none" / "a.png").is_file()


@pytest.mark.parametrize("name", ["a", "a.txt", ".png"])
def test_an_unknown_ending_is_refused(name, tmp_path):
    with pytest.raises(InvalidInputError, match="path must end in one of"):
        picture_file(tmp_path / name)
