"""Sections of the report about chains, latents and samples."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from discrete_vae.evaluation.diagnostics import ChainHealth, ChainHealthWarning, chain_health
from discrete_vae.evaluation.latents import UNUSED, FlipEffects, LabelAgreement, flip_effects, label_agreement
from discrete_vae.figures.run import (
    Comparison,
    FeatureStatistics,
    evolution_table,
    feature_statistics_table,
    generated_examples,
    num_chains_that_fit,
)
from discrete_vae.figures.style import ink_for
from discrete_vae.report.charts import (
    Axis,
    Child,
    Frame,
    Markup,
    chart,
    diagonal,
    dots,
    element,
    line,
    markup,
    steps,
)
from discrete_vae.report.page import (
    Section,
    Verdict,
    bar,
    estimate,
    figure,
    folded,
    number,
    paragraph,
    percent,
    plus_minus,
    shown,
    signed_bar,
    table,
    verdict_line,
)
from discrete_vae.report.results import (
    INK,
    SIGNED,
    ReportSource,
    grid,
    image,
    ink_levels,
    ink_scale,
    signed_levels,
    signed_scale,
)
from discrete_vae.rng import keyed_generator

# Whether the chains of training mix, and whether the prior is where the codes are.


_SWEEPS = 200
_HIGH_R_HAT = 1.05
_BINS = 40


def chains(source: ReportSource) -> Section:
    """R-hat and autocorrelation of the chains' energies, and these energies against those of codes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainHealthWarning)  # the verdict says it
        found = chain_health(source.loaded.chains, num_sweeps=_SWEEPS)
    text = f"R-hat of the chains' energies is {shown(found.r_hat, 3)}"
    if found.r_hat > _HIGH_R_HAT:
        text += f", above {_HIGH_R_HAT}: chains visit different regions. Try --training.sampler parallel-tempering."
    else:
        text += f"; one effective sample takes {shown(found.autocorrelation_time, 1)} sweeps."
    verdict = Verdict(found.r_hat <= _HIGH_R_HAT, text)
    body = markup(verdict_line(verdict), _energies(source), _numbers(found))
    return Section("chains", "Health of the chains", body, verdict)


def _energies(source: ReportSource) -> Markup:
    energy = source.model.prior.energy
    with torch.no_grad():
        of_chains, of_codes = (_array(energy(z.float())) for z in (source.loaded.chains.z, source.codes.z))
    both = np.concatenate([of_chains, of_codes])
    low, high = np.quantile(both, [0.002, 0.998])
    edges = np.linspace(float(low), float(high) if high > low else float(low) + 1.0, _BINS + 1)
    shares = [
        np.histogram(np.clip(part, edges[0], edges[-1]), edges)[0] / len(part)
        for part in (of_chains, of_codes)
    ]
    overlap = float(np.minimum(*shares).sum())
    x = Axis(float(edges[0]), float(edges[-1]), "energy (nats)")
    y = Axis.around(np.concatenate(shares), "share", zero=True)

    def draw(frame: Frame) -> Iterator[Markup]:
        yield steps(frame, edges, shares[0], "s1")
        yield steps(frame, edges, shares[1], "s2 dash")

    legend = [("s1 box", "chains of the prior"), ("s2 box dash", "codes of training examples")]
    reading = (
        "Energies of the prior's chains and of codes of training examples. Healthy: the two outlines cover "
        "each other, since the prior should be where the codes are. Sick: apart. They share "
        f"{percent(overlap)} of their area; means {shown(float(of_chains.mean()), 1)} and "
        f"{shown(float(of_codes.mean()), 1)} nats."
    )
    label = f"Energies of chains and of codes; the two histograms share {percent(overlap)} of their area"
    return figure(chart(x, y, draw, label=label, legend=legend, height=210), reading)


