"""Sections of the report about samples, reconstructions, latents, modes and chains."""

from __future__ import annotations

import math
import warnings
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from discrete_vae.data.rows import labeled
from discrete_vae.evaluation.diagnostics import ChainHealthWarning, chain_health
from discrete_vae.evaluation.latents import UNUSED, LatentUsage, flip_effects, label_agreement
from discrete_vae.figures.columns import ColumnDistribution, column_distributions_of
from discrete_vae.figures.run import (
    Comparison,
    evolution_table,
    feature_statistics_table,
    num_chains_that_fit,
    samples_of_run,
)
from discrete_vae.likelihoods.base import fitted_to
from discrete_vae.likelihoods.scaling import feature_moments
from discrete_vae.report.charts import (
    Axis,
    Chart,
    Picture,
    dots,
    grayscale,
    grid,
    line,
    picture,
    signed,
    steps,
)
from discrete_vae.report.source import ReportSource, Section, Verdict, percent, plus_minus, shown
from discrete_vae.rng import keyed_generator

_CHAINS, _COLUMNS, _SAMPLES_SWEEPS = 8, 10, 100
_ROWS, _MOST_CHAINS = 2, 2000  # of the draws that are compared with the data
_FAR = 0.25  # of the spread of the features' means
_AGREE = 0.9  # of the means, within two standard errors
_MOST_DOTS = 400


def samples(source: ReportSource) -> Section:
    """Pictures along the chains, and how features of samples compare with those of test data."""
    used = num_chains_that_fit(source.loaded.chains.num_chains, source.dataset.num_features, _ROWS)
    sizes = {"num_rows": _ROWS, "num_sweeps": _SAMPLES_SWEEPS, "num_chains": min(_MOST_CHAINS, used)}
    drawn = samples_of_run(source, source.loaded.chains, **sizes, seed=source.seed)
    columns = None
    if source.image_shape is None and len(source.dataset.description.columns or ()):
        columns = column_distributions_of(source, drawn.flatten(0, 1), seed=source.seed)
    drawn = source.shown(drawn.flatten(0, 1)).unflatten(0, drawn.shape[:2])
    weights = source.dataset.weights.get("test")
    weights = None if weights is None else weights[source.test_indices]
    found = feature_statistics_table(source.shown(source.test), drawn, weights=weights)
    spread = float(np.std(found.means.data))
    distance, agree = found.means.distance, found.means.share_inside
    text = f"means of the features differ from those of test data by {shown(distance, 3)} (root mean square)"
    if spread > 0:  # a single feature has none
        text += f", {percent(distance / spread)} of their spread over features"
    text += f"; {percent(agree)} agree within two errors."
    verdict = Verdict(distance <= _FAR * spread or agree >= _AGREE, text)
    bins = [] if columns is None else [_bins(each) for each in columns.shown]
    values: dict[str, Any] = {"picture": None, "found": found, "columns": columns, "bins": bins}
    values["num_sweeps"] = _SAMPLES_SWEEPS
    if source.image_shape is not None:
        values |= _along_chains(source, source.image_shape)
    unit = "" if found.in_unit_interval else " (standard deviations)"
    values["charts"] = [_scatter(found.means, f"mean of a feature{unit}", "Means")]
    if len(found.correlations.data) > 1:
        values["charts"].append(_scatter(found.correlations, "correlation of two features", "Correlations"))
    return Section("samples", "Samples along the chains", values, verdict)


def _bins(column: ColumnDistribution) -> Chart | None:
    """Histograms of a column of numbers; None for one of values, which have bars."""
    if not len(column.edges):
        return None
    x = Axis(float(column.edges[0]), float(column.edges[-1]), column.name)
    y = Axis.around([*column.data, *column.samples], "share", zero=True)
    marks = [steps(column.edges, column.data, "gray"), steps(column.edges, column.samples, "s1")]
    label = f"{column.name}: {percent(column.distance)} of the values differ"
    return Chart(x, y, marks, label, height=170, half=True)


