"""Whether the chains of training mix, and whether the prior is where the codes are."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from discrete_vae.evaluation.chain_health import ChainHealth, ChainHealthWarning, chain_health
from discrete_vae.report.charts.axis import Axis
from discrete_vae.report.charts.chart import Frame, chart
from discrete_vae.report.charts.marks import steps
from discrete_vae.report.html import Child, Markup, markup
from discrete_vae.report.numbers import number, percent, shown
from discrete_vae.report.section import Section, Verdict, figure, table, verdict_line
from discrete_vae.report.source import ReportSource

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
