"""The course of training."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from discrete_vae.figures.training_curves import Curve, TrainingCurves, training_curves_table
from discrete_vae.report.charts.axis import Axis
from discrete_vae.report.charts.chart import Frame, chart
from discrete_vae.report.charts.marks import dots, line
from discrete_vae.report.html import Markup, markup
from discrete_vae.report.numbers import shown
from discrete_vae.report.section import Section, Verdict, figure, verdict_line
from discrete_vae.report.source import ReportSource

_START_SHARE, _MIN_POINTS = 20, 5  # a twentieth of a curve may leave the axes if it has five points
_FALL = 1.0  # nats from the best validation to the last one
_RISE = 0.5  # nats in the last fifth
_MIN_SPAN = 1.0  # nats


def course(source: ReportSource) -> Section | None:
    """ELBO and KL over the epochs; None for a run that logged none, or one point."""
    if not any("elbo" in line for line in source.metrics):
        return None
    curves = training_curves_table(source.metrics)
    if len(curves.elbo.value) < 2:
        return None
    verdict = _verdict(curves)
    body = markup(
        verdict_line(verdict) if verdict else None, _bounds(curves, _counted(source)), _divergences(curves)
    )
    return Section("course", "Course of training", body, verdict)


def _verdict(curves: TrainingCurves) -> Verdict | None:
    valid, best = curves.validation_elbo, curves.kept
    if best is None or len(valid.value) < 2:
        return None
    # the ELBO itself falls where training turns to importance samples
    score = curves.validation_score if len(curves.validation_score.value) else valid
    fall = float(score.value.max() - score.value[-1])
    at = f"epoch {valid.epoch[best]:.3g} of {valid.epoch[-1]:.3g}"
    if fall > _FALL:
        words = f"validation fell by {shown(fall)} nats after its best at {at}: the run fits the training part only."
        return Verdict(False, words)
    late = score.value[score.epoch >= 0.8 * score.epoch[-1]]
    rise = float(late[-1] - late[0])
    more = f" It still rose by {shown(rise)} nats in the last fifth: longer training would gain." * (
        rise > _RISE
    )
    top = shown(float(valid.value[best]))
    return Verdict(True, f"the best checkpoint, of validation ELBO {top} nats, is that of {at}.{more}")


def _counted(source: ReportSource) -> str:
    """What the training curve counts besides the ELBO."""
    training = source.config.training
    if training.num_importance_samples <= 1:
        return ""
    start = training.importance_start * training.num_epochs
    return (
        f" From epoch {start:.3g} on training counts a bound by {training.num_importance_samples} importance "
        "samples, which is higher than the ELBO, and validation still the ELBO."
    )


def _bounds(curves: TrainingCurves, counted: str) -> Markup:
    train, valid = curves.elbo, curves.validation_elbo
    shown_values = [*_late(train), *_late(valid)]
    x, y = _epochs(curves), Axis.around(shown_values, "ELBO (nats per example)", span=_MIN_SPAN)
    legend = [("s1", "training")] + [("s2 dash", "validation")] * bool(len(valid.value))
    label = f"ELBO over epochs: training ends at {shown(float(train.value[-1]))}"
    if len(valid.value):
        label += (
            f", validation at {shown(float(valid.value[-1]))} nats, best {shown(float(valid.value.max()))}"
        )

    def draw(frame: Frame) -> Iterator[Markup]:
        yield line(frame, train.epoch, train.value, "s1")
        if (best := curves.kept) is not None:
            yield line(frame, valid.epoch, valid.value, "s2 dash")
            yield from dots(frame, valid.epoch[best : best + 1], valid.value[best : best + 1], "s2", radius=5)

    reading = (
        "Higher is better. Healthy: both rise and level off. Sick: validation turns down (overfitting), or "
        "both jump."
    )
    if len(valid.value):
        gap = float(train.value[-1] - valid.value[-1])
        reading += (
            f" At the end training lies {shown(abs(gap))} nats {'above' if gap >= 0 else 'below'} validation; "
            "the dot is the checkpoint that is kept."
        )
    return figure(chart(x, y, draw, label=label, legend=legend), reading + counted)


def _divergences(curves: TrainingCurves) -> Markup | None:
    discrete, layers = curves.kl_discrete, curves.kl_continuous
    if not len(discrete.value):
        return None
    has_layers = bool(layers.value.any())
    parts = [discrete, layers] if has_layers else [discrete]
    y = Axis.around([value for part in parts for value in _late(part)], "KL (nats per example)", zero=True)

    def draw(frame: Frame) -> Iterator[Markup]:
        yield line(frame, discrete.epoch, discrete.value, "s3")
        if has_layers:
            yield line(frame, layers.epoch, layers.value, "s4 dash")

    legend = [("s3", "binary latents"), ("s4 dash", "Gaussian layers")] if has_layers else []
    end = f"binary latents end at {shown(float(discrete.value[-1]))} nats"
    if has_layers:
        end += f", Gaussian layers at {shown(float(layers.value[-1]))}"
    reading = (
        f"What the latents carry of an example: {end}. Healthy: clearly above 0. Sick: the binary latents fall "
        "to 0 and stay, and everything is left to the decoder or to the layers."
    )
    return figure(chart(_epochs(curves), y, draw, label=f"KL over epochs: {end}", legend=legend), reading)


def _epochs(curves: TrainingCurves) -> Axis:
    epochs = np.concatenate([curves.elbo.epoch, curves.validation_elbo.epoch])
    return Axis(0.0, float(epochs.max()) * 1.01, "epoch")


def _late(curve: Curve) -> np.ndarray:
    """The values without the first twentieth, which would flatten the rest."""
    value = curve.value
    return value[-(-len(value) // _START_SHARE) if len(value) >= _MIN_POINTS else 0 :]
