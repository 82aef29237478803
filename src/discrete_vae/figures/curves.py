"""Pictures of a run's numbers: the course of training, estimates of log Z."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from discrete_vae.errors import InvalidInputError, plot_text
from discrete_vae.figures.style import BLUE, GREEN, PURPLE, VERMILION, Drawing, FigureRequest, Picture, tidy
from discrete_vae.records import digits_of, with_error
from discrete_vae.runs.results import log_partition_store

# The course of a training run.


_FEW_POINTS = 40
MIN_SPAN = 1.0  # nats, or units of beta: a smaller change must not look like a large one
_EMPTY_SHARE = 0.1  # of the axis before the first point
_START_SHARE, _MIN_POINTS = 20, 5  # a twentieth of a curve may leave the axes if the curve has five points
_FLATTENED = 1.5  # ... and the range would grow by more than this factor with it


@dataclass(frozen=True, eq=False)
class Curve:
    """One quantity over a run; empty if the run did not log it."""

    step: np.ndarray  # steps done, (point,) int64
    epoch: np.ndarray  # passes over the training part, (point,) float64
    value: np.ndarray  # the quantity, (point,) float64

    @property
    def late(self) -> np.ndarray:
        """The values without the first twentieth, which may flatten the rest."""
        return self.value[-(-len(self.value) // _START_SHARE) if len(self.value) >= _MIN_POINTS else 0 :]

    def until(self, epoch: float) -> Curve:
        """The points up to an epoch."""
        kept = self.epoch <= epoch
        return Curve(self.step[kept], self.epoch[kept], self.value[kept])


@dataclass(frozen=True, eq=False)
class TrainingCurves:
    """The log of a run, a curve a quantity.

    Attributes:
        elbo: Training ELBO, nats, means over the steps since the point before.
        validation_elbo: Validation ELBO, nats.
        validation_score: What checkpoints are compared by, nats: a bound by as many importance samples as training
            takes, less two standard errors of its log Z.
        kl_discrete: KL of the binary latents, nats, means like those of `elbo`.
        kl_continuous: KL of the Gaussian layers, nats, likewise.
        beta: The smoothing's beta.
    """

    elbo: Curve
    validation_elbo: Curve
    validation_score: Curve
    kl_discrete: Curve
    kl_continuous: Curve
    beta: Curve

    @property
    def kept(self) -> int | None:
        """Number of the validation with the best checkpoint, which is kept; None before the first validation."""
        score = self.validation_score
        compared = score if len(score.value) else self.validation_elbo
        if not len(compared.value):
            return None
        return int(np.searchsorted(self.validation_elbo.step, compared.step[compared.value.argmax()]))

    def columns(self) -> dict[str, np.ndarray]:
        """A row per point: the quantity's name, step, epoch and value."""
        curves: dict[str, Curve] = vars(self)
        columns = {"quantity": np.repeat(list(curves), [len(curve.value) for curve in curves.values()])}
        for part in ("step", "epoch", "value"):
            columns[part] = np.concatenate([getattr(curve, part) for curve in curves.values()])
        return columns


def training_curves_table(records: Iterable[Mapping[str, Any]]) -> TrainingCurves:
    """Sort a run's metrics, as ``run.metrics().read()`` gives them, by quantity; at least one must be an ELBO.

    Examples:
        >>> curves = training_curves_table([{"step": 10, "epoch": 0.5, "elbo": -90.0}])
        >>> curves.elbo.value, len(curves.beta.value)
        (array([-90.]), 0)
    """
    lines = list(records)
    for line in lines:
        if ("elbo" in line or "validation_elbo" in line) and not {"step", "epoch"} <= line.keys():
            rule, repair = "must hold a step and an epoch each", "Read them with run.metrics().read()."
            raise InvalidInputError("records", rule, f"{sorted(line)}", repair)
    if not any("elbo" in line for line in lines):
        received = f"{len(lines)} records without one"
        repair = "Wait for the run's first line of metrics, or check that its folder is the right one."
        raise InvalidInputError("records", "must hold at least one training ELBO", received, repair)
    return TrainingCurves(**{each.name: _curve(lines, each.name) for each in fields(TrainingCurves)})


