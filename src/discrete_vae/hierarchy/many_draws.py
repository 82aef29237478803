"""Many draws of the Gaussian layers for each state above them, with the gradients that importance weights need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from discrete_vae.hierarchy.gaussian import Gaussian
from discrete_vae.noise import standard_normal
from discrete_vae.records import ShowsShapes

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True, eq=False, repr=False)
class ManyDraws(ShowsShapes):
    """Draws h_1, ..., h_k of all layers from q(h | zeta, x), for each example the same zeta.

    Attributes:
        h: (sample, batch, layer, unit), carrying the gradients of the reparameterization.
        log_prob: log q(h | zeta, x), (sample, batch), nats; without gradient.
        noise: Standard normal, (sample, batch, layer, unit), of which h is made.
        inputs: Of each layer, what its network read beside the features: [zeta, h_1, ..., h_(m-1)].
        layers: Of each layer, what its network gave; the first one's has no sample axis.
    """

    h: Tensor
    log_prob: Tensor
    noise: Tensor
    inputs: Sequence[Tensor]
    layers: Sequence[Gaussian]

    def path_gradient(self, weights: Tensor) -> Tensor:
        """Gradient of sum weights * log q(h | zeta, x) by h, with the parameters of q, zeta and x held fixed.

        A layer h_m moves its own factor by -epsilon_m / sigma_m, and those of later layers by what their networks read
        of it. The latter is one backward pass through each network, to its input alone.

        Args:
            weights: (sample, batch), without gradient.

        Returns:
            (sample, batch, layer, unit), without gradient; zero where h has none.
        """
        if not self.h.requires_grad:
            return torch.zeros_like(self.h)
        weights, parts = weights[..., None], []
        for index, layer in enumerate(self.layers):
            noise, precision = self.noise[..., index, :], torch.exp(-layer.log_std.detach())
            pull = weights * noise * precision
            parts.append(-pull)
            read = self.inputs[index]
            if index == 0 or not read.requires_grad:
                continue
            by_layer = (pull, weights * (noise.square() - 1))
            (by_input,) = torch.autograd.grad((layer.mean, layer.log_std), read, by_layer, retain_graph=True)
            earlier = by_input[..., by_input.shape[-1] - index * noise.shape[-1] :]
            for place, share in enumerate(earlier.chunk(index, -1)):
                parts[place] = parts[place] + share
        return torch.stack(parts, -2)


def draw_many(
    networks: Sequence[nn.Module],
    features: Tensor,
    zeta: Tensor,
    num_samples: int,
    *,
    num_units: int,
    generator: torch.Generator | None = None,
) -> ManyDraws:
    """Draw from networks that each read the features and [zeta, h_1, ..., h_(m-1)].

    The first network, which reads nothing that differs between the samples of an example, runs once per example.

    Args:
        networks: One per layer, giving a `Gaussian`.
        features: (batch, feature).
        zeta: (batch, latent).
        num_samples: k.
        num_units: Units of each layer.
        generator: Source of the noise; None means torch's global generator.

    Raises:
        InvalidInputError: If the generator draws on another device.
    """
    shape = (num_samples, len(zeta), len(networks), num_units)
    noise = standard_normal(zeta, shape=shape, generator=generator)
    joint, inputs, layers, drawn = zeta, [], [], []
    log_prob = (-0.5 * noise.square() - _HALF_LOG_TWO_PI).sum((-2, -1))
    for network, eps in zip(networks, noise.unbind(-2), strict=True):
        layer: Gaussian = network(features, joint)
        h = layer.mean + layer.log_std.exp() * eps
        log_prob = log_prob - layer.log_std.detach().sum(-1)
        inputs.append(joint)
        layers.append(layer)
        drawn.append(h)
        joint = torch.cat([joint.expand(num_samples, -1, -1), h], -1)
    return ManyDraws(torch.stack(drawn, -2), log_prob, noise, tuple(inputs), tuple(layers))
