"""Transformations of the paper: their inverse CDFs, and the bias of the shifted spike-and-Gaussian."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from torch import Tensor

from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.config import ComponentConfig, SmoothingConfig, instantiate, members
from discrete_vae.figures.style import Picture, tidy
from discrete_vae.log_partition.exact import enumerate_log_partition
from discrete_vae.numerics import bernoulli_log_prob
from discrete_vae.objectives.elbo import kl_to_boltzmann
from discrete_vae.posterior import LatentGroup
from discrete_vae.rng import keyed_generator, open_uniform
from discrete_vae.smoothing.base import Smoothing
from discrete_vae.smoothing.spike import SpikeGaussian
from reproduction.display import BLUE, GREEN, VERMILION

# Inverse CDFs of the smoothing transformations, and the rectifiers with noise that the paper shows beside them.


_RHO = (0.2, 0.5, 0.8)
_SHARPNESS = {"beta": (1.0, 3.0, 5.0), "b": (3.0, 10.0, 30.0)}
"""The values that a transformation with such a parameter is drawn at."""
_LAWS = ((0.0, 1.0), (0.5, 0.5), (1.0, 0.3))
"""loc and scale that one which depends on x is drawn at."""
_COLORS = (BLUE, VERMILION, GREEN)  # of the three rho
Style = Literal["dotted", "solid", "dashed"]
_STYLES: tuple[Style, ...] = ("dotted", "solid", "dashed")
_SIGNS = {"+": "dashed", "\N{MINUS SIGN}": "dotted"}  # of the noise of a rectifier
_DROPOUT, _NOISE = 0.5, 0.3
_COLUMNS, _WIDTH, _HEIGHT = 4, 2.6, 2.5


@dataclass(frozen=True, eq=False)
class TransferCurve:
    """The output for each input, at one value of the noise.

    Attributes:
        panel: Name of the transformation, or of the rectifier.
        parameter: Its parameter, in words; empty where it has none.
        noise: Value of the noise, in words.
        input: (point,) float64: q(z = 1 | x), or what the rectifier reads.
        output: (point,) float64: zeta, or what the rectifier gives.
        color: Place of the curve's color in the figure's three.
        style: Of the curve's line.
    """

    panel: str
    parameter: str
    noise: str
    input: np.ndarray
    output: np.ndarray
    color: int
    style: Style = "solid"


def inverse_cdfs(
    transformations: Sequence[str] | None = None, *, rectifiers: bool = True, num_points: int = 501
) -> list[TransferCurve]:
    """Evaluate inverse CDFs as functions of q, for fixed noise rho.

    Source: Rolfe 2017, figures inverse-cdf, inverse-cdf-mixture-of-ramps and inverse-cdf-spike-and-slab: rho 0.2, 0.5
    and 0.8, beta 1 (dotted), 3 (solid) and 5 (dashed); a rectifier with dropout of rate 0.5, and one behind the noise
    of batch normalization, a shift or a scale by 0.3 (dashed) or -0.3 (dotted), or none.

    Args:
        transformations: Kinds as ``--model.smoothing`` takes them; None means all.
        rectifiers: Whether to add the two rectifiers.
        num_points: Points of a curve.

    Returns:
        The curves; those of a panel stand together.

    Examples:
        >>> curves = inverse_cdfs(["spike-slab"], rectifiers=False, num_points=11)
        >>> [curve.noise for curve in curves]
        ['rho = 0.2', 'rho = 0.5', 'rho = 0.8']
        >>> curves[2].output.round(3)[[1, 5, 9]]
        array([0.  , 0.6 , 0.76])
    """
    kinds: dict[str, type[ComponentConfig]] = {
        config.model_fields["kind"].default: config for config in members(SmoothingConfig) if config.trains
    }
    curves: list[TransferCurve] = []
    for kind in kinds if transformations is None else transformations:
        curves += _curves_of(kind, kinds[kind], num_points)
    if rectifiers:
        curves += _rectifier_curves(num_points)
    return curves


@torch.no_grad()
def _curves_of(kind: str, config: type[ComponentConfig], num_points: int) -> list[TransferCurve]:
    q = torch.linspace(0, 1, num_points + 2, dtype=torch.float64)[1:-1]
    variants = _variants(config)
    styles: tuple[Style, ...] = _STYLES if len(variants) > 1 else ("solid",)
    curves = []
    for color, rho in enumerate(_RHO):
        for (words, smoothing, values), style in zip(variants, styles, strict=True):
            law = [torch.full_like(q, value) for value in values]
            zeta = smoothing.icdf(torch.full_like(q, rho), torch.logit(q), *law)
            noise = f"rho = {rho:g}"
            curves.append(TransferCurve(kind, words, noise, q.numpy(), zeta.numpy(), color, style))
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

    def rectified(panel: str, noise: str, read: np.ndarray, color: int, style: Style) -> TransferCurve:
        return TransferCurve(panel, "", noise, x, np.maximum(read, 0), color, style)

    dropped, kept = f"rho < {_DROPOUT}", f"rho >= {_DROPOUT}"
    shift, scale = f"x ± {_NOISE}", f"x (1 ± {_NOISE})"
    return [
        TransferCurve("rectifier with dropout", "", dropped, x, np.zeros_like(x), 1),
        rectified("rectifier with dropout", kept, x, 0, "solid"),
        rectified("rectifier with batch norm", shift, x - _NOISE, 1, "dotted"),
        rectified("rectifier with batch norm", shift, x + _NOISE, 1, "dashed"),
        rectified("rectifier with batch norm", scale, x * (1 - _NOISE), 2, "dotted"),
        rectified("rectifier with batch norm", scale, x * (1 + _NOISE), 2, "dashed"),
        rectified("rectifier with batch norm", "no noise", x, 0, "solid"),
    ]


def draw_inverse_cdfs(curves: Sequence[TransferCurve]) -> Picture:
    """Draw a panel per transformation, four side by side."""
    panels = {name: list(found) for name, found in groupby(curves, lambda curve: curve.panel)}
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    width, height = (6.4, 4.2) if len(panels) == 1 else (columns * _WIDTH, rows * _HEIGHT + 0.3)
    figure = Picture((width, height), layout="constrained")
    places = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, (name, found) in zip(places, panels.items(), strict=False):
        _draw_panel(axes, found)
        axes.set_title(name.replace("-", " "), fontsize=9, loc="left")
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    cdfs = [curve for curve in curves if _is_cdf(curve)]
    _draw_legend(figure, cdfs, title="" if len(cdfs) == len(curves) else "inverse CDFs:")
    return figure


def _is_cdf(curve: TransferCurve) -> bool:
    return curve.noise.startswith("rho = ")


def _draw_panel(axes: Axes, curves: Sequence[TransferCurve]) -> None:
    for curve in curves:
        look: dict[str, Any] = {"color": _COLORS[curve.color], "linestyle": curve.style}
        axes.plot(curve.input, curve.output, linewidth=1.5, **look)
    is_cdf = _is_cdf(curves[0])
    axes.set(xlabel=r"$q(z=1 \mid x)$" if is_cdf else r"$x$")
    axes.set(ylabel=r"$\zeta = F^{-1}(\rho)$" if is_cdf else "output")
    axes.set(xlim=(float(np.floor(curves[0].input[0])), 1))
    if all(curve.output.min() >= 0 and curve.output.max() <= 2 for curve in curves):
        axes.set(ylim=(-0.1, 1.02))  # the paper's; a Gaussian has no bounds
    tidy(axes)
    if not is_cdf:
        drawn = {curve.style for curve in curves}
        signs = {words: style for words, style in _SIGNS.items() if style in drawn}
        handles = _noises(curves) + _styles(signs)
        axes.legend(handles=handles, loc="upper left", frameon=False, fontsize=8, handlelength=1.6)


def _draw_legend(figure: Picture, curves: Sequence[TransferCurve], *, title: str) -> None:
    styles = {curve.parameter: curve.style for curve in curves if curve.parameter}
    handles = _noises(curves) + _styles(styles)
    words: dict[str, Any] = {"title": title, "title_fontsize": 9} if title else {}
    ncols = len(handles) // len(_STYLES) if len(handles) > 6 else 6  # a column per parameter, or one line
    figure.legend(
        handles=handles, loc="outside lower center", ncols=ncols, frameon=False, fontsize=9, **words
    )


def _noises(curves: Sequence[TransferCurve]) -> list[Line2D]:
    colors = {curve.noise: curve.color for curve in curves}
    return [Line2D([], [], color=_COLORS[color], label=_shown(words)) for words, color in colors.items()]


def _styles(styles: Mapping[str, str]) -> list[Line2D]:
    looks: dict[str, dict[str, Any]] = {
        words: {"color": "0.3", "linestyle": style} for words, style in styles.items()
    }
    return [Line2D([], [], label=_shown(words), **look) for words, look in looks.items()]


def _shown(words: str) -> str:
    """Words of the table as a legend has them."""
    for name, symbol in (("rho", r"$\rho$"), ("beta", r"$\beta$"), (">=", r"$\geq$")):
        words = words.replace(name, symbol)
    return words


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

    Args:
        probabilities: q(z = 1 | x) of the first unit.
        num_draws: Draws of each gradient.
        seed: Seed of the noise.

    Returns:
        A row per probability, form and term: the exact gradient by quadrature, the mean of the draws, its standard
        error, nats, and how many standard errors lie between the two.

    Examples:
        >>> table = shifted_spike_gaussian_table([0.5], num_draws=20_000)
        >>> table.form.tolist(), bool(table.z_score[0] < 5), bool(abs(table.z_score[2]) > 10)
        (['unshifted', 'unshifted', 'shifted', 'shifted'], True, True)
    """
    rows = []
    for number, (q, form) in enumerate(product(probabilities, _FORMS)):
        logit = torch.logit(torch.tensor(q, dtype=torch.float64))
        exact = _exact(logit)
        drawn = _drawn(
            logit, SpikeGaussian(shifted=form == "shifted"), num_draws, keyed_generator(seed, _STREAM, number)
        )
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
    figure = Picture((8.4, 5.2), layout="constrained")
    grid = figure.subplots(2, len(_TERMS), sharex=True, sharey="row", height_ratios=[1.5, 1])
    for (term, words), upper, lower in zip(_TERMS.items(), *grid, strict=True):
        for form, color in _FORMS.items():
            here = table[(table.term == term) & (table.form == form)]
            style = {
                "color": color,
                "fmt": "o",
                "markersize": 4,
                "capsize": 2,
                "label": f"{form}, mean of draws",
            }
            upper.errorbar(here.q, here["mean"], here.std_error, **style)
            lower.plot(here.q, here.z_score, "o", color=color, markersize=4)
            if form == "unshifted":
                upper.plot(here.q, here.exact, color="black", linewidth=1, label="exact")
        title = f"{term}: gradient of E[{words}] by the logit".replace("zeta", r"$\zeta$")
        upper.set_title(title, fontsize=9, loc="left")
        lower.axhspan(-3, 3, color="0.88", linewidth=0)
        lower.set(xlabel=r"$q(z=1 \mid x)$", yscale="symlog", ylim=(-1e3, 1e3))
        for axes in (upper, lower):
            tidy(axes)
    grid[0][0].set_ylabel("nats")
    grid[1][0].set_ylabel("(mean - exact) /\nstandard error")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure
