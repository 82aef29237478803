"""The discrete variational autoencoder: generative model, posterior, bounds, importance sampling, saved models."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, SupportsFloat, TypeAlias, get_args

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.base import BoltzmannMachine
from discrete_vae.checks import (
    check_binary,
    check_examples,
    check_finite,
    check_positive_int,
    check_tensor,
    extremes,
    values_are_known,
    values_are_readable,
)
from discrete_vae.config import (
    ComponentConfig,
    GaussianHierarchyConfig,
    GraphBoltzmannConfig,
    ModelConfig,
    SharpLimitConfig,
    instantiate,
)
from discrete_vae.config.model import Mask
from discrete_vae.errors import InvalidInputError, naming
from discrete_vae.hierarchy.gaussian import Hierarchy, NoHierarchy
from discrete_vae.kernels.importance import Draws, compiled_draws, draw, joined
from discrete_vae.likelihoods.base import Likelihood
from discrete_vae.log_partition.bridge import gradient_and_value
from discrete_vae.log_partition.exact import MAX_SILENTLY_ENUMERATED_UNITS
from discrete_vae.nets.evaluation_mode import eval_mode
from discrete_vae.nets.folding import folded_networks
from discrete_vae.nets.mlp import MLPDecoder
from discrete_vae.nets.weights import MixedPrecisionLayer, check_finite_weights, load_weights
from discrete_vae.objectives.elbo import Elbo, check_kl_weights, loss_gradients
from discrete_vae.objectives.gradients import GradientEstimate, GradientEstimator
from discrete_vae.objectives.importance import (
    Batch,
    LogLikelihood,
    bound_parts,
    importance_weighted,
    weighs_binary_latents,
)
from discrete_vae.posterior import HierarchicalPosterior, Posterior, color_groups
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import DrawsFrom, Encoding, ModelSample, draw_key, generator_of, resolve_generator
from discrete_vae.runs.pretrained import read_model, write_model
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.samplers.gibbs import BlockGibbs
from discrete_vae.smoothing.base import Smoothing
from discrete_vae.system import allocating, check_device, check_memory, is_allocation_failure

# What stands between x and the features that the posterior reads.


def open_batch(
    x: object,
    observed: Tensor | None,
    likelihood: Likelihood,
    *,
    like: Tensor,
    missing: bool,
    exact: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Check a batch at the public door.

    Args:
        x: (batch, *event) or (batch, feature).
        observed: Bool, of x's shape; None: NaN says what is unobserved.
        likelihood: Whose x it is.
        like: A tensor on the model's device.
        missing: Whether entries may be unobserved.
        exact: As in `Likelihood.check`.

    Returns:
        x in the event's shape, and the mask of observed entries as `Likelihood.observed_mask` gives it.

    Raises:
        InvalidInputError: If the likelihood refuses x, or observed is given or NaN occur where nothing may be missing.
    """
    shape = likelihood.event_shape
    rows = isinstance(x, Tensor) and x.layout == torch.strided and x.dim() == 2  # others are refused below
    if isinstance(x, Tensor) and rows and x.shape[1] == math.prod(shape):
        flat = isinstance(observed, Tensor) and observed.layout == torch.strided and observed.shape == x.shape
        x = x.reshape(-1, *shape)
        observed = observed.reshape(x.shape) if flat and observed is not None else observed
    batch = check_tensor("x", x, ("batch", *shape))
    if batch.device.type != like.device.type:
        repair = f"Move it with x.to({str(like.device)!r})."
        raise InvalidInputError("x", f"must be on the model's device, {like.device}", batch.device, repair)
    likelihood.check(batch, observed, exact=exact)
    if not missing and (observed is not None or _has_nan(batch)):
        repair = "Build the model with missing=True: its encoder then reads which entries are observed."
        raise InvalidInputError("x", "must have no unobserved entries", "some", repair)
    return batch, likelihood.observed_mask(batch, observed, missing=missing)


def _has_nan(x: Tensor) -> bool:
    """Whether an entry is NaN, as far as values can be looked at."""
    ends = extremes(x)
    return ends is not None and ends[0] != ends[0]


def input_shape(likelihood: Likelihood, *, missing: bool) -> tuple[int, ...]:
    """Shape of what the encoder reads of one example: with missing entries a mask behind the values."""
    first, *rest = likelihood.input_shape
    return (first + likelihood.event_shape[0] if missing else first, *rest)


