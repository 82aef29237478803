"""Draw inverse-cdf.png: the marginal inverse CDF of the spike-and-exponential transformation.

It is a panel of the figure that `dvae figure inverse-cdfs` draws. Run it from anywhere:
python docs/images/inverse_cdf.py
"""

from pathlib import Path

from discrete_vae.figures import draw_inverse_cdfs, inverse_cdfs_table, save_figure


def draw(path: Path) -> None:
    """Write the picture as a PNG file."""
    save_figure(draw_inverse_cdfs(inverse_cdfs_table(["spike-exponential"], rectifiers=False)), path)


if __name__ == "__main__":
    draw(Path(__file__).with_name("inverse-cdf.png"))
