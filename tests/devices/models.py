"""Models of every kind, small, and their twins on a fake accelerator."""

import torch
from torch import nn

from discrete_vae import DiscreteVAE
from discrete_vae.config import (
    ConvolutionalDecoderConfig,
    ConvolutionalEncoderConfig,
    GaussianHierarchyConfig,
    GraphBoltzmannConfig,
    HierarchicalPosteriorConfig,
    MLPDecoderConfig,
    OverlappingExponentialConfig,
    OverlappingPowerConfig,
    RBMConfig,
    SpikeGaussianConfig,
)
from tests.models import small_config

FLAT = small_config(64, units=(16, 16), groups=4, decoder=MLPDecoderConfig(hidden=(20,)))
LAYERS = GaussianHierarchyConfig(num_layers=2, num_units=5, posterior_hidden=(8,), prior_hidden=(8,))
IMAGES = {
    "num_features": None,
    "event_shape": (1, 8, 8),
    "encoder": ConvolutionalEncoderConfig(num_features=20, widths=(8, 16)),
    "decoder": ConvolutionalDecoderConfig(widths=(8, 16)),
}
ACROSS = {
    "prior": RBMConfig(num_left=2, num_right=2),
    "posterior": HierarchicalPosteriorConfig(groups=((0, 2), (3, 1)), hidden=(5,)),
}
CHANGES = {
    "four groups": {},
    "a group across both sides": ACROSS,
    "a smoothing that depends on x": ACROSS | {"smoothing": SpikeGaussianConfig(prior_loc=0.5)},
    "Gaussian layers": {"hierarchy": LAYERS},
    "trained overlap": {"smoothing": OverlappingExponentialConfig(trainable=True)},
    "power functions": {"smoothing": OverlappingPowerConfig()},
    "a graph and missing entries": {
        "prior": GraphBoltzmannConfig(num_units=8, edges="chimera"),
        "missing": True,
    },
    "convolutions": IMAGES,
    "convolutions, layers and missing entries": IMAGES | {"hierarchy": LAYERS, "missing": True},
}


def build(name):
    torch.manual_seed(0)
    return DiscreteVAE.from_config(FLAT.model_copy(update=CHANGES[name]))


def data(model, rows=6):
    """A batch with gaps where the model allows them, and samples of its prior."""
    generator = torch.Generator().manual_seed(1)
    x = torch.bernoulli(torch.full((rows, *model.event_shape), 0.4), generator=generator)
    if model.missing:
        x[torch.rand(x.shape, generator=generator) < 0.2] = torch.nan
    return x, torch.bernoulli(torch.full((9, model.prior.num_units), 0.5), generator=generator)


def empty_twin(module, device):
    """Replace every tensor of a module by an empty one on a device; call it under a FakeTensorMode."""
    for part in module.modules():
        for name, value in part._parameters.items():
            if value is not None:
                empty = torch.empty(value.shape, dtype=value.dtype, device=device)
                part._parameters[name] = nn.Parameter(empty, value.requires_grad)
        for name, value in part._buffers.items():
            if value is not None:
                part._buffers[name] = torch.empty(value.shape, dtype=value.dtype, device=device)
    return module
