"""Tables and pictures of a run's numbers: metrics as curves, estimates of log Z."""

import numpy as np
import pytest

from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.curves import (
    Curve,
    _epochs_shown,
    _limits,
    draw_log_partition_histogram,
    draw_training_curves,
    log_partition_histogram_table,
    training_curves_table,
)
from discrete_vae.figures.style import save_figure
from tests.refusals import refused_argument


def metrics(count=30, *, beta=True, validation=True, kl_continuous=0.0):
    """A run's lines: a very bad start, then a slow rise."""
    records = []
    for line in range(1, count + 1):
        elbo = -1e6 if line == 1 else -100 + 0.1 * line
        record = {"step": 100 * line, "epoch": line / 2, "elbo": elbo, "kl_discrete": 20.0 - 0.1 * line}
        record |= {"kl_continuous": kl_continuous} | ({"beta": 3.0 + 0.1 * line} if beta else {})
        records.append(record)
        if validation and line % 5 == 0:
            value = -99 - abs(line - 20)
            records.append({"step": 100 * line, "epoch": line / 2, "validation_elbo": value})
    return records


def test_records_become_curves():
    curves = training_curves_table(metrics())
    assert curves.elbo.step.tolist() == list(range(100, 3001, 100))
    assert curves.elbo.epoch[-1] == 15
    assert curves.elbo.value[0] == -1e6
    assert curves.validation_elbo.step.tolist() == [500, 1000, 1500, 2000, 2500, 3000]
    assert curves.validation_elbo.value.max() == -99
    assert len(curves.beta.value) == len(curves.kl_discrete.value) == 30
    assert len(training_curves_table(metrics(beta=False)).beta.value) == 0


def scored(values, scores):
    """Validations whose checkpoints are compared by something else than the ELBO."""
    lines = [{"step": 1, "epoch": 0.1, "elbo": -100.0}]
    for number, (elbo, score) in enumerate(zip(values, scores, strict=True), 1):
        found = {"validation_elbo": elbo, "validation_score": score}
        lines.append({"step": 10 * number, "epoch": float(number)} | found)
    return lines


def test_the_checkpoint_that_is_kept_is_marked_whatever_its_elbo():
    assert training_curves_table(metrics()).kept == 3  # step 2000
    assert training_curves_table(metrics(validation=False)).kept is None
    curves = training_curves_table(scored([-90.0, -88.0, -89.0], [-89.0, -87.5, -86.5]))
    assert curves.kept == 2
    (panel,) = draw_training_curves(curves).axes
    labels = [line.get_label() for line in panel.lines]
    assert "best checkpoint: \N{MINUS SIGN}89.00 nats, epoch 3" in labels


def test_limits_leave_a_bad_start_out_and_nothing_else():
    curves = training_curves_table(metrics())
    low, high = _limits([curves.elbo, curves.validation_elbo])
    assert -112 < low < -109  # the second validation is -109
    assert -97 < high < -95

    ordinary = Curve(np.arange(100), np.arange(100.0), np.linspace(-20, -10, 100))
    low, high = _limits([ordinary])
    assert low < -20 < -10 < high

    constant = Curve(np.arange(3), np.arange(3.0), np.full(3, 4.0))
    assert _limits([constant]) == (3.5, 4.5)
    slight = Curve(np.arange(3), np.arange(3.0), np.array([9.10, 9.05, 9.03]))
    assert np.ptp(_limits([slight])) == pytest.approx(1.0)  # no drama over 0.07 nats


@pytest.mark.parametrize(
    ("epochs", "shown"),
    [
        ([1.0, 50.0, 100.0], (0.0, 102.0)),
        ([5.0, 7.5, 10.0], (4.85, 10.103)),  # the first half would be empty
        ([3.0, 3.0], (1.5, 4.5)),
        ([0.0], (-1.0, 1.0)),
    ],
)
def test_epochs_shown_begin_where_the_points_do(epochs, shown):
    assert _epochs_shown(np.array(epochs)) == pytest.approx(shown)


def test_beta_has_a_panel_only_where_it_changes_and_a_single_point_has_one_panel():
    fixed = [record | {"beta": 3.0} for record in metrics()]
    found = [
        draw_training_curves(training_curves_table(records))
        for records in (metrics(), fixed, metrics(beta=False), metrics(1))
    ]
    assert [len(figure.axes) for figure in found] == [3, 2, 2, 1]
    heights = [figure.get_figheight() for figure in found]
    assert heights[0] > heights[1] == heights[2] > heights[3]


def test_the_start_of_importance_samples_is_marked_where_the_run_has_come_so_far():
    curves = training_curves_table(metrics())
    counts = []
    for importance in (None, (12.0, 5), (15.0, 5)):
        figure = draw_training_curves(curves, importance=importance)
        marks = [line for axes in figure.axes for line in axes.lines if line.get_linestyle() == ":"]
        texts = [text.get_text() for axes in figure.axes for text in axes.texts]
        counts.append((len(marks), texts))
    named = ["from here on training counts\nthe bound of 5 samples"]
    assert counts == [(0, []), (3, named), (0, [])]


@pytest.mark.parametrize(
    "records",
    [
        metrics(),
        metrics(200, kl_continuous=5.0),
        metrics(beta=False, validation=False),
        metrics(1),
        [{"step": 10, "epoch": 0.0, "elbo": -90.0}],
    ],
    ids=["usual", "both KLs", "no beta, no validation", "one line", "nothing but the ELBO"],
)
def test_picture_of_training_curves(records, tmp_path, read_picture):
    save_figure(draw_training_curves(training_curves_table(records), name="a-run"), tmp_path / "curves.png")
    picture = read_picture(tmp_path / "curves.png")
    assert picture.shape[1] == 1080
    assert picture.std() > 0.05
    colors = picture.flatten(0, 1)
    assert ((colors[:, 2] - colors[:, 0]) > 0.5).sum() > 20  # some of it is blue


@pytest.mark.parametrize(
    "records", [[], [{"step": 1, "epoch": 0.5, "validation_elbo": -90.0}], [{"step": 1, "elbo": -90.0}]]
)
def test_records_without_their_parts_are_refused(records):
    assert refused_argument(training_curves_table, records) == "records"


@pytest.mark.parametrize(("repeats", "exact"), [(1, 40.006), (3, None), (200, 40.006)])
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
    with pytest.raises(InvalidInputError, match="values"):
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
