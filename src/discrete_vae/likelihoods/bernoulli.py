"""The Bernoulli likelihood of binary features."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from discrete_vae.checks import check_states, check_tensor, check_unit_interval
from discrete_vae.nets.mlp import MLP, ConcatLinear
from discrete_vae.numerics import bernoulli_log_prob


class BernoulliLikelihood(nn.Module):
    """p(x | zeta) = prod_i Bernoulli(x_i; sigmoid(f_i(zeta))), f a network with zero or more hidden layers.

    Where there are continuous layers h, zeta stands for what their hierarchy's `decoder_input` makes of both.

    Source: Rolfe 2017, eq. final-decoder and section architecture (linear + logistic on three of four data sets).

    Args:
        num_latents: Length of the last axis of zeta.
        num_features: Features of x.
        hidden: Widths of the hidden layers; empty makes f linear.

    Raises:
        InvalidInputError: If a size is not a positive integer.
    """

    def __init__(self, num_latents: int, num_features: int, hidden: Sequence[int] = ()) -> None:
        super().__init__()
        self.num_latents, self.num_features = num_latents, num_features
        self.network = MLP([num_latents], hidden, num_features)

    @torch.no_grad()
    def initialise_bias_(self, mean: Tensor) -> None:
        """Start the output's biases at the log-odds of the data's mean, kept between 0.001 and 0.999.

        Args:
            mean: (feature,), in [0, 1].

        Raises:
            InvalidInputError: If mean has another shape, dtype or domain.
        """
        check_unit_interval("mean", check_tensor("mean", mean, (self.num_features,)))
        output = self.network.layers[-1]
        assert isinstance(output, ConcatLinear)  # without a norm behind it the last layer is linear
        output.bias.copy_(torch.logit(mean, eps=1e-3))

    def log_prob(self, x: Tensor, zeta: Tensor) -> Tensor:
        """log p(x | zeta).

        Args:
            x: (batch, feature), in [0, 1]. For values strictly inside, this is the expectation over a
                binarisation with these means, not a log-density.
            zeta: (..., batch, latent).

        Returns:
            (..., batch), nats, at most 0.

        Raises:
            InvalidInputError: If a shape or dtype is wrong, or x leaves [0, 1]; values of x are looked at on the CPU.
        """
        check_states("x", x, ("batch", self.num_features))
        return bernoulli_log_prob(x, self.network(zeta)).sum(-1)

    def mean(self, zeta: Tensor) -> Tensor:
        """E[x | zeta].

        Args:
            zeta: (..., latent).

        Returns:
            (..., feature), probabilities.

        Raises:
            InvalidInputError: If zeta has another last axis or dtype.
        """
        return torch.sigmoid(self.network(zeta))
