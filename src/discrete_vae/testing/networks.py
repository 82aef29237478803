"""Laws of an encoder, a decoder and a factory of networks.

Each function raises AssertionError where a law is broken, and leaves the module, its mode and torch's global generator
as they were. A module is tried in its own dtype and on its own device.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from discrete_vae.nets.mlp import NetworkFactory

_ROWS = 6
_FAR = 50.0  # a start of the output that no network has by chance


def check_encoder(module: nn.Module, input_shape: Sequence[int], *, x: Tensor | None = None) -> None:
    """Check a module for `DiscreteVAE(encoder=)`: (batch, *input_shape) -> (batch, feature).

    In evaluation mode, which estimates use, its output is finite, depends on x, is the same at each call, and the
    features of an example do not depend on the rest of the batch. In training mode a gradient reaches every parameter
    that asks for one. A copy is a module of its own, and `state_dict` holds all that the output depends on.

    ``input_shape`` is the likelihood's. It reads ``x``, at least two different rows; None draws from a normal law.

    Examples:
        >>> check_encoder(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), (1, 8, 8))
    """
    read = (_like(module, torch.randn, _ROWS, *input_shape) if x is None else x,)
    features = _check_module(module, read)
    assert features.dim() == 2, f"the output has shape {_shape(features)}, not (batch, feature)"
    known = getattr(module, "num_features", None)
    stated = not isinstance(known, int) or known == features.shape[1]
    assert stated, f"num_features is {known}, and the output has {features.shape[1]}"


def check_decoder(module: nn.Module, num_latents: int, parameter_shape: Sequence[int]) -> None:
    """Check a module for `DiscreteVAE(decoder=)`: (row, latent) -> (row, *parameter_shape).

    What `check_encoder` asks for, and that the gradient reaches the latents. Where there is an
    `initialize_output_(start)`, the output is near start after it. ``num_latents`` is the hierarchy's `decoder_size`,
    ``parameter_shape`` the likelihood's.

    Examples:
        >>> check_decoder(nn.Sequential(nn.Linear(10, 64), nn.Unflatten(1, (1, 8, 8))), 10, (1, 8, 8))
    """
    latents = _like(module, torch.rand, _ROWS, num_latents)
    output = _check_module(module, (latents,), to_inputs=True)
    wanted = (_ROWS, *parameter_shape)
    assert output.shape == wanted, f"the output has shape {_shape(output)}, not {wanted}"
    initialize = getattr(module, "initialize_output_", None)
    if initialize is not None:
        twin = copy.deepcopy(module).eval()
        start = _like(module, torch.full, tuple(parameter_shape), _FAR)
        with torch.no_grad():
            twin.initialize_output_(start)  # pyright: ignore[reportCallIssue]
            miss = float((twin(latents) - start).abs().mean())
        assert miss < _FAR / 2, f"after initialize_output_ the output is {miss:.3g} away from the start"


def check_network(factory: NetworkFactory) -> None:
    """Check a factory for `HierarchicalPosterior(network=)` or `GaussianHierarchy(network=)`.

    It is tried with one, two and three inputs. Beside what `check_encoder` asks for: inputs whose leading axes
    broadcast give what they give when expanded, the gradient reaches every input, and each call makes a network with
    parameters of its own.

    Examples:
        >>> from functools import partial
        >>> from discrete_vae.nets.mlp import MLP
        >>> check_network(partial(MLP, hidden=(5,)))
    """
    for sizes in ([5], [5, 3], [5, 3, 2]):
        network, other = factory(sizes, 4), factory(sizes, 4)
        mine, others = ({id(value) for value in each.parameters()} for each in (network, other))
        assert not mine & others, "two networks share a parameter"
        inputs = tuple(_like(network, torch.randn, _ROWS, size) for size in sizes)
        output = _check_module(network, inputs, to_inputs=True)
        assert output.shape == (_ROWS, 4), f"{sizes} give the shape {_shape(output)}, not ({_ROWS}, 4)"
        _check_broadcast(copy.deepcopy(network).eval(), inputs)


@torch.no_grad()
def _check_broadcast(network: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """The features are (batch, size) where the latents are (sample, batch, size)."""
    features, *latents = inputs
    latents = [torch.stack([value, -value, value / 2]) for value in latents]
    front = (3, _ROWS) if latents else (_ROWS,)
    output = network(features, *latents)
    assert output.shape == (*front, 4), f"with samples the shape is {_shape(output)}, not {(*front, 4)}"
    expanded = network(features.expand(*front, -1), *latents)
    assert _close(output, expanded), "inputs that broadcast do not give what they give when expanded"


def _check_module(module: nn.Module, inputs: tuple[Tensor, ...], *, to_inputs: bool = False) -> Tensor:
    """Every law that needs no shape; returns the output in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        output = _check_function(copy.deepcopy(module).eval(), inputs)
        _check_copies(module, inputs)
        _check_gradients(copy.deepcopy(module).train(), inputs, to_inputs)
    return output


