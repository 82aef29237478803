"""Tables and pictures of a run's numbers: metrics as curves, estimates of log Z."""

import numpy as np
import pytest

from discrete_vae.figures.curves import (
    draw_log_partition_histogram,
    draw_training_curves,
    log_partition_histogram_table,
    training_curves_table,
)
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


def drawn(records):
    return draw_training_curves(training_curves_table(records))


def test_records_become_curves_and_the_checkpoint_that_is_kept_is_marked():
    curves = training_curves_table(metrics())
    assert curves.elbo.step.tolist() == list(range(100, 3001, 100))
    assert (curves.elbo.epoch[-1], curves.elbo.value[0]) == (15, -1e6)
    assert curves.validation_elbo.step.tolist() == [500, 1000, 1500, 2000, 2500, 3000]
    assert len(curves.beta.value) == len(curves.kl_discrete.value) == 30
    assert curves.kept == 3  # step 2000
    without = training_curves_table(metrics(beta=False, validation=False))
    assert (len(without.beta.value), without.kept) == (0, None)
    scored = [{"step": 1, "epoch": 0.1, "elbo": -100.0}]  # kept by something else than the ELBO
    for number, (elbo, score) in enumerate([(-90.0, -89.0), (-88.0, -87.5), (-89.0, -86.5)], 1):
        found = {"validation_elbo": elbo, "validation_score": score}
        scored.append({"step": 10 * number, "epoch": float(number)} | found)
    assert training_curves_table(scored).kept == 2
    (panel,) = drawn(scored).axes
    labels = [line.get_label() for line in panel.lines]
    assert "best checkpoint: \N{MINUS SIGN}89.00 nats, epoch 3" in labels


@pytest.mark.parametrize(
    ("epochs", "values", "shown", "low", "high"),
    [
        ([1.0, 50.0, 100.0], [-20.0, -15.0, -10.0], (0.0, 102.0), (-22, -20), (-10, -8)),
        # a range of 1 nat at least
        ([5.0, 7.5, 10.0], [9.10, 9.05, 9.03], (4.85, 10.103), (8.5, 8.6), (9.5, 9.6)),
        ([3.0, 3.0], [4.0, 4.0], (1.5, 4.5), (3.4, 3.6), (4.4, 4.6)),
        ([0.0], [4.0], (-1.0, 1.0), (3.4, 3.6), (4.4, 4.6)),
    ],
)
def test_limits_hold_all_points_and_little_beside_them(epochs, values, shown, low, high):
    pairs = enumerate(zip(epochs, values, strict=True), 1)
    (axes,) = drawn([{"step": n, "epoch": e, "elbo": value} for n, (e, value) in pairs]).axes
    assert axes.get_xlim() == pytest.approx(shown)
    assert low[0] <= axes.get_ylim()[0] <= low[1]
    assert high[0] <= axes.get_ylim()[1] <= high[1]


def test_limits_leave_a_bad_start_out_and_beta_has_a_panel_only_where_it_changes():
    low, high = drawn(metrics()).axes[0].get_ylim()
    assert -112 < low < -109  # the second validation is -109
    assert -97 < high < -95
    fixed = [record | {"beta": 3.0} for record in metrics()]
    found = [drawn(records) for records in (metrics(), fixed, metrics(beta=False), metrics(1))]
    assert [len(figure.axes) for figure in found] == [3, 2, 2, 1]
    heights = [figure.get_figheight() for figure in found]
    assert heights[0] > heights[1] == heights[2] > heights[3]


def test_the_start_of_importance_samples_is_marked_where_the_run_has_come_so_far():
    curves, counts = training_curves_table(metrics()), []
    for importance in (None, (12.0, 5), (15.0, 5)):
        figure = draw_training_curves(curves, importance=importance)
        marks = [line for axes in figure.axes for line in axes.lines if line.get_linestyle() == ":"]
        counts.append((len(marks), [text.get_text() for axes in figure.axes for text in axes.texts]))
    named = ["from here on training counts\nthe bound of 5 samples"]
    assert counts == [(0, []), (3, named), (0, [])]


@pytest.mark.parametrize(
    "records", [metrics(200, kl_continuous=5.0), [{"step": 10, "epoch": 0.0, "elbo": -90.0}]]
)
def test_picture_of_training_curves(records, pixels):
    picture = pixels(draw_training_curves(training_curves_table(records), name="a-run"))
    assert picture.shape[1] == 1080
    colors = picture.flatten(0, 1)
    assert ((colors[:, 2] - colors[:, 0]) > 0.5).sum() > 20  # some of it is blue


@pytest.mark.parametrize(
    ("repeats", "error", "label"),
    [(1, 0.003, "repeat"), (19, 0.0, "repeat"), (20, 0.003, "fraction of the estimates")],
)
def test_few_estimates_are_dots_and_many_are_bars(repeats, error, label, pixels):
    values = 40 + error * np.random.default_rng(0).standard_normal(repeats)
    table = log_partition_histogram_table(values, np.full(repeats, error), exact=40.0)
    figure = draw_log_partition_histogram(table, name="digits")
    (axes,), (legend,) = figure.axes, figure.legends
    assert label in (axes.get_xlabel(), axes.get_ylabel())
    assert pixels(figure).shape == (540, 960, 3)
    assert not legend.get_window_extent().overlaps(axes.get_window_extent())
    assert "exact value" in [text.get_text() for text in legend.get_texts()]
    assert log_partition_histogram_table([1.0, 2.0], [0.3, 0.4]).stated == pytest.approx(0.125**0.5)


@pytest.mark.parametrize(
    "records", [[], [{"step": 1, "epoch": 0.5, "validation_elbo": -90.0}], [{"step": 1, "elbo": -90.0}]]
)
def test_numbers_without_their_parts_are_refused(records):
    assert refused_argument(training_curves_table, records) == "records"
    assert refused_argument(log_partition_histogram_table, [], []) == "values"
