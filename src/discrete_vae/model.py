"""The discrete variational autoencoder, composed of its parts."""

from __future__ import annotations

from typing import SupportsFloat

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.energy import BoltzmannEnergy
from discrete_vae.checks import (
    check_binary,
    check_finite,
    check_positive_int,
    check_tensor,
    check_unit_interval,
)
from discrete_vae.config import ModelConfig, instantiate
from discrete_vae.draws import Encoding, ModelSample
from discrete_vae.errors import InvalidInputError
from discrete_vae.hierarchy.base import Hierarchy
from discrete_vae.hierarchy.no_hierarchy import NoHierarchy
from discrete_vae.likelihoods.bernoulli import BernoulliLikelihood
from discrete_vae.log_partition.exact import given_or_enumerated
from discrete_vae.nets.finite_weights import check_weights
from discrete_vae.nets.running_statistics import running_statistics
from discrete_vae.noise import draw_key, one_source
from discrete_vae.objectives.elbo import Elbo
from discrete_vae.objectives.importance import LogLikelihood, importance_weighted
from discrete_vae.objectives.kl_boltzmann import kl_to_boltzmann
from discrete_vae.posteriors.hierarchical import HierarchicalPosterior
from discrete_vae.samplers.block_gibbs import BlockGibbs
from discrete_vae.smoothing.base import Smoothing


