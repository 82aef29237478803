"""Small models with weights that are not those of the start."""

import torch

from discrete_vae import DiscreteVAE
from discrete_vae.config import (
    GaussianHierarchyConfig,
    MLPDecoderConfig,
    NoHierarchyConfig,
    NoSharingConfig,
)
from tests.models import small_config


def small_model(*, layers=0, seed=0, num_features=6, units=(3, 2), groups=2, scale=0.7, **settings):
    """A model of bits whose weights are far enough from 0 for its latents to matter."""
    hierarchy = NoHierarchyConfig()
    if layers:
        hierarchy = GaussianHierarchyConfig(
            num_layers=layers,
            num_units=2,
            posterior_hidden=(5,),
            prior_hidden=(5,),
            sharing=NoSharingConfig(),
        )
    networks = {"groups": groups, "hidden": (5,), "decoder": MLPDecoderConfig(hidden=(5,))}
    config = small_config(num_features, units=units, **networks, hierarchy=hierarchy, **settings)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = DiscreteVAE.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(scale * torch.randn_like(parameter))
    model.project_()
    return model.eval()


def some_bits(num_rows, num_features=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.bernoulli(torch.full((num_rows, num_features), 0.4), generator=generator)
