"""Sections of the report about training, bounds and log Z."""

from __future__ import annotations

import base64
import json
import shlex
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from discrete_vae.config import ExperimentConfig, FileDataConfig
from discrete_vae.data.rows import labels_of_part, read_label_file
from discrete_vae.data.splits import fixed_permutation, subset_indices
from discrete_vae.evaluation.diagnostics import PriorModes, find_prior_modes
from discrete_vae.evaluation.latents import LatentUsage, latent_usage
from discrete_vae.figures.curves import (
    Curve,
    LogPartitionHistogram,
    TrainingCurves,
    histogram_of_result,
    training_curves_table,
)
from discrete_vae.figures.style import FigureRun
from discrete_vae.overrides import Override, Slot, apply_overrides, read_value, settings_of
from discrete_vae.own_data import own_experiment_of
from discrete_vae.presets import experiment_names, load_experiment
from discrete_vae.report.charts import (
    Axis,
    Child,
    Frame,
    Markup,
    chart,
    dots,
    element,
    errors,
    level,
    line,
    markup,
    steps,
)
from discrete_vae.report.page import (
    Section,
    Verdict,
    bar,
    error_digits,
    estimate,
    figure,
    folded,
    number,
    paragraph,
    percent,
    shown,
    table,
    verdict_line,
)
from discrete_vae.rng import keyed_generator
from discrete_vae.runs.results import KeptResults, is_of, kept_evaluations, kept_log_partitions
from discrete_vae.system import in_words

if TYPE_CHECKING:
    from discrete_vae.config import ExperimentConfig
    from discrete_vae.data.splits import DataSplits
    from discrete_vae.load import LoadedRun
    from discrete_vae.model import DiscreteVAE
    from discrete_vae.rng import Encoding
    from discrete_vae.runs.run_directory import RunDirectory


# What the sections of a report are made of: a run, its data, and what several of them need.


_BITS, _CODES, _CHOSEN = 0x72657062, 0x72657063, 0x72657074
_SETTLING = 100  # sweeps of the chains of training before anything is made of them


