"""Transformations of the paper: their inverse CDFs, and the bias of the shifted spike-and-Gaussian."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from torch import Tensor

from discrete_vae.boltzmann.base import enumerate_log_partition
from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.config import ComponentConfig, SmoothingConfig, instantiate, members
from discrete_vae.figures.style import BLUE, GREEN, VERMILION, Picture, tidy
from discrete_vae.numerics import bernoulli_log_prob
from discrete_vae.objectives.elbo import kl_to_boltzmann
from discrete_vae.posterior import LatentGroup
from discrete_vae.rng import keyed_generator, open_uniform
from discrete_vae.smoothing.base import Smoothing
from discrete_vae.smoothing.spike import SpikeGaussian
from reproduction.display import MINUS

# Inverse CDFs of the smoothing transformations, and the rectifiers with noise that the paper shows beside them.


_RHO = (0.2, 0.5, 0.8)
_SHARPNESS = {"beta": (1.0, 3.0, 5.0), "b": (3.0, 10.0, 30.0)}
"""The values that a transformation with such a parameter is drawn at."""
_LAWS = ((0.0, 1.0), (0.5, 0.5), (1.0, 0.3))
"""loc and scale that one which depends on x is drawn at."""
_COLORS = {"rho = 0.2": BLUE, "rho = 0.5": VERMILION, "rho = 0.8": GREEN}
"""Rectifiers, which have no rho, are gray."""
Style = Literal["dotted", "solid", "dashed"]
_STYLES: tuple[Style, ...] = ("dotted", "solid", "dashed")
_DROPOUT, _NOISE = 0.5, 0.3
_COLUMNS, _WIDTH, _HEIGHT = 3, 2.55, 2.3


SMOOTHINGS: dict[str, type[ComponentConfig]] = {
    config.model_fields["kind"].default: config
    for config in members(SmoothingConfig)
    if config.trains and config.unbiased  # pyright: ignore[reportAttributeAccessIssue]
}
"""The transformations that train by a gradient without bias, by kind."""


@dataclass(frozen=True, eq=False)
class TransferCurve:
    """The output for each input, at one value of the noise."""

    panel: str  # name of the transformation, or of the rectifier
    parameter: str  # in words, or the kind of a rectifier's noise; empty where there is none
    noise: str  # its value in words; "rho = ..." for an inverse CDF
    input: np.ndarray  # (point,) float64: q(z = 1 | x), or what the rectifier reads
    output: np.ndarray  # (point,) float64: zeta, or what the rectifier gives
    style: Style = "solid"  # of the curve's line, one for each parameter


def inverse_cdfs(
    transformations: Sequence[str] | None = None, *, rectifiers: bool = True, num_points: int = 501
) -> list[TransferCurve]:
    """Evaluate inverse CDFs as functions of q, for fixed noise rho.

    Source: Rolfe 2017, figures inverse-cdf, inverse-cdf-mixture-of-ramps and inverse-cdf-spike-and-slab: rho 0.2, 0.5
    and 0.8, beta 1 (dotted), 3 (solid) and 5 (dashed); a rectifier with dropout of rate 0.5, and one behind the noise
    of batch normalization, a shift (dashed) or a scale (dotted) by 0.3 and -0.3, or none.

    The transformations are of `SMOOTHINGS`; None means all, those with a spike first. The curves of a panel stand
    together.

    Examples:
        >>> curves = inverse_cdfs(["spike-slab"], rectifiers=False, num_points=11)
        >>> [curve.noise for curve in curves]
        ['rho = 0.2', 'rho = 0.5', 'rho = 0.8']
        >>> curves[2].output.round(3)[[1, 5, 9]]
        array([0.  , 0.6 , 0.76])
    """
    curves: list[TransferCurve] = []
    everything = sorted(SMOOTHINGS, key=lambda kind: not kind.startswith("spike"))
    for kind in everything if transformations is None else transformations:
        curves += _curves_of(kind, SMOOTHINGS[kind], num_points)
    if rectifiers:
        curves += _rectifier_curves(num_points)
    return curves


@torch.no_grad()
def _curves_of(kind: str, config: type[ComponentConfig], num_points: int) -> list[TransferCurve]:
    q = torch.linspace(0, 1, num_points + 2, dtype=torch.float64)[1:-1]
    variants = _variants(config)
    styles: tuple[Style, ...] = _STYLES if len(variants) > 1 else ("solid",)
    curves = []
    for rho in _RHO:
        for (words, smoothing, values), style in zip(variants, styles, strict=True):
            law = [torch.full_like(q, value) for value in values]
            zeta = smoothing.icdf(torch.full_like(q, rho), torch.logit(q), *law)
            noise = f"rho = {rho:g}"
            curves.append(TransferCurve(kind, words, noise, q.numpy(), zeta.numpy(), style))
    return curves


def _variants(config: type[ComponentConfig]) -> list[tuple[str, Smoothing, tuple[float, ...]]]:
    """Each form that a transformation is drawn in: in words, the transformation, parameters that depend on x."""
    for name, values in _SHARPNESS.items():
        if name in config.model_fields:
            return [
                (f"{name} = {value:g}", instantiate(config(**{name: value})).double(), ()) for value in values
            ]
    smoothing = instantiate(config()).double()
    if smoothing.parameter_names:
        names = smoothing.parameter_names
        return [
            (", ".join(f"{name} = {value:g}" for name, value in zip(names, law, strict=True)), smoothing, law)
            for law in _LAWS
        ]
    return [("", smoothing, ())]


def _rectifier_curves(num_points: int) -> list[TransferCurve]:
    x = np.linspace(-1, 1, num_points)

    def rectified(panel: str, kind: str, noise: str, read: np.ndarray, style: Style) -> TransferCurve:
        return TransferCurve(panel, kind, noise, x, np.maximum(read, 0), style)

    dropout, norm = "rectifier with dropout", "rectifier with batch norm"
    shift, scale = f"x ± {_NOISE}", f"x (1 ± {_NOISE})"
    return [
        rectified(dropout, "kept", f"rho >= {_DROPOUT}", x, "solid"),
        rectified(dropout, "dropped", f"rho < {_DROPOUT}", np.zeros_like(x), "dashed"),
        rectified(norm, "x", "", x, "solid"),
        rectified(norm, shift, "-", x - _NOISE, "dashed"),
        rectified(norm, shift, "+", x + _NOISE, "dashed"),
        rectified(norm, scale, "-", x * (1 - _NOISE), "dotted"),
        rectified(norm, scale, "+", x * (1 + _NOISE), "dotted"),
    ]


def draw_inverse_cdfs(curves: Sequence[TransferCurve]) -> Picture:
    """Draw a panel per transformation, three side by side: a color per rho, a style per parameter."""
    panels = {name: list(found) for name, found in groupby(curves, lambda curve: curve.panel)}
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    size = (5.4, 3.4) if len(panels) == 1 else (columns * _WIDTH, rows * _HEIGHT)
    figure = Picture(size, layout="constrained")
    places = list(figure.subplots(rows, columns, squeeze=False).flat)
    pad = 17 if any(curve.parameter for curve in curves) else 6  # points; room for the panels' keys
    for axes, (name, found) in zip(places, panels.items(), strict=False):
        _draw_panel(axes, found)
        words = rf"{name}, ($\mu$, $\sigma$)" if found[0].parameter.startswith("loc") else name
        axes.set_title(words, fontsize=9, loc="left", pad=pad, fontweight="bold")
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    return figure


def _draw_panel(axes: Axes, curves: Sequence[TransferCurve]) -> None:
    is_cdf = curves[0].noise in _COLORS
    for curve in curves:
        color = _COLORS.get(curve.noise, "0.25")
        axes.plot(curve.input, curve.output, linewidth=1.5, color=color, linestyle=curve.style)
    axes.set_xlabel(r"$q(z=1 \mid x)$" if is_cdf else r"$x$", fontsize=9)
    axes.set_ylabel(r"$\zeta$" if is_cdf else "output", fontsize=9)
    axes.set(xlim=(float(np.floor(curves[0].input[0])), 1))
    if all(curve.output.min() >= 0 and curve.output.max() <= 2 for curve in curves):
        axes.set(ylim=(-0.1, 1.02))  # the paper's; a Gaussian has no bounds
    axes.set_xticks(np.linspace(*axes.get_xlim(), 3))
    tidy(axes)
    if is_cdf:
        _label_ends(axes, [curve for curve in curves if curve.style == "solid"])
    styles: dict[str, Style] = {curve.parameter: curve.style for curve in curves if curve.parameter}
    if styles:  # the panel's own key, between title and axes
        handles = [
            Line2D([], [], color="0.25", linestyle=style, label=_shown(words))
            for words, style in styles.items()
        ]
        look: dict[str, Any] = {"handlelength": 1.5, "handletextpad": 0.4, "columnspacing": 0.8}
        look |= {"loc": "lower left", "bbox_to_anchor": (-0.02, 0.97), "borderaxespad": 0.1}
        axes.legend(handles=handles, ncols=3, frameon=False, fontsize=8, **look)


def _label_ends(axes: Axes, curves: Sequence[TransferCurve]) -> None:
    """Write rho beside the right end of each curve, labels a line apart."""
    low, high = axes.get_ylim()
    gap = 0.1 * (high - low)
    place = high + 0.4 * gap  # the first one stays clear of the key above the axes
    for curve in sorted(curves, key=lambda curve: -curve.output[-1]):
        place = min(float(curve.output[-1]), place - gap)
        look: dict[str, Any] = {"color": _COLORS[curve.noise], "fontsize": 8, "va": "center"}
        axes.text(1.03, place, _shown(curve.noise), **look)


def _shown(words: str) -> str:
    """Words of the table as a picture has them."""
    for name, symbol in (("rho", "\N{GREEK SMALL LETTER RHO}"), ("beta", "\N{GREEK SMALL LETTER BETA}")):
        words = words.replace(name, symbol)
    return words.replace("loc = ", "(").replace(", scale = ", ", ") + ")" * words.startswith("loc")


# The bias of the shifted spike-and-Gaussian, against quadrature, with the unshifted form beside it.


_STREAM = 0x73686966
_LOC, _SCALE = 0.5, 1.0  # of both units
_OFFSET, _SLOPE = -0.4, 1.5  # of the second unit's logit, in tanh of the first one's zeta
_DECODER, _WEIGHT, _BIAS = (1.5, -1.0), 1.5, (0.3, -0.6)
_NODES = 40
_FORMS = {"unshifted": BLUE, "shifted": VERMILION}
_TERMS = {"reconstruction": "log p(x | zeta)", "KL": "KL"}


def shifted_spike_gaussian_table(
    probabilities: Sequence[float] = tuple(np.linspace(0.05, 0.95, 13).tolist()),
    *,
    num_draws: int = 40_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Draw gradients of both forms of the spike-and-Gaussian, and work out the right ones.

    The model has two units in two groups, the second of which reads zeta of the first, a pair weight in its prior, and
    one observed bit. Differentiated is by the logit of the first unit, which moves its own zeta and, through the second
    unit's logit, all that follows. The shift puts f(-infinity) in place of f(0) into the expectation of its
    gradient, f what is averaged.

    Source: Rolfe 2017, section spike-and-gaussian, where the spike is moved to the front by a permutation of rho.

    Returns:
        A row per probability q(z = 1 | x) of the first unit, form and term: the exact gradient by quadrature, the mean
        of the draws, of which each gradient has ``num_draws``, its standard error, nats, and how many standard errors
        lie between the two.

    Examples:
        >>> table = shifted_spike_gaussian_table([0.5], num_draws=20_000)
        >>> table.form.tolist(), bool(table.z_score[0] < 5), bool(abs(table.z_score[2]) > 10)
        (['unshifted', 'unshifted', 'shifted', 'shifted'], True, True)
    """
    rows = []
    for number, (q, form) in enumerate(product(probabilities, _FORMS)):
        logit = torch.logit(torch.tensor(q, dtype=torch.float64))
        exact, smoothing = _exact(logit), SpikeGaussian(shifted=form == "shifted")
        drawn = _drawn(logit, smoothing, num_draws, keyed_generator(seed, _STREAM, number))
        for term, right, values in zip(_TERMS, exact, drawn, strict=True):
            error = float(values.std()) / num_draws**0.5
            rows.append((q, form, term, right, float(values.mean()), error))
    table = pd.DataFrame(rows, columns=["q", "form", "term", "exact", "mean", "std_error"])
    return table.assign(z_score=(table["mean"] - table.exact) / table.std_error)