def _along_chains(source: ReportSource, shape: tuple[int, int]) -> dict[str, Any]:
    shown = min(_CHAINS, source.loaded.chains.num_chains)
    sizes = {"num_rows": _COLUMNS, "num_sweeps": _SAMPLES_SWEEPS, "num_draws": 1, "num_chains": shown}
    c = source.condition_of_samples(shown)
    table = evolution_table(source.model, source.loaded.chains, **sizes, condition=c, seed=source.seed)
    images = source.grayscale(table.means[:, :, 0]).double().numpy().swapaxes(0, 1)
    alt = f"Grid of {shown} rows and {_COLUMNS} columns of generated images, a row per chain of the prior."
    moved = source.modes.assign(table.z.flatten(0, 1).float()).reshape(table.z.shape[:2]).numpy()
    return {
        "picture": picture(grid(grayscale(images.reshape(shown, _COLUMNS, *shape))), "gray whole", alt=alt),
        "changes": float((moved[1:] != moved[:-1]).mean()),
    }


def _scatter(found: Comparison, what: str, title: str) -> Chart:
    count = min(_MOST_DOTS, len(found.data))
    chosen = np.arange(count) * len(found.data) // count
    data, drawn = found.data[chosen], found.samples[chosen]
    both = np.concatenate([data, drawn])
    x, y = Axis.around(both, f"{what}, test data"), Axis.around(both, f"{title} of samples")
    marks = [line([x.low, x.high], [x.low, x.high], "faint"), dots(data, drawn, "s1 faint", radius=2.5)]
    label = f"{title}: samples against test data, root mean square difference {shown(found.distance, 3)}"
    return Chart(x, y, marks, label, height=260, half=True)


_STREAM = 0x7265636E
_MEASURED, _BATCH = 1000, 250  # examples
_PAIRS, _PER_ROW = 20, 10
_LISTED = 8  # features from each end
_POOR = 0.1  # of the variance


def reconstructions(source: ReportSource) -> Section:
    """Pairs of an example and its reconstruction; of a table the features that are told best and worst.

    The share in all is that of standardized features, but of images and of values in [0, 1].
    """
    x = source.test[:_MEASURED]
    means = _reconstructed(source, x, source.condition_of("test", source.test_indices[:_MEASURED]))
    unit, places = _scale(source), source.shown_places
    if unit is None or source.image_shape is not None:
        unit = torch.ones(())
    elif places is not None:
        unit = unit[places]
    given = _of_exposures(source, x)
    base = None if given is None else given / unit.cpu()
    share, of_feature = explained(source.shown(x).cpu().double() / unit.cpu(), means / unit.cpu(), base)
    left = "" if given is None else " that exposures leave"
    text = f"reconstructions explain {percent(share)} of the variance of {len(x):,} test examples{left}; "
    text += f"below {percent(_POOR)} the latents would tell nearly nothing."
    values: dict[str, Any] = {"pictures": [], "features": []}
    if source.image_shape is not None:
        values["pictures"] = _pairs(source, x.cpu(), means, source.image_shape)
    else:
        known = [(float(value), index) for index, value in enumerate(of_feature) if not bool(value.isnan())]
        ranked = sorted(known, reverse=True)
        chosen = ranked if len(ranked) <= 2 * _LISTED else [*ranked[:_LISTED], *ranked[-_LISTED:]]
        values["features"] = [(source.feature_names[index], value) for value, index in chosen]
        values["left_out"] = len(ranked) - len(chosen)
    return Section("reconstructions", "Reconstructions", values, Verdict(share >= _POOR, text))


