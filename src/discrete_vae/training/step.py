"""The loss of a training step and its gradient: precision, recorded operations, torch.compile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import is_, itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from discrete_vae.checks import check_gradients_are_recorded
from discrete_vae.config import ExperimentConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.kernels.adam import Adam
from discrete_vae.kernels.lowering import ReplayedFunctions
from discrete_vae.kernels.mlp import has_hooks
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.precision import DTYPES, gains_by_bfloat16, has_fast_bfloat16
from discrete_vae.nets.weights import MixedPrecisionLayer, MixedPrecisionWeight
from discrete_vae.numerics import is_ordinary, rounds_products, row_sum
from discrete_vae.objectives.elbo import Elbo, loss_gradients
from discrete_vae.objectives.gradients import GradientEstimator, Reparameterized
from discrete_vae.objectives.importance import Batch
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import DrawnNoise, NoiseRequest, NotedNoise, keyed_generator, reseed

# In which precision a run computes the products of its networks.


KEY = "precision"
"""Where ``environment.json`` says which one a run began with."""


@dataclass(frozen=True)
class Precision:
    """A choice and its ground.

    Attributes:
        name: ``float32`` or ``bfloat16``.
        reason: Why, in words that go on after "products in float32: ".
    """

    name: str
    reason: str

    @property
    def dtype(self) -> torch.dtype:
        """What products are computed in."""
        return DTYPES[self.name]


def choose_precision(
    config: ExperimentConfig, *, device: torch.device | str, begun: Mapping[str, Any] | None = None
) -> Precision:
    """What ``training.precision`` means for a run on a device.

    ``auto`` is bfloat16 where the device has instructions for it and networks and minibatches are large enough to gain,
    else float32. A run that has begun goes on in the precision that it began with, wherever that is.

    Args:
        config: The experiment.
        device: Where it computes.
        begun: The ``environment.json`` of a run that has begun; empty or None for a new run.
    """
    asked = config.training.precision
    fast = has_fast_bfloat16(device)
    if asked != "auto":
        slow = asked == "bfloat16" and not fast
        return Precision(asked, "as asked for" + (", though this processor is slow at it" if slow else ""))
    if begun:
        name = begun.get(KEY, "float32")  # what runs had before there was a choice
        return Precision(name, "as the run began")
    if not fast:
        return Precision("float32", "this processor has no instructions for bfloat16")
    with torch.device("meta"):
        gains = gains_by_bfloat16(DiscreteVAE.from_config(config.model), config.training.batch_size)
    if gains:
        return Precision("bfloat16", "the products are large, and the processor has instructions for it")
    return Precision("float32", "products as small as these gain nothing by bfloat16")


# The bound of one step's batch.


@dataclass(frozen=True, eq=False, repr=False)
class EvaluatedBound(ShowsShapes):
    """The parts of the bound of a batch, without gradient.

    Attributes:
        reconstruction: As in `Elbo`, (batch,), nats.
        kl_relative: Likewise.
        kl_continuous: Likewise.
        means: Their means over the batch, nats.
    """

    reconstruction: Tensor
    kl_relative: Tensor
    kl_continuous: Tensor
    means: tuple[float, float, float]


# The tensor operations of a training step between the chains and the optimizer, recorded once and repeated.


_TRUSTED = ("discrete_vae.", "torch.nn.")


class RecordedStep:
    """Evaluates the bound and its gradients step after step, on the CPU by repeating recorded operations.

    A step of a small model is a thousand short operations, of which torch's modules, its autograd and Python cost more
    than the arithmetic. So the first batch of each shape is recorded, the second one evaluated both ways and compared
    to the last bit, and from then on the recording is repeated: results are those of the unrecorded step. Models with
    modules of the user's own, or with hooks, whose code may do more than torch sees, are evaluated as they are; so is
    everything on other devices.

    Each step looks whether what a recording takes as given is still so, see `_Structure`. If not, steps are recorded
    anew; a module of the user's own or a hook that is there now ends the recording, with a warning.

    Args:
        model: The model.
        optimizer: Its optimizer, which has the gradients' memory.
        gradient: What estimates the gradient; None is `Reparameterized`.
        record: Whether to record at all.

    Attributes:
        functions: What is recorded; its ``reason`` says why nothing is.
    """

    def __init__(
        self,
        model: DiscreteVAE,
        optimizer: Adam,
        gradient: GradientEstimator | None = None,
        *,
        record: bool = True,
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._gradient = Reparameterized.of(model) if gradient is None else gradient
        self._generator: torch.Generator | None = None  # one object, which a recording can go on using
        self._weights: tuple[int, float, float] | None = None
        self._seeds: tuple[Tensor, ...] = ()  # of these weights
        self._num_hooks = RemovableHandle.next_id
        self._structure, self._copies = _Structure(model, self._gradient), _working_weights(model)
        self._leaves = optimizer.gradient_leaves()
        reason = _why_not(model, self._gradient) if record else "training.record is false"
        self.functions = ReplayedFunctions(self._state, reason)

    def take_gradients(
        self,
        x: Tensor,
        negative_phase: Tensor,
        *,
        discrete: float,
        continuous: float,
        num_importance_samples: int,
        noise_key: tuple[int, ...],
    ) -> EvaluatedBound:
        """Evaluate the parts of the bound, and give the parameters the gradients of its weighted loss.

        Args:
            x: (batch, *event) or (batch, feature), in the likelihood's domain.
            negative_phase: (chain, unit), states of the prior.
            discrete: Weight of the KL of the binary latents.
            continuous: Weight of the KL of the Gaussian layers.
            num_importance_samples: See `DiscreteVAE.elbo`.
            noise_key: Seed and key of the noise, see `discrete_vae.rng.keyed_generator`.

        Raises:
            InvalidInputError: If torch records no gradients here.

        Warns:
            KernelWarning: If steps cannot be recorded, or not any more.
        """
        check_gradients_are_recorded("take_gradients")
        self._look_for_changes()
        if self._generator is None or self._generator.device != x.device:
            self._generator = torch.Generator(device=x.device)
        num_examples = x.shape[0]  # len() of a tensor takes far longer
        weights = (num_examples, discrete, continuous)
        if weights != self._weights:
            self._weights, self._seeds = weights, loss_gradients(*weights, like=self._model.prior.bias)
        for each in self._copies:
            if each.dtype != torch.float32:
                each.current()
        evaluation = _Evaluation(self._model, self._gradient, self._optimizer, num_importance_samples)
        inputs = (x, negative_phase, *self._seeds, reseed(self._generator, *noise_key))
        kind = (x.shape, x.dtype, negative_phase.shape, num_importance_samples, self._model.training)
        key = ("bound", *kind, torch.get_num_threads())
        sums, *found = self._call(key, evaluation, *inputs)
        parts, gradients = found[:3], found[3:]
        for leaf, gradient in zip(self._leaves, gradients, strict=True):
            if leaf.grad is not gradient:  # a recording gives the same memory again
                leaf.grad = gradient
        reconstruction, relative, layers = (part.clone() for part in parts if part is not None)
        assert sums is not None
        first, second, third = (total / num_examples for total in sums.tolist())
        return EvaluatedBound(reconstruction, relative, layers, (first, second, third))

    def project_(self) -> None:
        """`DiscreteVAE.project_`."""
        self._call("bounds", self._project_)

    def _look_for_changes(self) -> None:
        """Record anew if the model is another than it was, and not at all if it may do more than torch sees."""
        hooks, same = RemovableHandle.next_id, self._structure.holds()
        if same and hooks == self._num_hooks:
            return
        self._num_hooks = hooks  # somebody has registered one somewhere
        if not same:
            self._structure = _Structure(self._model, self._gradient)
            self._copies = _working_weights(self._model)
            self._optimizer.forget_leaves()
            self._leaves = self._optimizer.gradient_leaves()
            self.functions.restart()
        if self.functions.reason is None and (reason := _why_not(self._model, self._gradient)) is not None:
            self.functions.stop(reason)

    def _project_(self) -> tuple[()]:
        self._model.project_()
        return ()

    def _call(self, key: Any, function: Any, *inputs: Any) -> Sequence[Tensor | None]:
        """Repeat a function if that may be done here and now."""
        # rounding is switched off around energies, which a recording would not repeat
        if not self._model.prior.bias.is_cpu or not is_ordinary() or rounds_products("cpu"):
            return function(*inputs)
        return self.functions(key, function, *inputs)

    def _state(self) -> Iterator[Tensor]:
        yield from self._model.parameters()
        yield from self._model.buffers()
        yield from self._gradient.parameters()
        yield from self._gradient.buffers()
        yield from self._optimizer.gradient_leaves()
        for each in self._copies:
            yield from (each.current(), each.own_memory())


@dataclass(frozen=True, eq=False)
class _Evaluation:
    """The sums of the parts of the bound, the parts, then the gradient by each leaf, None for those without one."""

    model: DiscreteVAE
    gradient: GradientEstimator
    optimizer: Adam
    num_importance_samples: int

    def __call__(self, x: Tensor, negative_phase: Tensor, *rest: Any) -> Sequence[Tensor | None]:
        model, (*seeds, generator) = self.model, rest
        self.optimizer.zero_grad()  # lends the gradients' memory anew
        x = x.reshape(-1, *model.likelihood.event_shape).to(torch.promote_types(model.dtype, torch.float32))
        observed = model.likelihood.observed_mask(x, None, missing=model.missing)
        of_prior = model.prior.compute_negative_phase(negative_phase)
        first, second, third = seeds
        batch = Batch(x, observed, of_prior, self.num_importance_samples, second * len(x), generator)
        estimate = self.gradient.estimate(model, batch, (first, second, third))
        outputs, weights = zip(*estimate.outputs(), strict=True)
        leaves = self.optimizer.gradient_leaves()
        gradients = torch.autograd.grad(outputs, leaves, weights, allow_unused=True)
        values = [part.detach() for part in estimate.parts]
        return row_sum(torch.stack(values, 1)), *values, *gradients


def _working_weights(model: DiscreteVAE) -> list[MixedPrecisionWeight]:
    """What the products of the model's layers read in place of their weights."""
    found = [part.mixed_precision for part in model.modules() if isinstance(part, MixedPrecisionLayer)]
    return [working for working in found if working is not None]