def _prior() -> RBM:
    machine = RBM(1, 1).double()
    with torch.no_grad():
        machine.weight.fill_(_WEIGHT)
        machine.bias.copy_(torch.tensor(_BIAS))
    return machine.requires_grad_(False)


def _log_likelihood(zeta: Tensor) -> Tensor:
    """Of the bit 1, (..., unit) -> (...); bounded in zeta, or the shifted form's bias would be infinite."""
    return torch.nn.functional.logsigmoid(torch.tanh(zeta) @ torch.tensor(_DECODER, dtype=zeta.dtype))


def _drawn(logit: Tensor, smoothing: SpikeGaussian, count: int, generator: torch.Generator) -> list[Tensor]:
    """Gradients of single draws, of both terms, (draw,) each."""
    like = torch.empty(count, 1, dtype=torch.float64)
    law = torch.full_like(like, _LOC), torch.full_like(like, _SCALE)
    first = logit.expand(count, 1).clone().requires_grad_()
    groups: list[LatentGroup] = []
    logits = first
    for unit in range(2):
        zeta = smoothing.icdf(open_uniform(like, generator=generator), logits, *law)
        bits, own = smoothing.bits(zeta, logits, *law), smoothing.kl(logits, *law)
        place = torch.tensor([unit])
        groups.append(LatentGroup(logits=logits, zeta=zeta, bits=bits, units=place, kl_of_zeta=own))
        logits = _OFFSET + _SLOPE * torch.tanh(zeta)
    zeta = torch.cat([group.zeta for group in groups], -1)
    terms = _log_likelihood(zeta).sum(), kl_to_boltzmann(_prior(), groups, log_partition=0.0).sum()
    return [torch.autograd.grad(term, first, retain_graph=True)[0].flatten() for term in terms]


