"""The discrete variational autoencoder, composed of its parts."""

from __future__ import annotations

import math
from typing import SupportsFloat

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.energy import BoltzmannEnergy
from discrete_vae.checks import (
    check_binary,
    check_finite,
    check_log_partition,
    check_positive_int,
    check_states,
    check_tensor,
)
from discrete_vae.config import ModelConfig, instantiate
from discrete_vae.draws import Encoding, ModelSample
from discrete_vae.errors import InvalidInputError
from discrete_vae.hierarchy.base import Hierarchy
from discrete_vae.hierarchy.no_hierarchy import NoHierarchy
from discrete_vae.likelihoods.base import Likelihood
from discrete_vae.likelihoods.domain import values_are_readable
from discrete_vae.log_partition.exact import (
    MAX_SILENTLY_ENUMERATED_UNITS,
    enumerate_log_partition,
    num_enumerated_units,
)
from discrete_vae.log_partition.surrogate import negative_phase_gradient
from discrete_vae.nets.finite_weights import check_weights
from discrete_vae.nets.mlp_decoder import MLPDecoder
from discrete_vae.nets.running_statistics import running_statistics
from discrete_vae.noise import draw_key, one_source
from discrete_vae.objectives.elbo import Elbo
from discrete_vae.objectives.importance import LogLikelihood, importance_weighted
from discrete_vae.objectives.kl_boltzmann import kl_without_log_partition
from discrete_vae.posteriors.base import Posterior
from discrete_vae.samplers.block_gibbs import BlockGibbs
from discrete_vae.smoothing.base import Smoothing


