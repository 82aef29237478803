"""What every approximating posterior over the binary latents offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from discrete_vae.errors import InvalidInputError
from discrete_vae.numerics import bernoulli_log_prob
from discrete_vae.posteriors.latent_group import LatentGroup
from discrete_vae.posteriors.logit_paths import LogitPaths
from discrete_vae.records import ShowsShapes
from discrete_vae.smoothing.base import Smoothing
from discrete_vae.smoothing.input_dependent import InputDependentSmoothing


@dataclass(frozen=True, eq=False, repr=False)
class PosteriorSample(ShowsShapes):
    """A draw from q(z, zeta | x); all tensors (..., batch, unit), in the prior's order.

    Attributes:
        z: In {0,1}, the bits that belong to zeta; without gradient.
        zeta: The smoothed latents.
        logits: Log-odds of each unit given x and the earlier groups.
        bits: E[z | zeta] with the gradient that a pair term of the prior's energy needs, see `Smoothing.bits`.
        group_of_unit: (unit,) int64, the position of each unit's group in the order of sampling.
        smoothing: The transformation if it depends on x; None if prior and posterior share it.
        parameters: What it has of x beside the logits, (batch, unit) each; none if it does not depend on x.
        paths: How the logits depend on earlier zeta; None where the posterior does not tell, as importance weights of
            the binary latents want it.
    """

    z: Tensor
    zeta: Tensor
    logits: Tensor
    bits: Tensor
    group_of_unit: Tensor
    smoothing: InputDependentSmoothing | None = None
    parameters: tuple[Tensor, ...] = ()
    paths: LogitPaths | None = None

    @property
    def groups(self) -> tuple[LatentGroup, ...]:
        """The same by group, in the order of sampling, as `kl_to_boltzmann` takes them."""
        places = [
            (self.group_of_unit == group).nonzero().flatten()
            for group in range(int(self.group_of_unit.max()) + 1)
        ]
        kl = self.kl_of_zeta()
        return tuple(
            LatentGroup(
                logits=self.logits[..., units],
                zeta=self.zeta[..., units],
                bits=self.bits[..., units],
                units=units,
                kl_of_zeta=None if kl is None else kl[..., units],
            )
            for units in places
        )

    def kl_of_zeta(self) -> Tensor | None:
        """sum_z q(z) KL[q(zeta | z, x) || r(zeta|z)] of each unit, (..., batch, unit), nats; None where it is 0."""
        return None if self.smoothing is None else self.smoothing.kl(self.logits, *self.parameters)

    def log_prob(self) -> Tensor:
        """log q(z, zeta | x) - log r(zeta|z), what stands under log p(z) in importance weights; (..., batch), nats.

        Where prior and posterior share r, it is the sum over units of log Bernoulli(z; sigmoid(l)).
        """
        of_z = bernoulli_log_prob(self.z, self.logits).sum(-1)
        if self.smoothing is None:
            return of_z
        return of_z - self.smoothing.log_ratio(self.zeta, *self.parameters).sum(-1)


class Posterior(nn.Module, ABC):
    """q(z, zeta | x) = prod_j r(zeta_j | z_j) q(z_j | zeta_<j, x) over groups of units, each q(z_j | .) factorial.

    A subclass draws group after group and says in which group each unit is; `discrete_vae.testing.posterior_contracts`
    checks that what it draws is what it says. It reads the encoder's features, never x. In place of r a transformation
    may have a q(zeta_j | z_j, x), whose parameters are then the subclass's to make, see
    `discrete_vae.smoothing.input_dependent`.

    Args:
        num_features: Length of the last axis of the features.
        group_of_unit: For each unit of the prior the position of its group in the order of sampling, from 0.
        smoothing: The transformation r(zeta|z); it becomes a part of this module.

    Attributes:
        num_features: Length of the last axis of the features.
        num_units: Units of the prior.
        smoothing: The transformation.
        group_of_unit: (unit,) int64.
    """

    group_of_unit: Tensor

    def __init__(self, num_features: int, group_of_unit: Tensor, smoothing: Smoothing) -> None:
        super().__init__()
        self.num_features = num_features
        self.num_units = len(group_of_unit)
        self.smoothing = smoothing
        # it belongs to the constructor's arguments, not to the state
        self.register_buffer("group_of_unit", group_of_unit, persistent=False)

    @property
    def num_groups(self) -> int:
        """Groups of units."""
        return int(self.group_of_unit.max()) + 1

    @abstractmethod
    def rsample(
        self, features: Tensor, *, num_samples: int | None = None, generator: torch.Generator | None = None
    ) -> PosteriorSample:
        """Draw z and zeta, group after group, by the marginal inverse CDF.

        Args:
            features: (batch, feature), what the encoder makes of x.
            num_samples: Draws per example; None makes one draw and adds no axis.
            generator: Source of the noise; None means torch's global generator.

        Returns:
            The sample; with num_samples every tensor has a leading axis (sample,).
        """

    def sample_discretely(
        self, features: Tensor, uniforms: Tensor, *, generator: torch.Generator | None = None
    ) -> PosteriorSample:
        """Draw z, group after group, by comparing uniforms with q, then zeta from r(zeta|z).

        No gradient passes through zeta to the logits; the smoothing's own parameters have theirs. Score-function
        estimators need it; a posterior of your own may leave it out.

        Args:
            features: (batch, feature), what the encoder makes of x.
            uniforms: (sample, batch, unit), in the prior's order; z = 1 where u < q.
            generator: Source of the noise in r(zeta|z), which is the same for all samples of an example; None means
                torch's global generator.

        Returns:
            The sample, (sample, batch, unit), with z for the bits.

        Raises:
            InvalidInputError: If the posterior does not offer it.
        """
        name = type(self).__name__
        repair = "Give it a method sample_discretely, or take the reparameterized gradient."
        raise InvalidInputError(
            "gradient", "must be 'reparameterized' for a posterior without sample_discretely", name, repair
        )
