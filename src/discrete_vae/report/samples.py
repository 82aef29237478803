"""What the model generates along the chains of its prior."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from discrete_vae.figures.evolution import evolution_table
from discrete_vae.figures.feature_statistics import Comparison, FeatureStatistics, feature_statistics_table
from discrete_vae.figures.generated import generated_examples, num_chains_that_fit
from discrete_vae.figures.ink import ink_for
from discrete_vae.report.charts.axis import Axis
from discrete_vae.report.charts.chart import Frame, chart
from discrete_vae.report.charts.marks import diagonal, dots
from discrete_vae.report.html import Markup, element, markup
from discrete_vae.report.numbers import percent, shown
from discrete_vae.report.pictures import INK, grid, image, ink_levels, ink_scale
from discrete_vae.report.section import Section, Verdict, figure, verdict_line
from discrete_vae.report.source import ReportSource

_CHAINS, _COLUMNS, _SWEEPS = 8, 10, 100
_ROWS, _MOST_CHAINS = 2, 2000  # of the draws that are compared with the data
_FAR = 0.25  # of the spread of the features' means
_AGREE = 0.9  # of the means, within two standard errors
_MOST_DOTS = 400


def samples(source: ReportSource) -> Section:
    """Pictures along the chains, and how features of samples compare with those of test data."""
    found = _statistics(source)
    spread = float(np.std(found.means.data))
    apart = found.means.distance / spread if spread > 0 else 0.0
    text = (
        f"means of the features differ from those of test data by {shown(found.means.distance, 3)} (root mean "
        f"square), {percent(apart)} of their spread over features; {percent(found.means.share_inside)} agree "
        "within two errors."
    )
    verdict = Verdict(apart <= _FAR or found.means.share_inside >= _AGREE, text)
    pictures = None if source.image_shape is None else _along_chains(source, source.image_shape)
    body = markup(verdict_line(verdict), pictures, _against_data(found))
    return Section("samples", "Samples along the chains", body, verdict)


def _along_chains(source: ReportSource, shape: tuple[int, int]) -> Markup:
    table = evolution_table(
        source.model,
        source.loaded.chains,
        num_rows=_COLUMNS,
        num_sweeps=_SWEEPS,
        num_draws=1,
        num_chains=min(_CHAINS, source.loaded.chains.num_chains),
        seed=source.seed,
    )
    ink = ink_for(source.dataset.test, per_feature=False)
    levels = ink_levels(ink(table.means[:, :, 0]).double().numpy()).swapaxes(0, 1)
    chains = levels.shape[0]
    picture = image(
        grid(levels.reshape(chains, _COLUMNS, *shape), blank=0),
        INK,
        alt=f"Grid of {chains} rows and {_COLUMNS} columns of generated images, a row per chain of the prior.",
        class_="whole",
    )
    moved = source.modes.assign(table.z.flatten(0, 1).float()).reshape(table.z.shape[:2]).numpy()
    changes = float((moved[1:] != moved[:-1]).mean())
    reading = markup(
        f"A row is one chain of the prior; from picture to picture {_SWEEPS} sweeps pass. Each is the mean of "
        "x given the latents (",
        ink_scale(_range(ink.words)),
        "). Healthy: sharp pictures, and rows that differ. Sick: gray blur, all pictures alike, or rows that "
        f"never change. Here the mode (see below) changed in {percent(changes)} of the steps.",
    )
    return figure(picture, reading)


def _range(words: str) -> str:
    return (
        "0 to 1"
        if words == "black is 1"
        else words.replace("white is ", "from ").replace(", black is", " to")
    )


def _statistics(source: ReportSource) -> FeatureStatistics:
    features = source.dataset.num_features
    chains = min(_MOST_CHAINS, num_chains_that_fit(source.loaded.chains.num_chains, features, _ROWS))
    drawn = generated_examples(
        source.model,
        source.loaded.chains,
        num_rows=_ROWS,
        num_sweeps=_SWEEPS,
        num_chains=chains,
        seed=source.seed,
    )
    return feature_statistics_table(source.dataset.test, drawn)


def _against_data(found: FeatureStatistics) -> Markup:
    unit = "" if found.in_unit_interval else " (standard deviations)"
    pictures = [_scatter(found.means, f"mean of a feature{unit}", "Means")]
    if len(found.correlations.data) > 1:
        pictures.append(_scatter(found.correlations, "correlation of two features", "Correlations"))
    reading = (
        f"{found.num_examples:,} test examples give the horizontal place of a dot, {found.num_samples:,} "
        "samples the vertical one. Healthy: dots on the diagonal. Sick: a cloud, or samples whose "
        f"correlations are all too weak. {percent(found.means.share_inside)} of the means"
    )
    if len(found.correlations.data) > 1:
        reading += f" and {percent(found.correlations.share_inside)} of the correlations"
    reading += " agree within two standard errors; 95 % would in a perfect model."
    return figure(
        element("div", pictures, class_="pair"), reading, title="Features of samples against test data"
    )


def _scatter(found: Comparison, what: str, title: str) -> Markup:
    chosen = np.arange(min(_MOST_DOTS, len(found.data))) * len(found.data) // min(_MOST_DOTS, len(found.data))
    data, drawn = found.data[chosen], found.samples[chosen]
    both = np.concatenate([data, drawn])
    x, y = Axis.around(both, f"{what}, test data"), Axis.around(both, f"{title} of samples")

    def draw(frame: Frame) -> Iterator[Markup]:
        yield diagonal(frame)
        yield from dots(frame, data, drawn, "s1 faint", radius=2.5)

    label = f"{title}: samples against test data, root mean square difference {shown(found.distance, 3)}"
    return chart(x, y, draw, label=label, height=260, half=True)
