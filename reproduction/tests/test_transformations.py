"""Inverse CDFs by the paper's printed formulas; the bias of the shifted form, its quadrature by plain averages."""

from functools import partial

import numpy as np
import pytest
import torch

from reproduction.transformations import (
    SMOOTHINGS,
    draw_inverse_cdfs,
    draw_shifted_spike_gaussian,
    inverse_cdfs,
    shifted_spike_gaussian_table,
)


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
def drawn():
    return inverse_cdfs(num_points=101)


def curves(drawn, panel):
    return {(curve.noise, curve.parameter): curve for curve in drawn if curve.panel == panel}


@pytest.mark.parametrize(
    ("kind", "formula", "parameter", "style"),
    [
        *(
            ("spike-exponential", partial(spike_exponential, beta=beta), f"beta = {beta}", style)
            for beta, style in ((1, "dotted"), (3, "solid"), (5, "dashed"))
        ),
        ("ramps", ramps, "", "solid"),
        ("spike-slab", spike_slab, "", "solid"),
    ],
)
def test_figures_2a_7_and_8_are_the_papers(drawn, kind, formula, parameter, style):
    found = curves(drawn, kind)
    assert {noise for noise, _ in found} == {"rho = 0.2", "rho = 0.5", "rho = 0.8"}
    for rho in (0.2, 0.5, 0.8):
        curve = found[f"rho = {rho}", parameter]
        assert curve.style == style
        np.testing.assert_allclose(curve.output, formula(rho, curve.input), rtol=0, atol=1e-12)


def test_figures_2b_and_2c_are_the_papers(drawn):
    dropout = curves(drawn, "rectifier with dropout")
    assert not dropout["rho < 0.5", "dropped"].output.any()
    kept = dropout["rho >= 0.5", "kept"]
    np.testing.assert_array_equal(kept.output, np.where(kept.input >= 0, kept.input, 0))
    noisy = [curve for curve in drawn if curve.panel == "rectifier with batch norm"]
    at_one = {(curve.parameter, curve.noise): curve.output[-1] for curve in noisy}
    expected = {("x ± 0.3", "-"): 0.7, ("x ± 0.3", "+"): 1.3, ("x", ""): 1.0}
    expected |= {("x (1 ± 0.3)", "-"): 0.7, ("x (1 ± 0.3)", "+"): 1.3}
    assert at_one == pytest.approx(expected)
    starts = {(c.parameter, c.noise): c.input[np.argmax(c.output > 1e-9)] for c in noisy}
    assert starts["x ± 0.3", "+"] == pytest.approx(-0.3, abs=0.021)
    assert starts["x (1 ± 0.3)", "+"] == pytest.approx(0.0, abs=0.021)


def test_each_panel_says_what_its_lines_mean(drawn):
    """A color is one value of rho in all panels, written beside its line; the panel's key has its styles."""
    panels = list(dict.fromkeys(curve.panel for curve in drawn))
    spikes = [kind for kind in SMOOTHINGS if kind.startswith("spike")]
    assert panels[: len(spikes)] == spikes
    assert sorted(panels[: len(SMOOTHINGS)]) == sorted(SMOOTHINGS)
    assert panels[len(SMOOTHINGS) :] == ["rectifier with dropout", "rectifier with batch norm"]
    shown = [axes for axes in draw_inverse_cdfs(drawn).axes if axes.axison]
    assert len(shown) == len(panels)
    assert [axes.get_xlim() for axes in shown[-2:]] == [(-1, 1)] * 2
    colors = {}
    for axes in shown:
        curves = [curve for curve in drawn if axes.get_title(loc="left").split(",")[0] == curve.panel]
        styles = {curve.parameter for curve in curves if curve.parameter}
        key = axes.get_legend()
        assert len(key.get_texts() if key else []) == len(styles)
        noises = {curve.noise for curve in curves if curve.noise.startswith("rho =")}
        written = {text.get_text(): text.get_color() for text in axes.texts}
        assert len(written) == len(noises)
        assert colors.setdefault(len(written), written) == written
        assert {line.get_color() for line in axes.lines} == set(written.values()) or not written
    assert set(colors) == {0, 3}
    alone = draw_inverse_cdfs(inverse_cdfs(["spike-slab"], rectifiers=False, num_points=5))
    assert len(alone.axes) == 1


@pytest.fixture(scope="module")
def table():
    return shifted_spike_gaussian_table([0.2, 0.5, 0.8], num_draws=40_000)


def rows(table, form, term):
    return (table.form == form) & (table.term == term)


def test_the_shifted_form_is_biased_and_the_other_is_not(table):
    for term in ("reconstruction", "KL"):
        assert np.abs(table.z_score[rows(table, "unshifted", term)]).max() < 4.9
        assert np.abs(table.z_score[rows(table, "shifted", term)]).min() > 5
    few, again, other = (shifted_spike_gaussian_table([0.2], num_draws=100, seed=seed) for seed in (0, 0, 1))
    assert few.equals(again)
    assert few.exact.equals(other.exact)
    assert not (few["mean"] == other["mean"]).any()
    picture = draw_shifted_spike_gaussian(few)
    assert len(picture.axes) == 4
    labels = {label for axes in picture.axes for label in axes.get_legend_handles_labels()[1]}
    assert labels == {"exact", "unshifted", "shifted"}


def test_the_exact_gradients_are_differences_of_plain_averages(table):
    """E by the law of z and zeta itself, from many draws of zeta that share nothing with the inverse CDF."""
    noise = torch.Generator().manual_seed(0)
    normal = 0.5 + torch.randn(400_000, 2, generator=noise, dtype=torch.float64)
    weight, bias = 1.5, (0.3, -0.6)

    def terms(z, zeta, logit):
        logits = torch.stack([torch.full_like(zeta[:, 0], logit), -0.4 + 1.5 * torch.tanh(zeta[:, 0])], -1)
        q = torch.sigmoid(logits)
        log_q = torch.where(z > 0, q, 1 - q).log().sum(-1)
        log_p = weight * z[:, 0] * z[:, 1] + z @ torch.tensor(bias, dtype=torch.float64)
        of_zeta = 0.125 * q.sum(-1)  # q KL[N(1/2, 1) || N(0, 1)]
        likelihood = torch.nn.functional.logsigmoid(torch.tanh(zeta) @ torch.tensor([1.5, -1.0]).double())
        return log_q, likelihood, log_q - log_p + of_zeta

    def expectations(logit):
        found = torch.zeros(2, dtype=torch.float64)
        for bits in ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)):
            z = torch.tensor(bits, dtype=torch.float64).expand(len(normal), 2)
            log_q, likelihood, divergence = terms(z, normal * z, logit)
            found += (log_q.exp()[:, None] * torch.stack([likelihood, divergence], -1)).mean(0)
        return found

    for q in (0.2, 0.5, 0.8):
        logit = float(np.log(q / (1 - q)))
        slope = (expectations(logit + 1e-3) - expectations(logit - 1e-3)) / 2e-3
        for term, value in zip(("reconstruction", "KL"), slope, strict=True):
            (exact,) = set(table.exact[rows(table, "unshifted", term) & (table.q == q)])
            assert exact == pytest.approx(float(value), abs=3e-3)
            assert set(table.exact[rows(table, "shifted", term) & (table.q == q)]) == {exact}
