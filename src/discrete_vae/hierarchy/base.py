"""What stands between the binary latents and the decoder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from discrete_vae.checks import check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.hierarchy.gaussian import Gaussian
from discrete_vae.hierarchy.many_draws import ManyDraws
from discrete_vae.records import ShowsShapes


@dataclass(frozen=True, eq=False, repr=False)
class HierarchySample(ShowsShapes):
    """A draw from q(h | zeta, x) with both distributions at it.

    Attributes:
        h: (..., batch, layer, unit).
        posterior: q(h_m | h_<m, zeta, x), (..., batch, layer, unit).
        prior: p(h_m | h_<m, zeta), (..., batch, layer, unit).
        decoder_input: What p(x | zeta, h) reads, (..., batch, decoder_size).
    """

    h: Tensor
    posterior: Gaussian
    prior: Gaussian
    decoder_input: Tensor

    def kl(self) -> Tensor:
        """sum_m KL[q(h_m | h_<m, zeta, x) || p(h_m | h_<m, zeta)], each in closed form, (..., batch), nats.

        Its expectation over q is the KL of the whole hierarchy.

        Source: Rolfe 2017, eq. vae-loss-input-dependent-zeta-hierarchical.
        """
        return self.posterior.joint_kl_to(self.prior, 2)

    def log_ratio(self) -> Tensor:
        """log p(h | zeta) - log q(h | zeta, x) at this draw, (..., batch), nats, as importance weights need it."""
        return (self.prior.log_prob(self.h) - self.posterior.log_prob(self.h)).sum((-2, -1))


class Hierarchy(nn.Module, ABC):
    """Layers h of continuous latents given zeta: their prior, their posterior, and what the decoder reads of them.

    Everything here reads zeta and never z.

    Attributes:
        num_latents: Length of the last axis of zeta.
        num_features: Length of the last axis of the encoder's features.
        num_layers: Layers of h.
        num_units: Units of each layer.
        decoder_size: Length of the last axis of `decoder_input`.
    """

    num_latents: int
    num_features: int
    num_layers: int
    num_units: int
    decoder_size: int

    @abstractmethod
    def rsample(
        self, features: Tensor, zeta: Tensor, *, generator: torch.Generator | None = None
    ) -> HierarchySample:
        """Draw h from q(h | zeta, x), layer after layer, and evaluate the prior at it.

        Args:
            features: (batch, feature), what the encoder makes of x.
            zeta: (..., batch, latent).
            generator: Source of the noise; None means torch's global generator.

        Returns:
            The sample, carrying the gradients of the reparameterization.
        """

    def rsample_many(
        self, features: Tensor, zeta: Tensor, num_samples: int, *, generator: torch.Generator | None = None
    ) -> ManyDraws:
        """Draw h from q(h | zeta, x) many times for each zeta, as `discrete_vae.objectives.partial_bound` needs it.

        A hierarchy without Gaussian layers, or of another kind, leaves it out.

        Args:
            features: (batch, feature), what the encoder makes of x.
            zeta: (batch, latent).
            num_samples: Draws per example.
            generator: Source of the noise; None means torch's global generator.

        Returns:
            The draws.

        Raises:
            InvalidInputError: If the hierarchy does not offer it.
        """
        raise _without_importance_samples(self)

    def prior_at(self, zeta: Tensor, h: Tensor) -> Gaussian:
        """p(h_m | h_<m, zeta) of all layers at a sample of all of them; goes with `rsample_many`.

        Args:
            zeta: (..., latent).
            h: (..., layer, unit).

        Returns:
            (..., layer, unit).

        Raises:
            InvalidInputError: If the hierarchy does not offer it.
        """
        raise _without_importance_samples(self)

    @abstractmethod
    def sample(self, zeta: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw h from p(h | zeta).

        Args:
            zeta: (..., latent).
            generator: Source of the noise; None means torch's global generator.

        Returns:
            (..., layer, unit).
        """

    @abstractmethod
    def decoder_input(self, zeta: Tensor, h: Tensor) -> Tensor:
        """What p(x | zeta, h) reads.

        Args:
            zeta: (..., latent).
            h: (..., layer, unit).

        Returns:
            (..., decoder_size).
        """


class NoHierarchy(Hierarchy):
    """A hierarchy of zero layers, whose KL is 0.

    Source: Rolfe 2017, section supplementary-results (the simplified models).

    Args:
        num_latents: Length of the last axis of zeta.
        num_features: Length of the last axis of the encoder's features; nothing reads them.

    Raises:
        InvalidInputError: If a size is not a positive integer.
    """

    def __init__(self, *, num_latents: int, num_features: int) -> None:
        super().__init__()
        self.num_latents = check_positive_int("num_latents", num_latents)
        self.num_features = check_positive_int("num_features", num_features)
        self.num_layers = self.num_units = 0
        self.decoder_size = num_latents

    def rsample(
        self, features: Tensor, zeta: Tensor, *, generator: torch.Generator | None = None
    ) -> HierarchySample:
        """Nothing to draw."""
        h = self.sample(zeta)
        empty = Gaussian(h, h)
        return HierarchySample(h, empty, empty, zeta)

    def sample(self, zeta: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """No layer, (..., 0, 0)."""
        return zeta.new_zeros(*zeta.shape[:-1], 0, 0)

    def decoder_input(self, zeta: Tensor, h: Tensor) -> Tensor:
        """Zeta itself."""
        return zeta


def _without_importance_samples(hierarchy: Hierarchy) -> InvalidInputError:
    """The error of a hierarchy that draws one sample at a time."""
    name = type(hierarchy).__name__
    if hierarchy.num_layers == 0:
        rule = "must be 1 for a model without Gaussian layers whose transformation has a spike, which fixes z"
        repair = "Give the model layers (--model.hierarchy gaussian), or no spike (--model.smoothing ramps)."
    else:
        rule = "must be 1 for a hierarchy that has no rsample_many and prior_at"
        repair = "Leave it out, or give the hierarchy these two methods."
    return InvalidInputError("num_importance_samples", rule, f"more, and a {name}", repair)
