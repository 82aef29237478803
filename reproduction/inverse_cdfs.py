"""Inverse CDFs of the smoothing transformations, and the rectifiers with noise that the paper shows beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from discrete_vae.config import ComponentConfig, SmoothingConfig, instantiate, members
from discrete_vae.smoothing.base import Smoothing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from discrete_vae.figures.style import Picture

_RHO = (0.2, 0.5, 0.8)
_SHARPNESS = {"beta": (1.0, 3.0, 5.0), "b": (3.0, 10.0, 30.0)}
"""The values that a transformation with such a parameter is drawn at."""
_LAWS = ((0.0, 1.0), (0.5, 0.5), (1.0, 0.3))
"""loc and scale that one which depends on x is drawn at."""
_COLORS = ("#0072B2", "#D55E00", "#009E73")  # Okabe and Ito's, of the three rho
Style = Literal["dotted", "solid", "dashed"]
_STYLES: tuple[Style, ...] = ("dotted", "solid", "dashed")
_SIGNS = {"+": "dashed", "\N{MINUS SIGN}": "dotted"}  # of the noise of a rectifier
_DROPOUT, _NOISE = 0.5, 0.3
_COLUMNS, _WIDTH, _HEIGHT = 4, 2.6, 2.5


@dataclass(frozen=True, eq=False)
class TransferCurve:
    """What one value of the noise makes of each input.

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


@dataclass(frozen=True, eq=False)
class InverseCDFs:
    """Curves of stochastic nonlinearities.

    Attributes:
        curves: Those of a panel stand together.
    """

    curves: tuple[TransferCurve, ...]

    def columns(self) -> dict[str, np.ndarray]:
        """A row per point of each curve."""
        sizes = [len(curve.input) for curve in self.curves]
        words = {
            name: np.repeat([getattr(curve, name) for curve in self.curves], sizes)
            for name in ("panel", "parameter", "noise")
        }
        values = {
            name: np.concatenate([getattr(curve, name) for curve in self.curves])
            for name in ("input", "output")
        }
        return words | values


def inverse_cdfs_table(
    transformations: Sequence[str] | None = None, *, rectifiers: bool = True, num_points: int = 501
) -> InverseCDFs:
    """Evaluate inverse CDFs as functions of q, for fixed noise rho.

    Source: Rolfe 2017, figures inverse-cdf, inverse-cdf-mixture-of-ramps and inverse-cdf-spike-and-slab: rho 0.2, 0.5
    and 0.8, beta 1 (dotted), 3 (solid) and 5 (dashed); a rectifier with dropout of rate 0.5, and one behind the noise
    of batch normalization, a shift or a scale by 0.3 (dashed) or -0.3 (dotted), or none.

    Args:
        transformations: Kinds as ``--model.smoothing`` takes them; None means all.
        rectifiers: Whether to add the two rectifiers.
        num_points: Points of a curve.

    Returns:
        The table.

    Examples:
        >>> table = inverse_cdfs_table(["spike-slab"], rectifiers=False, num_points=11)
        >>> [curve.noise for curve in table.curves]
        ['rho = 0.2', 'rho = 0.5', 'rho = 0.8']
        >>> table.curves[2].output.round(3)[[1, 5, 9]]
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
    return InverseCDFs(tuple(curves))


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
    """What a transformation is drawn at: in words, the transformation, and parameters that depend on x."""
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


def draw_inverse_cdfs(table: InverseCDFs) -> Picture:
    """Draw a panel per transformation, four side by side.

    Args:
        table: What `inverse_cdfs_table` returned.

    Returns:
        The figure.
    """
    from discrete_vae.figures.style import Picture

    panels = {name: list(found) for name, found in groupby(table.curves, lambda curve: curve.panel)}
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    width, height = (6.4, 4.2) if len(panels) == 1 else (columns * _WIDTH, rows * _HEIGHT + 0.3)
    figure = Picture((width, height), layout="constrained")
    places = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, (name, curves) in zip(places, panels.items(), strict=False):
        _draw_panel(axes, curves)
        axes.set_title(name.replace("-", " "), fontsize=9, loc="left")
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    cdfs = [curve for curve in table.curves if _is_cdf(curve)]
    _draw_legend(figure, cdfs, title="" if len(cdfs) == len(table.curves) else "inverse CDFs:")
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
    axes.grid(color="0.92")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    if not is_cdf:
        drawn = {curve.style for curve in curves}
        signs = {words: style for words, style in _SIGNS.items() if style in drawn}
        handles = _noises(curves) + _styles(signs)
        axes.legend(handles=handles, loc="upper left", frameon=False, fontsize=8, handlelength=1.6)


def _draw_legend(figure: Picture, curves: Sequence[TransferCurve], *, title: str) -> None:
    """What color and style mean, once for all inverse CDFs."""
    styles = {curve.parameter: curve.style for curve in curves if curve.parameter}
    handles = _noises(curves) + _styles(styles)
    words: dict[str, Any] = {"title": title, "title_fontsize": 9} if title else {}
    ncols = len(handles) // len(_STYLES) if len(handles) > 6 else 6  # a column per parameter, or one line
    figure.legend(
        handles=handles, loc="outside lower center", ncols=ncols, frameon=False, fontsize=9, **words
    )


def _noises(curves: Sequence[TransferCurve]) -> list[Line2D]:
    """What the colors mean."""
    from matplotlib.lines import Line2D

    colors = {curve.noise: curve.color for curve in curves}
    return [Line2D([], [], color=_COLORS[color], label=_shown(words)) for words, color in colors.items()]


def _styles(styles: Mapping[str, str]) -> list[Line2D]:
    """What the styles of lines mean."""
    from matplotlib.lines import Line2D

    looks: dict[str, dict[str, Any]] = {
        words: {"color": "0.3", "linestyle": style} for words, style in styles.items()
    }
    return [Line2D([], [], label=_shown(words), **look) for words, look in looks.items()]


def _shown(words: str) -> str:
    """Words of the table as a legend has them."""
    for name, symbol in (("rho", r"$\rho$"), ("beta", r"$\beta$"), (">=", r"$\geq$")):
        words = words.replace(name, symbol)
    return words
