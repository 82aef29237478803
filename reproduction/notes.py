"""What stands below a table: how its runs were made, what they cost, and where they are smaller than the paper's."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from discrete_vae.config import ExperimentConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.system import in_words
from reproduction.planned_run import PlannedRun, Scale
from reproduction.record import RunRecord, StoredRun

_SIZES = {
    "Gaussian layers": "model.hierarchy.num_layers",
    "units of each": "model.hierarchy.num_units",
    "their prior networks": "model.hierarchy.prior_hidden",
    "their posterior networks": "model.hierarchy.posterior_hidden",
    "posterior networks of the binary latents": "model.posterior.hidden",
    "decoder": "model.decoder.hidden",
    "epochs": "training.num_epochs",
    "Gibbs iterations": "training.num_sweeps",
}
"""What sizes differ in, and where a config has it."""

_DIFFERENCES = {
    False: ", of differences paired by example where both sides are ours",
    True: "; those of differences between runs of ours, paired by example, are over examples and seeds",
}


def notes_of(
    runs: Sequence[StoredRun], *, paper_scale: Scale | None = None, varied: Collection[str] = ()
) -> list[str]:
    """Paragraphs about runs: evaluation, cost, data, and what is smaller than in size paper.

    Args:
        runs: The runs.
        paper_scale: What size paper has of its own for their table or figure.
        varied: Settings that the figure varies, by their paths in the config; they are no difference from size paper.
    """
    records = [run.record for run in runs]
    lines = [_evaluation(records), _budget(records), _cost(records), _data(records)]
    smaller = _smaller(runs, paper_scale, varied)
    return [line for line in [*lines, smaller] if line]


def _evaluation(records: Sequence[RunRecord]) -> str:
    kinds = sorted({(r.num_samples, r.num_examples, r.evaluation_precision) for r in records})
    parts = [f"{k:,} importance samples for each of {n:,} test examples, in {p}" for k, n, p in kinds]
    sizes, seeds = sorted({r.size for r in records}), sorted({r.seed for r in records})
    gain = max(r.doubling_gain for r in records)
    error = max(r.log_partition.std_error or 0.0 for r in records)
    return (
        f"Size {', '.join(sizes)}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}. Evaluated with "
        f"{'; '.join(parts)}. The last doubling of the samples brought {gain:.2f} nats at most, by which estimates are "
        f"low; log Z has a standard error of {error:.4f} nats at most. Standard errors are over test examples and of "
        f"log Z{_DIFFERENCES[len(seeds) > 1]}."
    )


def _budget(records: Sequence[RunRecord]) -> str:
    budgets = sorted({r.budget_minutes for r in records if r.budget_minutes is not None})
    if not budgets:
        return ""
    minutes = " or ".join(f"{budget:g}" for budget in budgets)
    return f"Each run has as many epochs as {minutes} minutes had room for by a timing before its first step."


def _cost(records: Sequence[RunRecord]) -> str:
    training, evaluation = (
        sum(values) for values in zip(*((r.seconds, r.evaluation_seconds) for r in records), strict=True)
    )
    where = "; ".join(sorted({f"{r.device} ({r.machine}, {_threads(r)})" for r in records}))
    commits = sorted({f"{(r.commit or 'unknown')[:10]}{' with changes' * bool(r.modified)}" for r in records})
    return (
        f"Cost of the {len(records)} run{'s' * (len(records) > 1)}: {in_words(training)} of training and "
        f"{in_words(evaluation)} of evaluation on {where}. Commit: {', '.join(commits)}."
    )


def _threads(record: RunRecord) -> str:
    if record.threads is None:
        return "threads unknown"
    return f"{record.threads} thread{'s' * (record.threads > 1)}"


def _data(records: Sequence[RunRecord]) -> str:
    sources = dict.fromkeys(f"{r.data.name}: {r.data.source}, {r.data.version}" for r in records)
    return f"Data: {'; '.join(sources)}."


def _smaller(runs: Sequence[StoredRun], paper_scale: Scale | None, varied: Collection[str]) -> str:
    """Where the sizes of runs differ from those of size paper, by experiment; what all share comes first."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        if run.planned.size != "paper" or run.planned.budget is not None:
            words = _sizes_beside_paper(run.planned, run.record.config, paper_scale, varied)
            found.setdefault(run.planned.experiment, {}).update(dict.fromkeys(words))
    if not any(found.values()):
        return ""
    first, *others = found.values()
    shared = [word for word in first if others and all(word in other for other in others)]
    parts = [f"All: {', '.join(shared)}"] if shared else []
    for experiment, words in found.items():
        own = [word for word in words if word not in shared]
        parts += [f"{experiment}: {', '.join(own)}"] if own else []
    return (
        "Other sizes than in size paper, whose values stand in brackets (its epochs are ours, the paper gives none). "
        f"{'; '.join(parts)}."
    )


def _sizes_beside_paper(
    planned: PlannedRun, config: ExperimentConfig, paper_scale: Scale | None, varied: Collection[str]
) -> list[str]:
    """The sizes of a run that differ from those of size paper, each in words, without those that its figure varies."""
    try:
        whole = PlannedRun(planned.experiment, "paper", planned.seed, planned.changes, scale=paper_scale)
        paper = whole.config
    except InvalidInputError:  # a setting that size paper does not have
        return []
    compared = {name: path for name, path in _SIZES.items() if path not in varied}
    pairs = {name: (_value(config, path), _value(paper, path)) for name, path in compared.items()}
    return [
        f"{name} {_in_words(ours)} ({_in_words(theirs)})"
        for name, (ours, theirs) in pairs.items()
        if ours != theirs
    ]


def _value(config: ExperimentConfig, path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def _in_words(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(str, value)) if value else "no hidden layer"
    return str(value)
