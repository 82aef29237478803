"""What was reached, and what it cost."""

from __future__ import annotations

from typing import Any

from discrete_vae.durations import in_words
from discrete_vae.report.html import Child, Markup, element, markup
from discrete_vae.report.numbers import error_digits, number
from discrete_vae.report.section import Section
from discrete_vae.report.source import ReportSource


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