def _exact(logit: Tensor) -> list[float]:
    """The gradients of both expectations, by Gauss-Hermite quadrature."""
    logit = logit.detach().requires_grad_()
    points, shares = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(_NODES))
    zetas = torch.cat([torch.zeros(1, dtype=torch.float64), _LOC + _SCALE * points])
    bits = (zetas != 0).double()
    densities = torch.cat([torch.ones(1, dtype=torch.float64), shares / shares.sum()])
    # z and zeta of both units on a product grid, (node, unit)
    index = torch.cartesian_prod(torch.arange(len(zetas)), torch.arange(len(zetas)))
    z, zeta, density = bits[index], zetas[index], densities[index].prod(-1)
    logits = torch.stack([logit.expand(len(index)), _OFFSET + _SLOPE * torch.tanh(zeta[:, 0])], -1)
    log_q = bernoulli_log_prob(z, logits).sum(-1)
    weight, prior = density * log_q.exp(), _prior()
    own = SpikeGaussian().kl(logits, torch.full_like(logits, _LOC), torch.full_like(logits, _SCALE)).sum(-1)
    divergence = log_q + prior.compute_energy(z) + enumerate_log_partition(prior) + own
    terms = (weight * _log_likelihood(zeta)).sum(), (weight * divergence).sum()
    return [float(torch.autograd.grad(term, logit, retain_graph=True)[0]) for term in terms]


