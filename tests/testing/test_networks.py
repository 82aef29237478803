"""The shipped contracts of encoders, decoders and networks: they hold for ours, and find what is wrong."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from discrete_vae.config import DecoderConfig, EncoderConfig, MLPDecoderConfig, instantiate, members
from discrete_vae.nets.mlp import MLP
from discrete_vae.testing import check_decoder, check_encoder, check_network


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 14)], ids=str)
def test_ours(shape):
    for kind in members(EncoderConfig):
        check_encoder(instantiate(kind(), input_shape=shape), shape)
    for config in (*(kind() for kind in members(DecoderConfig)), MLPDecoderConfig(hidden=(7,))):
        check_decoder(instantiate(config, num_latents=5, parameter_shape=shape), 5, shape)
    state = torch.get_rng_state()
    for hidden in ((), (6,), (6, 5)):  # the factory of the paper
        check_network(partial(MLP, hidden=hidden))
    assert torch.equal(torch.get_rng_state(), state)  # of torch's global generator


def test_modules_of_torch_with_batch_norm_and_dropout_pass_and_stay_as_they_were():
    parts = (nn.Flatten(), nn.Linear(12, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Dropout(), nn.Linear(9, 5))
    net = nn.Sequential(*parts)
    state = {name: value.clone() for name, value in net.state_dict().items()}
    with torch.random.fork_rng():
        check_encoder(net.double(), (3, 2, 2))
        check_encoder(net, (3, 2, 2), x=torch.rand(4, 3, 2, 2).double())
        check_decoder(nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (2, 3))), 4, (2, 3))
        check_encoder(nn.Flatten(), (3, 2))
    assert all(torch.equal(value, state[name].to(value.dtype)) for name, value in net.state_dict().items())
    assert net.training


class Faulty(nn.Module):
    """A right network, (row, 4) -> (row, 3), for a fault to spoil."""

    def __init__(self, forward=None):
        super().__init__()
        self.map = nn.Linear(4, 3)
        self.spoiled = forward

    def forward(self, x):
        return self.map(x) if self.spoiled is None else self.spoiled(self.map, x)


class GathersInEval(Faulty):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return self.map(x)


class Unused(Faulty):
    def __init__(self):
        super().__init__()
        self.extra = nn.Parameter(torch.zeros(2))


class HiddenStatistics(Faulty):
    """Running statistics in a plain attribute."""

    def __init__(self):
        super().__init__()
        self.mean = torch.zeros(4)

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.map(x - self.mean)


class SharedClosure(Faulty):
    """A copy still computes with the parameters of the first."""

    def __init__(self):
        super().__init__()
        self.apply_map = lambda x: self.map(x)

    def forward(self, x):
        return self.apply_map(x)


class ListOfLayers(Faulty):
    """Layers that nobody trains or saves."""

    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 4)]

    def forward(self, x):
        return self.map(self.layers[0](x))


FAULTS = {  # and a word of the message
    "other rows": (partial(Faulty, lambda f, x: f(x - x.mean(0))), "batch"),
    "noise in evaluation": (partial(Faulty, lambda f, x: nn.functional.dropout(f(x), 0.5)), "second call"),
    "constant": (partial(Faulty, lambda f, x: f(torch.zeros_like(x))), "depend"),
    "not finite": (partial(Faulty, lambda f, x: f(x) / 0), "finite"),
    "infinite slope": (partial(Faulty, lambda f, x: f(x) + (f.bias - f.bias.detach()).sqrt()), r"map\.bias"),
    "one row": (partial(Faulty, lambda f, x: f(x).sum(0, keepdim=True)), "6 rows"),
    "whole numbers": (partial(Faulty, lambda f, x: f(x).round().long()), "int64"),
    "a pair": (partial(Faulty, lambda f, x: (f(x), None)), "tuple"),
    "gathers in evaluation": (GathersInEval, "state"),
    "unused": (Unused, "extra"),
    "hidden statistics": (HiddenStatistics, "state_dict"),
    "shared closure": (SharedClosure, "copy"),
    "a list of layers": (ListOfLayers, "state_dict"),
}


@pytest.mark.parametrize(("fault", "word"), FAULTS.values(), ids=FAULTS)
def test_faults_are_found(fault, word):
    checks = [lambda: check_encoder(fault(), (4,)), lambda: check_decoder(fault(), 4, (3,))]
    if fault not in (GathersInEval, Unused, SharedClosure):  # others spoil a part of a factory's network too
        checks.append(lambda: check_network(lambda sizes, outputs: Joined(fault, sizes, outputs)))
    for check in checks:
        torch.manual_seed(0)
        with pytest.raises(AssertionError, match=word):
            check()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_hides_no_fault(dtype):
    torch.manual_seed(0)
    check_encoder(nn.Linear(4, 3).to(dtype), (4,))
    with pytest.raises(AssertionError):
        check_encoder(Faulty(lambda f, x: f(x - x.mean(0))).to(dtype), (4,))


class Joined(nn.Module):
    """A network of several inputs in front of a fault."""

    def __init__(self, fault, sizes, outputs):
        super().__init__()
        self.read = MLP(sizes, 4)
        self.fault = fault()
        self.output = nn.Linear(3, outputs)

    def forward(self, *inputs):
        result = self.fault(self.read(*inputs))
        is_float = isinstance(result, torch.Tensor) and result.is_floating_point()
        return self.output(result) if is_float else result


class Deaf(Faulty):
    """Does not start where it is told."""

    def initialize_output_(self, start):
        pass


def cut_off(f, x):
    return f(x).detach() + 0 * f.weight.sum() + 0 * f.bias.sum()


def test_faults_of_shape_gradient_and_start():
    wide = nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (2, 3)))
    for check, word in (
        (lambda: check_encoder(wide, (4,)), r"\(6, 2, 3\)"),
        (lambda: check_decoder(nn.Linear(4, 3), 4, (3, 1)), r"\(6, 3, 1\)"),
        (lambda: check_decoder(Faulty(cut_off), 4, (3,)), "input 0"),
        (lambda: check_decoder(Deaf(), 4, (3,)), "initialize_output_"),
    ):
        with pytest.raises(AssertionError, match=word):
            check()


class BadBroadcast(nn.Module):
    """Joins the inputs by position, so that samples are mistaken for examples."""

    def __init__(self, sizes, outputs):
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(size, outputs) for size in sizes)

    def forward(self, *inputs):
        shape = torch.broadcast_shapes(*(value.shape[:-1] for value in inputs))
        parts = [
            m(v).repeat_interleave(math.prod(shape) // v[..., 0].numel(), 0) if v.dim() == 2 else m(v)
            for m, v in zip(self.maps, inputs, strict=True)
        ]
        return sum(part.reshape(*shape, -1) for part in parts)


def test_faults_of_a_factory():
    shared = nn.Linear(5, 4)
    for factory, word in (
        (lambda sizes, outputs: shared, "share"),
        (BadBroadcast, "broadcast"),
        (lambda sizes, outputs: MLP(sizes, outputs + 1), r"\(6, 5\)"),
    ):
        with pytest.raises(AssertionError, match=word):
            check_network(factory)
