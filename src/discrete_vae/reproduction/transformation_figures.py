"""Figures 2, 7 and 8: inverse CDFs of transformations; nothing is trained for them."""

from __future__ import annotations

from functools import partial

from discrete_vae.figures.inverse_cdfs import draw_inverse_cdfs, inverse_cdfs_table
from discrete_vae.reproduction.wanted import Made, Reproduction, Result, Wanted


def _make(number: int, kind: str, label: str, rectifiers: bool, wanted: Wanted, made: Made) -> Result:
    table = inverse_cdfs_table([kind], rectifiers=rectifiers)
    beside = ", and rectifiers with the noise of dropout and of batch normalization" if rectifiers else ""
    title = f"Figure {number}: inverse CDFs of {kind}{beside}"
    return Result(
        title, [f"{label} of the paper, with its values of rho and beta."], picture=draw_inverse_cdfs(table)
    )


def _reproduction(number: int, kind: str, label: str, *, rectifiers: bool = False) -> Reproduction:
    return Reproduction(partial(_make, number, kind, label, rectifiers))


FIGURE_2 = _reproduction(2, "spike-exponential", "fig:inverse-cdf", rectifiers=True)
FIGURE_7 = _reproduction(7, "ramps", "fig:inverse-cdf-mixture-of-ramps")
FIGURE_8 = _reproduction(8, "spike-slab", "fig:inverse-cdf-spike-and-slab")
