"""log p(x) of a model by importance sampling from its posterior."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import SupportsFloat

import torch
from torch import Tensor

from discrete_vae.checks import check_examples, check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.importance.compiled_draws import compiled_draws
from discrete_vae.importance.draws import Draws, draw, joined
from discrete_vae.log_partition.exact import MAX_SILENTLY_ENUMERATED_UNITS
from discrete_vae.log_partition.surrogate import gradient_and_value
from discrete_vae.nets.eval_mode import eval_mode
from discrete_vae.nets.folded_mlp import folded_networks
from discrete_vae.noise import draw_key, generator_of
from discrete_vae.objectives.importance import LogLikelihood, importance_weighted
from discrete_vae.recognition import RecognitionModel
from discrete_vae.records import ShowsShapes


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
            keys: One per example, from `discrete_vae.noise.key_to_seed`: its noise then depends on its key alone.
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
    `discrete_vae.importance.compiled_draws`; elsewhere by the modules, example after example.

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
            keys: One per example, from `discrete_vae.noise.key_to_seed`: its noise then depends on its key alone.
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