class _Structure:
    """What a recording takes as given of modules: their tensors and where these lie, their parts, modes and settings.

    A number inside a list or another object that a module refers to is not looked at; the object in its place is.

    Args:
        parts: The modules.
    """

    def __init__(self, *parts: nn.Module) -> None:
        modules = [module for part in parts for module in part.modules()]
        self._modules, self._attributes = (
            [each._modules for each in modules],
            [vars(each) for each in modules],
        )
        self._holders = [holder for each in modules for holder in (each._parameters, each._buffers)]
        self._classes = {type(each) for each in modules}
        # what a module has beside torch's own dictionaries of hooks, parameters and the like
        names = [sorted(each.keys() - _OF_EVERY_MODULE) for each in self._attributes]
        self._settings = [itemgetter("training", *each) for each in names]
        self._tensors_then = self._tensors()
        self._then = self._now(self._tensors_then)
        self._modules_then = [dict(each) for each in self._modules]

    def holds(self) -> bool:
        """Whether all is as it was."""
        tensors = self._tensors()
        try:
            return (
                len(tensors) == len(self._tensors_then)
                and all(map(is_, tensors, self._tensors_then))
                and self._modules == self._modules_then
                and self._now(tensors) == self._then
            )
        except Exception:  # a setting is missing, or an array, whose comparison has no single answer
            return False

    def _tensors(self) -> list[Tensor | None]:
        return [*chain.from_iterable(map(dict.values, self._holders))]

    def _now(self, tensors: Sequence[Tensor | None]) -> tuple[list[Any], ...]:
        """Places in memory, what is frozen, settings, how many attributes there are, and the methods."""
        places = [(each.data_ptr(), each.requires_grad) for each in tensors if each is not None]
        settings = [get(attributes) for get, attributes in zip(self._settings, self._attributes, strict=True)]
        return places, settings, [*map(len, self._attributes)], [each.forward for each in self._classes]


_OF_EVERY_MODULE = vars(nn.Module()).keys()


def _why_not(*parts: nn.Module) -> str | None:
    """Why steps with a model, and an estimator of its gradient, are not recorded, if so."""
    for module in chain.from_iterable(part.modules() for part in parts):
        if not type(module).__module__.startswith(_TRUSTED):
            return f"{type(module).__name__} is a module of your own"
        if has_hooks((module,)):
            return f"{type(module).__name__} has hooks"
    for name, parameter in chain.from_iterable(part.named_parameters() for part in parts):
        if parameter._backward_hooks:
            return f"the parameter {name} has hooks"
    return None


# The loss of a training step and its gradient as one graph of `torch.compile`.


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
        self, model: DiscreteVAE, working: Sequence[MixedPrecisionWeight] = (), *, backend: str = "inductor"
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
