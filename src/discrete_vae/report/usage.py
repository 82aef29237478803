"""How much units and layers are used."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from discrete_vae.evaluation.latent_usage import UNUSED
from discrete_vae.report.charts.axis import Axis
from discrete_vae.report.charts.chart import Frame, chart
from discrete_vae.report.charts.marks import dots, line
from discrete_vae.report.html import Markup, markup
from discrete_vae.report.numbers import shown
from discrete_vae.report.section import Section, Verdict, figure, verdict_line
from discrete_vae.report.source import ReportSource

_NAMED = 12
_MANY = 4  # a quarter


def usage(source: ReportSource) -> Section:
    """Activity and information of each unit, with the dead ones by name, and units of the layers."""
    found = source.usage
    dead, count = found.dead_units, len(found.activity)
    if dead:
        named = ", ".join(map(str, dead[:_NAMED])) + (
            f" and {len(dead) - _NAMED} more" if len(dead) > _NAMED else ""
        )
        text = f"{len(dead)} of {count} units are dead, below {UNUSED} nats: {named}."
    else:
        text = (
            f"none of {count} units is dead; the least tells {shown(float(found.information.min()), 3)} nats."
        )
    if found.layer_kl.numel():
        live = found.layer_kl.numel() - found.num_dead_layer_units
        text += f" {live} of {found.layer_kl.numel()} Gaussian units carry at least {UNUSED} nats."
    verdict = Verdict(len(dead) * _MANY <= count, text)
    body = markup(verdict_line(verdict), _units(source), _layers(source))
    return Section("usage", "Usage of units and layers", body, verdict)


def _units(source: ReportSource) -> Markup:
    found = source.usage
    activity, information = found.activity.numpy(), found.information.numpy()
    is_dead = information < UNUSED
    x, y = Axis(0.0, 1.0, "share of examples with the unit on"), Axis(0.0, 0.75, "information (nats)")
    at = np.linspace(0, 1, 101)
    bound = [0.0 if p in (0.0, 1.0) else -p * math.log(p) - (1 - p) * math.log(1 - p) for p in at]
    total = float(information.sum())

    def draw(frame: Frame) -> Iterator[Markup]:
        yield line(frame, at, np.array(bound), "faint")
        yield from dots(frame, activity[~is_dead], information[~is_dead], "s1")
        yield from dots(frame, activity[is_dead], information[is_dead], "s2 cross")

    legend = [("s1 round", "unit"), ("faint", "most that is possible")]
    if is_dead.any():
        legend.insert(1, ("s2 cross", "dead unit"))
    label = (
        f"Information of {len(activity)} units against how often they are on; {int(is_dead.sum())} are dead"
    )
    reading = (
        f"A dot is a binary unit over {found.num_examples:,} training examples: how often its posterior "
        "switches it on, and how much it tells of the example (log 2 = 0.69 nats at most). Healthy: dots near "
        "the curve. Sick: dots at the bottom, always alike whatever the example. The mean is "
        f"{shown(total / len(activity), 3)} nats; the mean entropy that is left in a unit given the example is "
        f"{shown(float(found.entropy.mean()), 3)}."
    )
    return figure(chart(x, y, draw, label=label, legend=legend, height=260), reading)


def _layers(source: ReportSource) -> Markup | None:
    kl = source.usage.layer_kl
    if kl.numel() == 0:
        return None
    ranked = kl.sort(1, descending=True).values.numpy()
    x = Axis(1.0, max(2.0, float(ranked.shape[1])), "unit of the layer, the largest KL first", whole=True)
    y = Axis.around(ranked.ravel(), "KL (nats)", zero=True)
    shown_layers = ranked[:4] if len(ranked) > 4 else ranked

    def draw(frame: Frame) -> Iterator[Markup]:
        for layer, values in enumerate(shown_layers):
            yield line(frame, np.arange(1, len(values) + 1), values, _LAYER_KINDS[layer])

    dead, count = source.usage.num_dead_layer_units, kl.numel()
    legend = [(kind, f"layer {layer + 1}") for layer, kind in enumerate(_LAYER_KINDS[: len(shown_layers)])]
    only = f" The first {len(shown_layers)} of {len(ranked)} layers are drawn." * (
        len(ranked) > len(shown_layers)
    )
    reading = (
        "KL of each unit of the Gaussian layers. Healthy: many units carry some. Sick: lines that fall to 0 "
        f"at once; here {count - dead} of {count} units carry at least {UNUSED} nats.{only}"
    )
    label = f"KL of Gaussian units by layer and rank; {dead} of {count} carry less than {UNUSED} nats"
    return figure(chart(x, y, draw, label=label, legend=legend, height=200), reading)


_LAYER_KINDS = ("s1", "s2 dash", "s3 dots", "s4 long")
