"""The bound of a batch and its gradients, step after step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from discrete_vae.compiled.recording import Recorder, ReplayError
from discrete_vae.compiled.replay import Replay
from discrete_vae.compiled.trial import warn_of_failure
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.kernels.choice import has_hooks, is_ordinary, works
from discrete_vae.noise import reseed
from discrete_vae.objectives.elbo import loss_gradients
from discrete_vae.training.adam import Adam

_TRUSTED = ("discrete_vae", "torch.nn")
_MOST_FORMS = 8


class ElboGradients:
    """Evaluates the bound and its gradients, on the CPU by repeating a recorded evaluation.

    A step of a small model is a thousand short operations, of which torch's modules, its autograd and Python cost as
    much as the arithmetic. The first batch of each shape is recorded, the second one is evaluated both ways and
    compared to the last bit, and from then on the recording is repeated. Models with modules of the user's own, or with
    hooks, whose code may do more than torch sees, are evaluated as they are; so is everything on other devices.

    Args:
        model: Its model; parameters and buffers stay where they are.
        optimizer: Its optimizer, which has the gradients' memory.

    Attributes:
        reason: Why evaluations are not repeated, as far as that is known; None where they are.
    """

    def __init__(self, model: DiscreteVAE, optimizer: Adam) -> None:
        self._model, self._optimizer = model, optimizer
        self._replays: dict[Any, Replay] = {}
        self._checked: set[Any] = set()
        self._generator: torch.Generator | None = None  # one object, which a recording can go on using
        self.reason = _why_not(model)

    def take(
        self,
        x: Tensor,
        negative_phase: Tensor,
        *,
        discrete: float,
        continuous: float,
        num_importance_samples: int,
        noise_key: tuple[int, ...],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Evaluate the parts of the bound, and give the parameters the gradients of its weighted loss.

        Args:
            x: (batch, *event) or (batch, feature), in the likelihood's domain.
            negative_phase: (chain, unit), states of the prior.
            discrete: Weight of the KL of the binary latents.
            continuous: Weight of the KL of the Gaussian layers.
            num_importance_samples: See `DiscreteVAE.elbo`.
            noise_key: Seed and key of the noise, see `discrete_vae.noise.keyed_generator`.

        Returns:
            reconstruction, kl_relative and kl_continuous of `Elbo`, each (batch,), nats, without gradient.
        """
        seeds = loss_gradients(len(x), discrete, continuous, like=self._model.prior.bias)
        leaves = self._optimizer.gradient_leaves()
        evaluation = _Evaluation(self._model, leaves, num_importance_samples)
        if self._generator is None or self._generator.device != x.device:
            self._generator = torch.Generator(device=x.device)
        inputs = x, negative_phase, *seeds, reseed(self._generator, *noise_key)
        key = (x.shape, x.dtype, negative_phase.shape, num_importance_samples, self._model.training)
        reconstruction, kl_relative, kl_continuous, *gradients = self._evaluate(key, evaluation, inputs)
        for leaf, gradient in zip(leaves, gradients, strict=True):
            leaf.grad = gradient
        assert reconstruction is not None and kl_relative is not None and kl_continuous is not None
        return reconstruction, kl_relative, kl_continuous

    def _evaluate(self, key: Any, evaluation: _Evaluation, inputs: tuple[Any, ...]) -> Sequence[Tensor | None]:
        """What the evaluation gives, by its recording once that is known to be right."""
        if self.reason is not None or not is_ordinary() or not inputs[0].is_cpu:
            return evaluation(*inputs)
        replay = self._replays.get(key)
        if replay is None:
            return evaluation(*inputs) if len(self._replays) == _MOST_FORMS else self._record(key, evaluation, inputs)
        if key in self._checked:
            return replay(*inputs)
        outputs, same = replay.compare(evaluation, *inputs)
        if same:
            self._checked.add(key)
        else:
            self.reason = "the recording of a step gives other numbers than the step"
            warn_of_failure("A recorded step", ReplayError(self.reason), "steps are taken one operation at a time", package="torch")
        return outputs

    def _record(self, key: Any, evaluation: _Evaluation, inputs: tuple[Any, ...]) -> Sequence[Tensor | None]:
        works()  # the trial of the compiled passes is no part of a step
        with Recorder() as recorder:
            outputs = evaluation(*inputs)
        memory = self._optimizer.gradient_memory()
        try:
            self._replays[key] = Replay(recorder, inputs, outputs, [*_state(self._model), *evaluation.leaves, *memory])
        except ReplayError as error:
            self.reason = str(error)
        return outputs


@dataclass(frozen=True, eq=False)
class _Evaluation:
    """The parts of the bound, then the gradient by each leaf, None for those that have none."""

    model: DiscreteVAE
    leaves: Sequence[Tensor]
    num_importance_samples: int

    def __call__(self, x: Tensor, negative_phase: Tensor, *rest: Any) -> Sequence[Tensor | None]:
        model, (*seeds, generator) = self.model, rest
        x = x.reshape(-1, *model.likelihood.event_shape).to(torch.promote_types(model.dtype, torch.float32))
        observed = model.likelihood.observed_mask(x, None, missing=model.missing)
        of_prior = model.prior.compute_negative_phase(negative_phase)
        parts = model.elbo_parts(x, observed, of_prior, self.num_importance_samples, generator=generator)
        carrying = [(part, seed) for part, seed in zip(parts, seeds, strict=True) if part.requires_grad]
        outputs, weights = zip(*carrying, strict=True)
        gradients = torch.autograd.grad(outputs, self.leaves, weights, allow_unused=True)
        return *(part.detach() for part in parts), *gradients


def _state(model: nn.Module) -> Iterator[Tensor]:
    yield from model.parameters()
    yield from model.buffers()


def _why_not(model: nn.Module) -> str | None:
    """Why a model's steps are not recorded, if so."""
    for module in model.modules():
        if not type(module).__module__.startswith(_TRUSTED):
            return f"{type(module).__name__} is a module of your own"
        if has_hooks((module,)):
            return f"{type(module).__name__} has hooks"
    return None