def draw_shifted_spike_gaussian(table: pd.DataFrame) -> Picture:
    """Draw both gradients against q, and below how many standard errors they are off."""
    figure = Picture((7.6, 4.9), layout="constrained")
    grid = figure.subplots(2, len(_TERMS), sharex=True, sharey="row", height_ratios=[1.5, 1])
    for (term, words), upper, lower in zip(_TERMS.items(), *grid, strict=True):
        for form, color in _FORMS.items():
            here = table[(table.term == term) & (table.form == form)]
            look: dict[str, Any] = {"color": color, "fmt": "o", "markersize": 4, "capsize": 2}
            upper.errorbar(here.q, here["mean"], here.std_error, label=form, **look)
            lower.plot(here.q, here.z_score, "o", color=color, markersize=4)
            if form == "unshifted":
                upper.plot(here.q, here.exact, color="black", linewidth=1, label="exact")
        title = f"{term}: gradient of E[{words}]".replace("zeta", "\N{GREEK SMALL LETTER ZETA}")
        upper.set_title(title, fontsize=9, loc="left", fontweight="bold")
        lower.axhspan(-3, 3, color="0.88", linewidth=0)
        lower.set_yscale("symlog", linthresh=3)
        lower.set_ylim(-400, 400)
        lower.set_yticks([-100, -10, 0, 10, 100], [f"{MINUS}100", f"{MINUS}10", "0", "10", "100"])
        lower.minorticks_off()
        lower.set_xlabel(r"$q(z=1 \mid x)$ of the first unit", fontsize=9)
        for axes in (upper, lower):
            tidy(axes)
    first, second = grid[0]
    notes: list[tuple[Axes, float, float, str, str]] = [
        (first, 0.5, 0.15, "shifted: biased", VERMILION),
        (first, 0.5, -0.02, "unshifted, on the exact line", BLUE),
        (second, 0.67, -0.3, "shifted", VERMILION),
        (second, 0.46, -0.08, "unshifted", BLUE),
        (grid[1][0], 0.5, -12, "gray: within 3 standard errors", "0.3"),
    ]
    for axes, x, y, words, color in notes:
        axes.text(x, y, words, color=color, fontsize=8.5, ha="center", va="center")
    first.set_ylabel("nats per unit of the logit", fontsize=9)
    grid[1][0].set_ylabel("standard errors\nfrom exact", fontsize=9)
    return figure