class ReportSource:
    """A run with its data; everything is loaded and computed once, when a section wants it.

    Args:
        directory: The run.
        load: Gives the model.
        data_dir: The folder of the data sets, if one was given.
        labels: A label per training example, or per row of a file that was cut into parts, or a file of them; None
            takes those of the data set, if it has some.
        num_examples: Training examples whose codes are looked at, at most; and test examples.
        seed: Seed of all noise.
    """

    def __init__(
        self,
        directory: RunDirectory,
        load: Callable[[], LoadedRun],
        *,
        data_dir: str | None = None,
        labels: np.ndarray | str | Path | None = None,
        num_examples: int = 2000,
        seed: int = 0,
    ) -> None:
        self.directory, self.seed, self.num_examples = directory, seed, num_examples
        self._run = FigureRun(directory, load, data_dir=data_dir)
        self._labels = labels

    @property
    def loaded(self) -> LoadedRun:
        """The model with its chains."""
        return self._run.loaded

    @property
    def model(self) -> DiscreteVAE:
        """The model."""
        return self._run.loaded.model

    @property
    def config(self) -> ExperimentConfig:
        """The experiment."""
        return self._run.loaded.config

    @property
    def dataset(self) -> DataSplits:
        """The data of the run's config."""
        return self._run.dataset

    @property
    def title(self) -> str:
        """What was trained."""
        return self._run.title

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """(height, width) of an example; None for a table."""
        return self.dataset.image_shape

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        given = self.dataset.description.columns
        return given or tuple(f"feature {index}" for index in range(self.dataset.num_features))

    @cached_property
    def environment(self) -> dict[str, Any]:
        """What the run ran on."""
        return self.directory.read_environment()

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The log of training."""
        return self.directory.metrics().read()

    @cached_property
    def evaluation(self) -> dict[str, Any] | None:
        """The fullest evaluation of the run, if it is of this checkpoint."""
        return self._kept(kept_evaluations(self.directory))

    @cached_property
    def log_partitions(self) -> dict[str, Any] | None:
        """The fullest repeats of log Z, if they are of this checkpoint."""
        return self._kept(kept_log_partitions(self.directory))

    @cached_property
    def indices(self) -> np.ndarray:
        """Which training examples are looked at, (example,) int64."""
        count = len(self.dataset.train)
        return np.sort(fixed_permutation(count, 0, _CHOSEN)[: min(count, self.num_examples)])

    @cached_property
    def train(self) -> Tensor:
        """Training examples as the model meets them, bits where the data set has probabilities, (example, feature)."""
        rows = self.dataset.train[torch.from_numpy(self.indices)]
        if self.dataset.dynamic:
            rows = torch.bernoulli(rows, generator=keyed_generator(self.seed, _BITS))
        return rows.to(self.device)

    @cached_property
    def test(self) -> Tensor:
        """Test examples, (example, feature)."""
        count = len(self.dataset.test)
        chosen = subset_indices(count, min(count, self.num_examples))
        return self.dataset.test[torch.from_numpy(chosen)].to(self.device)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.prior.bias.device

    @cached_property
    def labels(self) -> np.ndarray | None:
        """The labels of `train`, (example,)."""
        given = self._labels
        if given is None:
            known = self.dataset.labels.get("train")
            return known[self.indices] if known is not None and known.ndim == 1 else None
        found = read_label_file(given) if isinstance(given, str | Path) else np.asarray(given)
        return labels_of_part(found, self.dataset, self.config.data)[self.indices]

    @cached_property
    def codes(self) -> Encoding:
        """Codes of `train`, one draw of the posterior each."""
        return self.model.encode(self.train, generator=keyed_generator(self.seed, _CODES, device=self.device))

    @cached_property
    def usage(self) -> LatentUsage:
        """How much each latent is used over `train`."""
        return latent_usage(self.model, self.train, seed=self.seed)

    @cached_property
    def chain_states(self) -> Tensor:
        """States of the chains of training after some sweeps, (chain, unit)."""
        return self.loaded.chains.step(_SETTLING)

    @cached_property
    def modes(self) -> PriorModes:
        """The modes of the prior."""
        return find_prior_modes(self.model.prior, self.chain_states, seed=self.seed)

    def _kept(self, results: KeptResults) -> dict[str, Any] | None:
        fields = results.fullest()
        return fields if fields is not None and is_of(fields, self.loaded.step, self.loaded.sums) else None


# Grids of examples as small PNG pictures that show on light and on dark paper.


# Okabe and Ito's colors: told apart with any color vision.
_BLUE, _VERMILION = (0, 114, 178), (213, 94, 0)
_MISSING = 255  # of the palette: what has no value
_TINT = (150, 170, 200, 110)
INK = np.array([(0, 0, 0, level * 255 // 254) for level in range(255)] + [_TINT], np.uint8)
"""From clear to black; the style sheet turns it to white on dark paper."""
SIGNED = np.array(
    [(*(_BLUE if level > 127 else _VERMILION), abs(level - 127) * 255 // 127) for level in range(255)]
    + [_TINT],
    np.uint8,
)
"""From vermilion, for -1, over clear to blue, for 1."""


def ink_levels(values: np.ndarray) -> np.ndarray:
    """Levels of `INK` for ink in [0, 1]; NaN is what has no value."""
    return _levels(254 * np.clip(values, 0, 1), values)


def signed_levels(values: np.ndarray, most: float) -> np.ndarray:
    """Levels of `SIGNED` for values in [-most, most]; NaN is what has no value."""
    scaled = np.clip(values / most if most > 0 else 0 * values, -1, 1)
    return _levels(127 + 127 * scaled, values)


def grid(levels: np.ndarray, *, blank: int) -> np.ndarray:
    """Images in rows and columns as one, with gaps of a fourteenth of their height.

    Args:
        levels: (row, column, height, width) uint8.
        blank: The level between them, of no color.

    Examples:
        >>> grid(np.ones((2, 3, 4, 4), np.uint8), blank=0).shape
        (9, 14)
    """
    rows, columns, height, width = levels.shape
    gap = max(1, height // 14)
    padded = np.full((rows, columns, height + gap, width + gap), blank, np.uint8)
    padded[:, :, :height, :width] = levels
    joined = padded.transpose(0, 2, 1, 3).reshape(rows * (height + gap), columns * (width + gap))
    return joined[: joined.shape[0] - gap, : joined.shape[1] - gap]


def png(levels: np.ndarray, palette: np.ndarray) -> bytes:
    r"""A PNG file of levels of a palette with opacity.

    Args:
        levels: (height, width) uint8.
        palette: (level, 4) uint8, red, green, blue and opacity.

    Examples:
        >>> png(np.zeros((2, 3), np.uint8), INK)[:8]
        b'\x89PNG\r\n\x1a\n'
    """
    height, width = levels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), levels], 1).tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [
        (b"IHDR", head),
        (b"PLTE", palette[:, :3].tobytes()),
        (b"tRNS", palette[:, 3].tobytes()),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    ]
    chunks = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def image(levels: np.ndarray, palette: np.ndarray, *, alt: str, zoom: int = 3, class_: str = "") -> Markup:
    """An element that shows levels, each as a square of `zoom` pixels where there is room."""
    source = "data:image/png;base64," + base64.b64encode(png(levels, palette)).decode()
    height, width = levels.shape
    kind = "ink" if palette is INK else "signed"
    return element(
        "img",
        src=source,
        alt=alt,
        width=width * zoom,
        height=height * zoom,
        class_=f"{kind} {class_}".strip(),
    )


def ink_scale(words: str = "0 to 1") -> Markup:
    """The scale of ink, which turns with the paper."""
    return element(
        "span", element("span", class_="ramp ink", aria_hidden="true"), f" {words}", class_="scale"
    )


def signed_scale(most: float) -> Markup:
    """The scale of signed changes."""
    sign = "\N{MINUS SIGN}"
    ramp = element("span", class_="ramp diverging", aria_hidden="true")
    return element("span", f"{sign}{most:.2g} ", ramp, f" +{most:.2g}", class_="scale")


def _levels(scaled: np.ndarray, values: np.ndarray) -> np.ndarray:
    missing = np.isnan(values)
    return np.where(missing, _MISSING, np.rint(np.where(missing, 0, scaled))).astype(np.uint8)


# What was reached, and what it cost.


def headline(source: ReportSource) -> Section:
    """Log-likelihood where it was evaluated, else the ELBO, log Z, and time, steps and device."""
    body = markup(
        element("div", _quality(source), class_="tiles"),
        element("div", _cost(source), class_="tiles"),
        _advice(source),
    )
    return Section("headline", "Result", body)


def _quality(source: ReportSource) -> list[Markup]:
    found = source.evaluation
    if found is None:
        line = validation(source)
        if line is None:
            return _log_partition(source)
        words = f"step {line['step']:,}; not evaluated yet"
        error = line.get("validation_elbo_std_error")
        return [
            _estimate("Validation ELBO", line["validation_elbo"], error, words, main=True),
            *_log_partition(source),
        ]
    likelihood, elbo, best = found["log_likelihood"], found["elbo"], found["log_partition"]["best"]
    of = f"{likelihood['num_examples']:,} test examples, {likelihood['num_samples']:,} samples each"
    tiles = [_of("Log-likelihood", likelihood, of, main=True)]
    if found.get("log_likelihood_limit"):
        tiles.append(_of("Sharp limit", found["log_likelihood_limit"], "log-likelihood at ζ = z"))
    tiles.append(_estimate("ELBO", elbo["elbo"], elbo["elbo_std_error"], "on the same test examples"))
    if found.get("independent_features"):
        words = "each feature on its own: what to beat"
        tiles.append(_of("Independent features", found["independent_features"], words))
    return [*tiles, _of("log Z", best, best["method"])]


def validation(source: ReportSource) -> dict[str, Any] | None:
    """The log's validation at the checkpoint, or the last one before it."""
    lines = [
        line for line in source.metrics if "validation_elbo" in line and line["step"] <= source.loaded.step
    ]
    return lines[-1] if lines else None