def _numbers(found: ChainHealth) -> Markup:
    rows: list[tuple[Child, ...]] = [
        ("R-hat", number(found.r_hat, 3), "1 at best; above 1.05 the chains do not mix"),
        (
            "Autocorrelation time",
            markup(number(found.autocorrelation_time, 1), " sweeps"),
            "for one effective sample",
        ),
        ("Effective samples", number(found.effective_samples, 0), "of all chains together"),
        ("Chains", number(found.num_chains, 0), f"{found.num_sweeps} sweeps of each looked at"),
    ]
    reading = (
        "Of the energies along the chains. One number per state is looked at: chains stuck in modes of equal "
        "energy look healthy here, and the modes above show them. Healthy: R-hat below 1.05; here "
        f"{shown(found.r_hat, 3)}."
    )
    return figure(table(("", "", ""), rows, caption="Health of the chains"), reading)


def _array(energies: Tensor) -> np.ndarray:
    return energies.double().cpu().numpy()


# What each binary unit does when it is flipped.


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


# The modes of the prior, and what of the data lies in each.


_MODES_SHOWN, _EXAMPLES, _MODES_FEATURES, _LABELS = 16, 8, 5, 3
_APART = 0.2  # distance of the shares of modes among chains and among codes
_FEWEST = 20  # labels
_NEARLY_ALL = 0.99


def modes(source: ReportSource) -> Section:
    """Groups of local maxima of p(z), with training examples of each and, where there are labels, their agreement."""
    found = source.modes
    of_code = found.assign(source.codes.z.float()).numpy()
    share = np.bincount(of_code, minlength=len(found)) / len(of_code)
    apart = 0.5 * float(np.abs(share - found.share.numpy()).sum())
    text = (
        f"{_most(found.share.numpy())}; shares of chains and of codes of training examples differ by "
        f"{percent(apart)} in all."
    )
    verdict = Verdict(apart <= _APART, text)
    labels = source.labels
    agreement = None if labels is None or len(labels) < _FEWEST else label_agreement(of_code, labels)
    body = markup(
        verdict_line(verdict),
        _explained(source),
        None if agreement is None else _agreement(agreement),
        _mode_cards(source, of_code, share),
    )
    return Section("modes", "Modes of the prior", body, verdict)


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _most(share: np.ndarray) -> str:
    """How many modes nearly all chains are in."""
    count = int(np.searchsorted(np.cumsum(share), _NEARLY_ALL) + 1)
    if len(share) == 1:
        return "1 mode, which holds all chains"
    if count == len(share):
        return f"{count} modes, all in use"
    return (
        f"{len(share)} modes, {count} of which hold{'s' * (count == 1)} {percent(_NEARLY_ALL)} of the chains"
    )


def _explained(source: ReportSource) -> Markup:
    found = source.modes
    return paragraph(
        "A mode is a region of the binary latents that block-Gibbs chains seldom leave: local maxima of p(z) "
        f"between which they move within a sweep more often than chance are one mode. {found.num_states:,} "
        f"states of chains led to {_counted(found.num_visited, 'local maximum', 'local maxima')}, in "
        f"{_counted(len(found), 'mode', 'modes')} (modularity {shown(found.modularity)}: 0 is one region, 1 "
        "many that nothing joins)."
    )


def _agreement(found: LabelAgreement) -> Markup:
    rows: list[tuple[Child, ...]] = [
        (
            "Adjusted mutual information",
            estimate(found.adjusted_mutual_information, found.adjusted_mutual_information_std_error or None),
            "0: the modes tell nothing, 1: they are the classes",
        ),
        (
            "Purity",
            estimate(found.purity, found.purity_std_error or None),
            "share with the most frequent label of their mode",
        ),
        (
            "Mutual information",
            estimate(found.mutual_information, found.mutual_information_std_error or None, "nats"),
            f"of {shown(found.label_entropy)} that the labels hold",
        ),
    ]
    caption = f"Agreement of modes with {found.num_labels} labels of {found.num_examples:,} training examples"
    said = plus_minus(found.adjusted_mutual_information, found.adjusted_mutual_information_std_error)
    reading = (
        f"{caption}; errors are over examples. The model never saw the labels. Healthy, where the classes are "
        f"what sets examples apart most: adjusted mutual information well above 0, here {said}. It is no fault "
        "of a model to have found other groups than the labels."
    )
    return figure(table(("", "", ""), rows, caption=caption), reading, title="Modes and labels")