def draw_training_curves(
    curves: TrainingCurves, *, name: str = "", importance: tuple[float, int] | None = None
) -> Picture:
    """Draw the ELBO in training and validation, the KL, and beta where it changes, over the epochs.

    The first twentieth of a curve, at least its first point, lies outside the axes where it would flatten the rest. No
    axis spans less than a nat, so that what does not change looks so. A run with one point shows its numbers. From the
    epoch `importance` on, training counts the bound of so many importance samples, which lies above the ELBO.
    """
    epochs = np.concatenate([curves.elbo.epoch, curves.validation_elbo.epoch])
    single = float(np.ptp(epochs)) == 0
    draws = [_draw_elbo]
    if len(curves.kl_discrete.value) and not single:
        draws.append(_draw_kl)
    if len(curves.beta.value) and np.ptp(curves.beta.value) > 0 and not single:
        draws.append(_draw_beta)
    ratios = [3.0, 1.8, 1.2][: len(draws)]
    figure = Picture((7.2, 1.3 * sum(ratios) + 0.4), layout="constrained")
    panels = list(figure.subplots(len(draws), 1, sharex=True, height_ratios=ratios, squeeze=False).flat)
    figure.suptitle(f"Training of {plot_text(name)}" if name else "Training", fontsize=10, x=0.01, ha="left")
    for axes, draw in zip(panels, draws, strict=True):
        draw(axes, curves)
        tidy(axes)
        if len(axes.lines) > 1:  # above the panel, where no curve passes
            axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=3, frameon=False, fontsize=8)
        if importance is not None and curves.elbo.epoch[-1] > importance[0] and not single:
            _mark_importance(axes, *importance, named=axes is panels[0])
    panels[-1].set(xlabel="epoch (passes over the training examples)", xlim=_epochs_shown(epochs))
    if single:
        text = f"training ELBO {_nats(curves.elbo.value[-1])}\nOne point is no curve:\n"
        text += "--training.log-every and\n--training.validate-every\nmake more of them."
        panels[0].annotate(text, (0.03, 0.95), xycoords="axes fraction", va="top", fontsize=8)
    return figure


def make_training_curves(request: FigureRequest) -> Drawing:
    """The figure of a run; the model is not loaded."""
    table = training_curves_table(request.run.directory.metrics().read())
    training = request.run.directory.read_experiment().training
    samples = training.num_importance_samples
    importance = (training.importance_start * training.num_epochs, samples) if samples > 1 else None
    return Drawing(table, draw_training_curves(table, name=request.run.title, importance=importance))


def _draw_elbo(axes: Axes, curves: TrainingCurves) -> None:
    """Both bounds, with the checkpoint that is kept marked."""
    valid = curves.validation_elbo
    _line(axes, curves.elbo, color=BLUE, label="training, mean between points")
    if (best := curves.kept) is not None:
        _line(axes, valid, color=VERMILION, label="validation")
        label = f"best checkpoint: {_nats(valid.value[best])}, epoch {epoch_in_words(valid.epoch[best])}"
        place = (valid.epoch[best], valid.value[best])
        axes.plot(*place, "*", color=VERMILION, markersize=11, zorder=3, clip_on=False, label=label)
    axes.set(ylabel="ELBO (nats per example)", ylim=_limits([curves.elbo, valid]))


def _mark_importance(axes: Axes, epoch: float, num_samples: int, *, named: bool) -> None:
    """A line where importance samples begin, and in one panel what that does."""
    axes.axvline(epoch, color="0.45", linewidth=1.2, linestyle=":", zorder=1.5)
    if named:
        text = f"from here on training counts\nthe bound of {num_samples} samples"
        places = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
        axes.annotate(text, (epoch, 0.03), (-5, 0), **places, ha="right", fontsize=8, color="0.35")


def _draw_kl(axes: Axes, curves: TrainingCurves) -> None:
    shown = [curves.kl_discrete]
    _line(axes, curves.kl_discrete, color=GREEN, label="binary latents")
    if curves.kl_continuous.value.any():
        shown.append(curves.kl_continuous)
        _line(axes, curves.kl_continuous, color=PURPLE, label="Gaussian layers")
    axes.set(ylabel="KL, training (nats)", ylim=_limits(shown))