def network_input(
    likelihood: Likelihood, x: Tensor, observed: Tensor | None, *, missing: bool, mask: Mask = "gaps"
) -> Tensor:
    """What the encoder reads of an opened batch, (batch, *input_shape)."""
    read = likelihood.network_input(x, observed)
    if not missing:
        return read
    whole = torch.zeros_like(x) if mask == "gaps" else torch.ones_like(x)
    if observed is None:
        return torch.cat([read, whole], dim=1)
    return torch.cat([read, (~observed if mask == "gaps" else observed).to(x.dtype)], dim=1)


def count_features(encoder: nn.Module, shape: tuple[int, ...]) -> int:
    """Features that an encoder makes: its attribute num_features, or what it gives for one example.

    Args:
        encoder: The module.
        shape: Shape of what it reads of one example.
    """
    known = getattr(encoder, "num_features", None)
    if isinstance(known, int):
        return known
    weight = next(encoder.parameters(), torch.zeros(()))
    with torch.no_grad(), eval_mode(encoder) as still:
        return still(torch.zeros(1, *shape, dtype=weight.dtype, device=weight.device)).shape[-1]


# The generative half of the model: what draws and decodes, whatever its posterior is.


Statistic: TypeAlias = Literal["mean", "mode", "sample"]
"""What is read off p(x | zeta, h)."""


def check_statistic(statistic: object) -> None:
    """Check the name of a statistic.

    Raises:
        InvalidInputError: If it is none.
    """
    if not isinstance(statistic, str) or statistic not in get_args(Statistic):
        repair = "Codes have a mode, and no useful mean."
        raise InvalidInputError(
            "statistic", "must be 'mean', 'mode' or 'sample'", f"{statistic!r}"[:80], repair
        )


