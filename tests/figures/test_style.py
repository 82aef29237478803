"""Scales of gray, grids of images, and pictures in files, whole or not at all."""

from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from discrete_vae.figures.curves import (
    draw_log_partition_histogram,
    draw_training_curves,
    log_partition_histogram_table,
    training_curves_table,
)
from discrete_vae.figures.results import draw_codes
from discrete_vae.figures.run import draw_feature_statistics, feature_statistics_table
from discrete_vae.figures.style import (
    GridText,
    cell_shape,
    draw_image_grid,
    grayscale_for,
    picture_file,
    save_figure,
)
from discrete_vae.inference.encode import Codes
from tests.refusals import refused_argument

NAN = torch.nan


def test_probabilities_stay_as_they_are_and_other_features_of_a_table_have_their_own_range():
    x = torch.tensor([[0.0, 0.25], [NAN, 0.5]])
    gray = grayscale_for(x, per_feature=True)
    assert torch.equal(gray(x).nan_to_num(9.0), x.nan_to_num(9.0))
    assert gray.words == grayscale_for(torch.full((2, 3), NAN), per_feature=True).words == "black is 1"
    x = torch.tensor([[-5.0, 100.0, NAN, 7.0], [5.0, NAN, NAN, 7.0], [0.0, 300.0, NAN, 7.0]])
    gray = grayscale_for(x, per_feature=True)
    wanted = torch.tensor([[0.0, 0.0, NAN, 0.0], [1.0, NAN, NAN, 0.0], [0.5, 1.0, NAN, 0.0]])
    assert torch.equal(gray(x).nan_to_num(9.0), wanted.nan_to_num(9.0))
    beyond = gray(torch.tensor([-99.0, 999.0, 0.5, 8.0]))
    assert bool(((beyond >= 0) & (beyond <= 1)).all())


TEXT = GridText("A caption.")
BLACK, GAP = torch.tensor(0.0), torch.tensor([205, 218, 234]) / 255


def is_black(picture):
    return (picture == BLACK).all(-1)


def test_an_image_is_black_on_paper_pixel_by_pixel(pixels):
    """A single image gets the largest scale, twelve pixels a feature, and stands at the lower left."""
    image = torch.tensor([1.0, 0.0, torch.nan, 0.5, 1.0, 0.0])  # nan leaves a place empty
    drawn = pixels(draw_image_grid(image.view(1, 1, 1, 6), (2, 3), text=TEXT))[-8 - 24 : -8, 8 : 8 + 36]
    expected = (1 - image.view(2, 3))[..., None].expand(-1, -1, 3).where(~image.view(2, 3, 1).isnan(), GAP)
    expected = expected.repeat_interleave(12, 0).repeat_interleave(12, 1)
    torch.testing.assert_close(drawn, expected, rtol=0, atol=0.005)
    large = pixels(draw_image_grid(torch.ones(1, 1, 1, 6000), (3, 2000), text=TEXT))
    assert is_black(large[-10]).sum() == 2000


@pytest.mark.parametrize("stacked", [False, True])
def test_members_stand_beside_or_below_each_other(stacked, pixels):
    images = torch.zeros(1, 1, 2, 4)
    images[:, :, 1] = 1
    rows, columns = (49, 24) if stacked else (24, 49)  # with one pixel between the members
    picture = pixels(draw_image_grid(images, (2, 2), text=TEXT, stacked=stacked))
    drawn = picture[-8 - rows : -8, 8 : 8 + columns]
    expected = (torch.arange(49) >= 25)[:, None].expand(49, 24)
    assert torch.equal(is_black(drawn), expected if stacked else expected.T)


def test_strips_stack_their_members_and_wrap(pixels):
    picture = pixels(draw_image_grid(torch.ones(1, 1, 2, 300), None, text=TEXT))
    last_line = is_black(picture[-10])
    assert last_line.sum() == 44 * 5  # 300 = 256 + 44 features, five pixels wide each
    assert (picture[-10, 8 + 44 * 5 + 1] - GAP).abs().max() < 0.005
    assert is_black(picture[-8 - 36]).sum() == 256 * 5


def test_text_is_drawn_and_makes_room(pixels):
    labels = [str(100 * row) for row in range(6)], ["left", "right"]
    long = GridText("A caption. " * 40, "a title " * 40, ["a long label"] * 6, ["group"] * 2)
    texts = (GridText("Caption."), GridText("Caption.", "what rows count", *labels), long)
    bare, full, _ = (pixels(draw_image_grid(torch.zeros(6, 2, 1, 64), (8, 8), text=each)) for each in texts)
    assert is_black(full).sum() > is_black(bare).sum() + 100
    assert full.shape[0] > bare.shape[0]