def _draw_beta(axes: Axes, curves: TrainingCurves) -> None:
    _line(axes, curves.beta, color=BLUE)
    axes.set(ylabel="β", ylim=_limits([curves.beta]))


def _line(axes: Axes, curve: Curve, **style: Any) -> None:
    marker = "o" if len(curve.value) <= _FEW_POINTS else None
    axes.plot(curve.epoch, curve.value, linewidth=1.4, marker=marker, markersize=3, **style)


def _nats(value: float) -> str:
    return f"{value:.2f} nats".replace("-", "\N{MINUS SIGN}")


def epoch_in_words(epoch: float) -> str:
    """An epoch with three digits at least, and all that it has before the point."""
    return f"{epoch:,.0f}" if epoch >= 100 else f"{epoch:.3g}"


def _epochs_shown(epochs: np.ndarray) -> tuple[float, float]:
    """From 0, or from the first point where much of the axis would be empty; a little beyond the last."""
    first, last = float(epochs.min()), float(epochs.max())
    if first == last:
        return (0.5 * first, 1.5 * first) if first > 0 else (-1.0, 1.0)
    start = 0.0 if first <= _EMPTY_SHARE * last else first - 0.03 * (last - first)
    return start, last + 0.02 * (last - start)


def _limits(curves: Sequence[Curve]) -> tuple[float, float]:
    """The range of the curves with a margin, without their first twentieth where that flattens the rest."""
    whole = np.concatenate([curve.value for curve in curves])
    calm = np.concatenate([curve.late for curve in curves])
    shown = calm if np.ptp(whole) > _FLATTENED * np.ptp(calm) else whole
    low, high = float(shown.min()), float(shown.max())
    margin = max(0.06 * (high - low), (MIN_SPAN - (high - low)) / 2)
    return low - margin, high + margin


def _curve(lines: Sequence[Mapping[str, Any]], name: str) -> Curve:
    points = [(line["step"], line["epoch"], line[name]) for line in lines if name in line]
    step, epoch, value = np.array(points, np.float64).reshape(-1, 3).T
    return Curve(step.astype(np.int64), epoch, value)


# The spread of repeated estimates of log Z.


FEWEST_IN_BARS = 20  # fewer are shown one by one


@dataclass(frozen=True, eq=False)
class LogPartitionHistogram:
    """Repeated estimates of one log Z.

    Attributes:
        value: The estimates, (repeat,), nats.
        std_error: What each states, (repeat,), nats.
        exact: log Z where it is known, nats.
    """

    value: np.ndarray
    std_error: np.ndarray
    exact: float | None

    @property
    def stated(self) -> float:
        """Root mean square of the errors, which the spread of the estimates should have."""
        return float(np.sqrt(np.square(self.std_error).mean()))

    def promised(self, deviation: np.ndarray) -> np.ndarray:
        """Density of the normal law of that error at deviations from the mean, per nat."""
        return np.exp(-0.5 * (deviation / self.stated) ** 2) / (self.stated * np.sqrt(2 * np.pi))

    def columns(self) -> dict[str, np.ndarray]:
        """A row per repeat: the estimate, its error, and the exact value, NaN where it is not known."""
        exact = np.full(len(self.value), np.nan if self.exact is None else self.exact)
        return {"value": self.value, "std_error": self.std_error, "exact": exact}


def log_partition_histogram_table(
    values: Sequence[float], std_errors: Sequence[float], *, exact: float | None = None
) -> LogPartitionHistogram:
    """The table of estimates of log Z with their standard errors, nats, and of the true value where it is known."""
    value, error = np.asarray(values, np.float64), np.asarray(std_errors, np.float64)
    if len(value) == 0 or value.shape != error.shape:
        rule, received = "must hold estimates, each with its error", f"{len(value)} and {len(error)}"
        raise InvalidInputError("values", rule, received, "Give as many errors as estimates.")
    return LogPartitionHistogram(value, error, exact)