@torch.no_grad()
def _of_exposures(source: ReportSource, x: Tensor) -> Tensor | None:
    """What exposures alone tell of examples, (example, shown): means of independent features; None without any."""
    law = deepcopy(source.model.likelihood).cpu()
    if not law.has_exposure:
        return None
    parameters = law.fit_marginals_(fitted_to(law, source.dataset.train))
    rows, observed = source.model.preprocess(x)
    mask = None if observed is None else observed.cpu()
    of_rows = law.at_exposure(parameters.expand(len(rows), *law.parameter_shape), rows.cpu(), mask)
    found = law.expected_statistics(of_rows).flatten(1).double()
    return found if source.shown_places is None else found[:, source.shown_places]


def explained(x: Tensor, means: Tensor, base: Tensor | None = None) -> tuple[float, Tensor]:
    """The share of the variance of x (example, feature) that reconstructions explain, in all and of each feature.

    1 less the squared error over the squared distance to the feature's mean, or to the base, what is known of each
    example without latents; NaN for features that do not vary, and missing values, NaN, count nowhere.

    Examples:
        >>> x = torch.tensor([[0.0, 1.0], [1.0, 1.0]])
        >>> explained(x, torch.tensor([[0.0, 1.0], [0.5, 1.0]]))
        (0.5, tensor([0.5000,    nan]))
    """
    error = (x - means).square().nansum(0)
    if base is None:
        # less a value that occurs, what is constant is exactly 0
        x = x - torch.where(x.isnan(), -torch.inf, x).amax(0)
        base = x.nanmean(0)
    spread = (x - base).square().nansum(0)
    share = torch.where(spread > 0, 1 - error / spread, torch.nan)
    total = float(spread.sum())
    return (1 - float(error.sum()) / total if total > 0 else 0.0), share


@torch.no_grad()
def _reconstructed(source: ReportSource, x: Tensor, condition: Tensor | None) -> Tensor:
    parts = []
    for first in range(0, len(x), _BATCH):
        generator = keyed_generator(source.seed, _STREAM, first, device=x.device)
        c = None if condition is None else condition[first : first + _BATCH]
        rows, model = x[first : first + _BATCH], source.model
        if source.shown_places is None:
            parts.append(model.reconstruct(rows, condition=c, generator=generator).flatten(1))
            continue
        drawn, read = model.encode(rows, condition=c, generator=generator), model.preprocess(rows)
        given = drawn.zeta, drawn.h, model.check_condition(c, len(rows))
        parts.append(model._decode(*given, "expected", generator, rows=read)[0][:, source.shown_places])
    return torch.cat(parts).double().cpu()


def _pairs(source: ReportSource, x: Tensor, means: Tensor, shape: tuple[int, int]) -> list[Picture]:
    count = min(_PAIRS, len(x))
    pairs = np.stack([source.grayscale(part[:count].float()).double().numpy() for part in (x, means)])
    pictures = []
    for first in range(0, count, _PER_ROW):
        block = pairs[:, first : first + _PER_ROW].reshape(2, -1, *shape)
        alt = f"{block.shape[1]} test examples, each with its reconstruction below it."
        pictures.append(picture(grid(grayscale(block)), "gray whole", alt=alt))
    return pictures


_FLIPPED = 200  # codes
_SHOWN = 24  # units with pictures
_CARDS, _FEATURES = 12, 4  # units of a table, and the features of one
_WEAK = 0.01  # of the strongest unit