def codes_of(on, labels):
    bits = np.zeros_like(on)
    return draw_codes(Codes(on, bits, bits, bits, np.zeros((2, 0, 1))), np.array(labels))


NAME = "\x1b$\\frac{$"
LINE = {"step": 1, "epoch": 1.0, "elbo": -1.0, "kl_discrete": 1.0, "kl_continuous": 0.0}
NAMED = [
    lambda: codes_of(np.eye(2), [NAME, "b"]),
    lambda: draw_image_grid(torch.zeros(2, 1, 1, 4), (2, 2), text=GridText("of", "kind", [NAME, "b"])),
    lambda: draw_training_curves(training_curves_table([LINE]), name=NAME),
    lambda: draw_log_partition_histogram(log_partition_histogram_table([1.0], [0.1]), name=NAME),
    lambda: draw_feature_statistics(feature_statistics_table(torch.eye(4), torch.eye(4)[None]), name=NAME),
]


def test_examples_without_a_label_are_no_label(tmp_path):
    figure = codes_of(np.eye(2).repeat(2, 0), ["one", "two", "", "two"])
    text = save_figure(figure, tmp_path / "a.svg").read_text()
    both = text.count("<!-- one -->"), text.count("<!-- two -->")
    assert both == (1, 1)
    assert "<!--  -->" not in text


@pytest.mark.parametrize("draw", NAMED)
def test_names_are_shown_as_they_are(draw, tmp_path):
    text = save_figure(draw(), tmp_path / "a.svg", note=NAME).read_text(encoding="utf-8")
    assert "\x1b" not in text
    ElementTree.fromstring(text)
    shown = text.partition("</metadata>")[2]  # letters are paths, with the text beside them
    assert "\\x1b$\\frac{$" in shown


def test_the_same_figure_gives_the_same_file_in_every_form(tmp_path):
    def picture():
        figure = Figure(figsize=(2, 2))
        axes = figure.add_subplot()
        axes.scatter([0, 1], [1, 0])  # markers and clips have names in an SVG
        axes.plot([0, 1], [0, 1])
        return figure

    salt = matplotlib.rcParams["svg.hashsalt"]
    for suffix in (".png", ".svg", ".pdf"):
        paths = [save_figure(picture(), tmp_path / f"{name}{suffix}", note="another config") for name in "ab"]
        one, other = (path.read_bytes() for path in paths)
        assert one == other, suffix
        assert b"another config" in one, suffix
    assert matplotlib.rcParams["svg.hashsalt"] == salt  # the user's setting stays


def test_a_file_is_written_whole_in_a_folder_that_is_made_then(tmp_path):
    path = tmp_path / "new" / "A.PNG"
    picture_file(path)
    assert not path.parent.exists()
    assert save_figure(Figure(figsize=(1, 1)), str(path)) == path
    path.write_text("old")
    save_figure(Figure(figsize=(1, 1)), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [entry.name for entry in path.parent.iterdir()] == ["A.PNG"]


def test_wrong_arguments_are_refused(tmp_path):
    for shape in ((2, 2), (6,), (-2, -3), (2.0, 3)):
        assert refused_argument(cell_shape, 6, shape) == "image_shape"
    for name in ("a", "a.txt", ".png"):
        assert refused_argument(picture_file, tmp_path / name) == "path"
    (tmp_path / "a.png").mkdir()
    assert "a.png" in refused_argument(save_figure, Figure(), tmp_path / "a.png")
    right = {"images": torch.rand(3, 2, 1, 6), "image_shape": (2, 3), "text": TEXT}
    for images in (torch.zeros(2, 2, 6), torch.zeros(0, 2, 1, 6), torch.full((1, 1, 1, 6), 1.5)):
        assert refused_argument(draw_image_grid, **right | {"images": images}) == "images"
    assert refused_argument(draw_image_grid, **right | {"image_shape": (4, 4)}) == "image_shape"


def test_units_are_shown_below_the_label_that_they_are_on_for():
    """Units 1 and 2 are on for b, the second more often; 0 and 3 for a; no other order puts them on a diagonal."""
    on = np.array([[0.9, 0.2, 0.1, 0.6], [0.1, 0.7, 0.9, 0.5]])
    axes = codes_of(on, ["a", "b"]).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "3", "2", "1"]
    assert axes.images[0].get_array().tolist() == on[:, [0, 3, 2, 1]].tolist()
