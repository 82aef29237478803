"""The figure of inverse CDFs: the paper's curves, recomputed from its printed formulas."""

import numpy as np
import pytest

from discrete_vae.config import SmoothingConfig, members
from reproduction.inverse_cdfs import draw_inverse_cdfs, inverse_cdfs_table

KINDS = [config.model_fields["kind"].default for config in members(SmoothingConfig) if config.trains]


def spike_exponential(rho, q, beta):
    """Rolfe 2017, eq. probabilistic-encoder, as printed."""
    inside = (rho + q - 1) / q * np.expm1(beta) + 1
    return np.where(rho >= 1 - q, np.log(np.where(rho >= 1 - q, inside, 1)) / beta, 0)


def ramps(rho, q):
    """Rolfe 2017, eq. probabilistic-encoder-two-sided, as printed; zeta = rho at q = 1/2."""
    root = np.sqrt((q - 1) ** 2 + (2 * q - 1) * rho)
    return np.where(q == 0.5, rho, (q - 1 + root) / np.where(q == 0.5, 1, 2 * q - 1))


def spike_slab(rho, q):
    """Rolfe 2017, section spike-and-slab, as printed."""
    return np.where(rho >= 1 - q, (rho - 1) / q + 1, 0)


@pytest.fixture(scope="module")
def table():
    return inverse_cdfs_table(num_points=101)


def curves(table, panel):
    return {(curve.noise, curve.parameter): curve for curve in table.curves if curve.panel == panel}


def test_all_transformations_and_both_rectifiers_are_there(table):
    panels = list(dict.fromkeys(curve.panel for curve in table.curves))
    assert panels == [*KINDS, "rectifier with dropout", "rectifier with batch norm"]
    for kind in KINDS:
        assert {noise for noise, _ in curves(table, kind)} == {"rho = 0.2", "rho = 0.5", "rho = 0.8"}


def test_figure_2a_is_the_papers(table):
    found = curves(table, "spike-exponential")
    assert len(found) == 9
    for beta, style in ((1, "dotted"), (3, "solid"), (5, "dashed")):
        for rho in (0.2, 0.5, 0.8):
            curve = found[f"rho = {rho}", f"beta = {beta}"]
            assert curve.style == style
            np.testing.assert_allclose(
                curve.output, spike_exponential(rho, curve.input, beta), rtol=0, atol=1e-12
            )


@pytest.mark.parametrize(("kind", "formula"), [("ramps", ramps), ("spike-slab", spike_slab)])
def test_figures_7_and_8_are_the_papers(table, kind, formula):
    for rho in (0.2, 0.5, 0.8):
        curve = curves(table, kind)[f"rho = {rho}", ""]
        assert curve.style == "solid"
        np.testing.assert_allclose(curve.output, formula(rho, curve.input), rtol=0, atol=1e-12)


def test_the_spike_and_gaussian_has_its_tails_on_both_sides_of_the_spike(table):
    found = curves(table, "spike-gaussian")
    assert {parameter for _, parameter in found} == {
        "loc = 0, scale = 1",
        "loc = 0.5, scale = 0.5",
        "loc = 1, scale = 0.3",
    }
    lower, upper = (found[f"rho = {rho}", "loc = 0, scale = 1"] for rho in (0.2, 0.8))
    np.testing.assert_allclose(lower.output, -upper.output, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(lower.output != 0, lower.input > 0.4)  # rho < q / 2


def test_figures_2b_and_2c_are_the_papers(table):
    dropout = curves(table, "rectifier with dropout")
    assert not dropout["rho < 0.5", ""].output.any()
    kept = dropout["rho >= 0.5", ""]
    np.testing.assert_array_equal(kept.output, np.where(kept.input >= 0, kept.input, 0))
    noisy = [curve for curve in table.curves if curve.panel == "rectifier with batch norm"]
    at_one = {(curve.noise, curve.style): curve.output[-1] for curve in noisy}
    assert at_one == pytest.approx(
        {
            ("x ± 0.3", "dotted"): 0.7,
            ("x ± 0.3", "dashed"): 1.3,
            ("x (1 ± 0.3)", "dotted"): 0.7,
            ("x (1 ± 0.3)", "dashed"): 1.3,
            ("no noise", "solid"): 1.0,
        }
    )
    starts = {(c.noise, c.style): c.input[np.argmax(c.output > 1e-9)] for c in noisy}
    assert starts["x ± 0.3", "dashed"] == pytest.approx(-0.3, abs=0.021)
    assert starts["x (1 ± 0.3)", "dashed"] == pytest.approx(0.0, abs=0.021)


def test_a_panel_per_transformation_with_axes_as_in_the_paper(table):
    picture = draw_inverse_cdfs(table)
    shown = [axes for axes in picture.axes if axes.axison]
    assert len(shown) == len(KINDS) + 2
    assert [axes.get_xlim() for axes in shown[-2:]] == [(-1, 1)] * 2
    assert all(axes.get_ylim()[0] == pytest.approx(-0.1) for axes in shown[-2:])
    labels = [text.get_text() for text in picture.legends[0].get_texts()]
    assert labels[:6] == [f"$\\rho$ = {rho}" for rho in (0.2, 0.5, 0.8)] + [
        f"$\\beta$ = {b}" for b in (1, 3, 5)
    ]
    assert labels[6:9] == ["b = 3", "b = 10", "b = 30"]
    assert labels[9:] == ["loc = 0, scale = 1", "loc = 0.5, scale = 0.5", "loc = 1, scale = 0.3"]


def test_one_transformation_alone():
    picture = draw_inverse_cdfs(inverse_cdfs_table(["spike-slab"], rectifiers=False, num_points=5))
    assert len(picture.axes) == 1


def test_each_panel_says_what_its_lines_mean():
    picture = draw_inverse_cdfs(inverse_cdfs_table(["spike-exponential"]))
    assert picture.legends[0].get_title().get_text() == "inverse CDFs:"
    (of_shifts,) = [axes.get_legend() for axes in picture.axes if "batch norm" in axes.get_title(loc="left")]
    assert [text.get_text() for text in of_shifts.get_texts()][-2:] == ["+", "\N{MINUS SIGN}"]
    alone = draw_inverse_cdfs(inverse_cdfs_table(["spike-slab"], rectifiers=False))
    assert alone.axes[0].get_title(loc="left") == "spike slab"
    assert not alone.legends[0].get_title().get_text()
