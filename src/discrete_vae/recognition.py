"""The recognition half of the model: what reads x."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from discrete_vae.checks import check_tensor
from discrete_vae.config.model import Mask
from discrete_vae.draws import Encoding
from discrete_vae.generative import GenerativeModel, Statistic, check_statistic
from discrete_vae.nets.eval_mode import eval_mode
from discrete_vae.noise import one_source
from discrete_vae.posteriors.base import Posterior
from discrete_vae.reading import network_input, open_batch
from discrete_vae.smoothing.base import Smoothing


class RecognitionModel(GenerativeModel):
    """A generative model with its posterior q(z, zeta, h | x), of parts that a subclass sets.

    Attributes:
        encoder: (batch, *input_shape) -> (batch, feature).
        posterior: q(z, zeta | x), of the encoder's features.
        missing: Whether entries of x may be unobserved.
        mask: What the encoder then reads behind the values: 1 for a gap, or 1 for what is observed.
    """

    encoder: nn.Module
    posterior: Posterior
    missing: bool
    mask: Mask = "observed"  # of models that were pickled before there was a choice

    @property
    def smoothing(self) -> Smoothing:
        """r(zeta|z), which the posterior owns."""
        return self.posterior.smoothing

    @torch.no_grad()
    def encode(
        self,
        x: Tensor,
        *,
        observed: Tensor | None = None,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Encoding:
        """Draw z, zeta and h from the posterior, with running statistics.

        Args:
            x: As in `elbo`.
            observed: As in `elbo`.
            seed: Integer from 0 to 2^64 - 1, short for a generator with that seed.
            generator: Source of the noise. Without it and a seed torch's global generator is, so each call differs.

        Returns:
            The draw.

        Raises:
            InvalidInputError: If x breaks a rule of `elbo`, both seed and generator are given, or a weight or a logit
                of the posterior is not finite.
        """
        x, observed = self._open(x, observed)
        generator = one_source(seed, generator, x.device)
        with eval_mode(self) as model:
            features = model.read(x, observed)
            sample = model.posterior.rsample(features, generator=generator)
            self._finite("the posterior network's logits", sample.logits)
            below = model.hierarchy.rsample(features, sample.zeta, generator=generator)
        return Encoding(sample.z, sample.zeta, sample.logits, self._finite("the posterior's h", below.h))

    @torch.no_grad()
    def reconstruct(
        self,
        x: Tensor,
        *,
        observed: Tensor | None = None,
        statistic: Statistic = "mean",
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """E[x | zeta, h], or another statistic of p(x | zeta, h), for one draw of zeta and h from the posterior of x.

        Args:
            x: As in `elbo`.
            observed: As in `elbo`.
            statistic: "mean", "mode" or "sample", see `decode`.
            seed: Integer from 0 to 2^64 - 1, short for a generator with that seed.
            generator: Source of the noise. Without it and a seed torch's global generator is, so each call differs.

        Returns:
            (batch, *event).

        Raises:
            InvalidInputError: See `encode` and `decode`.
        """
        check_statistic(statistic)
        generator = one_source(seed, generator, self.prior.bias.device)
        drawn = self.encode(x, observed=observed, generator=generator)
        return self.decode(drawn.zeta, drawn.h, statistic=statistic, generator=generator)

    def _open(
        self, x: object, observed: Tensor | None, *, exact: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Check a batch at the public door; returns it in the event's shape with the mask of observed entries."""
        x, observed = open_batch(
            x, observed, self.likelihood, like=self.prior.bias, missing=self.missing, exact=exact
        )
        return x.to(torch.promote_types(self.dtype, torch.float32)), observed

    def read(self, x: Tensor, observed: Tensor | None) -> Tensor:
        """What the posterior and the Gaussian layers read of a checked batch, (batch, feature)."""
        read = network_input(self.likelihood, x, observed, missing=self.missing, mask=self.mask)
        return check_tensor(
            "the encoder's output", self.encoder(read.to(self.dtype)), (len(x), self.posterior.num_features)
        )