def _log_partition(source: ReportSource) -> list[Markup]:
    """log Z of a run that was not evaluated: of repeats, else what training took it for."""
    repeats = source.log_partitions
    if repeats is not None:
        first = repeats["estimates"][0]
        return [_of("log Z", first, first["method"])]
    lines = [
        each for each in source.metrics if "log_partition" in each and each["step"] <= source.loaded.step
    ]
    if not lines:
        return []
    value, error = lines[-1]["log_partition"], lines[-1].get("log_partition_std_error")
    return [_estimate("log Z", value, error, "as training took it")]


def _cost(source: ReportSource) -> list[Markup]:
    config, lines = source.config, source.metrics
    weights = sum(parameter.numel() for parameter in source.model.parameters())
    units = f"{source.model.prior.num_units} binary units"
    layers = source.model.hierarchy
    if layers.num_layers:
        units += f", {layers.num_layers} \N{MULTIPLICATION SIGN} {layers.num_units} Gaussian"
    device = source.environment.get("device", {})
    tiles = []
    if lines:
        seconds = max(line.get("seconds", 0.0) for line in lines)
        tiles.append(
            _tile("Training time", element("data", in_words(seconds), value=repr(seconds)), _place(device))
        )
    steps = f"{config.training.num_epochs:,} epochs, batches of {config.training.batch_size:,}"
    tiles.append(_tile("Checkpoint", markup("step ", number(source.loaded.step, 0)), steps))
    tiles.append(_tile("Weights", number(weights, 0), units))
    sizes = f"{len(source.dataset.train):,} training examples"
    return [*tiles, _tile("Features", number(source.dataset.num_features, 0), sizes)]