def _mode_cards(source: ReportSource, of_code: np.ndarray, share: np.ndarray) -> Markup:
    found = source.modes
    count = min(_MODES_SHOWN, len(found))
    cards = []
    for mode in range(count):
        members = np.flatnonzero(of_code == mode)
        facts = [
            element("dt", "of the chains"),
            element("dd", percent(float(found.share[mode])), bar(float(found.share[mode]), "s1")),
            element("dt", "of the codes"),
            element("dd", percent(float(share[mode])), bar(float(share[mode]), "s2")),
            element("dt", "stay a sweep"),
            element("dd", percent(float(found.stay[mode]))),
        ]
        content = _examples(source, mode, members) if len(members) else paragraph("No training example.")
        labels = _labels(source.labels, members)
        parts = element("h3", f"Mode {mode + 1}"), content, labels, element("dl", facts)
        cards.append(element("li", parts, class_="card"))
    left = f" {len(found) - count} more hold {percent(float(found.share[count:].sum()))} of the chains." * (
        len(found) > count
    )
    reading = (
        "Each mode with "
        + ("training examples" if source.image_shape else "the features that set its training examples apart")
        + " whose codes lead to it, its share of the states of chains, and of the codes of training examples. "
        "Healthy: the two shares agree, and what a mode holds belongs together. Sick: a mode of the chains "
        "without examples (the prior dreams), or all in one mode; here the largest holds "
        f"{percent(float(found.share[0]))} of the chains.{left}"
    )
    return figure(element("ul", cards, class_="cards"), reading, title="Mode by mode")


