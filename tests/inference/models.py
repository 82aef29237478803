"""Small models with weights that are not those of the start."""

import torch

from tests import models


def small_model(*, layers=0, seed=0, num_features=6, units=(3, 2), groups=2, scale=0.7, **settings):
    """A model of bits whose weights are far enough from 0 for its latents to matter."""
    parts = {"decoder": {"kind": "mlp", "hidden": (5,)}}
    if layers:
        networks = {"posterior_hidden": (5,), "prior_hidden": (5,), "sharing": {"kind": "none"}}
        parts["hierarchy"] = {"kind": "gaussian", "num_layers": layers, "num_units": 2, **networks}
    sizes = {"units": units, "groups": groups, "hidden": (5,)}
    with torch.random.fork_rng(), torch.no_grad():
        model = models.small_model(num_features, seed=seed, **sizes, **parts, **settings)
        for parameter in model.parameters():
            parameter.add_(scale * torch.randn_like(parameter))
    model.project_()
    return model.eval()


def some_bits(num_rows, num_features=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.bernoulli(torch.full((num_rows, num_features), 0.4), generator=generator)
