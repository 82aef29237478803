"""What stands where in a grid, for images and for examples that are none."""

import sys

import pytest
import torch

from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.style import GridText, cell_shape, draw_image_grid, save_figure

TEXT = GridText("A caption.")
INK, GAP = torch.tensor(0.0), torch.tensor([205, 218, 234]) / 255


def is_ink(picture):
    return (picture == INK).all(-1)


def grid(num_rows, num_groups, num_members, num_features):
    shape = (num_rows, num_groups, num_members, num_features)
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def test_an_image_is_ink_on_paper_pixel_by_pixel(tmp_path, read_picture):
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
    assert torch.equal(is_ink(drawn), expected)


def test_strips_stack_their_members_and_wrap(tmp_path, read_picture):
    images = torch.ones(1, 1, 2, 300)
    save_figure(draw_image_grid(images, None, text=TEXT), tmp_path / "a.png")
    picture = read_picture(tmp_path / "a.png")
    last_line = is_ink(picture[-10])
    assert last_line.sum() == 44 * 5  # 300 = 256 + 44 features, five pixels wide each
    assert (picture[-10, 8 + 44 * 5 + 1] - GAP).abs().max() < 0.005
    assert is_ink(picture[-8 - 36]).sum() == 256 * 5


def test_nan_leaves_a_place_empty(tmp_path, read_picture):
    images = torch.ones(1, 2, 1, 4)
    images[0, 1] = torch.nan
    save_figure(draw_image_grid(images, (2, 2), text=TEXT), tmp_path / "a.png")
    drawn = read_picture(tmp_path / "a.png")[-8 - 24 : -8]
    assert is_ink(drawn[:, 8:32]).all()
    assert ((drawn[:, 33:60] - GAP).abs() < 0.005).all()


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_the_same_grid_gives_the_same_picture(suffix, tmp_path, read_picture):
    paths = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for path in paths:
        save_figure(draw_image_grid(grid(2, 3, 2, 6), (2, 3), text=TEXT), path)
    assert paths[0].stat().st_size > 500
    if suffix == ".png":
        assert torch.equal(*map(read_picture, paths))


def test_text_is_drawn_and_makes_room(tmp_path, read_picture):
    images = torch.zeros(6, 2, 1, 64)
    text = GridText("Caption.", "what rows count", [str(100 * row) for row in range(6)], ["left", "right"])
    save_figure(draw_image_grid(images, (8, 8), text=GridText("Caption.")), tmp_path / "bare.png")
    save_figure(draw_image_grid(images, (8, 8), text=text), tmp_path / "full.png")
    bare, full = (read_picture(tmp_path / f"{name}.png") for name in ("bare", "full"))
    assert is_ink(full).sum() > is_ink(bare).sum() + 100
    assert full.shape[0] > bare.shape[0]


@pytest.mark.parametrize("num_rows", [1, 12])
def test_labels_without_room_break_nothing(num_rows, tmp_path, read_picture):
    labels = [f"a long label {row}" for row in range(num_rows)]
    text = GridText("A caption. " * 40, "a title longer than the picture is high", labels, ["group"] * 30)
    save_figure(draw_image_grid(grid(num_rows, 30, 1, 20), None, text=text), tmp_path / "a.png")
    assert read_picture(tmp_path / "a.png").std() > 0.05


def test_large_images_keep_every_pixel(tmp_path, read_picture):
    save_figure(draw_image_grid(torch.ones(1, 1, 1, 2000 * 3), (3, 2000), text=TEXT), tmp_path / "a.png")
    assert is_ink(read_picture(tmp_path / "a.png")[-10]).sum() == 2000


def test_drawing_stays_away_from_pyplot(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # importing it raises
    save_figure(draw_image_grid(grid(1, 1, 1, 4), (2, 2), text=TEXT), tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()


@pytest.mark.parametrize(
    ("num_features", "shape", "cell"),
    [(6, (2, 3), (2, 3)), (6, None, (1, 6)), (256, None, (1, 256)), (257, None, (2, 256))],
)
def test_cell_shape(num_features, shape, cell):
    assert cell_shape(num_features, shape) == cell


@pytest.mark.parametrize("shape", [(2, 2), (6,), (1, 2, 3), (-2, -3), (2.0, 3), (True, 6), ()])
def test_wrong_image_shapes_are_refused(shape):
    with pytest.raises(InvalidInputError, match="image_shape must be .* product of 6"):
        cell_shape(6, shape)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": torch.zeros(2, 2, 6)}, "images must have shape"),
        ({"images": torch.zeros(0, 2, 1, 6)}, "images must hold at least one"),
        ({"images": torch.full((1, 1, 1, 6), 1.5)}, "images must hold values in"),
        ({"text": GridText("", row_labels=["one", "two"])}, "text.row_labels must be empty or 3"),
        ({"text": GridText("", group_labels=["one"])}, "text.group_labels must be empty or 2"),
    ],
)
def test_wrong_arguments_are_refused(change, message):
    arguments = {"images": grid(3, 2, 1, 6), "text": TEXT} | change
    with pytest.raises(InvalidInputError, match=message):
        draw_image_grid(arguments.pop("images"), (2, 3), **arguments)
