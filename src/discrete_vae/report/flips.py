"""What each binary unit does when it is flipped."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from discrete_vae.evaluation.flip_effects import FlipEffects, flip_effects
from discrete_vae.report.charts.axis import Axis
from discrete_vae.report.charts.chart import Frame, chart
from discrete_vae.report.charts.marks import line
from discrete_vae.report.html import Markup, element, markup
from discrete_vae.report.numbers import estimate, plus_minus, shown
from discrete_vae.report.pictures import SIGNED, image, signed_levels, signed_scale
from discrete_vae.report.section import Section, Verdict, figure, folded, signed_bar, table, verdict_line
from discrete_vae.report.source import ReportSource

_CODES = 200
_SHOWN = 24  # units with pictures
_CARDS, _FEATURES = 12, 4  # units of a table, and the features of one
_WEAK = 0.01  # of the strongest unit


def flips(source: ReportSource) -> Section:
    """The units in the order of their effect, with the mean change that each makes."""
    effects = flip_effects(source.model, source.train[:_CODES], scale=_scale(source), seed=source.seed)
    order = effects.order
    strongest = float(effects.size[order[0]])
    weak = int((effects.size < _WEAK * strongest).sum())
    count = len(order)
    text = f"{count - weak} of {count} units change the decoder's output by at least 1 % of what the strongest does."
    verdict = Verdict(weak <= count // 4, text)
    shape = source.image_shape
    pictures = _cards(source, effects) if shape is None else _tiles(effects, shape)
    body = markup(verdict_line(verdict), pictures, _ranks(effects, source), _all_units(effects, source))
    return Section("flips", "What each binary unit does", body, verdict)


def _scale(source: ReportSource) -> Tensor | None:
    """Standard deviations of real features; None where values are probabilities, which need none."""
    summary = source.dataset.summaries["train"]
    if summary.low >= 0 and summary.high <= 1:
        return None
    x = source.dataset.train.double()
    deviation = (x - x.nanmean(0)).square().nanmean(0).sqrt()
    return torch.where(deviation > 0, deviation, 1.0).to(source.device)


def _tiles(effects: FlipEffects, shape: tuple[int, int]) -> Markup:
    chosen = effects.order[:_SHOWN]
    change = effects.change[chosen].numpy()
    most = float(np.abs(change).max())
    tiles = []
    for unit, values in zip(chosen, change, strict=True):
        size = estimate(float(effects.size[unit]), float(effects.size_std_error[unit]))
        said = plus_minus(float(effects.size[unit]), float(effects.size_std_error[unit]))
        alt = f"Mean change of the image when unit {unit} is switched on; total absolute change {said}."
        picture = image(signed_levels(values.reshape(shape), most), SIGNED, alt=alt)
        words = element("span", element("strong", f"unit {unit}"), element("br"), size)
        tiles.append(element("li", picture, words))
    reading = markup(
        f"Mean change of the decoded image over {effects.num_codes} codes of training examples when one unit "
        "goes from off to on and the others stay (",
        signed_scale(most),
        f"); below, the sum of absolute changes over pixels. The {len(chosen)} strongest units. Healthy: "
        "strokes and parts, different from unit to unit. Sick: empty pictures (dead units), or all the same "
        "one.",
    )
    return figure(element("ul", tiles, class_="gallery"), reading)


def _cards(source: ReportSource, effects: FlipEffects) -> Markup:
    names, chosen = source.feature_names, effects.order[:_CARDS]
    most = float(effects.change[chosen].abs().max())
    cards = []
    for unit in chosen:
        change = effects.change[unit]
        top = change.abs().argsort(descending=True, stable=True)[:_FEATURES].tolist()
        parts = [
            element(
                "span",
                element("span", names[feature], class_="feature"),
                element("span", _signed(float(change[feature])), class_="value"),
                signed_bar(float(change[feature]), most=most),
                class_="effect",
            )
            for feature in top
        ]
        size = estimate(float(effects.size[unit]), float(effects.size_std_error[unit]))
        head = element("h3", f"Unit {unit}"), element("p", "effect ", size, class_="labels")
        cards.append(element("li", head, element("div", parts, class_="features"), class_="card"))
    unit_words = "" if _scale(source) is None else ", in standard deviations of the feature"
    reading = (
        f"Mean change of the decoded features over {effects.num_codes} codes of training examples when one "
        f"unit goes from off to on and the others stay{unit_words}: the {len(chosen)} strongest units with the "
        "features that they change most. The effect is the sum of absolute changes over all features. "
        f"Healthy: units move different features, here by up to {most:.2g}. Sick: changes near 0 (dead units), "
        "or the same features in all."
    )
    return figure(element("ul", cards, class_="cards"), reading)


def _ranks(effects: FlipEffects, source: ReportSource) -> Markup:
    sizes = effects.size[effects.order].numpy()
    x = Axis(1.0, max(2.0, float(len(sizes))), "unit, the strongest first", whole=True)
    y = Axis.around(
        sizes, f"sum of absolute changes ({'pixels' if source.image_shape else 'features'})", zero=True
    )
    label = f"Effect of units by rank: from {shown(float(sizes[0]))} down to {shown(float(sizes[-1]))}"

    def draw(frame: Frame) -> Iterator[Markup]:
        yield line(frame, np.arange(1, len(sizes) + 1), sizes, "s1")

    half = int((sizes < sizes[0] / 2).sum())
    reading = (
        f"All {len(sizes)} units by effect. Healthy: a slow fall. Sick: a few strong units and a long tail at "
        f"0; here {half} have less than half the effect of the strongest."
    )
    return figure(chart(x, y, draw, label=label, height=190), reading)


def _all_units(effects: FlipEffects, source: ReportSource) -> Markup:
    usage = source.usage
    rows = [
        (
            f"{unit}",
            estimate(float(effects.size[unit]), float(effects.size_std_error[unit])),
            shown(float(usage.activity[unit]), 3),
            shown(float(usage.information[unit]), 3),
        )
        for unit in effects.order
    ]
    head = ("Unit", "effect", "activity", "information (nats)")
    return folded(f"All {len(rows)} units in numbers", table(head, rows, caption="All units"))


def _signed(value: float) -> str:
    return f"{value:+.2g}".replace("-", "\N{MINUS SIGN}")
