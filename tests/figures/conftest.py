"""A small model whose pictures take no time, and how a figure looks."""

import matplotlib.image
import pytest
import torch

from discrete_vae.figures import save_figure
from tests.models import small_model


@pytest.fixture
def model():
    with torch.random.fork_rng():
        return small_model(12, units=(4, 3), groups=2, hidden=(8,), decoder={"kind": "mlp", "hidden": (8,)})


@pytest.fixture
def pixels(tmp_path):
    """The (height, width, 3) values of a figure in a PNG file, in [0, 1]."""

    def draw(figure):
        path = save_figure(figure, tmp_path / "a.png")
        assert path.read_bytes().startswith(b"\x89PNG")
        return torch.from_numpy(matplotlib.image.imread(path))[..., :3]

    return draw
