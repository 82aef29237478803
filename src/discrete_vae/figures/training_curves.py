"""The course of a training run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.saving import check_picture_path, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's blue, vermilion and green: told apart with any colour vision.
_BLUE, _VERMILION, _GREEN = "#0072B2", "#D55E00", "#009E73"
_START_SHARE, _MIN_POINTS = 20, 5  # a twentieth of a curve may leave the axes if the curve has five points
_FLATTENED = 1.5  # ... and the range would grow by more than this factor with it


@dataclass(frozen=True, eq=False)
class Curve:
    """One quantity over a run; empty if the run did not log it.

    Attributes:
        step: Steps done, (point,) int64.
        epoch: Passes over the training part, (point,) float64.
        value: The quantity, (point,) float64.
    """

    step: np.ndarray
    epoch: np.ndarray
    value: np.ndarray


@dataclass(frozen=True, eq=False)
class TrainingCurves:
    """What a run logged, a curve a quantity.

    Attributes:
        elbo: Training ELBO, nats, means over the steps since the point before.
        validation_elbo: Validation ELBO, nats.
        kl_discrete: KL of the binary latents, nats, means like those of `elbo`.
        kl_continuous: KL of the Gaussian layers, nats, likewise.
        beta: The smoothing's beta.
    """

    elbo: Curve
    validation_elbo: Curve
    kl_discrete: Curve
    kl_continuous: Curve
    beta: Curve


def training_curves(records: Iterable[Mapping[str, Any]]) -> TrainingCurves:
    """Sort a run's metrics by quantity.

    Args:
        records: Lines of ``metrics.jsonl``, as ``run.metrics().read()`` gives them.

    Returns:
        The table.

    Raises:
        InvalidInputError: If no record holds an ELBO, or one that does lacks its epoch.

    Examples:
        >>> curves = training_curves([{"step": 10, "epoch": 0.5, "elbo": -90.0}])
        >>> curves.elbo.value, len(curves.beta.value)
        (array([-90.]), 0)
    """
    lines = list(records)
    for line in lines:
        if ("elbo" in line or "validation_elbo" in line) and not {"step", "epoch"} <= line.keys():
            repair = "Read them with run.metrics().read()."
            raise InvalidInputError(
                "records", "must hold a step and an epoch each", f"{sorted(line)}", repair
            )
    if not any("elbo" in line for line in lines):
        received = f"{len(lines)} records without one"
        repair = "Wait for the run's first line of metrics, or check that its folder is the right one."
        raise InvalidInputError("records", "must hold at least one training ELBO", received, repair)
    return TrainingCurves(
        elbo=_curve(lines, "elbo"),
        validation_elbo=_curve(lines, "validation_elbo"),
        kl_discrete=_curve(lines, "kl_discrete"),
        kl_continuous=_curve(lines, "kl_continuous"),
        beta=_curve(lines, "beta"),
    )


def draw_training_curves(curves: TrainingCurves, path: str | Path, *, name: str = "") -> None:
    """Draw the ELBO in training and validation, the KL, and beta, over the epochs.

    The first twentieth of a curve, at least its first point, lies outside the axes where it would flatten the rest.

    Args:
        curves: What `training_curves` returned.
        path: File to write, ending in .png, .pdf or .svg.
        name: Name of the run, for the title.

    Raises:
        InvalidInputError: If the path breaks its rule; nothing is written.
    """
    from matplotlib.figure import Figure

    check_picture_path(path)
    has_kl, has_beta = len(curves.kl_discrete.value) > 0, len(curves.beta.value) > 0
    ratios = [3.0] + [1.6] * has_kl + [1.0] * has_beta
    figure = Figure(figsize=(7.2, 1.3 * sum(ratios)), dpi=150, facecolor="white", layout="constrained")
    panels = list(figure.subplots(len(ratios), 1, sharex=True, height_ratios=ratios, squeeze=False).flat)
    figure.suptitle(f"Training of {name}" if name else "Training", fontsize=10, x=0.01, ha="left")
    _draw_elbo(panels[0], curves)
    if has_kl:
        _draw_kl(panels[1], curves)
    if has_beta:
        _line(panels[-1], curves.beta, color=_BLUE)
        panels[-1].set_ylabel("β")
    for axes in panels:
        axes.grid(color="0.92")
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    last = max(curves.elbo.epoch[-1], *curves.validation_elbo.epoch[-1:], 0.0)
    panels[-1].set(xlabel="epoch (passes over the training examples)", xlim=(0, last or 1))
    save_figure(figure, path)


def _draw_elbo(axes: Axes, curves: TrainingCurves) -> None:
    """Both bounds, with the best validation marked."""
    valid = curves.validation_elbo
    _line(axes, curves.elbo, color=_BLUE, label="training, mean between points")
    if len(valid.value):
        few = len(valid.value) <= 40
        _line(axes, valid, color=_VERMILION, label="validation", marker="o" if few else None, markersize=3)
        best = int(valid.value.argmax())
        label = f"best validation: {valid.value[best]:.2f} nats, epoch {valid.epoch[best]:.0f}"
        star = {
            "markersize": 11,
            "zorder": 3,
            "clip_on": False,
            "label": label.replace("-", "\N{MINUS SIGN}"),
        }
        axes.plot(valid.epoch[best], valid.value[best], "*", color=_VERMILION, **star)
    low, high = _limits([curves.elbo, valid])
    axes.set(ylabel="ELBO (nats)", ylim=(low, high))
    axes.legend(loc="lower right", frameon=False, fontsize=8)


def _draw_kl(axes: Axes, curves: TrainingCurves) -> None:
    """The KL of each kind of latents that the model has."""
    shown = [curves.kl_discrete]
    _line(axes, curves.kl_discrete, color=_GREEN, label="binary latents")
    if curves.kl_continuous.value.any():
        shown.append(curves.kl_continuous)
        _line(axes, curves.kl_continuous, color=_VERMILION, label="Gaussian layers")
        axes.legend(loc="lower right", frameon=False, fontsize=8)
    axes.set(ylabel="KL, training (nats)", ylim=_limits(shown))


def _line(axes: Axes, curve: Curve, **style: Any) -> None:
    """A line; a single point gets a mark, since a line would not show."""
    if len(curve.value) == 1:
        style |= {"marker": "o"}
    axes.plot(curve.epoch, curve.value, **{"linewidth": 1.4, **style})


def _limits(curves: Sequence[Curve]) -> tuple[float, float]:
    """The range of the curves with a margin, without their first twentieth where that flattens the rest."""
    values = [curve.value for curve in curves]
    late = [v[-(-len(v) // _START_SHARE) if len(v) >= _MIN_POINTS else 0 :] for v in values]
    whole, calm = np.concatenate(values), np.concatenate(late)
    shown = calm if np.ptp(whole) > _FLATTENED * np.ptp(calm) else whole
    margin = 0.05 * float(np.ptp(shown)) or 1.0
    return float(shown.min()) - margin, float(shown.max()) + margin


def _curve(lines: Sequence[Mapping[str, Any]], name: str) -> Curve:
    """One quantity, from the records that hold it."""
    held = [line for line in lines if name in line]
    return Curve(
        step=np.array([line["step"] for line in held], np.int64),
        epoch=np.array([line["epoch"] for line in held], np.float64),
        value=np.array([line[name] for line in held], np.float64),
    )
