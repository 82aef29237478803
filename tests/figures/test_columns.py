"""Distributions of the columns of a table: shares against counts by hand, and what is shown of many."""

import numpy as np
import pytest
import torch

from discrete_vae.figures import (
    column_distributions_table,
    draw_column_distributions,
    save_figure,
    save_table,
)
from tests.refusals import refused_argument

NAN = float("nan")


def test_words_bits_and_numbers_are_counted():
    x = torch.tensor([[0, 1, 1.0], [2, NAN, 2], [2, 0, 9], [NAN, 0, NAN]])
    samples = torch.tensor([[2, 1, 1.0], [1, 0, 1]])
    words = [("a", "b", "c"), None, None]
    found = column_distributions_table(x, samples, names=("word", "bit", "number"), words=words).shown
    assert [each.name for each in found] == ["word", "bit", "number"]
    assert [each.labels for each in found] == [("a", "b", "c"), ("0", "1"), ("1", "2", "9")]
    np.testing.assert_allclose(found[0].data, [1 / 3, 0, 2 / 3])
    np.testing.assert_allclose(found[0].samples, [0, 0.5, 0.5])
    np.testing.assert_allclose(found[1].data, [2 / 3, 1 / 3])
    assert found[0].distance == pytest.approx(0.5)
    weighted = column_distributions_table(x, samples, words=words, weights=np.array([3.0, 1, 0, 5]))
    np.testing.assert_allclose(weighted.shown[0].data, [0.75, 0, 0.25])
    codes = torch.arange(12.0).repeat_interleave(torch.arange(12, 0, -1))[:, None]
    (found,) = column_distributions_table(codes, codes, words=[tuple("abcdefghijkl")]).shown
    assert found.labels == (*"abcdefg", "5 others")  # rare words together
    np.testing.assert_allclose(found.data[-1], (5 + 4 + 3 + 2 + 1) / 78)


@pytest.mark.parametrize("whole", [False, True])
def test_bins_hold_every_value_and_both_laws_alike(whole):
    """Values of one law stand in the same bins but for chance: total variation of 21 bins, 4 of its deviations."""
    generator = torch.Generator().manual_seed(0)
    x, samples = 30 * torch.randn(2, 4000, 1, generator=generator).exp()
    x, samples = (x.round(), samples.round()) if whole else (x, samples)
    (found,) = column_distributions_table(x, samples).shown
    assert found.data.sum() == pytest.approx(1)
    assert found.samples.sum() == pytest.approx(1)
    assert len(found.data) == pytest.approx(20, abs=1)
    if whole:
        assert (found.edges % 1 == 0.5).all()
    assert found.distance < 0.05
    (moved,) = column_distributions_table(x, 1.3 * samples).shown  # the planted fault
    assert moved.distance > 0.1


@pytest.mark.parametrize("size", [1e-300, 1e10, 1e30, 1e300])
def test_bins_do_not_depend_on_the_unit(size):
    """Large values are whole numbers too, as far as their digits go."""
    x, samples = torch.randn(2, 400, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    plain, found = (
        column_distributions_table(*each).shown[0] for each in ((x, samples), (size * x, size * samples))
    )
    assert found.distance == pytest.approx(plain.distance, abs=0.05)


def test_of_many_columns_those_that_differ_most_are_shown(tmp_path):
    generator = torch.Generator().manual_seed(0)
    x, samples = (torch.rand(2, 500, 30, generator=generator) < 0.5).float()
    samples[:, [4, 20]] = 1
    table = column_distributions_table(x, samples)
    assert (len(table.shown), table.num_columns) == (24, 30)
    names = [each.name for each in table.shown]
    assert {"feature 4", "feature 20"} <= {*names}
    assert names == sorted(names, key=lambda name: int(name.split()[1]))
    figure = draw_column_distributions(table)
    assert "6 others" in figure.get_suptitle().replace("\n", " ")
    save_figure(figure, tmp_path / "columns.png")
    save_table(table, tmp_path / "columns.csv")
    assert len((tmp_path / "columns.csv").read_text().splitlines()) == 49


@pytest.mark.parametrize(
    ("x", "samples", "more", "argument"),
    [
        (torch.full((3, 2), NAN), torch.zeros(2, 2), {}, "x"),
        (torch.zeros(3, 2), torch.zeros(2, 3), {}, "samples"),
        (torch.zeros(3, 2), torch.zeros(2, 2), {"names": ("a",)}, "names"),
        (torch.zeros(3, 2), torch.zeros(2, 2), {"words": (None,)}, "words"),
    ],
)
def test_what_does_not_fit_is_refused(x, samples, more, argument):
    assert refused_argument(column_distributions_table, x, samples, **more) == argument