def traversals(source: ReportSource) -> Section:
    """The units in the order of their effect, with the mean change that each makes."""
    scale, rows, shape = _scale(source), source.train[:_FLIPPED], source.image_shape
    c = None if source.train_condition is None else source.train_condition[:_FLIPPED]
    settings = {"scale": scale, "statistics": source.shown_places is not None, "seed": source.seed}
    effects = flip_effects(source.model, rows, condition=c, **settings)
    sizes = effects.size[effects.order].numpy()
    weak, count = int((sizes <= _WEAK * float(sizes[0])).sum()), len(sizes)
    text = f"{count - weak} of {count} units change the decoder's output by at least 1 % of what the strongest does."
    chosen = effects.order[: _CARDS if shape is None else _SHOWN]
    most = float(effects.change[chosen].abs().max())
    x = Axis(1.0, max(2.0, float(count)), "unit, the strongest first", whole=True)
    of = "features" if shape is None else "pixels"
    y = Axis.around(sizes, f"sum of absolute changes ({of})", zero=True)
    label = f"Effect of units by rank: from {shown(float(sizes[0]))} down to {shown(float(sizes[-1]))}"
    columns = (effects.size, effects.size_std_error, source.usage.activity, source.usage.information)
    pictures, features = [], []
    for unit, change in zip(chosen, effects.change[chosen], strict=True):
        if shape is not None:
            said = plus_minus(float(effects.size[unit]), float(effects.size_std_error[unit]))
            alt = f"Mean change of the image when unit {unit} is switched on; total absolute change {said}."
            pictures.append(picture(signed(change.numpy().reshape(shape), most), "signed", alt=alt))
        else:
            own = change if source.shown_places is None else change[source.shown_places]
            top = own.abs().argsort(descending=True, stable=True)[:_FEATURES].tolist()
            features.append([(source.feature_names[feature], float(own[feature])) for feature in top])
    values = {
        "pictures": pictures,
        "features": features,
        "units": [(int(unit), *(float(column[unit]) for column in columns)) for unit in effects.order],
        "most": most,
        "is_scaled": scale is not None,
        "num_codes": effects.num_codes,
        "ranks": Chart(x, y, [line(np.arange(1, count + 1), sizes, "s1")], label, height=190),
        "half": int((sizes < sizes[0] / 2).sum()),
    }
    return Section("traversals", "What each binary unit does", values, Verdict(weak <= count // 4, text))


def _scale(source: ReportSource) -> Tensor | None:
    """Standard deviations of real features; None where values are probabilities, which need none."""
    summary = source.dataset.summaries["train"]
    if summary.low >= 0 and summary.high <= 1:
        return None
    places = source.shown_places
    x = source.dataset.train if places is None else source.shown(source.train)
    deviation = feature_moments(x).variance.sqrt()
    deviation = torch.where(deviation > 0, deviation, 1.0).to(source.device)
    if places is None:
        return deviation
    of_all = deviation.new_ones(math.prod(source.model.likelihood.statistic_shape))
    of_all[places] = deviation
    return of_all


_NAMED = 12
_MANY = 4  # a quarter
_DRAWN_LAYERS = ("s1", "s2 dash", "s3 dots", "s4 long")


def active_units(source: ReportSource) -> Section:
    """Activity and information of each unit, with the dead ones by name, and units of the layers."""
    found = source.usage
    dead, count, num_layer_units = found.dead_units, len(found.activity), found.layer_kl.numel()
    if dead:
        named = ", ".join(map(str, dead[:_NAMED]))
        named += f" and {len(dead) - _NAMED} more" if len(dead) > _NAMED else ""
        text = f"{len(dead)} of {count} units are dead, below {UNUSED} nats: {named}."
    else:
        least = shown(float(found.information.min()), 3)
        text = f"none of {count} units is dead, below {UNUSED} nats; the least tells {least} nats."
    live = num_layer_units - found.num_dead_layer_units
    if num_layer_units:
        text += f" {live} of {num_layer_units} Gaussian units carry at least {UNUSED} nats."
    values = {
        "units": _units(found),
        "layers": _layers(found) if num_layer_units else None,
        "num_layers": len(found.layer_kl),
        "num_drawn": min(len(found.layer_kl), len(_DRAWN_LAYERS)),
        "num_live": live,
        "num_layer_units": num_layer_units,
        "unused": UNUSED,
    }
    verdict = Verdict(len(dead) * _MANY <= count, text)
    return Section("active-units", "Active units of latents and layers", values, verdict)


def _units(found: LatentUsage) -> Chart:
    activity, information = found.activity.numpy(), found.information.numpy()
    is_dead = information < UNUSED
    x, y = Axis(0.0, 1.0, "share of examples with the unit on"), Axis(0.0, 0.75, "information (nats)")
    at = np.linspace(0, 1, 101)
    bound = [0.0 if p in (0.0, 1.0) else -p * math.log(p) - (1 - p) * math.log(1 - p) for p in at]
    marks = [
        line(at, bound, "faint"),
        dots(activity[~is_dead], information[~is_dead], "s1"),
        dots(activity[is_dead], information[is_dead], "s2 cross", radius=4.0),
    ]
    legend = [("s1 round", "unit"), ("faint", "most that is possible")]
    if is_dead.any():
        legend.insert(1, ("s2 cross", "dead unit"))
    label = f"Information of {len(activity)} units against how often they are on; {is_dead.sum()} are dead"
    return Chart(x, y, marks, label, legend, height=260)


def _layers(found: LatentUsage) -> Chart:
    kl = found.layer_kl.sort(1, descending=True).values.numpy()
    x = Axis(1.0, max(2.0, float(kl.shape[1])), "unit of the layer, the largest KL first", whole=True)
    y = Axis.around(kl.ravel(), "KL (nats)", zero=True)
    drawn = list(zip(_DRAWN_LAYERS, kl, strict=False))
    marks = [line(np.arange(1, len(values) + 1), values, kind) for kind, values in drawn]
    legend = [(kind, f"layer {layer}") for layer, (kind, _) in enumerate(drawn, 1)]
    dead = found.num_dead_layer_units
    label = f"KL of Gaussian units by layer and rank; {dead} of {kl.size} carry less than {UNUSED} nats"
    return Chart(x, y, marks, label, legend, height=200)


_MODES_SHOWN, _EXAMPLES, _MODES_FEATURES, _LABELS = 16, 8, 5, 3
_APART = 0.2  # distance of the shares of modes among chains and among codes
_FEWEST = 20  # labels
_NEARLY_ALL = 0.99


def modes(source: ReportSource) -> Section:
    """Groups of local maxima of p(z), with training examples of each and, where there are labels, their agreement."""
    found = source.modes
    of_code = found.assign(source.codes.z.float()).numpy()
    share = np.bincount(of_code, source.train_weights, len(found)) / source.train_weights.sum()
    apart = 0.5 * float(np.abs(share - found.share.numpy()).sum())
    text = f"{_most(found.share.numpy())}; shares of chains and of codes of training examples differ by "
    text += f"{percent(apart)} in all."
    labels, agreement = source.labels, None
    if labels is not None and (known := labeled(labels)).sum() >= _FEWEST:
        agreement = label_agreement(of_code[known], labels[known])
    count = min(_MODES_SHOWN, len(found))
    values = {
        "agreement": agreement,
        "modes": [_mode(source, mode, np.flatnonzero(of_code == mode)) for mode in range(count)],
        "rest": (len(found) - count, float(found.share[count:].sum())),
    }
    return Section("modes", "Modes of the prior", values, Verdict(apart <= _APART, text))


def _most(share: np.ndarray) -> str:
    """The number of modes that nearly all chains are in, in words."""
    count = int(np.searchsorted(np.cumsum(share), _NEARLY_ALL) + 1)
    if len(share) == 1:
        return "1 mode, which holds all chains"
    if count == len(share):
        return f"{count} modes, all in use"
    hold = "holds" if count == 1 else "hold"
    return f"{len(share)} modes, {count} of which {hold} {percent(_NEARLY_ALL)} of the chains"


def _mode(source: ReportSource, mode: int, members: np.ndarray) -> dict[str, Any]:
    found, shape = source.modes, source.image_shape
    values: dict[str, Any] = {"picture": None, "features": [], "labels": [], "num_examples": len(members)}
    values |= {"of_chains": float(found.share[mode]), "stay": float(found.stay[mode])}
    values["of_codes"] = source.train_weights[members].sum() / source.train_weights.sum()
    if not len(members):
        return values
    if shape is None:
        values["features"] = _features(source, members)
    else:
        rows = source.dataset.train[torch.from_numpy(source.indices[members[:_EXAMPLES]])]
        raster = grayscale(source.grayscale(rows).double().numpy().reshape(len(rows), *shape))
        padded = np.concatenate([raster, np.zeros((_EXAMPLES - len(rows), *shape, 4), np.uint8)])
        blocks = grid(padded.reshape(2, _EXAMPLES // 2, *shape, 4))
        alt = f"{len(rows)} training examples of mode {mode + 1}."
        values["picture"] = picture(blocks, "gray whole", alt=alt, zoom=2)
    if source.labels is not None:
        own = source.labels[members]
        known = labeled(own)
        names, of_name = np.unique(own[known], return_inverse=True)
        counts = np.bincount(of_name, source.train_weights[members][known], len(names))
        order = np.argsort(-counts, kind="stable")[:_LABELS]
        values["labels"] = [(str(names[index]), float(counts[index]) / counts.sum()) for index in order]
    return values


def _features(source: ReportSource, members: np.ndarray) -> list[tuple[str, float, float, float]]:
    """The features whose mean over a mode differs most from that over all: name, both means, standard deviations.

    Examples count as often as their weights say.
    """
    x = source.shown(source.train).double().cpu()
    base = torch.where(x.isnan(), -torch.inf, x).amax(0)
    x = x - base  # a value that occurs, so that what is constant is exactly 0
    weights = torch.from_numpy(source.train_weights).double()[:, None] * ~x.isnan()
    share, of_mode = weights / weights.sum(0), weights[members] / weights[members].sum(0)
    mean, own = (share * x.nan_to_num()).sum(0), (of_mode * x[members].nan_to_num()).sum(0)
    deviation = (share * (x - mean).nan_to_num().square()).sum(0).sqrt()
    change = ((own - mean) / torch.where(deviation > 0, deviation, 1.0)).nan_to_num()
    top = change.abs().argsort(descending=True, stable=True)[:_MODES_FEATURES].tolist()
    own, mean = own + base, mean + base
    return [(source.feature_names[i], float(own[i]), float(mean[i]), float(change[i])) for i in top]


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
    values = {"health": found, **_energies(source)}
    return Section("chains", "Health of the chains", values, Verdict(found.r_hat <= _HIGH_R_HAT, text))


def _energies(source: ReportSource) -> dict[str, Any]:
    states, energy = (source.loaded.chains.z, source.codes.z), source.model.prior.energy
    with torch.no_grad():
        of_chains, of_codes = (energy(z.float()).double().cpu().numpy() for z in states)
    ends = np.array([np.quantile(part, [0.002, 0.998]) for part in (of_chains, of_codes)])
    low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
    edges = np.linspace(low, high if high > low else low + 1.0, _BINS + 1)
    weighed = (of_chains, np.ones(len(of_chains))), (of_codes, source.train_weights)
    clipped = [(np.clip(part, edges[0], edges[-1]), weights) for part, weights in weighed]
    shares = [np.histogram(part, edges, weights=weights)[0] / weights.sum() for part, weights in clipped]
    overlap = float(np.minimum(*shares).sum())
    x = Axis(float(edges[0]), float(edges[-1]), "energy (nats)")
    y = Axis.around(np.concatenate(shares), "share", zero=True)
    marks = [steps(edges, shares[0], "s1"), steps(edges, shares[1], "s2 dash")]
    legend = [("s1 box", "chains of the prior"), ("s2 box dash", "codes of training examples")]
    label = f"Energies of chains and of codes; the two histograms share {percent(overlap)} of their area"
    return {
        "energies": Chart(x, y, marks, label, legend, height=210),
        "overlap": overlap,
        "means": tuple(float(np.average(part, weights=weights)) for part, weights in weighed),
    }