def _place(device: dict[str, Any]) -> str:
    kind = device.get("name") or {"cpu": "CPU"}.get(
        device.get("type", ""), device.get("type", "device not known")
    )
    return f"on {kind}" if device else "device not known"


def _advice(source: ReportSource) -> Markup | None:
    if source.evaluation is not None:
        return None
    command = element("code", f"dvae evaluate {source.directory.path}")
    words = "There is no evaluation of this checkpoint, hence no log-likelihood. "
    return element("p", words, command, " makes one.", class_="note")


def _of(name: str, found: dict[str, Any], words: str, *, main: bool = False) -> Markup:
    return _estimate(name, found["value"], found["std_error"], words, main=main)


def _estimate(name: str, value: float, std_error: float | None, words: str, *, main: bool = False) -> Markup:
    """A value above its standard error, both in nats."""
    below, digits = markup("nats"), 2
    if std_error == 0:
        below, digits = markup("nats, exact"), 4
    elif std_error is not None and std_error > 0:
        digits = error_digits(std_error)
        below = markup("\N{PLUS-MINUS SIGN} ", number(std_error, digits), " nats")
    return _tile(name, number(value, digits), words, below=below, main=main)


def _tile(name: str, value: Child, words: str, *, below: Child = None, main: bool = False) -> Markup:
    error = None if below is None else element("dd", below, class_="error")
    parts = element("dt", name), element("dd", value), error, element("dd", words, class_="words")
    return element("dl", parts, class_="tile main" if main else "tile")


# How the ELBO splits.


_COLLAPSED = 0.5  # nats
_PARTS = (
    ("reconstruction", "Reconstruction, \N{MINUS SIGN}E log p(x | ζ, h)", -1.0, "s1"),
    ("kl_discrete", "KL of the binary latents", 1.0, "s3"),
    ("kl_continuous", "KL of the Gaussian layers", 1.0, "s4"),
)


def bound(source: ReportSource) -> Section | None:
    """Reconstruction and both KL terms, of the evaluation, else of the log's last line; None without either."""
    found, error, words = _found(source)
    if found is None:
        return None
    kl = found["kl_discrete"]
    if kl < _COLLAPSED:
        text = f"the binary latents carry {shown(kl)} nats: they are not used. Try a longer warm-up, or fewer layers."
        verdict = Verdict(False, text)
    else:
        verdict = Verdict(True, f"the binary latents carry {shown(kl)} nats of each example.")
    has_layers = source.model.hierarchy.num_layers > 0
    parts = [part for part in _PARTS if has_layers or part[0] != "kl_continuous"]
    values = [(title, sign * found[name], kind) for name, title, sign, kind in parts]
    total = sum(max(value, 0.0) for _, value, _ in values)
    rows: list[tuple[Child, ...]] = [
        (
            title,
            number(value),
            percent(max(value, 0.0) / total) if total else "",
            bar(value, kind, most=total),
        )
        for title, value, kind in values
    ]
    rows.append(("Sum, \N{MINUS SIGN}ELBO", estimate(-found["elbo"], error), "", ""))
    picture = table(("Part", "nats", "share", ""), rows, caption="The parts of the ELBO", class_="bars")
    reading = (
        f"What it costs to describe an example, {words}: its latents first, then x given them. Healthy: every "
        "KL clearly above 0. Sick: a KL near 0, whose latents tell nothing; here the binary ones cost "
        f"{shown(kl)} nats."
    )
    body = markup(verdict_line(verdict), figure(picture, reading), _layers(source))
    return Section("bound", "How the ELBO splits", body, verdict)