def draw_log_partition_histogram(table: LogPartitionHistogram, *, name: str = "") -> Picture:
    """Draw the estimates, and whether they spread as their stated errors promise.

    Fewer than 20 are dots with their standard errors; more are a histogram about their mean, with the normal law that
    the errors promise. A dashed line is the exact value.

    Source: Rolfe 2017, fig. log-partition-function-hist.
    """
    figure = Picture((6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    (_draw_dots if len(table.value) < FEWEST_IN_BARS else _draw_bars)(axes, table)
    axes.set_title(_title(table, name), fontsize=10, loc="left")
    tidy(axes)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)  # never over the data
    return figure


def histogram_of_result(result: Mapping[str, Any]) -> LogPartitionHistogram:
    """The table of a result of `dvae log-partition`, as a run keeps it."""
    values, errors = ([found[name] for found in result["estimates"]] for name in ("value", "std_error"))
    return log_partition_histogram_table(values, errors, exact=result["exact"])


def make_log_partition_histogram(request: FigureRequest) -> Drawing:
    """The figure of a run, of the most complete result of its checkpoint; nothing is estimated."""
    directory = request.run.directory
    loaded = request.run.loaded
    found = log_partition_store(directory).of_checkpoint(loaded.step, loaded.sums)
    if found is None:
        command = f"dvae log-partition {directory.quoted} --checkpoint {loaded.step} --repeats 20"
        rule = f"must have estimates of log Z of step {loaded.step}"
        raise InvalidInputError("RUN", rule, f"{directory.path} without", f"Make some: {command}.")
    table = histogram_of_result(found[1])
    return Drawing(table, draw_log_partition_histogram(table, name=directory.read_experiment().name))


def _title(table: LogPartitionHistogram, name: str) -> str:
    value, count = table.value, len(table.value)
    start = f"log Z of {plot_text(name)}: " if name else "log Z: "
    if count == 1:
        return f"{start}{with_error(value[0], table.std_error[0], 4)} nats"
    return f"{start}mean {value.mean():.4f}, spread {value.std(ddof=1):.4f} nats over {count} repeats"


def _draw_dots(axes: Axes, table: LogPartitionHistogram) -> None:
    count = len(table.value)
    number = np.arange(1, count + 1)
    style = {"fmt": "o", "color": BLUE, "markersize": 5, "capsize": 3}
    label = f"estimate{'s' * (count > 1)} with standard error"
    axes.errorbar(number, table.value, table.std_error, **style, label=label)
    if count > 1:
        axes.axhline(float(table.value.mean()), color=BLUE, linewidth=1, alpha=0.5, label="mean")
    if table.exact is not None:
        axes.axhline(table.exact, color=GREEN, linestyle="--", label="exact value")
    axes.set(xlabel="repeat", ylabel="log Z (nats)", xlim=(0.5, count + 0.5), xticks=number)
    axes.margins(y=0.15)
    axes.ticklabel_format(axis="y", useOffset=False, style="plain")


def _draw_bars(axes: Axes, table: LogPartitionHistogram) -> None:
    count, mean, std_error = len(table.value), float(table.value.mean()), table.stated
    deviation = table.value - mean
    reach = 1.15 * max(float(np.abs(deviation).max()), 3 * std_error, 1e-6)
    if table.exact is not None:
        reach = max(reach, 1.15 * abs(table.exact - mean))
    edges = np.linspace(-reach, reach, 2 * min(20, round(1.3 * count**0.5)) + 2)
    style = {"weights": np.full(count, 1 / count), "color": BLUE, "alpha": 0.6, "edgecolor": "white"}
    axes.hist(deviation, edges.tolist(), **style, label=f"{count} estimates")
    if std_error > 0:
        x = np.linspace(-reach, reach, 400)
        shown = f"{std_error:.{digits_of(std_error, 4)}f}"
        density = table.promised(x) * (edges[1] - edges[0])
        axes.plot(x, density, color=VERMILION, label=f"normal law of the stated error, {shown} nats")
    if table.exact is not None:
        axes.axvline(table.exact - mean, color=GREEN, linestyle="--", label="exact value")
    axes.set(xlabel="log Z \N{MINUS SIGN} mean (nats)", ylabel="fraction of the estimates")
    axes.set(xlim=(-reach, reach), ylim=(0, None))
