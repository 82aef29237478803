"""The loss of a training step and its gradient: precision of the products, operations recorded once and repeated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter, call, is_, itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from discrete_vae.checks import check_gradients_are_recorded
from discrete_vae.config import ExperimentConfig
from discrete_vae.kernels.adam import Adam
from discrete_vae.kernels.lowering import ReplayedFunctions
from discrete_vae.kernels.registry import has_hooks, is_eager
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.mlp import MixedPrecisionLayer
from discrete_vae.nets.modes import DTYPES, gains_by_bfloat16, has_fast_bfloat16
from discrete_vae.nets.weights import MixedPrecisionWeight
from discrete_vae.numerics import rounds_products, row_sum
from discrete_vae.objectives.elbo import Batch, GradOutputs, LossTerms, loss_gradients
from discrete_vae.objectives.gradients import GradientEstimator, Reparameterized
from discrete_vae.posterior import Posterior
from discrete_vae.rng import reseed

KEY = "precision"  # the entry of ``environment.json`` for the precision that a run began with


@dataclass(frozen=True)
class Precision:
    """Precision of a run's matrix products, and the reason.

    Attributes:
        name: ``float32`` or ``bfloat16``.
        reason: Why, in words that go on after "products in float32: ".
    """

    name: str
    reason: str

    @property
    def dtype(self) -> torch.dtype:
        """The precision as torch has it."""
        return DTYPES[self.name]


def choose_precision(
    config: ExperimentConfig, *, device: torch.device | str, begun: Mapping[str, Any] | None = None
) -> Precision:
    """Choose the precision that ``training.precision`` means for a run on a device.

    ``auto`` is bfloat16 where the device has instructions for it and networks and minibatches are large enough to gain,
    else float32. A run that has begun goes on in its precision, wherever that is.

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


# The tensor operations of a training step between the chains and the optimizer, recorded once and repeated.


_TRUSTED = ("discrete_vae.", "torch.nn.")