class GenerativeModel(nn.Module, ABC):
    """p(x, h, zeta, z) = p(z) r(zeta|z) p(h|zeta) p(x|zeta,h) of parts that a subclass sets.

    Attributes:
        prior: p(z).
        hierarchy: p(h | zeta), and what the decoder reads.
        decoder: (row, latent) -> (row, *parameter_shape).
        likelihood: p(x | what the decoder gives).
    """

    prior: BoltzmannMachine
    hierarchy: Hierarchy
    decoder: nn.Module
    likelihood: Likelihood

    @property
    @abstractmethod
    def smoothing(self) -> Smoothing:
        """r(zeta|z)."""

    @property
    def dtype(self) -> torch.dtype:
        """In which the networks compute; x and latents are brought to it."""
        return next(self.decoder.parameters(), self.prior.bias).dtype

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return self.likelihood.event_shape

    @torch.no_grad()
    def decode(
        self,
        zeta: Tensor,
        h: Tensor | None = None,
        *,
        statistic: Statistic = "mean",
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """E[x | zeta, h], or what else of p(x | zeta, h) is asked for, with running statistics.

        Args:
            zeta: (..., row, unit), in the smoothing's domain; of any floating-point dtype, as h.
            h: The continuous layers, (..., layer, unit). None draws them from p(h | zeta), for each row of zeta anew:
                rows that repeat one zeta then differ in their continuous layers alone.
            statistic: "mean" is E[x | zeta, h], which for bits are probabilities, and which codes, being names, do not
                have in any useful sense; "mode" is the most probable x, feature by feature; "sample" is a draw of x.
                The latter two are values that x can have.
            seed: Seed of the noise in h and x, short for a generator with that seed.
            generator: Source of that noise; without it and a seed torch's global generator is.

        Returns:
            (..., *event).

        Raises:
            InvalidInputError: If zeta or h has another shape or is not floating-point, zeta leaves its domain, both
                seed and generator are given, statistic is none of the three, or a weight or a mean of the model is not
                finite.
        """
        check_statistic(statistic)
        zeta = self.smoothing.check_zeta(zeta, (..., "row", self.prior.num_units)).to(self.dtype)
        generator = resolve_generator(seed, generator, zeta.device)
        if h is not None:
            shape = (*zeta.shape[:-1], self.hierarchy.num_layers, self.hierarchy.num_units)
            h = check_tensor("h", h, shape).to(self.dtype)
        return self._read_out(zeta, h, generator, statistic)[0]

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
            >>> from discrete_vae import DiscreteVAE
            >>> from discrete_vae.config import ModelConfig, RBMConfig
            >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
            >>> draws = [model.sample(5, seed=1).mean for _ in range(2)]
            >>> torch.equal(*draws), draws[0].shape
            (True, torch.Size([5, 6]))
        """
        generator = resolve_generator(seed, generator, self.prior.bias.device)
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
        else:
            zeta = self.smoothing.check_zeta(zeta, z.shape).to(self.dtype)
        mean, h = self._read_out(zeta, None, generator)
        return ModelSample(mean, z, zeta, h)

    @torch.no_grad()
    def project_(self) -> None:
        """Bring every bounded parameter back inside its bounds; call it after each step of the optimizer.

        Bounds hold without it too, see `discrete_vae.numerics.bounded`; parameters then return to them later.
        """
        for module in self.modules():
            project = getattr(module, "project_", None)
            if module is not self and project is not None:
                project()

    def _read_out(
        self,
        zeta: Tensor,
        h: Tensor | None,
        generator: torch.Generator | None,
        statistic: Statistic = "mean",
    ) -> tuple[Tensor, Tensor]:
        """A statistic of p(x | zeta, h), (..., *event), and h, drawn if there is none."""
        check_finite_weights("model", self)  # a mean hides an infinite logit
        with eval_mode(self) as model:
            likelihood = model.likelihood
            if h is None:
                h = model.hierarchy.sample(zeta, generator=generator)
            parameters = model.parameters_of(model.hierarchy.decoder_input(zeta, h))
            if statistic == "mean":
                x = likelihood.mean(parameters)
            else:
                self._finite("the decoder's output", parameters)  # a bit or a code hides what is not finite
                x = (
                    likelihood.mode(parameters)
                    if statistic == "mode"
                    else likelihood.sample(parameters, generator=generator)
                )
        return self._finite(f"the decoder's {statistic}", x.to(self.dtype)), h

    def parameters_of(self, latents: Tensor) -> Tensor:
        """What the decoder makes of latents with any leading axes, (..., *parameter_shape)."""
        rows = latents.reshape(-1, latents.shape[-1])
        return self.decoder(rows).unflatten(0, latents.shape[:-1])

    def _finite(self, name: str, result: Tensor) -> Tensor:
        """Return a result if it is finite; otherwise name the weight to blame, or the result."""
        if values_are_known(result) and not bool(result.isfinite().all()):
            check_finite_weights("model", self)
        repair = "Weights are finite but too large: restore an earlier state, or compute in a wider dtype."
        return check_finite(name, result, repair=repair)


# The recognition half of the model: what reads x.


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
        generator = resolve_generator(seed, generator, x.device)
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
        generator = resolve_generator(seed, generator, self.prior.bias.device)
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


# log p(x) of a model by importance sampling from its posterior.


class ImportanceSampledModel(RecognitionModel):
    """A generative model with its posterior, whose log p(x) can be estimated."""

    @torch.no_grad()
    def log_likelihood(
        self,
        x: Tensor,
        num_samples: int,
        *,
        log_partition: Tensor | SupportsFloat | None = None,
        observed: Tensor | None = None,
        chunk_size: int = 100,
        keys: Sequence[int] | None = None,
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
            keys: One per example, from `discrete_vae.rng.key_to_seed`: its noise then depends on its key alone.
            generator: Source of the noise where there are no keys; None means torch's global generator.

        Returns:
            The estimate with its standard error, (batch,), nats.

        Raises:
            InvalidInputError: If x is no draw of the likelihood or has another shape, or a number breaks its rule.
        """
        check_positive_int("num_samples", num_samples)
        check_positive_int("chunk_size", chunk_size)
        if keys is not None and (len(keys) != len(x) or generator is not None):
            received = f"{len(keys)} keys{' and a generator' * (generator is not None)}"
            rule = f"must be one for each of the {len(x)} examples, without a generator"
            raise InvalidInputError("keys", rule, received, "Give one per row of x, or leave them out.")
        with self.weigher(log_partition) as weigher:
            weights = weigher.log_weights(
                x, num_samples, chunk_size, observed=observed, keys=keys, generator=generator
            )
        return importance_weighted(weights)

    @contextmanager
    def weigher(self, log_partition: Tensor | SupportsFloat | None) -> Iterator[Weigher]:
        """What computes importance weights, for many batches; the model must not change within the block.

        Args:
            log_partition: As in `log_likelihood`.

        Raises:
            InvalidInputError: If log Z is neither given nor cheap, or a weight of the model is not finite.
        """
        _, log_z = gradient_and_value(self.prior, None, log_partition)
        if log_z is None:
            rule = (
                f"must be given where no side of the prior has at most {MAX_SILENTLY_ENUMERATED_UNITS} units"
            )
            repair = "Estimate it once: estimate_log_partition(model.prior)."
            raise InvalidInputError("log_partition", rule, "None", repair)
        # folding sets attributes of the networks, which other threads use
        with torch.no_grad(), eval_mode(self, copied=True) as model, folded_networks(model):
            yield Weigher(model, torch.as_tensor(log_z))


@dataclass(frozen=True, eq=False, repr=False)
class WeightedDraws(ShowsShapes):
    """Draws of the latents, by what the decoder makes of them.

    Attributes:
        log_weights: log p(x, z, h | zeta) - log q(z, h | zeta, .), (sample, example), float64, nats.
        parameters: What the decoder makes of each draw, (sample, example, *parameter_shape).
    """

    log_weights: Tensor
    parameters: Tensor


class Weigher:
    """Importance weights of a model in evaluation mode with folded networks.

    Where the model's parts and the processor allow it the latents are drawn by compiled passes, see
    `discrete_vae.kernels.importance`; elsewhere by the modules, example after example.

    Args:
        model: The model.
        log_partition: log Z of its prior.
    """

    def __init__(self, model: ImportanceSampledModel, log_partition: Tensor) -> None:
        self._model, self._log_partition = model, log_partition
        self._compiled = compiled_draws(model.posterior, model.hierarchy, model.decoder)

    @property
    def takes_batches(self) -> bool:
        """Whether several examples at a time are faster than one after the other."""
        return self._compiled is not None

    def log_weights(
        self,
        x: Tensor,
        num_samples: int,
        chunk_size: int,
        *,
        observed: Tensor | None = None,
        keys: Sequence[int] | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """log p(x, z, h | zeta) - log q(z, h | zeta, x) of draws from the posterior.

        Args:
            x: (example, *event) or (example, feature), in the likelihood's domain.
            num_samples: Draws per example.
            chunk_size: Draws of an example that are in memory at a time.
            observed: As in `DiscreteVAE.elbo`.
            keys: One per example, from `discrete_vae.rng.key_to_seed`: its noise then depends on its key alone.
            generator: Source of the noise where there are no keys; None means torch's global generator.

        Returns:
            (sample, example), float64, nats.

        Raises:
            InvalidInputError: If x is no draw of the likelihood or has another shape, or a weight is not finite.
        """
        model = self._model
        x, observed = model._open(check_examples("x", x), observed, exact=True)
        features = model.read(x, observed)
        chunks = self.draws(features, x, observed, num_samples, chunk_size, keys=keys, generator=generator)
        return torch.cat([chunk.log_weights for chunk in chunks])

    def draws(
        self,
        features: Tensor,
        x: Tensor,
        observed: Tensor | None,
        num_samples: int,
        chunk_size: int,
        *,
        keys: Sequence[int] | None = None,
        generator: torch.Generator | None = None,
    ) -> Iterator[WeightedDraws]:
        """Draws from q(. | features), weighted for p(. | x); what the posterior reads need not be of x itself.

        Args:
            features: What the posterior reads, (example, feature), from `RecognitionModel.read`.
            x: (example, *event), checked; what an unobserved entry holds does not matter.
            observed: As `Likelihood.observed_mask` gives it.
            num_samples: As in `log_weights`.
            chunk_size: As in `log_weights`.
            keys: As in `log_weights`.
            generator: As in `log_weights`.

        Yields:
            The draws, at most chunk_size per example.

        Raises:
            InvalidInputError: If a weight is not finite.
        """
        model = self._model
        if self._compiled is not None:
            keys = [draw_key(generator) for _ in range(len(x))] if keys is None else keys
            for first, count in _chunks(num_samples, chunk_size):
                yield self._weighted(x, observed, self._compiled(features, keys, first, count))
            return
        sources = None if keys is None else [generator_of(key, device=x.device) for key in keys]
        for _, count in _chunks(num_samples, chunk_size):
            if sources is None:
                drawn = draw(model.posterior, model.hierarchy, features, count, generator=generator)
            else:
                drawn = joined(
                    draw(model.posterior, model.hierarchy, features[row : row + 1], count, generator=own)
                    for row, own in enumerate(sources)
                )
            yield self._weighted(x, observed, drawn)

    def _weighted(self, x: Tensor, observed: Tensor | None, drawn: Draws) -> WeightedDraws:
        model = self._model
        log_prior = -model.prior.compute_energy(drawn.z).double() - self._log_partition
        parameters = model.parameters_of(drawn.decoder_input)
        log_joint = model.likelihood.log_prob(parameters, x, observed).double() + log_prior
        log_weights = model._finite("the model's log weights", log_joint - drawn.log_ratio)
        return WeightedDraws(log_weights, parameters)


def _chunks(num_samples: int, chunk_size: int) -> Iterator[tuple[int, int]]:
    """First number and count of each."""
    for first in range(0, num_samples, chunk_size):
        yield first, min(chunk_size, num_samples - first)


# Models that go into a folder of their own and come out of it, or out of a run.


_PARTS = (
    "prior",
    "smoothing",
    "encoder",
    "posterior",
    "decoder",
    "likelihood",
)  # a hierarchy's config names a function


class PretrainedModel(ImportanceSampledModel):
    """A model that a config describes, but for an encoder and a decoder of the user's own.

    Attributes:
        config: What `from_config` built the model from; None for a model put together by hand.
    """

    config: ModelConfig | None = None
    _own: tuple[str, ...] = ()  # parts that the caller of from_config gave

    @classmethod
    @abstractmethod
    def from_config(
        cls, config: ModelConfig, *, encoder: nn.Module | None = None, decoder: nn.Module | None = None
    ) -> Self:
        """Build a model with new parameters."""

    def discretized(self) -> Self:
        """The model in the limit of infinitely sharp smoothing: z itself goes into whatever reads zeta.

        The networks read bits where they were trained on smoothed values. It is a model of its own, which samples,
        encodes, is evaluated, saved and loaded like any other; it has no use in training, since no gradient passes
        through zeta. Its weights and buffers are those of this model, not copies: a change of either is a change of
        both. All else of this model stays as it is.

        Source: Rolfe 2017, footnote in section spike-and-exponential (a trained model may be used with beta ->
        infinity).

        Returns:
            The limit, in the mode of this model.

        Raises:
            InvalidInputError: If the smoothing has no parameter that takes zeta to z.

        Examples:
            >>> from discrete_vae import DiscreteVAE
            >>> from discrete_vae.config import ModelConfig, RBMConfig
            >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
            >>> draw = model.discretized().sample(5, seed=1)
            >>> torch.equal(draw.zeta, draw.z), model.smoothing
            (True, SpikeExponential(beta=3, trainable=True))
        """
        limit = self.smoothing.sharp_limit()
        if limit is None:
            repair = "Those with a beta or a b have one, see docs/model.md."
            rule = "must be a transformation with a limit in which zeta is z"
            raise InvalidInputError("model.smoothing", rule, f"a {type(self.smoothing).__name__}", repair)
        limit.train(self.smoothing.training)
        shared: list[object] = [*self.parameters(), *self.buffers()]
        shared += [part.mixed_precision for part in self.modules() if isinstance(part, MixedPrecisionLayer)]
        found = deepcopy(self, {id(part): part for part in shared} | {id(self.smoothing): limit})
        if self.config is not None:
            found.config = self.config.model_copy(update={"smoothing": SharpLimitConfig()})
        return found

    def save_pretrained(self, path: str | Path) -> Path:
        """Write the model into a folder of its own: ``model.safetensors`` and ``config.json``.

        Whole or not at all; a saved model that is there gives way. An encoder or decoder of your own is saved by its
        weights alone.

        Args:
            path: The folder, new or empty or that of a saved model; ``~`` is the home directory.

        Returns:
            The folder.

        Raises:
            InvalidInputError: If the model was not built by `from_config`, a part has been exchanged since, a weight
                is not finite, or the folder holds anything else.
            OSError: If the disk is full or refuses.

        Examples:
            >>> import tempfile
            >>> from discrete_vae import DiscreteVAE
            >>> from discrete_vae.config import ModelConfig, RBMConfig
            >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     loaded = DiscreteVAE.from_pretrained(model.save_pretrained(f"{folder}/model"))
            >>> loaded.config == model.config
            True
        """
        if self.config is None:
            repair = "Build it by DiscreteVAE.from_config, or keep its state_dict."
            raise InvalidInputError("model.config", "must be known to save the model", "None", repair)
        self._check_parts(self.config)
        check_finite_weights("model", self)
        return write_model(path, self.config, self.state_dict(), dtype=self.dtype, own=self._own)

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path | RunDirectory,
        *,
        encoder: nn.Module | None = None,
        decoder: nn.Module | None = None,
        device: torch.device | str = "cpu",
        revision: str | None = None,
    ) -> Self:
        """Load what `save_pretrained` wrote, or the best checkpoint of a run; nothing is unpickled.

        Args:
            path: The folder of a saved model, or that of a run, whose data need not be there any more. A name
                OWNER/NAME, where there is no folder OWNER here, is that of a model of the Hugging Face hub, see
                `discrete_vae.interop.hub`.
            encoder: The module of your own that the model was saved with; its weights are overwritten.
            decoder: The same.
            device: Where the model is wanted.
            revision: Branch, tag or commit of a model of the hub; None is its main branch.

        Returns:
            The model in evaluation mode.

        Raises:
            InvalidInputError: If the device is not there, the folder is missing or damaged, a weight has another shape
                or type or is not finite, or encoder or decoder is missing or not wanted; if a model of the hub cannot
                be fetched, or huggingface_hub is not installed.
        """
        device = check_device(device)
        saved = read_model(path, revision=revision)
        saved.check_parts(encoder=encoder, decoder=decoder)
        # new weights are drawn, then overwritten
        with DrawsFrom(torch.Generator("cpu")), torch.device("cpu"), naming(saved.source):
            model = cls.from_config(saved.config, encoder=encoder, decoder=decoder).to(saved.dtype)
            load_weights(model, saved.tensors)
        return model.to(device).eval()

    def _check_parts(self, config: ModelConfig) -> None:
        """Check that the parts are still those of the config, from which they will be built again."""
        for name in _PARTS:
            wanted, part = getattr(config, name).target.rpartition(":")[2], type(getattr(self, name)).__name__
            if name not in self._own and part != wanted:
                repair = (
                    "Give an encoder or a decoder of your own to from_config, or keep the model's state_dict."
                )
                raise InvalidInputError(
                    f"model.{name}", f"must be the config's {wanted}", f"a {part}", repair
                )


# The discrete variational autoencoder, composed of its parts.


# Least bytes: objects of Python, and an edge of a graph while it is colored.
_PER_UNIT, _PER_NETWORK, _PER_EDGE = 100, 10_000, 100
_UNCOUNTABLE = 2**63
_LARGE = re.compile(r"(?<![\d.])\d{5}")  # a number from which a model is counted before it is made
_NARROWER = "Make the networks narrower (the settings called hidden), or use fewer units."


class DiscreteVAE(PretrainedModel):
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
        missing: Whether entries of x may be unobserved. The encoder then reads a mask behind the values: the first
            axes of both, one after the other.
        mask: "gaps" for a mask that is 1 where an entry is unobserved, else 0; "observed" for the opposite, which
            models read whose config or state is from a version without this argument.

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

    def __init__(
        self,
        *,
        prior: BoltzmannMachine,
        posterior: Posterior,
        likelihood: Likelihood,
        hierarchy: Hierarchy | None = None,
        encoder: nn.Module | None = None,
        decoder: nn.Module | None = None,
        missing: bool = False,
        mask: Mask = "gaps",
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
        if mask not in get_args(Mask):
            repair = "Leave it out, but for weights from a model that read 1 for what is observed."
            raise InvalidInputError("mask", "must be 'gaps' or 'observed'", f"{mask!r}"[:80], repair)
        self.mask = mask
        self.pair_order = prior.pair_order(posterior.group_of_unit)
        # constants are made on the CPU, where their values can be looked at
        posterior.to(prior.bias.device)
        self.pair_order.to(prior.bias.device)

    _version = 2  # of a state_dict; models of version 1 read masks that are 1 for what is observed

    def _load_from_state_dict(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        if local_metadata.get("version") == 1 and self.missing and self.mask == "gaps":
            rule, received = (
                "must be of a model whose mask is 1 for a gap",
                "one of a version before there were any",
            )
            repair = "Build the model with mask='observed', as it was trained."
            raise InvalidInputError("state_dict", rule, received, repair)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    @classmethod
    def from_config(
        cls, config: ModelConfig, *, encoder: nn.Module | None = None, decoder: nn.Module | None = None
    ) -> Self:
        """Build a model with new parameters; networks start from torch's global generator.

        Args:
            config: The model.
            encoder: A module of your own in place of the config's, (batch, *input_shape) -> (batch, feature).
            decoder: A module of your own in place of the config's, (row, latent) -> (row, *parameter_shape).

        Raises:
            InvalidInputError: If the parts do not fit each other, or the memory.
        """
        if torch.get_default_device().type == "meta":
            return cls._build(config, encoder, decoder)
        if encoder is None and decoder is None and _LARGE.search(config.model_dump_json()):
            check_model_memory(config, 4, "for weights")
        with allocating("model", _NARROWER):
            return cls._build(config, encoder, decoder)

    @classmethod
    def _build(cls, config: ModelConfig, encoder: nn.Module | None, decoder: nn.Module | None) -> Self:
        prior = instantiate(config.prior)
        smoothing = instantiate(config.smoothing)
        own = tuple(
            name for name, part in {"encoder": encoder, "decoder": decoder}.items() if part is not None
        )
        likelihood = instantiate(config.likelihood, event_shape=config.shape)
        shape = input_shape(likelihood, missing=config.missing)
        read: nn.Module = instantiate(config.encoder, input_shape=shape) if encoder is None else encoder
        num_features = count_features(read, shape)
        hierarchy = instantiate(config.hierarchy, num_latents=prior.num_units, num_features=num_features)
        groups = color_groups(prior) if config.posterior.groups == "colors" else config.posterior.groups
        posterior = instantiate(
            config.posterior.model_copy(update={"groups": groups}),
            num_features=num_features,
            num_units=prior.num_units,
            smoothing=smoothing,
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
            mask=config.mask,
        )
        model.config, model._own = config, own
        return model

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
        num_importance_samples: int = 1,
        generator: torch.Generator | None = None,
    ) -> Elbo:
        """`elbo`, so that the module can be called."""
        return self.elbo(
            x,
            negative_phase=negative_phase,
            log_partition=log_partition,
            observed=observed,
            num_importance_samples=num_importance_samples,
            generator=generator,
        )

    def elbo(
        self,
        x: Tensor,
        *,
        negative_phase: Tensor | None = None,
        log_partition: Tensor | SupportsFloat | None = None,
        observed: Tensor | None = None,
        num_importance_samples: int = 1,
        generator: torch.Generator | None = None,
    ) -> Elbo:
        """One-sample estimates of the evidence lower bound; value and gradient are unbiased given log Z.

        With several importance samples it is a higher bound, which lies between the ELBO and log p(x) and rises in
        their number. Of a model with Gaussian layers these are weighted alone: E log (1/k) sum_j p(x, h_j | zeta) /
        q(h_j | zeta, x) - KL[q(z, zeta | x) || p(z, zeta)], see `discrete_vae.objectives.importance`. Without them
        zeta is, from which z is summed out, if the transformation has no spike: E log (1/k) sum_j p(x, zeta_j) /
        q(zeta_j | x), by a bound of log p(zeta), see `discrete_vae.objectives.importance`.

        Args:
            x: (batch, *event) or (batch, feature), in the likelihood's domain; NaN is an unobserved entry where the
                model allows them.
            negative_phase: (chain, unit), samples of the prior from any sampler: they give log Z its gradient.
            log_partition: log Z of the prior, nats: it gives the value; a tensor that carries a gradient gives that
                too. Where neither is given it is enumerated if the prior has at most 12 units outside its largest
                block; otherwise the value is NaN, and the loss asks for the negative phase.
            observed: (batch, *event) bool, False where an entry is unobserved, whatever x holds there.
            num_importance_samples: k, samples of the Gaussian layers for each draw of the binary latents, or of zeta
                where there are none; more than 1 needs such layers, or a transformation without a spike.
            generator: Source of the noise; None means torch's global generator.

        Returns:
            The bound and its parts, (batch,), nats, and the loss.

        Raises:
            InvalidInputError: If x has another shape, dtype or domain, or another argument breaks its rule; on the CPU
                also if the bound is not finite since a weight is not.
        """
        x, observed = self._open(x, observed)
        check_positive_int("num_importance_samples", num_importance_samples)
        gradient, value = gradient_and_value(self.prior, negative_phase, log_partition)
        batch = Batch(x, observed, gradient, num_importance_samples, generator=generator)
        wants_gradient = torch.is_grad_enabled() and any(p.requires_grad for p in self.prior.parameters())
        parts = bound_parts(self, batch)
        self._check_parts_finite(*parts)
        return Elbo(
            *parts,
            value,
            gradient is not None or not wants_gradient,
            num_importance_samples,
            weighs_binary_latents(self),
        )

    def estimate_gradient(
        self,
        estimator: GradientEstimator,
        x: Tensor,
        *,
        negative_phase: Tensor | None = None,
        log_partition: Tensor | SupportsFloat | None = None,
        observed: Tensor | None = None,
        discrete: float = 1.0,
        continuous: float = 1.0,
        num_importance_samples: int = 1,
        generator: torch.Generator | None = None,
    ) -> GradientEstimate:
        """One estimate of the gradient of `Elbo.weighted_loss`, by an estimator of your choice.

        Args:
            estimator: For example `discrete_vae.DisARM.of(model)`; it learns from the batch in training mode.
            x: As in `elbo`.
            negative_phase: As in `elbo`.
            log_partition: As in `elbo`; only its gradient matters here.
            observed: As in `elbo`.
            discrete: Weight of the KL of the binary latents.
            continuous: Weight of the KL of the Gaussian layers.
            num_importance_samples: As in `elbo`.
            generator: As in `elbo`.

        Returns:
            The estimate, whose `loss` is to be differentiated, and what it cost.

        Raises:
            InvalidInputError: If an argument breaks its rule, or the estimator does not fit.

        Examples:
            >>> from discrete_vae import LeaveOneOut
            >>> from discrete_vae.config import ModelConfig, RBMConfig
            >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
            >>> estimate = model.estimate_gradient(LeaveOneOut.of(model, num_samples=4), torch.zeros(5, 6))
            >>> estimate.loss.backward()
            >>> estimate.num_evaluations
            4
        """
        x, observed = self._open(x, observed)
        check_positive_int("num_importance_samples", num_importance_samples)
        check_kl_weights(
            discrete,
            continuous,
            num_importance_samples=num_importance_samples,
            weighs_binary_latents=weighs_binary_latents(self),
        )
        gradient, _ = gradient_and_value(self.prior, negative_phase, log_partition)
        seeds = loss_gradients(len(x), discrete, continuous, like=self.prior.bias)
        weight = seeds[1] * len(x)
        batch = Batch(x, observed, gradient, num_importance_samples, weight, generator)
        estimate = estimator.estimate(self, batch, seeds)
        self._check_parts_finite(*estimate.parts)
        return estimate

    def _check_parts_finite(self, *parts: Tensor) -> None:
        """Name the weight to blame for a bound that is not finite, if one is, where values can be read."""
        if values_are_readable(parts[0]) and not math.isfinite(
            float(sum(part.detach().sum() for part in parts))
        ):
            check_finite_weights("model", self)


def count_weights(config: ModelConfig) -> int:
    """Trained numbers of the model of a config, which is not built for it.

    Examples:
        >>> from discrete_vae.config import FactorialBernoulliConfig, MLPDecoderConfig, HierarchicalPosteriorConfig
        >>> posterior = HierarchicalPosteriorConfig(groups=1, hidden=())
        >>> prior = FactorialBernoulliConfig(num_units=2)
        >>> count_weights(ModelConfig(num_features=3, prior=prior, posterior=posterior))
        22
    """
    with torch.device("meta"):
        model = DiscreteVAE.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


def _check_fits(name: str, rule: str, got: int, wanted: int) -> None:
    """Check that a part of the model has the size that another part asks for."""
    if got != wanted:
        raise InvalidInputError(name, rule.format(wanted), got, "Build the parts for each other.")


def check_model_memory(
    config: ModelConfig, bytes_each: int, what: str, *, gradient: ComponentConfig | None = None
) -> None:
    """Check that a model can be built and fits the memory, before anything large is made.

    Parameters are counted on torch's meta device.

    Args:
        config: The model.
        bytes_each: Bytes that a parameter takes.
        what: What they are for, "for weights" say.
        gradient: What estimates its gradient, which may have parameters too.

    Raises:
        InvalidInputError: If its parts do not fit each other, or the memory; names the largest part.
    """
    prior, groups, hierarchy = config.prior, config.posterior.groups, config.hierarchy
    networks = groups if isinstance(groups, int) else 1 if groups == "colors" else len(groups)
    networks += hierarchy.num_layers if isinstance(hierarchy, GaussianHierarchyConfig) else 0
    is_complete = isinstance(prior, GraphBoltzmannConfig) and prior.edges == "complete"
    edges = prior.num_units * (prior.num_units - 1) // 2 if is_complete else 0
    check_memory("model.prior", _PER_UNIT * prior.num_units + _PER_EDGE * edges, "Use fewer units.")
    check_memory("model", _PER_NETWORK * networks, "Use fewer groups of the posterior, or fewer layers.")
    part, needed = "model", _UNCOUNTABLE
    try:
        with torch.device("meta"):
            model = DiscreteVAE.from_config(config)
            parts = {f"model.{name}": child for name, child in model.named_children()}
            posterior = model.posterior
            if gradient is not None:
                assert isinstance(posterior, HierarchicalPosterior)  # the only kind with a config
                units = posterior.num_units
                parts["training.gradient"] = instantiate(
                    gradient,
                    group_of_unit=torch.arange(units, device="cpu") * len(posterior.groups) // units,
                    num_features=posterior.num_features,
                )
    except RuntimeError as error:
        if not is_allocation_failure(error):
            raise
    else:
        counts = {name: sum(p.numel() for p in module.parameters()) for name, module in parts.items()}
        part = max(counts, key=lambda name: counts[name])
        needed = bytes_each * sum(counts.values())
    check_memory(part, needed, _NARROWER, what=what)
