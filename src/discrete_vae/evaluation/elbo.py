"""The ELBO over a data set."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.checks import check_examples, check_positive_int
from discrete_vae.distributed import all_reduce_shards, shard_indices
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.eval_mode import eval_mode
from discrete_vae.noise import keyed_generator
from discrete_vae.records import ShowsTable

_BATCH_SIZE = 500
_STREAM = 0x656C626F


@dataclass(frozen=True)
class MeanElbo(ShowsTable):
    """Means over examples, in nats.

    Attributes:
        elbo: Mean ELBO.
        elbo_std_error: Its standard error over examples, given log Z.
        reconstruction: Mean log p(x | zeta).
        kl_discrete: Mean KL of the binary latents.
        kl_continuous: Mean KL of the Gaussian layers.
        num_examples: Examples.
        num_samples: Draws per example.
        log_partition_std_error: Standard error of log Z, which shifts elbo as a whole: -1 nat for each nat.
    """

    elbo: float
    elbo_std_error: float
    reconstruction: float
    kl_discrete: float
    kl_continuous: float
    num_examples: int
    num_samples: int
    log_partition_std_error: float = 0.0

    @property
    def total_std_error(self) -> float:
        """Standard error of elbo with that of log Z, in quadrature."""
        return math.hypot(self.elbo_std_error, self.log_partition_std_error)


@torch.no_grad()
def evaluate_elbo(
    model: DiscreteVAE,
    x: Tensor,
    *,
    log_partition: float,
    log_partition_std_error: float = 0.0,
    num_samples: int = 1,
    num_importance_samples: int = 1,
    seed: int = 0,
) -> MeanElbo:
    """Average the ELBO over examples, with the networks' running statistics; or the bound above it.

    Under torchrun the examples are divided among the processes, and every process has the whole result.

    Args:
        model: The model.
        x: (example, feature) or in the event's shape, in the likelihood's domain; NaN marks missing values.
        log_partition: log Z of the prior, nats.
        log_partition_std_error: Its standard error, nats; carried into the result.
        num_samples: Draws of the posterior per example.
        num_importance_samples: As in `DiscreteVAE.elbo`; with more than 1 it is a bound between the ELBO and
            log p(x).
        seed: Seed of the noise; the same seed gives the same noise to every model.

    Returns:
        The estimate; its error comes from the spread over examples, which contains that over draws.

    Raises:
        InvalidInputError: If `DiscreteVAE.elbo` refuses x or num_importance_samples, or num_samples is not a positive
            integer.
    """
    check_examples("x", x)
    check_positive_int("num_samples", num_samples)
    parts = torch.zeros(len(x), 3, dtype=torch.float64)
    with eval_mode(model) as model:
        for draw in range(num_samples):
            for block in shard_indices(math.ceil(len(x) / _BATCH_SIZE)):
                first = block * _BATCH_SIZE
                rows = slice(first, first + _BATCH_SIZE)
                generator = keyed_generator(seed, _STREAM, draw, first, device=x.device)
                elbo = model.elbo(
                    x[rows],
                    log_partition=log_partition,
                    num_importance_samples=num_importance_samples,
                    generator=generator,
                )
                terms = torch.stack([elbo.reconstruction, elbo.kl_discrete, elbo.kl_continuous], -1)
                parts[rows] += terms.double().cpu() / num_samples
    parts = all_reduce_shards(parts)
    value = parts[:, 0] - parts[:, 1] - parts[:, 2]
    return MeanElbo(
        elbo=float(value.mean()),
        elbo_std_error=float(value.std()) / math.sqrt(len(value)) if len(value) > 1 else math.nan,
        reconstruction=float(parts[:, 0].mean()),
        kl_discrete=float(parts[:, 1].mean()),
        kl_continuous=float(parts[:, 2].mean()),
        num_examples=len(value),
        num_samples=num_samples,
        log_partition_std_error=log_partition_std_error,
    )
