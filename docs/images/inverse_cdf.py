"""Draw inverse-cdf.png: the marginal inverse CDF of the spike-and-exponential transformation.

Source: Rolfe 2017, fig. inverse-cdf-spike-and-exp (rho 0.2, 0.5, 0.8; beta 1, 3, 5). Run it from anywhere:
python docs/images/inverse_cdf.py
"""

from pathlib import Path

import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from discrete_vae import SpikeExponential

# Okabe and Ito's blue, vermilion and green: told apart with any color vision.
COLORS = {0.2: "#0072B2", 0.5: "#D55E00", 0.8: "#009E73"}
STYLES = {1.0: ":", 3.0: "-", 5.0: "--"}


def draw(path: Path) -> None:
    """Write the picture as a PNG file."""
    q = torch.linspace(0, 1, 1003, dtype=torch.float64)[1:-1]
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for rho, color in COLORS.items():
        for beta, style in STYLES.items():
            with torch.no_grad():
                zeta = SpikeExponential(beta=beta).icdf(torch.full_like(q, rho), torch.logit(q))
            axes.plot(q.numpy(), zeta.numpy(), color=color, linestyle=style, linewidth=1.6)
    axes.set(xlim=(0, 1), ylim=(-0.02, 1), xlabel=r"$q(z=1 \mid x)$", ylabel=r"$\zeta = F^{-1}(\rho)$")
    axes.grid(color="0.92")
    axes.spines[["top", "right"]].set_visible(False)
    for rho, color in COLORS.items():  # each curve leaves zero at q = 1 - rho
        axes.text(1 - rho - 0.01, 0.02, rf"$\rho = {rho}$", color=color, ha="right")
    handles = [
        Line2D([], [], color="0.3", linestyle=style, label=rf"$\beta = {beta:g}$")
        for beta, style in STYLES.items()
    ]
    axes.legend(handles=handles, loc="upper left", frameon=False)
    figure.savefig(path, dpi=150, metadata={"Software": None})


if __name__ == "__main__":
    draw(Path(__file__).with_name("inverse-cdf.png"))
