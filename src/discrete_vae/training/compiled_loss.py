"""The loss of a training step and its gradient as one graph of `torch.compile`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from discrete_vae.errors import InvalidInputError
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.working_weight import WorkingWeight
from discrete_vae.noise import keyed_generator
from discrete_vae.objectives.elbo import Elbo
from discrete_vae.prepared_noise import DrawnNoise, NoiseRequest, NotedNoise
from discrete_vae.training.evaluated_bound import EvaluatedBound

_ARGUMENTS = ("x", "negative_phase", "noise", "weights")


class CompiledLoss:
    """The bound of a model and its loss, compiled into one graph for batches of one size.

    Networks, smoothing, KL terms and likelihood run as a few fused passes around torch's products. The noise is drawn
    outside, as an uncompiled step draws it, and the weights of the KL terms are tensors, so that one graph serves all
    steps and computes what an uncompiled step does, up to rounding.

    Args:
        model: The model; from the first call on, its structure must not change.
        working: Its weights as products read them.
        backend: What `torch.compile` compiles with.
    """

    def __init__(
        self, model: DiscreteVAE, working: Sequence[WorkingWeight] = (), *, backend: str = "inductor"
    ) -> None:
        self._model, self._working = model, tuple(working)
        self._backend = backend
        self._graph: Callable[..., tuple[Tensor, ...]] | None = None
        self._requests: list[NoiseRequest] = []

    def __call__(
        self,
        x: Tensor,
        negative_phase: Tensor,
        *,
        log_partition: float,
        discrete: float,
        continuous: float,
        generator: torch.Generator,
    ) -> tuple[Elbo, Tensor]:
        """The bound of checked arguments, and its loss.

        Args:
            x: (batch, *event), of the same shape at each call.
            negative_phase: (chain, unit), likewise.
            log_partition: log Z, nats.
            discrete: Weight of the KL of the binary latents in the loss.
            continuous: Weight of the KL of the Gaussian layers.
            generator: Source of the noise.

        Returns:
            The bound, which carries no gradient, and the loss, which does.

        Raises:
            InvalidInputError: If the step cannot be compiled.
        """
        if self._graph is None:
            self.prepare(x, negative_phase)
        assert self._graph is not None
        for each in self._working:
            each.current()
        noise = [request.repeat(generator) for request in self._requests]
        weights = torch.tensor([discrete, continuous], dtype=torch.float32, device=x.device)
        loss, *parts = self._graph(x, negative_phase, noise, weights)
        reconstruction, kl_relative, kl_continuous = (part.detach() for part in parts)
        elbo = Elbo(reconstruction, kl_relative, kl_continuous, log_partition, True)
        return elbo, loss + discrete * log_partition

    def take_gradients(
        self,
        x: Tensor,
        negative_phase: Tensor,
        *,
        discrete: float,
        continuous: float,
        num_importance_samples: int = 1,
        noise_key: tuple[int, ...],
    ) -> EvaluatedBound:
        """Evaluate the bound, and give the parameters the gradients of its loss; see `RecordedStep.take_gradients`."""
        assert num_importance_samples == 1
        self._forget_gradients()
        generator = keyed_generator(*noise_key, device=x.device)
        elbo, loss = self(
            x,
            negative_phase,
            log_partition=0.0,
            discrete=discrete,
            continuous=continuous,
            generator=generator,
        )
        loss.backward()
        parts = elbo.reconstruction, elbo.kl_relative, elbo.kl_continuous
        first, second, third = torch.stack(parts).mean(1).tolist()
        return EvaluatedBound(*parts, (first, second, third))

    def _forget_gradients(self) -> None:
        self._model.zero_grad()
        for each in self._working:
            each.clear_gradient()

    def prepare(self, x: Tensor, negative_phase: Tensor) -> None:
        """Compile, by one trial of the forward and the backward pass; nothing of it stays in the model.

        Args:
            x: A batch, as at each call.
            negative_phase: States, likewise.

        Raises:
            InvalidInputError: If it cannot be compiled.
        """
        model, working = self._model, self._working
        before, training = [buffer.clone() for buffer in model.buffers()], model.training
        generator, weights = torch.Generator(x.device).manual_seed(0), torch.ones(2, device=x.device)
        noted = NotedNoise(generator)
        model.train()
        try:
            with torch.no_grad():
                self._parts(x, negative_phase, noted)
            for each in working:
                each.current()
            noise = [request.repeat(generator) for request in noted.requests]
            # the model's thousand attributes are not looked at again at each call: they stay as they are
            options: Any = {"guard_filter_fn": _of_arguments}
            with _refusing():
                graph = torch.compile(
                    self._loss, backend=self._backend, fullgraph=True, dynamic=False, options=options
                )
                graph(x, negative_phase, noise, weights)[0].backward()
        finally:
            with torch.no_grad():
                for buffer, value in zip(model.buffers(), before, strict=True):
                    buffer.copy_(value)
            self._forget_gradients()
            model.train(training)
        self._graph, self._requests = graph, noted.requests

    def _parts(
        self, x: Tensor, negative_phase: Tensor, noise: DrawnNoise | NotedNoise
    ) -> tuple[Tensor, Tensor, Tensor]:
        elbo = self._model.elbo(x, negative_phase=negative_phase, generator=noise)  # pyright: ignore[reportArgumentType]
        return elbo.reconstruction, elbo.kl_relative, elbo.kl_continuous

    def _loss(
        self, x: Tensor, negative_phase: Tensor, noise: list[Tensor], weights: Tensor
    ) -> tuple[Tensor, ...]:
        """What is compiled: the loss less log Z, and the parts of the bound."""
        reconstruction, discrete, continuous = self._parts(x, negative_phase, DrawnNoise(noise))
        loss = (discrete * weights[0] + continuous * weights[1] - reconstruction).mean()
        return loss, reconstruction, discrete, continuous


@cache
def check_compiler() -> None:
    """Check that torch.compile works here, on a small function; it takes a few seconds, once per process.

    Raises:
        InvalidInputError: If it does not.
    """
    x = torch.linspace(0, 1, 8, device="cpu")
    with _refusing():
        found = torch.compile(_trial, fullgraph=True, dynamic=False)(x)
    if not torch.allclose(found, _trial(x)):
        raise _cannot("its numbers are wrong")


def _trial(x: Tensor) -> Tensor:
    return torch.tanh(x).sum() + x


def _of_arguments(guards: Sequence[Any]) -> list[bool]:
    """Which conditions of a graph are about the arguments of `CompiledLoss._loss`, or about torch as a whole."""
    return [re.split(r"[.\[]", guard.name)[0] in ("", *_ARGUMENTS) for guard in guards]


@contextmanager
def _refusing() -> Iterator[None]:
    """Say in the house's words that something cannot be compiled."""
    try:
        yield
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = f"{type(error).__name__}: {lines[0] if lines else 'no message'}"[:300]
        raise _cannot(reason) from error


def _cannot(reason: str) -> InvalidInputError:
    rule = "must be false where torch.compile fails"
    repair = "Install a C++ compiler (g++, or the one that CXX names), or leave the setting out."
    return InvalidInputError("training.compile", rule, f"true, and {reason}", repair)
