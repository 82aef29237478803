"""The recognition half of a trained model fitted anew, with the generative half untouched."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from discrete_vae.checks import check_number, check_positive_int
from discrete_vae.data.batches import TrainingBatches
from discrete_vae.data.dataset import DataSplits
from discrete_vae.errors import InvalidInputError, NonFiniteLossError
from discrete_vae.evaluation.elbo import MeanElbo, evaluate_elbo
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.l1_batch_norm import L1BatchNorm
from discrete_vae.noise import key_to_seed, keyed_generator
from discrete_vae.samplers.protocol import Sampler
from discrete_vae.training.rates import CosineRate

_STREAM, _VALIDATION_STREAM = 0x7265666974, 0x726576616C
_FINAL_FRACTION, _DRAWS = 0.01, 5


@dataclass(frozen=True)
class Refit:
    """What fitting the posterior anew did to the bound on validation examples.

    log p(x) is the same for both, so the difference is what the mean KL from posterior to true posterior lost.

    Attributes:
        before: With the posterior of training.
        after: With the new one, with the same noise.
    """

    before: MeanElbo
    after: MeanElbo


def refit_posterior(
    model: DiscreteVAE,
    dataset: DataSplits,
    chains: Sampler,
    *,
    log_partition: float,
    num_steps: int,
    batch_size: int = 100,
    model_share: float = 0.5,
    learning_rate: float = 1e-3,
    num_sweeps: int = 20,
    seed: int = 0,
) -> Refit:
    """Raise the ELBO on training examples and on draws of the model by the encoder and the posteriors alone.

    The bound rises towards log p(x), which stays what it is: the prior, the layers' prior, the decoder, the smoothing
    (whose beta prior and posterior share), and the running statistics of all of them keep every bit.
    Draws of the model, of which there are always new ones, keep the posterior from learning the training examples by
    heart, so that bounds and importance weights of other examples gain too.

    Args:
        model: A trained model; its encoder and posteriors change in place. It is left in evaluation mode.
        dataset: Its data: training examples are learned from, validation examples measured.
        chains: Chains of the model's prior, at its distribution; they are swept on.
        log_partition: log Z of the prior, nats; it shifts both results alike.
        num_steps: Steps of Adam, whose step size falls to a hundredth as half a cosine.
        batch_size: Examples per step, at least 2.
        model_share: Share of them that the model draws, from 0 to 1.
        learning_rate: Largest step size.
        num_sweeps: Sweeps of the chains between two steps.
        seed: Seed of all noise.

    Returns:
        The bound before and after.

    Raises:
        InvalidInputError: If a number breaks its rule, there are fewer chains than draws, or the Gaussian layers do not
            keep their posterior apart.
        NonFiniteLossError: If the loss is not finite; the posterior is left where it was then.
    """
    check_positive_int("num_steps", num_steps)
    check_number("batch_size", check_positive_int("batch_size", batch_size), at_least=2, repair="Give 100.")
    check_number("model_share", model_share, at_least=0, at_most=1, repair="Give 0.5.")
    check_number("learning_rate", learning_rate, above=0, repair="Give 1e-3.")
    parts = _recognition(model)
    device, num_drawn = model.prior.bias.device, round(model_share * batch_size)
    if num_drawn > chains.num_chains:
        rule = f"must have a chain for each of the {num_drawn} draws of a batch"
        raise InvalidInputError("chains", rule, chains.num_chains, "Give more chains, or a smaller share.")
    read = batch_size - num_drawn
    batches = TrainingBatches(dataset, read, seed=seed, device=device) if read > 0 else None
    valid, rate = dataset.valid.to(device), CosineRate(_FINAL_FRACTION)

    def bound() -> MeanElbo:
        noise = key_to_seed(seed, _VALIDATION_STREAM)
        return evaluate_elbo(model, valid, log_partition=log_partition, num_samples=_DRAWS, seed=noise)

    before = bound()
    with _training_alone(model, parts) as trained:
        optimizer = torch.optim.Adam(trained, lr=learning_rate)
        for step in range(num_steps):
            generator = keyed_generator(seed, _STREAM, step, device=device)
            x = [] if batches is None else [batches.batch(step).flatten(1)]
            if num_drawn > 0:
                x.append(_draw(model, chains, num_drawn, num_sweeps, generator))
            loss = model.elbo(torch.cat(x), log_partition=log_partition, generator=generator).loss
            if not math.isfinite(loss.item()):
                raise NonFiniteLossError(step, "the loss of the posterior", loss.item(), None)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * rate(step / num_steps)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for part in parts:
                for module in part.modules():
                    if isinstance(module, L1BatchNorm):
                        module.project_()
    return Refit(before, bound())


def _recognition(model: DiscreteVAE) -> list[nn.Module]:
    """The parts of the model that q(z, zeta, h | x) has and p(x, h, zeta, z) has not.

    Raises:
        InvalidInputError: If the Gaussian layers do not keep their posterior apart.
    """
    parts = [model.encoder, *(part for part in model.posterior.children() if part is not model.smoothing)]
    if model.hierarchy.num_layers > 0:
        layers = getattr(model.hierarchy, "posterior", None)
        if not isinstance(layers, nn.Module):
            rule = "must keep the networks of q(h | zeta, x) in a module of their own, posterior"
            raise InvalidInputError("hierarchy", rule, type(model.hierarchy).__name__, "Name it so.")
        parts.append(layers)
    return parts


@contextmanager
def _training_alone(model: DiscreteVAE, parts: list[nn.Module]) -> Iterator[list[nn.Parameter]]:
    """Within the block these parts alone train, with the statistics of the batch; all is as it was afterwards."""
    trained = [parameter for part in parts for parameter in part.parameters() if parameter.requires_grad]
    kept = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model.eval().requires_grad_(False)
    for part in parts:
        part.train()
    for parameter in trained:
        parameter.requires_grad_(True)
    try:
        yield trained
    finally:
        model.eval()
        for parameter in kept:
            parameter.requires_grad_(True)


def _draw(
    model: DiscreteVAE, chains: Sampler, count: int, num_sweeps: int, generator: torch.Generator
) -> Tensor:
    """Draws of x from the model, (count, feature)."""
    z = chains.step(num_sweeps)
    rows = torch.randperm(len(z), device=z.device, generator=generator)[:count]
    zeta = model.smoothing.sample_zeta(z[rows].to(model.dtype), generator=generator)
    return model.decode(zeta, statistic="sample", generator=generator).flatten(1)
