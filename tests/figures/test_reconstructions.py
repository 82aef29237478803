"""The table of reconstructions, and its picture."""

import itertools

import pytest
import torch

from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.run import ReconstructionTable, draw_reconstructions, reconstructions_table
from discrete_vae.figures.style import save_figure


@pytest.fixture
def x():
    return torch.bernoulli(torch.full((90, 12), 0.4), generator=torch.Generator().manual_seed(0))


def test_examples_are_evenly_spaced(model, x):
    table = reconstructions_table(model, x, num_examples=30)
    assert torch.equal(table.indices, torch.arange(0, 90, 3))
    assert torch.equal(table.examples, x[::3])
    assert table.means.shape == (30, 12)
    assert bool(((table.means >= 0) & (table.means <= 1)).all())
    assert torch.equal(reconstructions_table(model, x, num_examples=90).indices, torch.arange(90))


def test_seeds_reproduce(model, x):
    first, again, other = (
        reconstructions_table(model, x, num_examples=9, seed=seed).means for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_means_belong_to_their_examples(model, x, monkeypatch):
    monkeypatch.setattr(model, "reconstruct", lambda x, generator: 1 - x)
    table = reconstructions_table(model, x, num_examples=17)
    assert torch.equal(table.means, 1 - table.examples)


@pytest.mark.parametrize("image_shape", [(3, 4), None])
@pytest.mark.parametrize("num_examples", [1, 47])
def test_picture(image_shape, num_examples, model, x, tmp_path, read_picture):
    table = reconstructions_table(model, x, num_examples=num_examples)
    save_figure(draw_reconstructions(table, image_shape), tmp_path / "reconstructions.png")
    picture = read_picture(tmp_path / "reconstructions.png")
    assert min(picture.shape[:2]) > 50
    assert picture.std() > 0.05


@pytest.mark.parametrize("num_features", [2, 5, 12])
def test_each_strip_of_a_narrow_table_has_its_label(num_features):
    values = torch.rand(20, num_features, generator=torch.Generator().manual_seed(0))
    figure = draw_reconstructions(ReconstructionTable(values, values, torch.arange(20)))
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["input", "reconstruction"] * 20
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert all(upper.y0 >= lower.y1 for upper, lower in itertools.pairwise(boxes))  # none covers the next


def test_the_upper_one_of_a_pair_is_the_input(model, monkeypatch, tmp_path, read_picture):
    monkeypatch.setattr(model, "reconstruct", lambda x, generator: 1 - x)
    table = reconstructions_table(model, torch.ones(1, 12))
    save_figure(draw_reconstructions(table, (3, 4)), tmp_path / "a.png")
    ink = (read_picture(tmp_path / "a.png") == 0).all(-1).sum(1)  # a row of pixels; labels add a few
    assert (ink[-8 - 73 : -8 - 37] >= 48).all()
    assert (ink[-8 - 36 : -8] < 40).all()


def test_a_hundred_examples_unless_told(model, x):
    assert len(reconstructions_table(model, x).indices) == 90
    assert len(reconstructions_table(model, x.repeat(2, 1)).indices) == 100


def test_mistakes_are_refused(model, x):
    with pytest.raises(InvalidInputError, match="num_examples must be a positive integer"):
        reconstructions_table(model, x, num_examples=0)
    with pytest.raises(InvalidInputError, match="num_examples must be at most 90"):
        reconstructions_table(model, x, num_examples=91)
    with pytest.raises(InvalidInputError, match="x must have shape"):
        reconstructions_table(model, x[:, 1:])
    with pytest.raises(InvalidInputError, match="x must hold values in"):
        reconstructions_table(model, 2 * x)
    table = reconstructions_table(model, x, num_examples=2)
    with pytest.raises(InvalidInputError, match="image_shape must be"):
        draw_reconstructions(table, (5, 5))
