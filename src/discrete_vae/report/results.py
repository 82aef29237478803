"""Sections of the report about the result, training, log Z and how the run is made again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import chain
from typing import Any

import numpy as np

from discrete_vae.config import ExperimentConfig, FileDataConfig
from discrete_vae.config.overrides import Override, Slot, apply_overrides, read_value, settings_of, words_of
from discrete_vae.data.schema import TableSchema
from discrete_vae.figures.curves import (
    FEWEST_IN_BARS,
    MIN_SPAN,
    LogPartitionHistogram,
    TrainingCurves,
    epoch_in_words,
    histogram_of_result,
    training_curves_table,
)
from discrete_vae.own_data import exposure_of_counts, own_experiment_of
from discrete_vae.presets import experiment_names, load_experiment
from discrete_vae.report.charts import Axis, Chart, dots, errors, line, steps
from discrete_vae.report.source import ReportSource, Section, Verdict, shown
from discrete_vae.system import in_words


def summary(source: ReportSource) -> Section:
    """Log-likelihood where it was evaluated, else the ELBO, log Z, and time, steps and device."""
    seconds = [line.get("seconds", 0.0) for line in source.metrics]
    device = source.environment.get("device", {})
    place = device.get("name") or {"cpu": "CPU"}.get(device.get("type", ""), device.get("type"))
    values = {
        "estimates": list(_estimates(source)),
        "seconds": max(seconds, default=None),
        "duration": in_words(max(seconds, default=0.0)),
        "place": f"on {place}" if place else "device not known",
        "num_weights": sum(parameter.numel() for parameter in source.model.parameters()),
    }
    return Section("summary", "Result", values)


def _estimates(source: ReportSource) -> Iterator[tuple[str, float, float | None, str]]:
    """Name, value, standard error and a word on each estimate of the run, the most important one first."""

    def of(name: str, found: dict[str, Any], words: str) -> tuple[str, float, float | None, str]:
        return name, found["value"], found["std_error"], words

    found = source.evaluation
    if found is not None:
        likelihood, elbo, best = found["log_likelihood"], found["elbo"], found["log_partition"]["best"]
        of_what = f"{_examples(likelihood)}, {likelihood['num_samples']:,} samples each"
        yield of("Log-likelihood", likelihood, of_what)
        if found.get("log_likelihood_limit"):
            yield of("Sharp limit", found["log_likelihood_limit"], "log-likelihood at ζ = z")
        yield "ELBO", elbo["elbo"], elbo["elbo_std_error"], "on the same test examples"
        if columns := found.get("independent_features"):
            yield of("Independent columns", columns, "each column on its own: what to beat")
        yield of("log Z", best, best["method"])
        return
    name = "validation_elbo"
    if (refit := source.refit) is not None:
        words = "after the refit; not evaluated yet"
        yield "Validation ELBO", refit.elbo, refit.total_std_error, words
    elif (last := source.last_line(name)) is not None:
        words = f"step {last['step']:,}; not evaluated yet"
        yield "Validation ELBO", last[name], last.get(f"{name}_std_error"), words
    if source.log_partitions is not None:
        first = source.log_partitions["estimates"][0]
        yield of("log Z", first, first["method"])
    elif source.config.training.averaging.decay:
        return  # the log has that of the weights that are averaged
    elif (last := source.last_line("log_partition")) is not None:
        yield "log Z", last["log_partition"], last.get("log_partition_std_error"), "as training took it"


def _examples(found: dict[str, Any], part: str = "test") -> str:
    effective = found.get("effective_examples")
    weighted = "" if effective is None else f", which count as {effective:,.1f} by their weights"
    return f"{found['num_examples']:,} {part} examples{weighted}"


_COLLAPSED = 0.5  # nats
_PARTS = (
    ("reconstruction", "Reconstruction, \N{MINUS SIGN}E log p(x | ζ, h)", -1.0, "s1"),
    ("kl_discrete", "KL of the binary latents", 1.0, "s3"),
    ("kl_continuous", "KL of the Gaussian layers", 1.0, "s4"),
)


def bound(source: ReportSource) -> Section | None:
    """Reconstruction and both KL terms: of the evaluation, a refit, or the log's last line before importance samples.

    None without any.
    """
    if source.evaluation is not None:
        found = source.evaluation["elbo"]
        error, words = found["elbo_std_error"], f"mean over {_examples(found)}"
    elif source.refit is not None:
        found = asdict(source.refit)
        error, words = found["elbo_std_error"], f"mean over {_examples(found, 'validation')}, after the refit"
    else:
        names = ("elbo", *(name for name, *_ in _PARTS))
        found, error = source.last_line(*names, until=source.importance_epoch), None
        if found is None:
            return None
        words = f"mean over training before step {found['step']:,}"
    kl = found["kl_discrete"]
    text = f"the binary latents carry {shown(kl)} nats"
    if kl < _COLLAPSED:
        verdict = Verdict(False, f"{text}: they are not used. Try a longer warm-up, or fewer layers.")
    else:
        verdict = Verdict(True, f"{text} of each example.")
    has_layers = source.model.hierarchy.num_layers > 0
    present = _PARTS if has_layers else _PARTS[:2]
    parts = [(title, sign * found[name], kind) for name, title, sign, kind in present]
    values = {
        "parts": parts,
        "total": sum(max(value, 0.0) for _, value, _ in parts),
        "negative_elbo": (-found["elbo"], error),
        "words": words,
        "kl": kl,
        "layers": source.usage.layer_kl.sum(1).tolist() if has_layers else [],
    }
    return Section("bound", "How the ELBO splits", values, verdict)


_FALL = 1.0  # nats from the best validation to the last one
_RISE = 0.5  # nats in the last fifth


def training_curves(source: ReportSource) -> Section | None:
    """ELBO and KL over the epochs; None for a run that logged none, or one point."""
    if not any("elbo" in line for line in source.metrics):
        return None
    curves = training_curves_table(source.metrics)
    late = source.importance_epoch  # the bound of importance samples does not split into parts
    of_parts = {name: getattr(curves, name).until(late) for name in ("kl_discrete", "kl_continuous")}
    curves = replace(curves, **of_parts)
    if len(curves.elbo.value) < 2:
        return None
    has_validation = len(curves.validation_elbo.value) > 0
    bounds = _bounds(curves)
    low = min(part.value.min(initial=np.inf) for part in (curves.elbo, curves.validation_elbo))
    values: dict[str, Any] = {"bounds": bounds, "has_validation": has_validation, "divergences": None}
    values["is_cut"] = low < bounds.y.low
    if has_validation:
        values["gap"] = float(curves.elbo.value[-1] - curves.validation_elbo.value[-1])
    if len(curves.kl_discrete.value) > 1:
        values["ends"] = f"binary latents end at {shown(float(curves.kl_discrete.value[-1]))} nats"
        if curves.kl_continuous.value.any():
            values["ends"] += f", Gaussian layers at {shown(float(curves.kl_continuous.value[-1]))}"
        values["divergences"] = _divergences(curves, values["ends"])
    return Section("training-curves", "Training curves", values, training_verdict(curves))


def training_verdict(curves: TrainingCurves) -> Verdict | None:
    """A judgement of the validations of a run; None where there are fewer than two."""
    valid, best = curves.validation_elbo, curves.kept
    if best is None or len(valid.value) < 2:
        return None
    if valid.step[best] == 0:  # of another model, from which training does not start
        alone, trained = (shown(float(value)) for value in (valid.value[0], valid.value[1:].max()))
        words = f"no checkpoint is clearly better than independent columns, {alone} nats; the best reached {trained}."
        return Verdict(False, words)
    # the ELBO itself falls where training turns to importance samples
    score = curves.validation_score if len(curves.validation_score.value) else valid
    fall = float(score.value.max() - score.value[-1])
    at = f"epoch {epoch_in_words(valid.epoch[best])} of {epoch_in_words(valid.epoch[-1])}"
    if fall > _FALL:
        words = f"validation fell by {shown(fall)} nats after its best at {at}: the run fits the training part only."
        return Verdict(False, words)
    late = score.value[score.epoch >= 0.8 * score.epoch[-1]]
    rise = float(late[-1] - late[0])
    text = f"the best checkpoint, of validation ELBO {shown(float(valid.value[best]))} nats, is that of {at}."
    if rise > _RISE:
        text += f" It still rose by {shown(rise)} nats in the last fifth: longer training would gain."
    return Verdict(True, text)


def _bounds(curves: TrainingCurves) -> Chart:
    train, valid = curves.elbo, curves.validation_elbo
    y = Axis.around([*train.late, *valid.late], "ELBO (nats per example)", span=MIN_SPAN)
    marks, legend = [line(train.epoch, train.value, "s1")], [("s1", "training")]
    label = f"ELBO over epochs: training ends at {shown(float(train.value[-1]))}"
    if (best := curves.kept) is not None:
        marks.append(line(valid.epoch, valid.value, "s2 dash"))
        kept = slice(best, best + 1)
        marks.append(dots(valid.epoch[kept], valid.value[kept], "s2", radius=5))
        legend.append(("s2 dash", "validation"))
        last, most = float(valid.value[-1]), float(valid.value.max())
        label += f", validation at {shown(last)} nats, best {shown(most)}"
    return Chart(_epochs(curves), y, marks, label, legend)


def _divergences(curves: TrainingCurves, ends: str) -> Chart:
    discrete, layers = curves.kl_discrete, curves.kl_continuous
    parts, legend = [(discrete, "s3")], [("s3", "binary latents")]
    if layers.value.any():
        parts.append((layers, "s4 dash"))
        legend.append(("s4 dash", "Gaussian layers"))
    y = Axis.around([value for part, _ in parts for value in part.late], "KL (nats per example)", zero=True)
    marks = [line(part.epoch, part.value, kind) for part, kind in parts]
    return Chart(_epochs(curves), y, marks, f"KL over epochs: {ends}", legend)


def _epochs(curves: TrainingCurves) -> Axis:
    epochs = np.concatenate([curves.elbo.epoch, curves.validation_elbo.epoch])
    return Axis(0.0, float(epochs.max()) * 1.01, "epoch")


_FAR = 4.0  # standard errors


def log_partition(source: ReportSource) -> Section | None:
    """Repeats that `dvae log-partition` left, or the estimates of an evaluation; None without either."""
    if source.log_partitions is not None:
        return _repeats(histogram_of_result(source.log_partitions))
    if source.evaluation is not None:
        return _methods(source.evaluation["log_partition"])
    return None


def _repeats(found: LogPartitionHistogram) -> Section:
    value, count, stated = found.value, len(found.value), found.stated
    spread = float(value.std(ddof=1)) if count > 1 else float("nan")
    words = f"spread {shown(spread, 4)} nats over {count} repeats, where the stated errors promise {shown(stated, 4)}"
    words += f"; the exact value is {shown(found.exact, 4)}" if found.exact is not None else ""
    # a spread of n repeats is itself uncertain by about 1 / sqrt(2 (n - 1))
    bound = stated * (1 + _FAR / np.sqrt(2 * max(count - 1, 1)))
    off = 0.0 if found.exact is None else abs(value.mean() - found.exact)
    missed = off > max(_FAR * stated / np.sqrt(count), 1e-4)  # 1e-4: the digits that are printed
    words += f", {shown(off, 4)} nats from their mean" if missed else ""
    verdict = Verdict(not (spread > bound or missed), f"{words}.") if count > 1 else None
    mean = shown(float(value.mean()), 4)
    chart = _repeats_apart(found, mean) if count < FEWEST_IN_BARS else _repeats_together(found, mean)
    values = {"chart": chart, "mean": mean, "is_exact": found.exact is not None}
    return Section("log-partition", "log Z", values, verdict)


def _repeats_apart(found: LogPartitionHistogram, mean: str) -> Chart:
    number = np.arange(1, len(found.value) + 1)
    x = Axis(0.5, len(number) + 0.5, "repeat", whole=True)
    ends = [*(found.value - found.std_error), *(found.value + found.std_error)]
    marks, legend = errors(number, found.value, found.std_error, "s1"), []
    if found.exact is not None:
        ends.append(found.exact)
        marks.insert(0, line([x.low, x.high], [found.exact] * 2, "s3 dash"))
        legend = [("s1 round", "estimate with standard error"), ("s3 dash", "exact value")]
    label = f"{len(number)} estimates of log Z with standard errors, mean {mean}"
    return Chart(x, Axis.around(ends, "log Z (nats)"), marks, label, legend, height=190)


def _repeats_together(found: LogPartitionHistogram, mean: str) -> Chart:
    value, stated = found.value, found.stated
    edges = np.histogram_bin_edges(value, bins=min(20, round(1.3 * len(value) ** 0.5)))
    shares, width = np.histogram(value, edges)[0] / len(value), float(edges[1] - edges[0])
    marks, legend, known = [steps(edges, shares, "s1")], [("s1 box", "estimates")], [value]
    heights, at = shares, np.array([])
    if stated > 0:  # the normal distribution that the stated errors promise, about the mean
        at = np.linspace(value.mean() - 3 * stated, value.mean() + 3 * stated, 121)
        density = found.promised(at - value.mean())
        marks.append(line(at, density * width, "s2"))
        legend.append(("s2", "as the stated errors promise"))
        heights = np.concatenate([shares, density * width])
    if found.exact is not None:
        known.append(np.array([found.exact]))
    ends = np.concatenate([*known, edges, at])
    x = Axis(float(ends.min()) - 0.5 * width, float(ends.max()) + 0.5 * width, "log Z (nats)")
    y = Axis.around(heights, "share of the estimates", zero=True)
    if found.exact is not None:
        marks.append(line([found.exact] * 2, [0.0, y.high], "s3 dash"))
        legend.append(("s3 dash", "exact value"))
    label = f"Histogram of {len(value)} estimates of log Z, mean {mean}"
    return Chart(x, y, marks, label, legend, height=190)


def _methods(found: dict[str, Any]) -> Section:
    methods = [found[name] for name in ("best", "forward", "reverse") if found.get(name) is not None]
    value, error = (np.array([each[name] for each in methods]) for name in ("value", "std_error"))
    verdict, words = None, ""
    if len(methods) > 1:
        both = np.hypot(error[1:], error[0])
        apart = float((np.abs(value[1:] - value[0]) / np.where(both > 0, both, 1.0)).max())
        words = f"annealing differs from {methods[0]['method']} by at most {shown(apart, 1)} standard errors"
        verdict = Verdict(apart <= _FAR, f"{words}.")
    said = "; ".join(
        f"{number}: {each['method']}, {shown(each['value'], 4)} ± {shown(each['std_error'], 4)}"
        for number, each in enumerate(methods, 1)
    )
    x = Axis(0.5, len(methods) + 0.5, "method", whole=True)
    y = Axis.around([*(value - error), *(value + error)], "log Z (nats)", span=0.01)
    marks = errors(np.arange(1, len(methods) + 1), value, error, "s1")
    chart = Chart(x, y, marks, f"Estimates of log Z. {said}", height=190)
    return Section("log-partition", "log Z", {"chart": chart, "methods": said, "words": words}, verdict)


def config(source: ReportSource) -> Section:
    """Every setting of the experiment."""
    return Section("config", "Config", {"rows": list(flattened(source.config.model_dump(mode="json")))})


def environment(source: ReportSource) -> Section | None:
    """The processor, the packages and the data of the run; None for a run that does not say them."""
    rows = list(flattened(source.environment))
    return Section("environment", "Environment", {"rows": rows}) if rows else None


def flattened(fields: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested values by their dotted names.

    Examples:
        >>> list(flattened({"seed": 0, "model": {"hidden": [5, 6], "encoder": None}}))
        [('seed', '0'), ('model.hidden', '5, 6'), ('model.encoder', 'none')]
    """
    if isinstance(fields, dict):
        for key, value in fields.items():
            yield from flattened(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(fields, list | tuple):
        yield prefix, ", ".join(str(each) for each in fields) or "none"
    else:
        yield prefix, words_of(fields)[0]


def reproduce(source: ReportSource) -> Section:
    """Train, evaluate and report anew, with every setting that is not the experiment's."""
    run, words = source.directory, train_command(source)
    folder = [] if run.release_path.exists() else ["--run-dir", str(run.path)]  # into which training goes
    commands = [] if words is None else [[*words, *folder]]
    out = ["--out", f"{run.path.name}.json"] if len(run.words) > 1 else []  # where nothing may be written
    step, best = source.loaded.step, run.checkpoints().best()
    checkpoint = [] if best is None or best["step"] == step else ["--checkpoint", str(step)]
    kept = {
        "evaluate": ("num_samples", "seed", "num_examples", "sharp_limit", "precision"),
        "log-partition": ("repeats", "std_error", "seed", "health_sweeps"),
    }
    for verb, found in zip(kept, (source.evaluation, source.log_partitions), strict=True):
        if found is not None:
            # earlier versions kept no config of log Z
            asked = {"repeats": len(found.get("estimates", ()))} | (found.get("config") or {})
            given = [
                (f"--{name.replace('_', '-')}", words_of(asked[name])[0])
                for name in kept[verb]
                if asked.get(name) is not None
            ]
            commands.append(["dvae", verb, *run.words, *checkpoint, *chain.from_iterable(given), *out])
    own = {"--num-examples": (source.num_examples, 2000), "--seed": (source.seed, 0)}
    given = [word for name, (value, usual) in own.items() if value != usual for word in (name, str(value))]
    given += [] if source.label_file is None else ["--labels", source.label_file]
    commands += [
        ["dvae", "report", *run.words, *checkpoint, *given],
        ["dvae", "cite", source.config.name if len(run.words) > 1 else str(run.path)],
    ]
    values = {
        "has_command": words is not None,
        "commands": [shlex.join(command) for command in commands],
        "commit": source.environment.get("commit") or {},
        "refit": run.refit_path.name if run.refit_path.exists() else None,
    }
    return Section("reproduce", "Make it again", values)


def train_command(source: ReportSource) -> list[str] | None:
    """The words of `dvae train` that give the run's config; None where none do."""
    config = source.config
    if config.name in experiment_names():
        base, start = load_experiment(config.name, config.size), [config.name]  # pyright: ignore[reportArgumentType]
    elif isinstance(config.data, FileDataConfig):
        kind = config.model.likelihood.kind
        of_file = {"size": config.size, "alphabet": config.data.alphabet}
        base = own_experiment_of(source.whole_dataset, config.data.path, likelihood=kind, **of_file)
        start = ["--data", str(config.data.path)]
        if source.dataset.schema is None:
            start += ["--model.likelihood", kind]
        # the file tells the kinds of these columns too
        model = base.model.model_copy(update={"condition": config.model.condition})
        data = base.data.model_copy(update={"kinds": _kinds_by_default(config.data, source.dataset.schema)})
        base = base.model_copy(update={"model": model, "data": data})
        if (exposure := exposure_of_counts(source.whole_dataset, config.data.path, kind)) is not None:
            base = apply_overrides(base, [("model.likelihood.exposure", [exposure])])
    else:
        return None
    overrides = differences(base, config)
    if overrides is None:
        return None
    if isinstance(config.data, FileDataConfig) and "training.num-epochs" in (named := dict(overrides)):
        for path in ("training.validate-every", "training.log-every"):  # which would follow the epochs
            if path not in named:
                overrides.append((path, words_of(read_value(config, path))))
    words = ["dvae", "train", *start, "--size", config.size]
    for path, values in overrides:
        words += [f"--{path}", *values]
    return words


def _kinds_by_default(data: FileDataConfig, schema: TableSchema | None) -> str | None:
    """The `kinds` that the file alone leads to: all by their values if a column holds more than bits."""
    columns = () if schema is None else schema.columns
    bits = all(bool(values := getattr(each, "values", ())) and {*values} <= {"0", "1"} for each in columns)
    return "auto" if data.kinds == "auto" and not bits else None


def differences(base: ExperimentConfig, config: ExperimentConfig) -> list[Override] | None:
    """The settings that turn one config into another, as the command line takes them; None if none do.

    Examples:
        >>> base = load_experiment("digits")
        >>> given = [("model.smoothing", ["spike-slab"]), ("training.num-epochs", ["7"])]
        >>> differences(base, apply_overrides(base, given)) == given
        True
    """
    entries = settings_of(config)
    slots = [entry.path for entry in entries if isinstance(entry, Slot)]
    swaps = [(path, [_kind(config, path)]) for path in slots if _kind(config, path) != _kind(base, path)]
    if config.training.num_importance_samples == 1 < base.training.num_importance_samples:
        # which a swap may need; left out they are set with a warning
        swaps.append(("training.num-importance-samples", ["1"]))
    try:
        swapped, values = apply_overrides(base, swaps), []
        for path in (entry.path for entry in entries if not isinstance(entry, Slot)):
            if (value := read_value(config, path)) != read_value(swapped, path):
                values.append((path, words_of(value)))
        found = swaps + values
        return found if apply_overrides(base, found) == config else None
    except (ValueError, AttributeError):  # a component without defaults, or a setting that no word can give
        return None


def _kind(config: ExperimentConfig, path: str) -> str:
    try:
        return getattr(read_value(config, path), "kind", "none")
    except AttributeError:  # a slot of a component that is not there
        return "none"