def _found(source: ReportSource) -> tuple[dict[str, Any] | None, float | None, str]:
    if source.evaluation is not None:
        elbo = source.evaluation["elbo"]
        return elbo, elbo["elbo_std_error"], f"mean over {elbo['num_examples']:,} test examples"
    names = {"elbo", *(name for name, *_ in _PARTS)}
    lines = [each for each in source.metrics if names <= each.keys() and each["step"] <= source.loaded.step]
    return (
        (lines[-1], None, f"mean over training before step {lines[-1]['step']:,}")
        if lines
        else (None, None, "")
    )


def _layers(source: ReportSource) -> Markup | None:
    kl = source.usage.layer_kl
    if kl.numel() == 0:
        return None
    sums, most = kl.sum(1).tolist(), float(kl.sum(1).max())
    rows = [
        (f"Layer {index + 1}", number(value), bar(value, "s4", most=most)) for index, value in enumerate(sums)
    ]
    picture = table(("Layer", "nats", ""), rows, caption="KL of each Gaussian layer", class_="bars")
    reading = (
        f"KL of each Gaussian layer over {source.usage.num_examples:,} training examples, the first nearest to "
        "the binary latents. Healthy: every layer carries some. Sick: a layer at 0 is dead weight; the least "
        f"here is {shown(min(sums))} nats."
    )
    return figure(picture, reading, title="By layer")


# The course of training.


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


# Estimates of log Z, repeated or by several methods.


_FEWEST_IN_BARS = 20
_FAR = 4.0  # standard errors


@dataclass(frozen=True)
class _Estimate:
    name: str
    value: float
    std_error: float


def log_partition(source: ReportSource) -> Section | None:
    """Repeats that `dvae log-partition` left, or the estimates of an evaluation; None without either."""
    if source.log_partitions is not None:
        return _repeats(histogram_of_result(source.log_partitions))
    if source.evaluation is not None:
        return _methods(source.evaluation["log_partition"])
    return None


def _repeats(found: LogPartitionHistogram) -> Section:
    value, error = found.value, found.std_error
    count, mean, stated = len(value), float(value.mean()), float(np.sqrt(np.square(error).mean()))
    spread = float(value.std(ddof=1)) if count > 1 else float("nan")
    truth = f"; the exact value is {shown(found.exact, 4)}" if found.exact is not None else ""
    words = f"spread {shown(spread, 4)} nats over {count} repeats, where the stated errors promise {shown(stated, 4)}"
    # a spread of n repeats is itself uncertain by about 1 / sqrt(2 (n - 1))
    bound = stated * (1 + _FAR / np.sqrt(2 * max(count - 1, 1)))
    verdict = Verdict(not spread > bound, f"{words}{truth}.") if count > 1 else None
    picture = _dots(found) if count < _FEWEST_IN_BARS else _bars(found, mean)
    reading = (
        f"Independent estimates of log Z, tuning included; the mean is {shown(mean, 4)} nats. Healthy: they "
        "spread as their stated errors say. Sick: far more, or away from the exact value (dashed, where it is "
        f"known). Here {words}{truth}."
    )
    body = markup(verdict_line(verdict) if verdict else None, figure(picture, reading))
    return Section("log-partition", "log Z", body, verdict)


def _dots(found: LogPartitionHistogram) -> Markup:
    number = np.arange(1, len(found.value) + 1)
    ends = [*(found.value - found.std_error), *(found.value + found.std_error)]
    y = Axis.around([*ends, *([] if found.exact is None else [found.exact])], "log Z (nats)")

    def draw(frame: Frame) -> Iterator[Markup]:
        if found.exact is not None:
            yield level(frame, found.exact, "s3 dash")
        yield from errors(frame, number, found.value.tolist(), found.std_error.tolist(), "s1")

    x = Axis(0.5, len(number) + 0.5, "repeat", whole=True)
    label = (
        f"{len(number)} estimates of log Z with standard errors, mean {shown(float(found.value.mean()), 4)}"
    )
    return chart(x, y, draw, label=label, legend=_legend(found), height=190)


