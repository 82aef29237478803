"""Small models for the tests of several parts."""

import torch

from discrete_vae import DiscreteVAE
from discrete_vae.config import ModelConfig

LAYERS = {"kind": "gaussian", "num_layers": 2, "num_units": 2, "posterior_hidden": (6,), "prior_hidden": (6,)}


def small_config(num_features=5, *, units=(2, 2), hidden=(20,), groups=1, **parts):
    """A small RBM above, no layers below; other parts are configs, or their fields with their kind."""
    given = {
        "num_features": num_features,
        "prior": {"kind": "rbm", "num_left": units[0], "num_right": units[1]},
        "posterior": {"kind": "hierarchical", "hidden": hidden, "groups": groups},
    }
    return ModelConfig.model_validate(given | parts)


def small_model(*sizes, seed=0, **parts):
    """A model of such a config at its start, whose weights the seed decides."""
    torch.manual_seed(seed)
    return DiscreteVAE.from_config(small_config(*sizes, **parts))
