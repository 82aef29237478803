"""Draw inverse-cdf.svg: the marginal inverse CDF of the spike-and-exponential transformation.

It is a panel of `python -m reproduction figure-2`. Run it at the root of the repository:
python -m docs.images.inverse_cdf
"""

from pathlib import Path

from discrete_vae.figures import save_figure
from reproduction.transformations import draw_inverse_cdfs, inverse_cdfs


def draw(path: Path) -> None:
    """Write the picture to a file."""
    save_figure(draw_inverse_cdfs(inverse_cdfs(["spike-exponential"], rectifiers=False)), path)


if __name__ == "__main__":
    draw(Path(__file__).with_name("inverse-cdf.svg"))
