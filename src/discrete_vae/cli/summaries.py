"""Text that dvae train prints before it starts, and dvae evaluate at the end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from discrete_vae.cli.options import computing_on, wrapped
from discrete_vae.config import ExperimentConfig
from discrete_vae.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    import torch

    from discrete_vae.data.splits import DataSplits
    from discrete_vae.evaluation.evaluate import IndependentFeatures
    from discrete_vae.inference.evaluate_run import Evaluation
    from discrete_vae.training.step import Precision


def headline(
    config: ExperimentConfig,
    dataset: DataSplits,
    run: RunDirectory,
    done: int,
    num_steps: int,
    device: torch.device,
    precision: Precision,
) -> str:
    """Lines about data, steps, folder, how values are read, and where it computes."""
    num_examples = config.training.num_examples
    count = f"{len(dataset.train)}" if num_examples is None else f"{num_examples} of {len(dataset.train)}"
    what = f"{dataset.name}: {count} training examples of {dataset.num_features} features"
    start = f"from step {done} to {num_steps}" if done else f"{num_steps} steps"
    lines = [f"{what}; {start} ({config.training.num_epochs} epochs); results go to {run.path}"]
    if num_examples is not None:
        lines.append(
            "A fixed random choice of the examples is used; --training.num-examples none takes all of them."
        )
    if dataset.dynamic:
        says = "Values between 0 and 1 are read as probabilities: each step draws new bits with them."
        own = config.data.kind == "file"
        lines.append(f"{says} For measurements that are none: --model.likelihood gaussian." if own else says)
    train, *others = dataset.summaries.values()
    values = sum(others, train)
    if values.num_missing:
        share = 100 * values.num_missing / values.num_values
        are = "is" if values.num_missing == 1 else "are"
        where = "" if train.num_missing else ", none of them in the examples to train on"
        lines.append(
            f"{values.num_missing:,} of the {values.num_values:,} values ({share:.1f} %) {are} missing{where}: the "
            "model reads which are there, and learns from these."
        )
    if config.model.likelihood.kind == "gaussian":
        lines += _constant(dataset, config)
    if getattr(config.model.likelihood, "shorten_tails", False):
        lines.append(_long_tails(dataset))
    lines.append(computing_on(device))
    lines.append(f"Products of the networks in {precision.name}: {precision.reason}.")
    return "\n".join(lines)


def _long_tails(dataset: DataSplits) -> str:
    """The features that are read on another scale."""
    from discrete_vae.likelihoods.scaling import long_tails

    found = long_tails(dataset.train).nonzero()[:, 0].tolist()
    return (
        f"{len(found)} of {dataset.num_features} features have long tails{_named(dataset, found)} and are read on a "
        "scale of asinh, as if their logarithms were taken: --model.likelihood.shorten-tails false leaves them."
    )


def _constant(dataset: DataSplits, config: ExperimentConfig) -> list[str]:
    """The features that have one value in the examples to train on, if any, in words."""
    from discrete_vae.data.splits import training_subset
    from discrete_vae.likelihoods.scaling import Standardizer

    standardizer = Standardizer((dataset.num_features,))
    standardizer.fit_(training_subset(dataset, config.training).train)
    found = standardizer.constant.nonzero()[:, 0].tolist()
    if not found:
        return []
    return [
        f"{len(found)} of {dataset.num_features} features {'has' if len(found) == 1 else 'have'} one value in all "
        f"examples to train on{_named(dataset, found)}: such a feature adds nothing to any likelihood."
    ]


def _named(dataset: DataSplits, places: list[int]) -> str:
    """The names of the first few features in brackets, where they have names."""
    names = dataset.description.columns
    return (
        f" ({', '.join(names[place] for place in places[:3])}{', ...' * (len(places) > 3)})" if names else ""
    )


def evaluation_table(result: Evaluation) -> str:
    """One quantity per line, in nats per example, and below them what the numbers mean."""
    likelihood, elbo, prior = result.log_likelihood, result.elbo, result.log_partition
    limit, baseline = result.log_likelihood_limit, result.independent_features
    lines = [
        "  nats per example",
        _row("log-likelihood", likelihood.value, likelihood.std_error, "the model as trained"),
    ]
    if limit is not None:
        lines.append(_row("  sharp limit", limit.value, limit.std_error, "the limit zeta = z"))
    lines += [
        _row("ELBO", elbo.elbo, elbo.elbo_std_error, f"{elbo.num_samples} draws per example"),
        _row("  reconstruction", elbo.reconstruction),
        _row("  KL discrete", elbo.kl_discrete),
        _row("  KL continuous", elbo.kl_continuous),
    ]
    if baseline is not None:
        lines.append(
            _row("independent features", baseline.value, baseline.std_error, "each feature on its own")
        )
    lines.append(_row("log Z", prior.best.value, prior.best.std_error, prior.best.method))
    lines += [
        _row("  check", check.value, check.std_error, check.method)
        for check in (prior.forward, prior.reverse)
        if check is not None
    ]
    notes = (
        f"The log-likelihood averages {likelihood.num_samples} importance samples per example: their own error is "
        f"{_error(likelihood.monte_carlo_std_error)}, the median effective number {likelihood.median_ess:.1f}, and "
        f"the last doubling brought {likelihood.doubling_gain:.2f} nats. Errors are over examples"
        + ("." if prior.best.std_error == 0 else "; that of log Z comes on top and shifts both bounds alike.")
    )
    lines += ["", wrapped(notes, "  ")]
    if baseline is not None and (warning := below_baseline("log-likelihood", likelihood.value, baseline)):
        lines += ["", wrapped(warning, "  ")]
    return "\n".join(lines)


def below_baseline(name: str, value: float, baseline: IndependentFeatures) -> str:
    """A warning about a model that explains less than independent features; empty for a better one."""
    if value >= baseline.value:
        return ""
    return (
        f"Warning: the {name} is {baseline.value - value:.2f} nats below that of independent features: by this measure "
        "the model has learned less than each feature tells on its own. Train longer (--training.num-epochs), or try a "
        "smaller model or another step size (--training.optimizer.learning-rate)."
    )


def _row(name: str, value: float, error: float | None = None, note: str = "") -> str:
    row = f"  {name:20} {value:11.3f}"
    return row if error is None else f"{row} +- {_error(error):9}  {note}".rstrip()


def _error(error: float) -> str:
    if math.isnan(error):
        return "unknown"
    return "0 (exact)" if error == 0 else f"{error:.3f}"
