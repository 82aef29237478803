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


def test_probabilities_stay_as_they_are():
    x = torch.tensor([[0.0, 0.25], [NAN, 0.5]])
    gray = grayscale_for(x, per_feature=True)
    assert torch.equal(gray(x).nan_to_num(9.0), x.nan_to_num(9.0))
    assert gray.words == grayscale_for(torch.full((2, 3), NAN), per_feature=True).words == "black is 1"


def test_each_feature_of_a_table_has_its_own_range():
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


def grid(num_rows, num_groups, num_members, num_features):
    shape = (num_rows, num_groups, num_members, num_features)
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def test_an_image_is_black_on_paper_pixel_by_pixel(tmp_path, read_picture):
    image = torch.tensor([1.0, 0.0, 1.0, 0.5, 1.0, 0.0])
    save_figure(draw_image_grid(image.view(1, 1, 1, 6), (2, 3), text=TEXT), tmp_path / "a.png")
    picture = read_picture(tmp_path / "a.png")
    # A single image gets the largest scale, twelve pixels a feature, and stands at the lower left.
    drawn = picture[-8 - 24 : -8, 8 : 8 + 36]
    expected = (1 - image.view(2, 3)).repeat_interleave(12, 0).repeat_interleave(12, 1)
    torch.testing.assert_close(drawn, expected[..., None].expand(-1, -1, 3), rtol=0, atol=0.003)


@pytest.mark.parametrize("stacked", [False, True])
def test_members_stand_beside_or_below_each_other(stacked, tmp_path, read_picture):
    images = torch.zeros(1, 1, 2, 4)
    images[:, :, 1] = 1
    save_figure(draw_image_grid(images, (2, 2), text=TEXT, stacked=stacked), tmp_path / "a.png")
    picture = read_picture(tmp_path / "a.png")
    rows, columns = (49, 24) if stacked else (24, 49)  # with one pixel between the members
    drawn = picture[-8 - rows : -8, 8 : 8 + columns]
    expected = torch.zeros(rows, columns, dtype=torch.bool)
    if stacked:
        expected[25:] = True
    else:
        expected[:, 25:] = True
    assert torch.equal(is_black(drawn), expected)


def test_strips_stack_their_members_and_wrap(tmp_path, read_picture):
    images = torch.ones(1, 1, 2, 300)
    save_figure(draw_image_grid(images, None, text=TEXT), tmp_path / "a.png")
    picture = read_picture(tmp_path / "a.png")
    last_line = is_black(picture[-10])
    assert last_line.sum() == 44 * 5  # 300 = 256 + 44 features, five pixels wide each
    assert (picture[-10, 8 + 44 * 5 + 1] - GAP).abs().max() < 0.005
    assert is_black(picture[-8 - 36]).sum() == 256 * 5


def test_nan_leaves_a_place_empty(tmp_path, read_picture):
    images = torch.ones(1, 2, 1, 4)
    images[0, 1] = torch.nan
    save_figure(draw_image_grid(images, (2, 2), text=TEXT), tmp_path / "a.png")
    drawn = read_picture(tmp_path / "a.png")[-8 - 24 : -8]
    assert is_black(drawn[:, 8:32]).all()
    assert ((drawn[:, 33:60] - GAP).abs() < 0.005).all()


def test_text_is_drawn_and_makes_room(tmp_path, read_picture):
    images = torch.zeros(6, 2, 1, 64)
    text = GridText("Caption.", "what rows count", [str(100 * row) for row in range(6)], ["left", "right"])
    save_figure(draw_image_grid(images, (8, 8), text=GridText("Caption.")), tmp_path / "bare.png")
    save_figure(draw_image_grid(images, (8, 8), text=text), tmp_path / "full.png")
    bare, full = (read_picture(tmp_path / f"{name}.png") for name in ("bare", "full"))
    assert is_black(full).sum() > is_black(bare).sum() + 100
    assert full.shape[0] > bare.shape[0]


@pytest.mark.parametrize("num_rows", [1, 12])
def test_labels_without_room_break_nothing(num_rows, tmp_path, read_picture):
    labels = [f"a long label {row}" for row in range(num_rows)]
    text = GridText("A caption. " * 40, "a title longer than the picture is high", labels, ["group"] * 30)
    save_figure(draw_image_grid(grid(num_rows, 30, 1, 20), None, text=text), tmp_path / "a.png")
    assert read_picture(tmp_path / "a.png").std() > 0.05


def test_large_images_keep_every_pixel(tmp_path, read_picture):
    save_figure(draw_image_grid(torch.ones(1, 1, 1, 2000 * 3), (3, 2000), text=TEXT), tmp_path / "a.png")
    assert is_black(read_picture(tmp_path / "a.png")[-10]).sum() == 2000


@pytest.mark.parametrize(
    ("num_features", "shape", "cell"),
    [(6, (2, 3), (2, 3)), (6, None, (1, 6)), (256, None, (1, 256)), (257, None, (2, 256))],
)
def test_cell_shape(num_features, shape, cell):
    assert cell_shape(num_features, shape) == cell


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


def test_a_file_is_written_whole_in_a_folder_that_is_made_then(tmp_path):
    path = tmp_path / "new" / "A.PNG"
    picture_file(path)
    assert not path.parent.exists()
    assert save_figure(Figure(figsize=(1, 1)), str(path)) == path
    path.write_text("old")
    save_figure(Figure(figsize=(1, 1)), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [entry.name for entry in path.parent.iterdir()] == ["A.PNG"]


def of_grid(**change):
    arguments = {"images": grid(3, 2, 1, 6), "image_shape": (2, 3), "text": TEXT} | change
    return lambda folder: draw_image_grid(**arguments)


REFUSED = [
    *(
        (lambda folder, shape=shape: cell_shape(6, shape), "image_shape")
        for shape in ((2, 2), (6,), (-2, -3), (2.0, 3))
    ),
    *((lambda folder, name=name: picture_file(folder / name), "path") for name in ("a", "a.txt", ".png")),
    (lambda folder: save_figure(Figure(), (folder / "a.png").mkdir() or folder / "a.png"), "a.png"),
    (of_grid(images=torch.zeros(2, 2, 6)), "images"),
    (of_grid(images=torch.zeros(0, 2, 1, 6)), "images"),
    (of_grid(images=torch.full((1, 1, 1, 6), 1.5)), "images"),
    (of_grid(image_shape=(4, 4)), "image_shape"),
    (of_grid(text=GridText("", row_labels=["one", "two"])), "text.row_labels"),
    (of_grid(text=GridText("", group_labels=["one"])), "text.group_labels"),
]


@pytest.mark.parametrize(("call", "argument"), REFUSED)
def test_wrong_arguments_are_refused(call, argument, tmp_path):
    assert argument in refused_argument(call, tmp_path)


def test_units_are_shown_below_the_label_that_they_are_on_for():
    """Units 1 and 2 are on for b, the second more often; 0 and 3 for a; no other order puts them on a diagonal."""
    on = np.array([[0.9, 0.2, 0.1, 0.6], [0.1, 0.7, 0.9, 0.5]])
    bits = np.zeros_like(on)
    axes = draw_codes(Codes(on, bits, bits, bits, np.zeros((2, 0, 1))), np.array(["a", "b"])).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "3", "2", "1"]
    assert axes.images[0].get_array().tolist() == on[:, [0, 3, 2, 1]].tolist()
