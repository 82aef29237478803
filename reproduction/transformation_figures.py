"""Figures 2, 7 and 8 and the studies: no run is trained for them."""

from __future__ import annotations

from functools import partial

from reproduction.gradient_study import make_gradient_study
from reproduction.inverse_cdfs import draw_inverse_cdfs, inverse_cdfs_table
from reproduction.shifted_spike_gaussian import draw_shifted_spike_gaussian, shifted_spike_gaussian_table
from reproduction.wanted import Made, Reproduction, Result, Wanted


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


def _make_inverse_cdfs(wanted: Wanted, made: Made) -> Result:
    table = inverse_cdfs_table()
    title = "Inverse CDFs of all transformations, and rectifiers with noise"
    return Result(title, picture=draw_inverse_cdfs(table), columns=table.columns())


def _make_shifted(wanted: Wanted, made: Made) -> Result:
    table = shifted_spike_gaussian_table(seed=wanted.seed)
    title = "Gradients of both forms of the spike-and-Gaussian, and the exact ones"
    return Result(title, picture=draw_shifted_spike_gaussian(table), columns=table.columns())


def _make_gradient_study(wanted: Wanted, made: Made) -> Result:
    def report(text: str) -> None:
        made.say(text)
        made.check()

    path = made.places.out / f"gradient-study-{wanted.size}.csv"
    table, picture = make_gradient_study(wanted.size, seed=wanted.seed, table_path=path, report=report)
    return Result(
        "Variance of every gradient estimator at equal cost", picture=picture, columns=table.columns()
    )


INVERSE_CDFS = Reproduction(_make_inverse_cdfs)
SHIFTED = Reproduction(_make_shifted)
GRADIENT_STUDY = Reproduction(_make_gradient_study)
