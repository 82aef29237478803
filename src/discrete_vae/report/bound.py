"""How the ELBO splits."""

from __future__ import annotations

from typing import Any

from discrete_vae.report.html import Child, Markup, markup
from discrete_vae.report.numbers import estimate, number, percent, shown
from discrete_vae.report.section import Section, Verdict, bar, figure, table, verdict_line
from discrete_vae.report.source import ReportSource

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