def _examples(source: ReportSource, mode: int, members: np.ndarray) -> Markup:
    rows = torch.from_numpy(source.indices[members])
    if source.image_shape is None:
        return _features(source, members)
    chosen = source.dataset.train[rows[:_EXAMPLES]]
    ink = ink_for(source.dataset.test, per_feature=False)
    levels = ink_levels(ink(chosen).double().numpy())
    padded = np.zeros((_EXAMPLES, levels.shape[1]), np.uint8)
    padded[: len(levels)] = levels
    alt = f"{len(levels)} training examples of mode {mode + 1}."
    return image(
        grid(padded.reshape(2, _EXAMPLES // 2, *source.image_shape), blank=0),
        INK,
        alt=alt,
        zoom=2,
        class_="whole",
    )


def _features(source: ReportSource, members: np.ndarray) -> Markup:
    """The features whose mean over a mode differs most from that over all, in standard deviations."""
    x = source.train.double().cpu()
    mean = x.nanmean(0)
    deviation = (x - mean).square().nanmean(0).sqrt()
    change = (x[torch.from_numpy(members)].nanmean(0) - mean) / torch.where(deviation > 0, deviation, 1.0)
    change = change.nan_to_num()
    top = change.abs().argsort(descending=True, stable=True)[:_MODES_FEATURES].tolist()
    own = x[torch.from_numpy(members)].nanmean(0)
    parts = [
        element(
            "span",
            element("span", source.feature_names[feature], class_="feature"),
            element("span", f"{float(own[feature]):.2f} (all {float(mean[feature]):.2f})", class_="value"),
            signed_bar(float(change[feature]), most=2.0),
            class_="effect",
        )
        for feature in top
    ]
    return element("div", parts, class_="features")


def _labels(labels: np.ndarray | None, members: np.ndarray) -> Markup | None:
    if labels is None or not len(members):
        return None
    names, counts = np.unique(labels[members], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_LABELS]
    said = ", ".join(f"{names[index]} ({percent(float(counts[index]) / len(members))})" for index in order)
    return element("p", f"Labels: {said}", class_="labels")


# Examples beside what the model makes of them.


_STREAM = 0x7265636E
_MEASURED, _BATCH = 1000, 250  # examples
_PAIRS, _PER_ROW = 20, 10
_LISTED = 8  # features from each end
_POOR = 0.1  # of the variance


def reconstructions(source: ReportSource) -> Section:
    """Pairs of an example and its reconstruction; of a table the features that are told best and worst."""
    x = source.test[:_MEASURED]
    means = _reconstructed(source, x)
    share, of_feature = explained(x.double().cpu(), means)
    text = f"reconstructions explain {percent(share)} of the variance of {len(x):,} test examples."
    verdict = Verdict(share >= _POOR, text)
    shape = source.image_shape
    picture = (
        _reconstructed_features(source, of_feature)
        if shape is None
        else _pairs(source, x.cpu(), means, shape)
    )
    return Section("reconstructions", "Reconstructions", markup(verdict_line(verdict), picture), verdict)


def explained(x: Tensor, means: Tensor) -> tuple[float, Tensor]:
    """The share of the variance that reconstructions explain, in all and of each feature.

    Args:
        x: (example, feature) float64; NaN marks missing values, which count nowhere.
        means: Their reconstructions, likewise.

    Returns:
        1 less the squared error over the squared distance to the feature's mean, summed over all features, and
        (feature,); NaN for features that do not vary.

    Examples:
        >>> x = torch.tensor([[0.0, 1.0], [1.0, 1.0]])
        >>> explained(x, torch.tensor([[0.0, 1.0], [0.5, 1.0]]))
        (0.5, tensor([0.5000,    nan]))
    """
    error = (x - means).square().nansum(0)
    spread = (x - x.nanmean(0)).square().nansum(0)
    share = torch.where(spread > 0, 1 - error / spread, torch.nan)
    total = float(spread.sum())
    return (1 - float(error.sum()) / total if total > 0 else 0.0), share


def _reconstructed(source: ReportSource, x: Tensor) -> Tensor:
    parts = []
    for first in range(0, len(x), _BATCH):
        generator = keyed_generator(source.seed, _STREAM, first, device=x.device)
        parts.append(source.model.reconstruct(x[first : first + _BATCH], generator=generator).flatten(1))
    return torch.cat(parts).double().cpu()


def _pairs(source: ReportSource, x: Tensor, means: Tensor, shape: tuple[int, int]) -> Markup:
    count = min(_PAIRS, len(x))
    ink = ink_for(source.dataset.test, per_feature=False)
    levels = np.stack([ink_levels(ink(part[:count].float()).double().numpy()) for part in (x, means)], 1)
    blocks = []
    for first in range(0, count, _PER_ROW):
        rows = levels[first : first + _PER_ROW].swapaxes(0, 1)
        alt = f"{rows.shape[1]} test examples, each with its reconstruction below it."
        blocks.append(image(grid(rows.reshape(2, -1, *shape), blank=0), INK, alt=alt, class_="whole"))
    reading = markup(
        "Above test examples, below the mean of x given one draw of their latents (",
        ink_scale(),
        "). Healthy: the same object with the same strokes. Sick: another object, or the same blur below all of them.",
    )
    return figure(blocks, reading)


def _reconstructed_features(source: ReportSource, share: Tensor) -> Markup:
    known = [(float(value), index) for index, value in enumerate(share) if not bool(value.isnan())]
    ranked = sorted(known, reverse=True)
    chosen = ranked if len(ranked) <= 2 * _LISTED else [*ranked[:_LISTED], *ranked[-_LISTED:]]
    rows = [
        (source.feature_names[index], number(value, 3), bar(value, "s1" if value >= 0 else "s2"))
        for value, index in chosen
    ]
    picture = table(
        ("Feature", "explained", ""),
        rows,
        caption="Share of each feature's variance that is explained",
        class_="bars",
    )
    left_out = len(ranked) - len(chosen)
    reading = (
        "Share of a feature's variance over test examples that reconstructions explain, 1 at best, the best "
        f"features first{f' and the worst last ({left_out:,} between them left out)' if left_out else ''}. "
        "Healthy: features that hang together are told well. Sick: all near 0, as for features that are noise "
        "each on its own."
    )
    return figure(picture, reading)


# What the model generates along the chains of its prior.


_CHAINS, _COLUMNS, _SAMPLES_SWEEPS = 8, 10, 100
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
        num_sweeps=_SAMPLES_SWEEPS,
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
        f"A row is one chain of the prior; from picture to picture {_SAMPLES_SWEEPS} sweeps pass. Each is the mean of "
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
        num_sweeps=_SAMPLES_SWEEPS,
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


# How much units and layers are used.


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
