"""A small model whose pictures take no time, and a reader of them."""

import matplotlib.image
import pytest
import torch

from discrete_vae import DiscreteVAE
from discrete_vae.config import HierarchicalPosteriorConfig, MLPDecoderConfig, ModelConfig, RBMConfig


@pytest.fixture
def model():
    config = ModelConfig(
        num_features=12,
        prior=RBMConfig(num_left=4, num_right=3),
        posterior=HierarchicalPosteriorConfig(groups=2, hidden=(8,)),
        decoder=MLPDecoderConfig(hidden=(8,)),
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return DiscreteVAE.from_config(config)


@pytest.fixture
def read_picture():
    """The (height, width, 3) values of a PNG file, in [0, 1]."""

    def read(path):
        assert path.read_bytes().startswith(b"\x89PNG")
        return torch.from_numpy(matplotlib.image.imread(path))[..., :3]

    return read
