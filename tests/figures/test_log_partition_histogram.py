import numpy as np
import pytest

from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.curves import draw_log_partition_histogram, log_partition_histogram_table
from discrete_vae.figures.style import save_figure


@pytest.mark.parametrize("exact", [None, 40.006])
@pytest.mark.parametrize("repeats", [1, 3, 20, 200])
def test_draws_a_picture(exact, repeats, tmp_path, read_picture):
    values = 40 + 0.003 * np.random.default_rng(0).standard_normal(repeats)
    table = log_partition_histogram_table(values, np.full(repeats, 0.003), exact=exact)
    path = tmp_path / "histogram.png"
    save_figure(draw_log_partition_histogram(table, name="digits"), path)
    assert read_picture(path).shape == (540, 960, 3)
    again = path.read_bytes()
    save_figure(draw_log_partition_histogram(table, name="digits"), path)
    assert path.read_bytes() == again


def test_estimates_without_an_error(tmp_path):
    table = log_partition_histogram_table([1.0, 1.0], [0.0, 0.0], exact=1.0)
    save_figure(draw_log_partition_histogram(table), tmp_path / "histogram.svg")
    assert (tmp_path / "histogram.svg").exists()


def test_no_estimate_is_no_picture():
    with pytest.raises(InvalidInputError, match="values must hold at least one estimate"):
        log_partition_histogram_table([], [])


@pytest.mark.parametrize(
    ("repeats", "label"), [(1, "repeat"), (19, "repeat"), (20, "fraction of the estimates")]
)
def test_few_estimates_are_dots_and_many_are_bars(repeats, label):
    values = 40 + 0.003 * np.random.default_rng(0).standard_normal(repeats)
    table = log_partition_histogram_table(values, np.full(repeats, 0.003), exact=40.0)
    figure = draw_log_partition_histogram(table, name="digits")
    (axes,) = figure.axes
    assert label in (axes.get_xlabel(), axes.get_ylabel())
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert not legend.get_window_extent().overlaps(axes.get_window_extent())
    assert "exact value" in [text.get_text() for text in legend.get_texts()]
