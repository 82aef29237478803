"""The ways in which a model's bound and its gradients are computed, for tests against exact values."""

import copy
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch

from discrete_vae.boltzmann.base import enumerate_log_partition
from discrete_vae.boltzmann.graph import GraphBoltzmann
from discrete_vae.kernels import importance, norm, rows
from discrete_vae.kernels.adam import Adam
from discrete_vae.log_partition.estimate import exact_log_partition
from discrete_vae.nets import mlp
from discrete_vae.nets.mlp import ConcatLinear, L1BatchNorm
from discrete_vae.nets.modes import set_precision
from discrete_vae.testing import enumerate_machine
from discrete_vae.training.step import RecordedStep

NEVER = 10**9
CHAINS = 3000  # states of the negative phase of a batch


@dataclass(frozen=True)
class Path:
    """One way.

    Attributes:
        name: What a test is called by.
        dtype: Of the products.
        smallest_fused: Activations from which networks are one operation; None leaves the model as it is, in float64.
        draws: Whether importance samples are drawn by compiled passes.
        threads: Of torch; compiled passes of any size use them.
        rounding: What a value or a gradient may be off by, relative to its size or to 1.
        make_step: Makes of a model and its working weights what takes a training step's gradients; None is autograd.
    """

    name: str
    dtype: torch.dtype = torch.float32
    smallest_fused: int | None = 0
    draws: bool = True
    threads: int = 1
    rounding: float = 2e-5
    make_step: Callable | None = None

    def __str__(self):
        return self.name

    @contextmanager
    def taken(self, model):
        """The model on this way, within the block."""
        if self.smallest_fused is None:
            yield model
            return
        threads, passes = torch.get_num_threads(), importance.compiled_draws
        smallest = mlp.SMALLEST_FUSED, norm.SMALLEST_SHARED, rows.SMALLEST_SHARED
        twin = copy.deepcopy(model).float()
        Adam(twin.parameters(), working=set_precision(twin, self.dtype))  # which reads the copies' gradients
        try:
            torch.set_num_threads(self.threads)
            mlp.SMALLEST_FUSED, norm.SMALLEST_SHARED, rows.SMALLEST_SHARED = self.smallest_fused, 0, 0
            if not self.draws:
                importance.compiled_draws = lambda *_: None
            with twin.importance_sampler(0.0) as importance_sampler:
                assert importance_sampler.takes_batches is self.draws
            yield twin
        finally:
            importance.compiled_draws = passes
            torch.set_num_threads(threads)
            mlp.SMALLEST_FUSED, norm.SMALLEST_SHARED, rows.SMALLEST_SHARED = smallest

    def estimates(self, model, x, num_batches, *, num_importance_samples=1, seed=0, condition=None):
        """Estimates by batches of an ELBO's terms, or a higher bound's, and of its gradient.

        Args:
            model: What `taken` gives, in evaluation mode.
            x: (batch, *event).
            num_batches: How many.
            num_importance_samples: As `DiscreteVAE.elbo` has it.
            seed: Of the noise.
            condition: c, (batch, column), of a model that has one.

        Yields:
            The means of reconstruction, KL of z and KL of h, (3,), and the `flat_gradient` of the bound's mean.
        """
        x = x.to(model.prior.bias.dtype)
        condition = None if condition is None else condition.to(x.dtype)
        if self.make_step is None:
            generator = torch.Generator().manual_seed(seed)
            for _ in range(num_batches):
                log_partition = enumerate_log_partition(model.prior)
                given = {"condition": condition, "num_importance_samples": num_importance_samples}
                bound = model.elbo(x, log_partition=log_partition, generator=generator, **given)
                terms = torch.stack([bound.reconstruction, bound.kl_discrete, bound.kl_continuous], -1)
                yield terms.mean(0).detach(), flat_gradient(bound.value.mean(), model)
            return
        step, machine = self.make_step(model), enumerate_machine(model.prior)
        of_log_z = torch.tensor([0.0, exact_log_partition(model.prior).value, 0.0])
        states = torch.Generator().manual_seed(seed)
        for batch in range(num_batches):
            chosen = torch.multinomial(machine.prob, CHAINS, replacement=True, generator=states)
            given = {"num_importance_samples": num_importance_samples, "condition": condition}
            given |= {"discrete": 1.0, "continuous": 1.0, "noise_key": (seed, batch)}
            _, means = step.take_gradients(x, machine.states[chosen].float(), **given)
            yield torch.tensor(means) + of_log_z, -flat([leaf.grad for leaf in trained(model)])
        if isinstance(step, RecordedStep) and not isinstance(model.prior, GraphBoltzmann):
            assert step.functions.reason is None
            assert [each.is_checked for each in step.functions._replays.values()] == [True]


def trained(model):
    """The tensors that a model's gradients are taken by, one per parameter: what products read in place of some."""
    linear = [part for part in model.modules() if isinstance(part, ConcatLinear)]
    working = {part.weight: part.mixed_precision for part in linear}
    read = [(parameter, working.get(parameter)) for parameter in model.parameters()]
    return [parameter if own is None else own.current() for parameter, own in read]


def flat_gradient(value, model):
    """All gradients in a row, float64."""
    return flat(torch.autograd.grad(value, trained(model)))


def flat(gradients):
    """Gradients in a row, float64."""
    return torch.cat([gradient.double().flatten() for gradient in gradients])


def log_prior(energy):
    """log p(z) of rows of z, with its gradient by the machine's parameters."""
    machine, powers = enumerate_machine(energy), 2 ** torch.arange(energy.num_units)
    return lambda z: machine.log_prob[(z.long() * powers).sum(-1)]


@torch.no_grad()
def randomize_norms(model, *, offsets=True):
    """Draw the running statistics of a model's norms, and where they shift."""
    for module in model.modules():
        if isinstance(module, L1BatchNorm):
            module.running_mean.normal_(0, 0.2)
            module.running_deviation.uniform_(0.5, 1.5)
            if offsets:
                module.offset.normal_(0, 0.5)


def working_of(model):
    """What products read in place of the weights."""
    return [part.mixed_precision for part in model.modules() if isinstance(part, ConcatLinear)]


def recorded(model):
    """A training step that repeats its recording."""
    return RecordedStep(model, Adam(model.parameters(), working=working_of(model)))


EXACT = Path("float64", torch.float64, smallest_fused=None, rounding=1e-9)
FAST = (
    Path("float32 by torch", smallest_fused=NEVER, draws=False),
    Path("float32 fused"),
    Path("float32 fused on two threads", threads=2),
    Path("bfloat16 fused", torch.bfloat16, rounding=0.03),
)


STEPS = (
    Path("float32 recorded", make_step=recorded),  # but for graphs, whose sparse products are not recorded
    Path("bfloat16 recorded", torch.bfloat16, rounding=0.03, make_step=recorded),
)
QUICK = {"float32 fused", "bfloat16 fused", "bfloat16 recorded"}  # of the first case


def by_path(names, fast_names, more=()):
    """Pairs for ``pytest.mark.parametrize``: all cases in float64, some in every fast way, most of these slow.

    Args:
        names: The cases.
        fast_names: Those that take the fast ways.
        more: Further ways, of `STEPS`.
    """
    pairs = [pytest.param(name, EXACT) for name in names]
    for path in (*FAST, *more):
        for name in fast_names:
            quick = path.name in QUICK and name == fast_names[0]
            marks = [] if quick else [pytest.mark.slow]
            pairs.append(pytest.param(name, path, marks=marks))
    return pairs
