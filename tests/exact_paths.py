"""The ways in which a model's networks compute, for tests against exact values."""

import copy
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch

from discrete_vae import importance_sampling
from discrete_vae.nets import mlp
from discrete_vae.nets.kernels import norm
from discrete_vae.nets.mlp import ConcatLinear
from discrete_vae.nets.precision import set_precision

NEVER = 10**9


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
    """

    name: str
    dtype: torch.dtype = torch.float32
    smallest_fused: int | None = 0
    draws: bool = True
    threads: int = 1
    rounding: float = 2e-5

    def __str__(self):
        return self.name

    @contextmanager
    def taken(self, model):
        """The model on this way, within the block."""
        if self.smallest_fused is None:
            yield model
            return
        threads, smallest = torch.get_num_threads(), (mlp.SMALLEST_FUSED, norm.SMALLEST_SHARED)
        passes = importance_sampling.compiled_draws
        twin = copy.deepcopy(model).float()
        set_precision(twin, self.dtype)
        try:
            torch.set_num_threads(self.threads)
            mlp.SMALLEST_FUSED, norm.SMALLEST_SHARED = self.smallest_fused, 0
            if not self.draws:
                importance_sampling.compiled_draws = lambda *_: None
            with twin.weigher(0.0) as weigher:
                assert weigher.takes_batches is self.draws
            yield twin
        finally:
            importance_sampling.compiled_draws = passes
            torch.set_num_threads(threads)
            mlp.SMALLEST_FUSED, norm.SMALLEST_SHARED = smallest


def trained(model):
    """The tensors that a model's gradients are taken by, one per parameter: what products read in place of some."""
    working = {part.weight: part.working for part in model.modules() if isinstance(part, ConcatLinear)}
    read = [(parameter, working.get(parameter)) for parameter in model.parameters()]
    return [parameter if own is None else own.current() for parameter, own in read]


def flat_gradient(value, model):
    """All gradients in a row, float64."""
    found = torch.autograd.grad(value, trained(model))
    return torch.cat([gradient.double().flatten() for gradient in found])


EXACT = Path("float64", torch.float64, smallest_fused=None, rounding=1e-9)
FAST = (
    Path("float32 by torch", smallest_fused=NEVER, draws=False),
    Path("float32 fused"),
    Path("float32 fused on two threads", threads=2),
    Path("bfloat16 fused", torch.bfloat16, rounding=0.03),
)


def by_path(names, fast_names):
    """Pairs for ``pytest.mark.parametrize``: all cases in float64, some in every fast way, most of these slow."""
    pairs = [pytest.param(name, EXACT) for name in names]
    for path in FAST:
        quick = path.smallest_fused == 0 and path.threads == 1
        for name in fast_names:
            marks = () if quick and name == fast_names[0] else pytest.mark.slow
            pairs.append(pytest.param(name, path, marks=marks))
    return pairs
