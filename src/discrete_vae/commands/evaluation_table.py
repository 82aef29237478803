"""What dvae evaluate prints of an evaluation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from discrete_vae.commands.layout import hanging

if TYPE_CHECKING:
    from discrete_vae.evaluation.evaluate import Evaluation
    from discrete_vae.evaluation.independent_features import IndependentFeatures


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
    lines += ["", hanging(notes, "  ")]
    if baseline is not None and (warning := below_baseline("log-likelihood", likelihood.value, baseline)):
        lines += ["", hanging(warning, "  ")]
    return "\n".join(lines)


def below_baseline(name: str, value: float, baseline: IndependentFeatures) -> str:
    """What to say of a model that explains less than independent features; empty for a better one."""
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