class DiscreteVAE(nn.Module):
    """p(x, h, zeta, z) = p(z) r(zeta|z) p(h|zeta) p(x|zeta,h) with a Boltzmann machine p(z), and its posterior.

    Source: Rolfe 2017, sections continuous-variable, gradient-of-KL-divergence and continuous-hierarchy.

    Args:
        prior: p(z).
        smoothing: r(zeta|z), the same object that the posterior uses.
        posterior: q(z, zeta | x).
        likelihood: p(x | zeta, h); it reads what the hierarchy's `decoder_input` gives.
        hierarchy: p(h | zeta) and q(h | zeta, x); None is no continuous layer.

    Raises:
        InvalidInputError: If the parts do not fit each other.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> model.elbo(torch.zeros(5, 6)).value.shape
        torch.Size([5])
    """

    def __init__(
        self,
        *,
        prior: BoltzmannEnergy,
        smoothing: Smoothing,
        posterior: HierarchicalPosterior,
        likelihood: BernoulliLikelihood,
        hierarchy: Hierarchy | None = None,
    ) -> None:
        super().__init__()
        if hierarchy is None:
            hierarchy = NoHierarchy(num_latents=prior.num_units, num_features=posterior.num_features)
        if posterior.smoothing is not smoothing:
            repair = "Build the posterior with the smoothing that the model gets."
            raise InvalidInputError("smoothing", "must be the posterior's own", "another object", repair)
        _check_fits("posterior", "must cover the prior's {} units", posterior.num_units, prior.num_units)
        _check_fits("hierarchy", "must read the prior's {} units", hierarchy.num_latents, prior.num_units)
        for part, features in (
            ("hierarchy", hierarchy.num_features),
            ("likelihood", likelihood.num_features),
        ):
            _check_fits(part, "must have the posterior's {} features", features, posterior.num_features)
        rule = "must read the {} values of the hierarchy's decoder_input"
        _check_fits("likelihood", rule, likelihood.num_latents, hierarchy.decoder_size)
        self.prior = prior
        self.posterior = posterior
        self.hierarchy = hierarchy
        self.likelihood = likelihood

    @classmethod
    def from_config(cls, config: ModelConfig) -> DiscreteVAE:
        """Build a model with new parameters; networks start from torch's global generator."""
        prior = instantiate(config.prior)
        smoothing = instantiate(config.smoothing)
        hierarchy = instantiate(
            config.hierarchy, num_latents=prior.num_units, num_features=config.num_features
        )
        return cls(
            prior=prior,
            smoothing=smoothing,
            posterior=instantiate(
                config.posterior,
                num_features=config.num_features,
                num_units=prior.num_units,
                smoothing=smoothing,
            ),
            hierarchy=hierarchy,
            likelihood=instantiate(
                config.likelihood, num_latents=hierarchy.decoder_size, num_features=config.num_features
            ),
        )

    @property
    def smoothing(self) -> Smoothing:
        """r(zeta|z), which the posterior owns."""
        return self.posterior.smoothing

    @property
    def num_features(self) -> int:
        """Features of x."""
        return self.posterior.num_features

    @property
    def dtype(self) -> torch.dtype:
        """In which the networks compute: that of the likelihood's parameters; x and latents are brought to it."""
        return next(self.likelihood.parameters(), self.prior.bias).dtype

    def elbo(
        self,
        x: Tensor,
        *,
        log_partition: Tensor | SupportsFloat | None = None,
        generator: torch.Generator | None = None,
    ) -> Elbo:
        """One-sample estimates of the evidence lower bound; value and gradient are unbiased given log Z.

        Args:
            x: (batch, feature), in [0, 1]; binary, unless the expectation over a binarisation is wanted. Any
                floating-point dtype; the model computes in its own.
            log_partition: log Z of the prior, a number or a scalar tensor, whose gradient is the prior's negative
                phase. None enumerates it, where one side of the prior has at most 24 units.
            generator: Source of the noise; None means torch's global generator.

        Returns:
            The bound and its parts, (batch,), nats.

        Raises:
            InvalidInputError: If x has another shape, device or domain or is not floating-point, log_partition is
                no finite number, or is needed and missing.
        """
        x = self._features(x)
        sample = self.posterior.rsample(x, generator=generator)
        below = self.hierarchy.rsample(x, sample.zeta, generator=generator)
        reconstruction = self.likelihood.log_prob(x, below.decoder_input)
        log_z = given_or_enumerated(self.prior, log_partition)
        kl_discrete = kl_to_boltzmann(self.prior, sample.groups, log_z)
        return Elbo(reconstruction, kl_discrete.to(reconstruction.dtype), below.kl())

    @torch.no_grad()
    def log_likelihood(
        self,
        x: Tensor,
        num_samples: int,
        *,
        log_partition: Tensor | SupportsFloat | None = None,
        chunk_size: int = 100,
        generator: torch.Generator | None = None,
    ) -> LogLikelihood:
        """Estimate log p(x) by importance sampling from the posterior, with zeta sampled as in training.

        The networks use their running statistics, whatever mode the module is in.

        Source: Rolfe 2017, section results (10^4 samples).

        Args:
            x: (batch, feature), in {0,1}.
            num_samples: Importance samples an example.
            log_partition: As in `elbo`.
            chunk_size: Samples that are in memory at a time.
            generator: Source of the noise; None means torch's global generator.

        Returns:
            The estimate with its standard error, (batch,), nats.

        Raises:
            InvalidInputError: If x is not binary or has another shape, a number breaks its rule, or a weight or a
                result of the model is not finite.
        """
        x = check_binary("x", self._features(x))
        check_positive_int("num_samples", num_samples)
        check_positive_int("chunk_size", chunk_size)
        log_z = given_or_enumerated(self.prior, log_partition)
        chunks = []
        with running_statistics(self):
            for first in range(0, num_samples, chunk_size):
                count = min(chunk_size, num_samples - first)
                sample = self.posterior.rsample(x, num_samples=count, generator=generator)
                log_prior = -self.prior.energy(sample.z).double() - log_z
                below = self.hierarchy.rsample(x, sample.zeta, generator=generator)
                log_joint = self.likelihood.log_prob(x, below.decoder_input).double() + log_prior
                chunks.append(log_joint - sample.log_prob() + below.log_ratio())
        return importance_weighted(self._finite("the model's log weights", torch.cat(chunks)))

    @torch.no_grad()
    def encode(
        self, x: Tensor, *, seed: int | None = None, generator: torch.Generator | None = None
    ) -> Encoding:
        """Draw z, zeta and h from the posterior, with running statistics.

        Args:
            x: (batch, feature), in [0, 1], of any floating-point dtype.
            seed: Integer from 0 to 2^64 - 1, short for a generator with that seed.
            generator: Source of the noise. Without it and a seed torch's global generator is, so each call differs.

        Returns:
            The draw.

        Raises:
            InvalidInputError: If x has another shape, device or domain or is not floating-point, both seed and
                generator are given, or a weight or a logit of the posterior is not finite.
        """
        x = self._features(x)
        generator = one_source(seed, generator, x.device)
        check_weights("model", self)
        with running_statistics(self):
            sample = self.posterior.rsample(x, generator=generator)
            self._finite("the posterior network's logits", sample.logits)
            below = self.hierarchy.rsample(x, sample.zeta, generator=generator)
        return Encoding(sample.z, sample.zeta, sample.logits, self._finite("the posterior's h", below.h))

    @torch.no_grad()
    def reconstruct(
        self, x: Tensor, *, seed: int | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """E[x | zeta, h] for one draw of both from the posterior of x, (batch, feature); arguments as in `encode`."""
        drawn = self.encode(x, seed=seed, generator=generator)
        return self.decode(drawn.zeta, drawn.h)

    @torch.no_grad()
    def decode(
        self,
        zeta: Tensor,
        h: Tensor | None = None,
        *,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """E[x | zeta, h], with running statistics.

        Args:
            zeta: (..., unit), in the smoothing's domain; of any floating-point dtype, as h.
            h: The continuous layers, (..., layer, unit). None draws them from p(h | zeta), for each row of zeta anew:
                rows that repeat one zeta then differ in their continuous layers alone.
            seed: Seed of the noise in h, short for a generator with that seed.
            generator: Source of that noise; without it and a seed torch's global generator is.

        Returns:
            (..., feature), probabilities.

        Raises:
            InvalidInputError: If zeta or h has another shape or is not floating-point, zeta leaves its domain, both
                seed and generator are given, or a weight or a mean of the model is not finite.
        """
        zeta = self.smoothing.check_zeta(zeta, (..., self.prior.num_units)).to(self.dtype)
        generator = one_source(seed, generator, zeta.device)
        check_weights("model", self)  # a mean hides an infinite logit
        with running_statistics(self):
            if h is None:
                h = self.hierarchy.sample(zeta, generator=generator)
            else:
                shape = (*zeta.shape[:-1], self.hierarchy.num_layers, self.hierarchy.num_units)
                h = check_tensor("h", h, shape).to(self.dtype)
            return self._finite(
                "the decoder's mean", self.likelihood.mean(self.hierarchy.decoder_input(zeta, h))
            )

    @torch.no_grad()
    def sample(
        self,
        n: int | None = None,
        *,
        z: Tensor | None = None,
        zeta: Tensor | None = None,
        num_sweeps: int = 1000,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> ModelSample:
        """Draw from the generative model.

        One source of noise governs all of z, zeta and h: the same seed, or a generator in the same state, repeats the
        whole result; without either, torch's global generator is the source, so that each call draws anew.

        Args:
            n: Number of draws; may be left out where z is given.
            z: States of the prior to decode, (n, unit), from chains of your own. None starts n independent chains
                at fair coins and sweeps them; for trained priors with distinct modes that is not an exact draw.
            zeta: Smoothed states to decode, (n, unit), which belong to the given z; rows that repeat one zeta then
                differ in their continuous layers alone. None draws them from r(zeta|z).
            num_sweeps: Sweeps of these chains.
            seed: Integer from 0 to 2^64 - 1, short for a generator with that seed.
            generator: Source of all noise.

        Returns:
            Means of x with the latents behind them, in the model's dtype.

        Raises:
            InvalidInputError: If n or num_sweeps is not a positive integer, z or zeta has another shape or domain,
                zeta comes without z, both seed and generator are given, or a weight of the model is not finite.

        Examples:
            >>> from discrete_vae.config import ModelConfig, RBMConfig
            >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
            >>> draws = [model.sample(5, seed=1).mean for _ in range(2)]
            >>> torch.equal(*draws), draws[0].shape
            (True, torch.Size([5, 6]))
        """
        generator = one_source(seed, generator, self.prior.bias.device)
        check_weights("model", self)
        if z is None:
            if zeta is not None:
                raise InvalidInputError(
                    "z", "must be given with zeta", "None", "Give the states behind zeta."
                )
            chains = BlockGibbs(self.prior, check_positive_int("n", n), seed=draw_key(generator))
            z = chains.step(num_sweeps)
        rows = "sample" if n is None else check_positive_int("n", n)
        z = check_binary("z", check_tensor("z", z, (rows, self.prior.num_units))).to(self.dtype)
        if zeta is None:
            zeta = self.smoothing.sample_zeta(z, generator=generator)
        zeta = self.smoothing.check_zeta(zeta, z.shape).to(self.dtype)
        with running_statistics(self):
            h = self.hierarchy.sample(zeta, generator=generator)
        return ModelSample(self.decode(zeta, h), z, zeta, h)

    @torch.no_grad()
    def project_(self) -> None:
        """Bring every bounded parameter back inside its bounds; call it after each optimiser step."""
        for module in self.modules():
            project = getattr(module, "project_", None)
            if module is not self and project is not None:
                project()

    def _features(self, x: object) -> Tensor:
        """Check a batch of x and bring it to the dtype of the networks."""
        features = check_tensor("x", x, ("batch", self.num_features))
        device = self.prior.bias.device
        if features.device.type != device.type:
            repair = f"Move it with x.to({str(device)!r})."
            raise InvalidInputError("x", f"must be on the model's device, {device}", features.device, repair)
        return check_unit_interval("x", features).to(self.dtype)

    def _finite(self, name: str, result: Tensor) -> Tensor:
        """Return a result if it is finite; otherwise name the weight to blame, or the result."""
        if not bool(result.isfinite().all()):
            check_weights("model", self)
        repair = "Weights are finite but too large: restore an earlier state, or compute in a wider dtype."
        return check_finite(name, result, repair=repair)


def _check_fits(name: str, rule: str, got: int, wanted: int) -> None:
    """Check that a part of the model has the size that another part asks for."""
    if got != wanted:
        raise InvalidInputError(name, rule.format(wanted), got, "Build the parts for each other.")