class RecordedStep:
    """Evaluates the loss and its gradients step after step, on the CPU by repeating recorded operations.

    A step of a small model is a thousand short operations, of which torch's modules, its autograd and Python cost more
    than the arithmetic. So the first batch of each shape is recorded, the second one evaluated both ways and compared
    to the last bit, and from then on the recording is repeated: results are those of the unrecorded step. Models with
    modules of the user's own, or with hooks, whose code may do more than torch sees, are evaluated as they are; so is
    everything on other devices, and a model whose every parameter is frozen.

    Each step looks whether what a recording takes as given is still so, see `_Structure`. If not, steps are recorded
    anew; a module of the user's own or a hook that is there now ends the recording, with a warning.
    """

    def __init__(
        self,
        model: DiscreteVAE,
        optimizer: Adam,  # which has the gradients' memory
        gradient: GradientEstimator | None = None,  # None is `Reparameterized`
        *,
        record: bool = True,
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._gradient = Reparameterized.of(model) if gradient is None else gradient
        self._generator: torch.Generator | None = None  # one object, which a recording can go on using
        self._weights: tuple[int, float, float] | None = None
        self._grad_outputs: GradOutputs | tuple[()] = ()  # of these weights
        self._num_hooks = RemovableHandle.next_id
        self._see_structure()
        reason = _why_not(model, self._gradient) if record else "training.record is false"
        self.functions = ReplayedFunctions(self._state, reason)  # its reason says why nothing is recorded

    def take_gradients(
        self,
        x: Tensor,
        negative_phase: Tensor,
        *,
        discrete: float,
        continuous: float,
        num_importance_samples: int,
        noise_key: tuple[int, ...],
        condition: Tensor | None = None,
        labels: Tensor | None = None,
        label_weight: float = 1.0,
    ) -> tuple[LossTerms, tuple[float, ...]]:
        """Evaluate the terms of the loss, and give the parameters the gradients of their weighted sum.

        x is (batch, *event) or (batch, feature); the negative phase, (chain, unit), holds states of the prior. The
        weights of the two KLs are ``discrete`` and ``continuous``. A condition is (batch, column), labels are (batch,)
        int64, with ``label_weight`` on log q(y | x). Values are not checked. Returns the terms, (batch,) each, without
        gradient, and their means over the batch, nats.

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
            self._weights = weights
            self._grad_outputs = loss_gradients(*weights, like=self._model.prior.bias)
        for each in self._copies:
            if each.dtype != each.master.dtype:
                each.current()
        kind = (x.shape, x.dtype, negative_phase.shape, num_importance_samples, self._model.training)
        given = ()
        if condition is not None:
            given, kind = (condition,), (*kind, condition.shape, condition.dtype)
        key = ("bound", *kind, torch.get_num_threads())
        inputs = (x, negative_phase, *self._grad_outputs, reseed(self._generator, *noise_key), *given)
        evaluate = partial(self._evaluate, num_importance_samples, labels, label_weight)
        sums, *found = self._call(key, evaluate, *inputs)
        for leaf, gradient in zip(self._leaves, found[3:], strict=True):
            if leaf.grad is not gradient:  # a recording gives the same memory again
                leaf.grad = gradient
        terms = LossTerms(*(term.clone() for term in found[:3] if term is not None))
        assert sums is not None
        return terms, tuple(total / num_examples for total in sums.tolist())

    def _evaluate(
        self,
        num_importance_samples: int,
        labels: Tensor | None,
        label_weight: float,
        x: Tensor,
        negative_phase: Tensor,
        *rest: Any,
    ) -> Sequence[Tensor | None]:
        """The sums of the terms, the terms, then the gradient by each leaf, None for those without one."""
        model, (first, second, third, generator, *given) = self._model, rest
        self._optimizer.zero_grad()  # lends the gradients' memory anew
        x = x.reshape(-1, *model.likelihood.event_shape).to(torch.promote_types(model.dtype, torch.float32))
        observed = model.likelihood.observed_mask(x, None, missing=model.missing)
        c = given[0].to(x.dtype) if given else None
        of_prior = model.prior.compute_negative_phase(negative_phase)
        weight = second * len(x)
        batch = Batch(
            x, observed, of_prior, num_importance_samples, weight, generator, c, labels, label_weight
        )
        estimate = self._gradient.estimate(model, batch, (first, second, third))
        leaves = self._optimizer.gradient_leaves()
        gradients = (None,) * len(leaves)
        if pairs := estimate.outputs():  # none where every parameter of the model is frozen
            outputs, grad_outputs = zip(*pairs, strict=True)
            gradients = torch.autograd.grad(outputs, leaves, grad_outputs, allow_unused=True)
        terms = [term.detach() for term in estimate.terms]
        return row_sum(torch.stack(terms, 1)), *terms, *gradients

    def project_(self) -> None:
        """`DiscreteVAE.project_`."""
        self._call("bounds", self._project_)

    def _project_(self) -> tuple[()]:
        self._model.project_()
        return ()

    def _see_structure(self) -> None:
        self._num_parameters = self._optimizer.num_parameters
        self._structure, self._copies = _Structure(self._model, self._gradient), _working_weights(self._model)
        self._leaves = self._optimizer.gradient_leaves()

    def _look_for_changes(self) -> None:
        hooks = RemovableHandle.next_id
        same = self._structure.holds() and self._optimizer.num_parameters == self._num_parameters
        if same and hooks == self._num_hooks:
            return
        self._num_hooks = hooks  # somebody has registered one somewhere
        if not same:
            self._optimizer.forget_leaves()
            self._see_structure()
            self.functions.restart()
        if self.functions.reason is None and (reason := _why_not(self._model, self._gradient)) is not None:
            self.functions.stop(reason)

    def _call(self, key: Any, function: Any, *inputs: Any) -> Sequence[Tensor | None]:
        # rounding is switched off around energies, which a recording would not repeat
        plain = not self._model.prior.bias.is_cpu or not is_eager() or rounds_products("cpu")
        if plain or self._structure.is_frozen:
            return function(*inputs)
        return self.functions(key, function, *inputs)

    def _state(self) -> Iterator[Tensor]:
        for module in (self._model, self._gradient):
            yield from module.parameters()
            yield from module.buffers()
        yield from self._optimizer.gradient_leaves()
        for each in self._copies:
            yield from (each.current(), each.own_memory())


def _working_weights(model: DiscreteVAE) -> list[MixedPrecisionWeight]:
    """The low-precision copies that the products of the model's layers read in place of their weights."""
    found = [part.mixed_precision for part in model.modules() if isinstance(part, MixedPrecisionLayer)]
    return [working for working in found if working is not None]


class _Structure:
    """The fingerprint of modules: their tensors and where these lie, their parts, modes and settings.

    A recording takes it as given. A number inside a list or another object that a module refers to is not looked at;
    the object in its place is.
    """

    def __init__(self, *parts: nn.Module) -> None:
        modules = [module for part in parts for module in part.modules()]
        self._modules = [each._modules for each in modules]
        self._attributes = [vars(each) for each in modules]
        self._holders = [holder for each in modules for holder in (each._parameters, each._buffers)]
        self._classes = {type(each) for each in modules}
        # what a module has beside torch's own dictionaries of hooks, parameters and the like
        names = [sorted(each.keys() - _OF_EVERY_MODULE) for each in self._attributes]
        self._settings = [itemgetter("training", *each) for each in names]
        self._tensors_then = self._tensors()
        self._present = [each for each in self._tensors_then if each is not None]
        self.is_frozen = not any(each.requires_grad for each in self._present)
        self._then = self._now()
        self._modules_then = [dict(each) for each in self._modules]

    def holds(self) -> bool:
        tensors = self._tensors()
        try:
            return (
                len(tensors) == len(self._tensors_then)
                and all(map(is_, tensors, self._tensors_then))
                and self._modules == self._modules_then
                and self._now() == self._then
            )
        except Exception:  # a setting is missing, or an array, whose comparison has no single answer
            return False

    def _tensors(self) -> list[Tensor | None]:
        return [*chain.from_iterable(map(dict.values, self._holders))]

    def _now(self) -> tuple[list[Any], ...]:
        """Places in memory, what is frozen, settings, how many attributes there are, and the methods.

        Each of these is one pass without Python between its items: a step waits for it.
        """
        return (
            [*map(Tensor.data_ptr, self._present)],
            [*map(_REQUIRES_GRAD, self._present)],
            [*map(call, self._settings, self._attributes)],  # pyright: ignore[reportArgumentType]
            [*map(len, self._attributes)],
            [*map(_FORWARD, self._classes)],
        )


_REQUIRES_GRAD, _FORWARD = attrgetter("requires_grad"), attrgetter("forward")
_OF_EVERY_MODULE = vars(nn.Module()).keys()


def _why_not(*parts: nn.Module) -> str | None:
    """The reason for which steps with a model, and an estimator of its gradient, are not recorded; None if they are."""
    for module in chain.from_iterable(part.modules() for part in parts):
        if not type(module).__module__.startswith(_TRUSTED):
            return f"{type(module).__name__} is a module of your own"
        if has_hooks((module,)):
            return f"{type(module).__name__} has hooks"
        if isinstance(module, Posterior) and module.num_classes:
            return "the rows of a model with classes depend on which labels are known"
    for name, parameter in chain.from_iterable(part.named_parameters() for part in parts):
        if parameter._backward_hooks:
            return f"the parameter {name} has hooks"
    return None
