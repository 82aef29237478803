"""The modes of the prior, and what of the data lies in each."""

from __future__ import annotations

import numpy as np
import torch

from discrete_vae.evaluation.label_agreement import LabelAgreement, label_agreement
from discrete_vae.figures.ink import ink_for
from discrete_vae.report.html import Child, Markup, element, markup
from discrete_vae.report.numbers import estimate, percent, plus_minus, shown
from discrete_vae.report.pictures import INK, grid, image, ink_levels
from discrete_vae.report.section import (
    Section,
    Verdict,
    bar,
    figure,
    paragraph,
    signed_bar,
    table,
    verdict_line,
)
from discrete_vae.report.source import ReportSource

_SHOWN, _EXAMPLES, _FEATURES, _LABELS = 16, 8, 5, 3
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
        _cards(source, of_code, share),
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


def _cards(source: ReportSource, of_code: np.ndarray, share: np.ndarray) -> Markup:
    found = source.modes
    count = min(_SHOWN, len(found))
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
    top = change.abs().argsort(descending=True, stable=True)[:_FEATURES].tolist()
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