@torch.no_grad()
def _check_function(module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    state = copy.deepcopy(module.state_dict())
    output = module(*inputs)
    assert isinstance(output, Tensor), f"the output is {type(output).__name__}, not a tensor"
    assert output.is_floating_point(), f"the output is {output.dtype}"
    assert output.dim() > 0, "the output is a single number"
    assert len(output) == len(inputs[0]), f"{len(inputs[0])} rows give an output of shape {_shape(output)}"
    assert bool(output.isfinite().all()), "the output is not finite"
    assert torch.equal(module(*inputs), output), "in evaluation mode, a second call gives something else"
    same = all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    assert same, "a call in evaluation mode changes the state"
    alone = [module(*(value[row : row + 1] for value in inputs)) for row in range(len(output))]
    assert _close(torch.cat(alone), output), "in evaluation mode, a row depends on the rest of its batch"
    assert not bool((output == output[:1]).all()), "the output does not depend on the input"
    return output


def _check_gradients(module: nn.Module, inputs: tuple[Tensor, ...], to_inputs: bool) -> None:
    inputs = tuple(value.detach().clone().requires_grad_(to_inputs) for value in inputs)
    output = module(*inputs)
    named = [*module.named_parameters(), *((f"input {n}", value) for n, value in enumerate(inputs))]
    wanted = [(name, value) for name, value in named if value.requires_grad]
    if not wanted:
        return
    assert output.requires_grad, "no gradient reaches anything"
    weights = torch.linspace(0.5, 1.5, output.numel(), dtype=output.dtype, device=output.device)
    (output * weights.view_as(output)).sum().backward()
    for name, value in wanted:
        assert value.grad is not None, f"no gradient reaches {name}"
        assert bool(value.grad.isfinite().all()), f"the gradient of {name} is not finite"
        assert not name.startswith("input") or bool((value.grad != 0).any()), f"no gradient reaches {name}"


def _check_copies(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """A copy and a module that has been trained meanwhile, which takes over the state of the other."""
    first, trained = copy.deepcopy(module).eval(), copy.deepcopy(module).train()
    with torch.no_grad():
        before = first(*inputs)
        for value in trained.parameters():
            value.add_(0.1 * torch.randn_like(value))
        for scale in (1.0, 3.0):
            trained(*(scale * value + 1 for value in inputs))  # what it gathers in training mode
        after = trained.eval()(*inputs)
        changes = any(True for _ in module.parameters())
        assert torch.equal(first(*inputs), before), "training a copy changes the module"
        own = not changes or not torch.equal(after, before)
        assert own, "a copy does not compute with its own parameters"
        first.load_state_dict(trained.state_dict())
        assert torch.equal(first(*inputs), after), "state_dict does not hold all that the output depends on"


def _like(module: nn.Module, draw: Callable[..., Tensor], *arguments: object) -> Tensor:
    """Values from a seed of its own, in the dtype and on the device of a module."""
    weight = next(module.parameters(), torch.zeros(()))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        return draw(*arguments, device="cpu").to(weight)


def _close(one: Tensor, other: Tensor) -> bool:
    """Equal up to the rounding of sums in another order."""
    tolerance = 1e3 * torch.finfo(one.dtype).eps
    scale = float(other.abs().max())
    return one.shape == other.shape and bool(((one - other).abs() <= tolerance * max(scale, 1e-3)).all())


def _shape(value: Tensor) -> tuple[int, ...]:
    return tuple(value.shape)
