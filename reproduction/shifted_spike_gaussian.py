"""The bias of the shifted spike-and-Gaussian, against quadrature, with the unshifted form beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.checks import check_positive_int
from discrete_vae.log_partition.exact import enumerate_log_partition
from discrete_vae.numerics import bernoulli_log_prob
from discrete_vae.objectives.elbo import kl_to_boltzmann
from discrete_vae.posterior import LatentGroup
from discrete_vae.rng import keyed_generator, open_uniform
from discrete_vae.smoothing.spike import SpikeGaussian

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from discrete_vae.figures.style import Picture

_STREAM = 0x73686966
_LOC, _SCALE = 0.5, 1.0  # of both units
_OFFSET, _SLOPE = -0.4, 1.5  # of the second unit's logit, in tanh of the first one's zeta
_DECODER, _WEIGHT, _BIAS = (1.5, -1.0), 1.5, (0.3, -0.6)
_NODES = 40
_COLORS = {"unshifted": "#0072B2", "shifted": "#D55E00"}
_TERMS = {"reconstruction": "log p(x | zeta)", "KL": "KL"}


@dataclass(frozen=True, eq=False)
class ShiftedSpikeGaussian:
    """Gradients by the first unit's logit, a row per probability, form and term.

    Attributes:
        q: q(z = 1 | x) of the first unit, (row,).
        form: "unshifted" or "shifted", (row,).
        term: "reconstruction" or "KL", (row,).
        exact: The gradient of the expectation, by quadrature, (row,), nats.
        mean: Mean of the draws' gradients, (row,), nats.
        std_error: Its standard error, (row,), nats.
        num_draws: Draws per row.
    """

    q: np.ndarray
    form: np.ndarray
    term: np.ndarray
    exact: np.ndarray
    mean: np.ndarray
    std_error: np.ndarray
    num_draws: int

    @property
    def z_score(self) -> np.ndarray:
        """How many standard errors lie between the mean and the exact gradient, (row,)."""
        return (self.mean - self.exact) / self.std_error

    def columns(self) -> dict[str, np.ndarray]:
        """A row per probability, form and term."""
        names = ("q", "form", "term", "exact", "mean", "std_error")
        return {name: getattr(self, name) for name in names} | {"z_score": self.z_score}


def shifted_spike_gaussian_table(
    probabilities: Sequence[float] = tuple(np.linspace(0.05, 0.95, 13).tolist()),
    *,
    num_draws: int = 40_000,
    seed: int = 0,
) -> ShiftedSpikeGaussian:
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
        The table.

    Raises:
        InvalidInputError: If num_draws is not a positive integer.

    Examples:
        >>> table = shifted_spike_gaussian_table([0.5], num_draws=20_000)
        >>> table.form.tolist(), bool(table.z_score[0] < 5), bool(abs(table.z_score[2]) > 10)
        (['unshifted', 'unshifted', 'shifted', 'shifted'], True, True)
    """
    check_positive_int("num_draws", num_draws)
    rows = []
    for number, (q, form) in enumerate(product(probabilities, _COLORS)):
        logit = torch.logit(torch.tensor(q, dtype=torch.float64))
        exact = _exact(logit)
        drawn = _drawn(
            logit,
            SpikeGaussian(shifted=form == "shifted"),
            num_draws,
            keyed_generator(seed, _STREAM, number),
        )
        for term, right, values in zip(_TERMS, exact, drawn, strict=True):
            error = float(values.std()) / num_draws**0.5
            rows.append((q, form, term, right, float(values.mean()), error))
    names = ("q", "form", "term", "exact", "mean", "std_error")
    columns = dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))
    return ShiftedSpikeGaussian(**columns, num_draws=num_draws)


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


def draw_shifted_spike_gaussian(table: ShiftedSpikeGaussian) -> Picture:
    """Draw both gradients against q, and below how many standard errors they are off.

    Args:
        table: What `shifted_spike_gaussian_table` returned.

    Returns:
        The figure.
    """
    from discrete_vae.figures.style import Picture

    figure = Picture((8.4, 5.2), layout="constrained")
    grid = figure.subplots(2, len(_TERMS), sharex=True, sharey="row", height_ratios=[1.5, 1])
    for (term, words), upper, lower in zip(_TERMS.items(), *grid, strict=True):
        for form, color in _COLORS.items():
            here = (table.term == term) & (table.form == form)
            q, error = table.q[here], table.std_error[here]
            style = {
                "color": color,
                "fmt": "o",
                "markersize": 4,
                "capsize": 2,
                "label": f"{form}, mean of draws",
            }
            upper.errorbar(q, table.mean[here], error, **style)
            lower.plot(q, table.z_score[here], "o", color=color, markersize=4)
            if form == "unshifted":
                upper.plot(q, table.exact[here], color="black", linewidth=1, label="exact")
        title = f"{term}: gradient of E[{words}] by the logit".replace("zeta", r"$\zeta$")
        upper.set_title(title, fontsize=9, loc="left")
        lower.axhspan(-3, 3, color="0.88", linewidth=0)
        lower.set(xlabel=r"$q(z=1 \mid x)$", yscale="symlog", ylim=(-1e3, 1e3))
        for axes in (upper, lower):
            _tidy(axes)
    grid[0][0].set_ylabel("nats")
    grid[1][0].set_ylabel("(mean - exact) /\nstandard error")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def _tidy(axes: Axes) -> None:
    axes.grid(color="0.92")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
