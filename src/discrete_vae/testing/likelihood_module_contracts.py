"""Laws of a likelihood as a module: shapes, precision, copies, starting values, outputs far out."""

from __future__ import annotations

import copy
import pickle

import torch
from torch import Tensor

from discrete_vae.likelihoods.base import Likelihood


@torch.no_grad()
def check_interface(likelihood: Likelihood, parameters: Tensor, x: Tensor) -> None:
    """Shapes, sample axes, precision, unobserved entries in the encoder's input, and copies.

    Args:
        likelihood: In float32.
        parameters: (batch, *parameter_shape), float32.
        x: (batch, *event), float32, in the domain, at least two rows.

    Raises:
        AssertionError: If one of them is wrong.
    """
    shape = tuple(x.shape)
    assert likelihood.num_features == x[0].numel()
    assert likelihood.check(x) is x, "check does not return x"
    value = likelihood.log_prob(parameters, x)
    assert value.shape == shape[:1], "log_prob does not sum over the features"
    three = parameters.expand(3, *parameters.shape)
    assert likelihood.log_prob(three, x).shape == (3, *shape[:1]), "log_prob loses the sample axis"
    for name in ("mean", "mode", "sample"):
        got = getattr(likelihood, name)(three)
        assert got.shape == (3, *shape), f"{name} has shape {tuple(got.shape)}"
        assert bool(got.isfinite().all()), f"{name} is not finite"
        assert got.dtype == torch.float32, f"{name} of float32 is {got.dtype}"
        assert getattr(likelihood, name)(parameters.bfloat16()).dtype == torch.float32, f"{name} is narrow"
    likelihood.check(likelihood.mode(parameters), exact=True)
    likelihood.check(likelihood.sample(parameters), exact=True)
    _check_precision(likelihood, parameters, x)
    hidden = torch.zeros_like(x, dtype=torch.bool)
    hidden[0] = True
    read = likelihood.network_input(x.masked_fill(hidden, torch.nan), ~hidden)
    assert read.shape == (*shape[:1], *likelihood.input_shape), f"network_input has shape {tuple(read.shape)}"
    assert read.dtype == x.dtype, "network_input changes the dtype"
    assert bool(read.isfinite().all()), "network_input is not finite"
    assert torch.equal(read[1:], likelihood.network_input(x)[1:]), "the mask changes observed entries"
    for twin in (copy.deepcopy(likelihood), pickle.loads(pickle.dumps(likelihood))):
        assert torch.equal(twin.log_prob(parameters, x), value), "a copy has another log_prob"


@torch.no_grad()
def check_initialization(likelihood: Likelihood, x: Tensor) -> None:
    """`initialize_` is deterministic, heeds observed entries only, and starts better than zeros before it.

    NaN and a mask over other values say the same. A feature that was never observed, and one that is constant, leave
    everything finite.

    Args:
        likelihood: In float32, as built.
        x: (example, *event), float32, in the domain, without NaN, of features whose means differ; at least two rows
            and two features.

    Raises:
        AssertionError: If one of them is wrong.
    """
    before = likelihood.log_prob(torch.zeros(len(x), *likelihood.parameter_shape), x).mean()
    start = likelihood.initialize_(x)
    assert tuple(start.shape) == likelihood.parameter_shape, f"the start has shape {tuple(start.shape)}"
    state = copy.deepcopy(likelihood.state_dict())
    after = likelihood.log_prob(start.expand(len(x), *start.shape), x).mean()
    assert bool(after >= before), f"log p is {float(after):.4g} at the start, {float(before):.4g} before"
    hidden = torch.zeros_like(x, dtype=torch.bool)
    hidden[: len(x) // 2].flatten(1)[:, 0] = True
    hidden.flatten(1)[:, 1] = True
    starts, states = [], []
    for value, observed in ((torch.nan, None), (torch.nan, ~hidden), (1.0, ~hidden)):
        starts.append(likelihood.initialize_(x.masked_fill(hidden, value), observed))
        states.append(copy.deepcopy(likelihood.state_dict()))
    for other_start, other in zip(starts, states, strict=True):
        same = [torch.equal(other[name], states[0][name]) for name in other]
        assert all([*same, torch.equal(other_start, starts[0])]), "unobserved entries reach the statistics"
    finite = [*states[0].values(), starts[0]]
    assert all(bool(v.isfinite().all()) for v in finite), (
        "a feature never observed leaves no finite statistics"
    )
    likelihood.initialize_(x[:1].expand_as(x))
    constant = likelihood.log_prob(start.expand(len(x), *start.shape), x[:1].expand_as(x))
    assert bool(constant.isfinite().all()), "constant features leave no finite log_prob"
    assert bool(likelihood.network_input(x).isfinite().all()), "constant features leave no finite input"
    assert torch.equal(likelihood.initialize_(x), start), "initialize_ depends on what was there before"
    again = likelihood.state_dict()
    assert all(torch.equal(again[name], state[name]) for name in state), "initialize_ is not deterministic"


def check_extremes(likelihood: Likelihood, x: Tensor, *, sizes: tuple[float, ...] = (30.0, 1e4)) -> None:
    """In float32, log p(x) and its gradients stay finite for outputs far out.

    Args:
        likelihood: In float32.
        x: (batch, *event), float32, in the domain.
        sizes: Absolute values of the outputs to try.

    Raises:
        AssertionError: If a value or a gradient is not finite.
    """
    for size in (*sizes, *(-size for size in sizes)):
        signs = torch.ones(len(x), *likelihood.parameter_shape)
        signs[:, ::2] = -1
        parameters = (size * signs).requires_grad_()
        value = likelihood.log_prob(parameters, x).sum()
        slopes = torch.autograd.grad(value, [parameters, *likelihood.parameters()])
        assert bool(value.isfinite()), f"log_prob is {float(value.detach())} at outputs of size {size:g}"
        assert all(bool(g.isfinite().all()) for g in slopes), f"a gradient is not finite at size {size:g}"


def _check_precision(likelihood: Likelihood, parameters: Tensor, x: Tensor) -> None:
    """log_prob is float32 or wider, and the same under autocast."""
    value = likelihood.log_prob(parameters, x)
    assert value.dtype == torch.float32, f"log_prob of float32 is {value.dtype}"
    narrow = likelihood.log_prob(parameters.bfloat16(), x)
    assert narrow.dtype == torch.float32, "log_prob of bfloat16 is not float32"
    rounded = likelihood.log_prob(parameters.bfloat16().float(), x)
    assert torch.equal(narrow, rounded), "log_prob computes in bfloat16"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(likelihood.log_prob(parameters, x), value), "autocast changes log_prob"
    assert likelihood.log_prob(parameters.double(), x.double()).dtype == torch.float64, "float64 is narrowed"
