"""The evidence lower bound and its parts."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Elbo:
    """One-sample estimates of the evidence lower bound, one an example.

    Source: Rolfe 2017, eq. vae-loss-input-dependent-zeta-hierarchical.

    Attributes:
        reconstruction: log p(x | zeta, h), (batch,), nats.
        kl_discrete: KL of the binary latents, (batch,), nats.
        kl_continuous: KL of the Gaussian layers, (batch,), nats; zero where there are none.
    """

    reconstruction: Tensor
    kl_discrete: Tensor
    kl_continuous: Tensor

    @property
    def value(self) -> Tensor:
        """reconstruction - kl_discrete - kl_continuous, (batch,), nats; below log p(x) in expectation."""
        return self.reconstruction - self.kl_discrete - self.kl_continuous