class DiscreteVAE(nn.Module):
    """p(x, h, zeta, z) = p(z) r(zeta|z) p(h|zeta) p(x|zeta,h) with a Boltzmann machine p(z), and its posterior.

    Source: Rolfe 2017, sections continuous-variable, gradient-of-KL-divergence and continuous-hierarchy.

    Args:
        prior: p(z).
        posterior: q(z, zeta | x), of the encoder's features; it owns the smoothing r(zeta|z).
        likelihood: p(x | zeta, h), of the decoder's output; it knows the event shape of x.
        hierarchy: p(h | zeta) and q(h | zeta, x); None is no continuous layer.
        encoder: Any module (batch, *input_shape) -> (batch, feature), run once per example, where input_shape is the
            likelihood's; None flattens.
        decoder: Any module (row, latent) -> (row, *parameter_shape), where parameter_shape is the likelihood's; None
            is a linear map. What a latent is the hierarchy's `decoder_input` says.
        missing: Whether entries of x may be unobserved. The encoder then reads a mask of the observed entries behind
            the values, so that the first axis of its input is twice as long.

    Attributes:
        config: What `from_config` built the model from; None for a model put together by hand.

    Raises:
        InvalidInputError: If the parts do not fit each other.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> model.elbo(torch.zeros(5, 6)).value.shape
        torch.Size([5])
    """

    config: ModelConfig | None = None

    def __init__(
        self,
        *,
        prior: BoltzmannEnergy,
        posterior: Posterior,
        likelihood: Likelihood,
        hierarchy: Hierarchy | None = None,
        encoder: nn.Module | None = None,
        decoder: nn.Module | None = None,
        missing: bool = False,
    ) -> None:
        super().__init__()
        if hierarchy is None:
            hierarchy = NoHierarchy(num_latents=prior.num_units, num_features=posterior.num_features)
        _check_fits("posterior", "must cover the prior's {} units", posterior.num_units, prior.num_units)
        _check_fits("hierarchy", "must read the prior's {} units", hierarchy.num_latents, prior.num_units)
        rule = "must read the posterior's {} features"
        _check_fits("hierarchy", rule, hierarchy.num_features, posterior.num_features)
        self.prior = prior
        self.encoder = nn.Flatten() if encoder is None else encoder
        self.posterior = posterior
        self.hierarchy = hierarchy
        self.decoder = (
            MLPDecoder(hierarchy.decoder_size, likelihood.parameter_shape) if decoder is None else decoder
        )
        self.likelihood = likelihood
        self.missing = missing
        self.pair_order = prior.pair_order(posterior.group_of_unit)
        # constants are made on the CPU, where their values can be looked at
        posterior.to(prior.bias.device)
        self.pair_order.to(prior.bias.device)

    @classmethod
    def from_config(
        cls, config: ModelConfig, *, encoder: nn.Module | None = None, decoder: nn.Module | None = None
    ) -> DiscreteVAE:
        """Build a model with new parameters; networks start from torch's global generator.

        Args:
            config: The model.
            encoder: A module of your own in place of the config's, (batch, *input_shape) -> (batch, feature).
            decoder: A module of your own in place of the config's, (row, latent) -> (row, *parameter_shape).

        Raises:
            InvalidInputError: If the parts do not fit each other.
        """
        prior = instantiate(config.prior)
        smoothing = instantiate(config.smoothing)
        likelihood = instantiate(config.likelihood, event_shape=config.shape)
        input_shape = likelihood.input_shape
        if config.missing:
            input_shape = (2 * input_shape[0], *input_shape[1:])
        read: nn.Module = instantiate(config.encoder, input_shape=input_shape) if encoder is None else encoder
        num_features = _num_features(read, input_shape)
        hierarchy = instantiate(config.hierarchy, num_latents=prior.num_units, num_features=num_features)
        posterior = instantiate(
            config.posterior, num_features=num_features, num_units=prior.num_units, smoothing=smoothing
        )
        if decoder is None:
            decoder = instantiate(
                config.decoder, num_latents=hierarchy.decoder_size, parameter_shape=likelihood.parameter_shape
            )
        model = cls(
            prior=prior,
            posterior=posterior,
            likelihood=likelihood,
            hierarchy=hierarchy,
            encoder=read,
            decoder=decoder,
            missing=config.missing,
        )
        model.config = config
        return model

    @property
    def smoothing(self) -> Smoothing:
        """r(zeta|z), which the posterior owns."""
        return self.posterior.smoothing

    @property
    def dtype(self) -> torch.dtype:
        """In which the networks compute; x and latents are brought to it."""
        return next(self.posterior.parameters()).dtype

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return self.likelihood.event_shape

    @torch.no_grad()
    def initialize_(self, x: Tensor, observed: Tensor | None = None) -> None:
        """Start from the statistics of the training data: the likelihood's own, and the decoder's output.

        A decoder with a method ``initialize_output_(start)`` gets the parameters to start at, (*parameter_shape);
        others keep their start.

        Args:
            x: (example, *event), the training data.
            observed: As in `elbo`.

        Raises:
            InvalidInputError: If x breaks the likelihood's rule.
        """
        start = self.likelihood.initialize_(*self._open(x, observed))
        initialize_output = getattr(self.decoder, "initialize_output_", None)
        if initialize_output is not None:
            initialize_output(start)

    def forward(
        self,
        x: Tensor,
        *,
        negative_phase: Tensor | None = None,
        log_partition: Tensor | SupportsFloat | None = None,
        observed: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Elbo:
        """`elbo`, so that the module can be called."""
        return self.elbo(
            x,
            negative_phase=negative_phase,
            log_partition=log_partition,
            observed=observed,
            generator=generator,
        )

    def elbo(
        self,
        x: Tensor,
        *,
        negative_phase: Tensor | None = None,
        log_partition: Tensor | SupportsFloat | None = None,
        observed: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Elbo:
        """One-sample estimates of the evidence lower bound; value and gradient are unbiased given log Z.

        Args:
            x: (batch, *event) or (batch, feature), in the likelihood's domain; NaN is an unobserved entry where the
                model allows them.
            negative_phase: (chain, unit), samples of the prior from any sampler: they give log Z its gradient.
            log_partition: log Z of the prior, nats: it gives the value; a tensor that carries a gradient gives that
                too. Where neither is given it is enumerated if the prior has at most 12 units outside its largest
                block; otherwise the value is NaN, and the loss asks for the negative phase.
            observed: (batch, *event) bool, False where an entry is unobserved, whatever x holds there.
            generator: Source of the noise; None means torch's global generator.

        Returns:
            The bound and its parts, (batch,), nats, and the loss.

        Raises:
            InvalidInputError: If x has another shape, dtype or domain, or another argument breaks its rule.
        """
        x, observed = self._open(x, observed)
        if negative_phase is not None:
            check_states("negative_phase", negative_phase, ("chain", self.prior.num_units))
        features = self._features(x, observed)
        sample = self.posterior.rsample(features, generator=generator)
        below = self.hierarchy.rsample(features, sample.zeta, generator=generator)
        reconstruction = self.likelihood.log_prob(self._decode(below.decoder_input), x, observed)
        relative = kl_without_log_partition(self.prior, sample.logits, sample.bits, self.pair_order)
        gradient, value = self._log_partition(negative_phase, log_partition)
        wants_gradient = torch.is_grad_enabled() and any(p.requires_grad for p in self.prior.parameters())
        return Elbo(
            reconstruction,
            (relative if gradient is None else relative + gradient).to(reconstruction.dtype),
            below.kl(),
            value,
            gradient is not None or not wants_gradient,
        )

    @torch.no_grad()
    def log_likelihood(
        self,
        x: Tensor,
        num_samples: int,
        *,
        log_partition: Tensor | SupportsFloat | None = None,
        observed: Tensor | None = None,
        chunk_size: int = 100,
        generator: torch.Generator | None = None,
    ) -> LogLikelihood:
        """Estimate log p(x) by importance sampling from the posterior, with zeta sampled as in training.

        The networks use their running statistics, whatever mode the module is in. Of an example with unobserved
        entries it is the probability of those observed.

        Source: Rolfe 2017, section results (10^4 samples).

        Args:
            x: (batch, *event) or (batch, feature), in the likelihood's domain.
            num_samples: Importance samples per example.
            log_partition: log Z of the prior, nats; None enumerates it if the prior has at most 12 units outside its
                largest block.
            observed: As in `elbo`.
            chunk_size: Samples that are in memory at a time.
            generator: Source of the noise; None means torch's global generator.

        Returns:
            The estimate with its standard error, (batch,), nats.

        Raises:
            InvalidInputError: If x is no draw of the likelihood or has another shape, or a number breaks its rule.
        """
        x, observed = self._open(x, observed, exact=True)
        check_positive_int("num_samples", num_samples)
        check_positive_int("chunk_size", chunk_size)
        _, log_z = self._log_partition(None, log_partition)
        if log_z is None:
            rule = (
                f"must be given where no side of the prior has at most {MAX_SILENTLY_ENUMERATED_UNITS} units"
            )
            repair = "Estimate it once: estimate_log_partition(model.prior)."
            raise InvalidInputError("log_partition", rule, "None", repair)
        chunks = []
        with running_statistics(self):
            features = self._features(x, observed)
            for first in range(0, num_samples, chunk_size):
                count = min(chunk_size, num_samples - first)
                sample = self.posterior.rsample(features, num_samples=count, generator=generator)
                log_prior = -self.prior.compute_energy(sample.z).double() - log_z
                below = self.hierarchy.rsample(features, sample.zeta, generator=generator)
                parameters = self._decode(below.decoder_input)
                log_joint = self.likelihood.log_prob(parameters, x, observed).double() + log_prior
                chunks.append(log_joint - sample.log_prob() + below.log_ratio())
        return importance_weighted(self._finite("the model's log weights", torch.cat(chunks)))

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
        with running_statistics(self):
            features = self._features(x, observed)
            sample = self.posterior.rsample(features, generator=generator)
            self._finite("the posterior network's logits", sample.logits)
            below = self.hierarchy.rsample(features, sample.zeta, generator=generator)
        return Encoding(sample.z, sample.zeta, sample.logits, self._finite("the posterior's h", below.h))

    @torch.no_grad()
    def reconstruct(
        self,
        x: Tensor,
        *,
        observed: Tensor | None = None,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """E[x | zeta, h] for one draw of both from the posterior of x, (batch, *event); arguments as in `encode`."""
        drawn = self.encode(x, observed=observed, seed=seed, generator=generator)
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
            (..., *event).

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
            parameters = self._decode(self.hierarchy.decoder_input(zeta, h))
            return self._finite("the decoder's mean", self.likelihood.mean(parameters))

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
            Means of x with the latents behind them, in the model's dtype; `Likelihood.sample` of the decoder's output
            draws x itself.

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
        """Bring every bounded parameter back inside its bounds; call it after each step of the optimizer.

        Bounds hold without it too, see `discrete_vae.numerics.bounded`; parameters then return to them later.
        """
        for module in self.modules():
            project = getattr(module, "project_", None)
            if module is not self and project is not None:
                project()

    def _open(
        self, x: object, observed: Tensor | None, *, exact: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Check a batch at the public door; returns it in the event's shape with the mask of observed entries."""
        shape = self.event_shape
        if isinstance(x, Tensor) and x.dim() == 2 and x.shape[1] == math.prod(shape):
            x = x.reshape(-1, *shape)
            observed = observed.reshape(x.shape) if observed is not None and observed.dim() == 2 else observed
        batch = check_tensor("x", x, ("batch", *shape))
        device = self.prior.bias.device
        if batch.device.type != device.type:
            repair = f"Move it with x.to({str(device)!r})."
            raise InvalidInputError("x", f"must be on the model's device, {device}", batch.device, repair)
        self.likelihood.check(batch, observed, exact=exact)
        if not self.missing and (
            observed is not None or (values_are_readable(batch) and bool(batch.isnan().any()))
        ):
            repair = "Build the model with missing=True: its encoder then reads which entries are observed."
            raise InvalidInputError("x", "must have no unobserved entries", "some", repair)
        return batch.to(self.dtype), self.likelihood.observed_mask(batch, observed, missing=self.missing)

    def _features(self, x: Tensor, observed: Tensor | None) -> Tensor:
        """What the posterior and the Gaussian layers read of x."""
        read = self.likelihood.network_input(x, observed)
        if self.missing:
            mask = torch.ones_like(x) if observed is None else observed.to(x.dtype)
            read = torch.cat([read, mask.expand_as(read)], dim=1)
        return self.encoder(read)

    def _decode(self, latents: Tensor) -> Tensor:
        """What the decoder makes of latents with any leading axes, (..., *parameter_shape)."""
        rows = latents.reshape(-1, latents.shape[-1])
        return self.decoder(rows).unflatten(0, latents.shape[:-1])

    def _log_partition(
        self, negative_phase: Tensor | None, log_partition: Tensor | SupportsFloat | None
    ) -> tuple[Tensor | None, Tensor | float | None]:
        """A scalar of value 0 with the gradient of log Z, and its value; None what is not known."""
        few = num_enumerated_units(self.prior) <= MAX_SILENTLY_ENUMERATED_UNITS
        if negative_phase is None and log_partition is None and few:
            log_partition = enumerate_log_partition(self.prior)
        value = None if log_partition is None else check_log_partition(log_partition)
        gradient = None if negative_phase is None else negative_phase_gradient(self.prior, negative_phase)
        if isinstance(value, Tensor) and value.requires_grad:
            if gradient is not None:
                repair = "Give the negative phase, or a log Z that carries a gradient, not both."
                raise InvalidInputError(
                    "log_partition", "must carry no gradient here", "one that does", repair
                )
            value, gradient = value.detach(), value - value.detach()
        return gradient, value

    def _finite(self, name: str, result: Tensor) -> Tensor:
        """Return a result if it is finite; otherwise name the weight to blame, or the result."""
        if not bool(result.isfinite().all()):
            check_weights("model", self)
        repair = "Weights are finite but too large: restore an earlier state, or compute in a wider dtype."
        return check_finite(name, result, repair=repair)


def _num_features(encoder: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Features that an encoder makes: its attribute num_features, or what it gives for one example."""
    known = getattr(encoder, "num_features", None)
    if isinstance(known, int):
        return known
    weight = next(encoder.parameters(), torch.zeros(()))
    with torch.no_grad(), running_statistics(encoder):
        return encoder(torch.zeros(1, *input_shape, dtype=weight.dtype, device=weight.device)).shape[-1]


def _check_fits(name: str, rule: str, got: int, wanted: int) -> None:
    """Check that a part of the model has the size that another part asks for."""
    if got != wanted:
        raise InvalidInputError(name, rule.format(wanted), got, "Build the parts for each other.")