def _bars(found: LogPartitionHistogram, mean: float) -> Markup:
    edges = np.histogram_bin_edges(found.value, bins=min(20, round(1.3 * len(found.value) ** 0.5)))
    shares = np.histogram(found.value, edges)[0] / len(found.value)
    margin = 0.5 * float(edges[1] - edges[0])
    x = Axis(float(edges[0]) - margin, float(edges[-1]) + margin, "log Z (nats)")

    def draw(frame: Frame) -> Iterator[Markup]:
        yield steps(frame, edges, shares, "s1")

    label = f"Histogram of {len(found.value)} estimates of log Z, mean {shown(mean, 4)}"
    return chart(x, Axis.around(shares, "share of the estimates", zero=True), draw, label=label, height=190)


def _methods(found: dict[str, Any]) -> Section:
    given = [found[name] for name in ("best", "forward", "reverse") if found.get(name) is not None]
    methods = [_Estimate(each["method"], each["value"], each["std_error"]) for each in given]
    best, verdict, words = methods[0], None, ""
    if len(methods) > 1:
        apart = max(
            abs(each.value - best.value) / (np.hypot(each.std_error, best.std_error) or 1.0)
            for each in methods[1:]
        )
        words = f"annealing differs from {best.name} by at most {shown(float(apart), 1)} standard errors"
        verdict = Verdict(bool(apart <= _FAR), f"{words}.")
    ends = [each.value + sign * each.std_error for each in methods for sign in (-1, 1)]
    y = Axis.around(ends, "log Z (nats)", span=0.01)
    number = np.arange(1, len(methods) + 1)

    def draw(frame: Frame) -> Iterator[Markup]:
        yield from errors(frame, number, [m.value for m in methods], [m.std_error for m in methods], "s1")

    said = "; ".join(
        f"{n}: {m.name}, {shown(m.value, 4)} ± {shown(m.std_error, 4)}" for n, m in enumerate(methods, 1)
    )
    reading = (
        f"log Z by independent methods, with standard errors. {said}. Healthy: the bars overlap. Sick: far "
        f"apart, as where chains miss a mode{f'; here {words}' if words else ''}. dvae log-partition RUN "
        "--repeats 20 adds a histogram."
    )
    x = Axis(0.5, len(methods) + 0.5, "method", whole=True)
    picture = chart(x, y, draw, label=f"Estimates of log Z. {said}", height=190)
    body = markup(verdict_line(verdict) if verdict else None, figure(picture, reading))
    return Section("log-partition", "log Z", body, verdict)


def _legend(found: LogPartitionHistogram) -> list[tuple[str, str]]:
    exact = [("s3 dash", "exact value")] if found.exact is not None else []
    return [("s1 round", "estimate with standard error"), *exact] if exact else []


# The run's config and environment, as tables.


def config(source: ReportSource) -> Section:
    """Every setting of the experiment."""
    change = source.loaded.note
    note = None if change is None else element("p", change, class_="note")
    body = markup(note, _part("config.json", source.config.model_dump(mode="json")))
    return Section("config", "Config", body)


def environment(source: ReportSource) -> Section | None:
    """What the run ran on; None for a run that does not say it."""
    found = source.environment
    if not found:
        return None
    data = found.get("data", {})
    said = [f"Data: {data['source']}, {data.get('split', '')}."] if data.get("source") else []
    return Section(
        "environment",
        "Environment",
        markup([paragraph(text) for text in said], _part("environment.json", found)),
    )


def _part(name: str, fields: dict[str, Any]) -> Markup:
    rows: list[tuple[Child, ...]] = [(key, element("code", value)) for key, value in flattened(fields)]
    return folded(
        f"{name}: {len(rows)} values", table(("Setting", "value"), rows, caption=name, class_="settings")
    )


def flattened(fields: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested values by their dotted names.

    Examples:
        >>> list(flattened({"seed": 0, "model": {"hidden": [5, 6], "encoder": None}}))
        [('seed', '0'), ('model.hidden', '5, 6'), ('model.encoder', 'none')]
    """
    if isinstance(fields, dict):
        for key, value in fields.items():
            yield from flattened(value, f"{prefix}.{key}" if prefix else str(key))
        return
    if isinstance(fields, list | tuple):
        text = ", ".join(str(each) for each in fields) or "none"
    elif fields is None:
        text = "none"
    else:
        text = str(fields).lower() if isinstance(fields, bool) else str(fields)
    yield prefix, text


# The commands that make the run again.


def reproduce(source: ReportSource) -> Section:
    """Train, evaluate and report anew, with every setting that is not the experiment's."""
    run, words = source.directory, train_command(source)
    parts = []
    if words is None:
        code = (
            "from discrete_vae import train\n"
            "from discrete_vae.config import ExperimentConfig, instantiate\n\n"
            "config = ExperimentConfig.from_json(open('config.json').read(), source='config.json')\n"
            "train(config, instantiate(config.data, data_dir=None), 'runs/again')"
        )
        parts.append(paragraph("No command line gives this config; in Python, with the run's config.json:"))
        parts.append(element("pre", element("code", code)))
        words = []
    commands = [shlex.join(words)] if words else []
    if source.evaluation is not None:
        asked = source.evaluation["config"]
        more = ["--num-samples", str(asked["num_samples"]), "--seed", str(asked["seed"])]
        if asked["num_examples"] is not None:
            more += ["--num-examples", str(asked["num_examples"])]
        commands.append(shlex.join(["dvae", "evaluate", str(run.path), *more]))
    commands += [shlex.join(["dvae", verb, str(run.path)]) for verb in ("report", "cite")]
    parts.append(element("pre", element("code", "\n".join(commands)), tabindex="0"))
    parts.append(paragraph(_same(source)))
    if run.refit_path.exists():
        parts.append(
            paragraph(
                f"Its posterior was fitted anew by dvae refit; {run.refit_path.name} in the run says how."
            )
        )
    return Section("reproduce", "Make it again", markup(parts))


def train_command(source: ReportSource) -> list[str] | None:
    """The words of `dvae train` that give the run's config; None where none do."""
    config = source.config
    if config.name in experiment_names():
        base, start = load_experiment(config.name, config.size), [config.name]  # pyright: ignore[reportArgumentType]
    elif isinstance(config.data, FileDataConfig):
        kind = config.model.likelihood.kind
        base = own_experiment_of(source.dataset, Path(config.data.path), likelihood=kind, size=config.size)
        start = ["--data", str(config.data.path)]
    else:
        return None
    overrides = differences(base, config)
    if overrides is None:
        return None
    words = ["dvae", "train", *start, "--size", config.size]
    for path, values in overrides:
        words += [f"--{path}", *values]
    return words


def differences(base: ExperimentConfig, config: ExperimentConfig) -> list[Override] | None:
    """The settings that turn one config into another, as the command line takes them; None if none do.

    Examples:
        >>> base = load_experiment("digits")
        >>> given = [("model.smoothing", ["spike-slab"]), ("training.num-epochs", ["7"])]
        >>> differences(base, apply_overrides(base, given)) == given
        True
    """
    entries = settings_of(config)
    swaps = [
        (entry.path, [_kind(config, entry.path)])
        for entry in entries
        if isinstance(entry, Slot) and _kind(config, entry.path) != _kind(base, entry.path)
    ]
    try:
        swapped = apply_overrides(base, swaps)
        values = [
            (entry.path, _words(read_value(config, entry.path)))
            for entry in entries
            if not isinstance(entry, Slot)
            and read_value(config, entry.path) != read_value(swapped, entry.path)
        ]
        found = swaps + values
        return found if apply_overrides(base, found) == config else None
    except (ValueError, AttributeError):  # a component without defaults, or a setting that no word can give
        return None


def _kind(config: ExperimentConfig, path: str) -> str:
    try:
        return getattr(read_value(config, path), "kind", "none")
    except AttributeError:  # a slot of a component that is not there
        return "none"


def _words(value: Any) -> list[str]:
    if isinstance(value, tuple) and any(isinstance(each, tuple) for each in value):
        return [json.dumps(value)]
    if isinstance(value, tuple):
        return [_word(each) for each in value]
    return [_word(value)]


def _word(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _same(source: ReportSource) -> Markup:
    versions, commit = source.environment.get("discrete_vae"), source.environment.get("commit") or {}
    said = (
        f"The run was made with discrete-vae {versions}"
        if versions
        else "The run does not say what it was made with"
    )
    if commit.get("hash"):
        said += f", commit {commit['hash'][:12]}{' with changes' if commit.get('modified') else ''}"
    return markup(
        f"{said}. On one kind of processor, with one version and one number of threads, the same command gives "
        "the same numbers; elsewhere they agree up to rounding."
    )
