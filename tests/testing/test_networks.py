"""The shipped contracts of encoders, decoders and networks: they hold for ours, and find what is wrong."""

import math
from functools import partial
from typing import get_args

import pytest
import torch
from torch import nn

from discrete_vae.config import instantiate
from discrete_vae.config.model import DecoderConfig, EncoderConfig
from discrete_vae.nets.mlp import MLP
from discrete_vae.testing.networks import check_decoder, check_encoder, check_network

SHAPES = [(1, 8, 8), (3, 9, 10)]


def members(union):
    """The configs of a union, each with its default settings and, where there are hidden layers, with one."""
    configs = []
    for kind in get_args(get_args(union)[0]) or get_args(union)[:1]:
        configs.append(kind())
        if "hidden" in kind.model_fields:
            configs.append(kind(hidden=(7,)))
    return configs


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("config", members(EncoderConfig), ids=lambda config: config.kind)
def test_encoders(config, shape):
    check_encoder(instantiate(config, input_shape=shape), shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("config", members(DecoderConfig), ids=lambda config: config.kind)
def test_decoders(config, shape):
    check_decoder(instantiate(config, num_latents=5, parameter_shape=shape), 5, shape)


@pytest.mark.parametrize("hidden", [(), (6,), (6, 5)], ids=str)
def test_the_factory_of_the_paper(hidden):
    check_network(partial(MLP, hidden=hidden))


def test_modules_of_torch_with_batch_norm_and_dropout_pass_and_stay_as_they_were():
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(12, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Dropout(), nn.Linear(9, 5)
    )
    state, noise = {name: value.clone() for name, value in net.state_dict().items()}, torch.get_rng_state()
    check_encoder(net.double(), (3, 2, 2))
    check_encoder(net, (3, 2, 2), x=torch.rand(4, 3, 2, 2).double())
    assert all(torch.equal(value, state[name].to(value.dtype)) for name, value in net.state_dict().items())
    assert net.training
    check_decoder(nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (2, 3))), 4, (2, 3))
    check_encoder(nn.Flatten(), (3, 2))
    torch.set_rng_state(noise)


class Faulty(nn.Module):
    """A right network, (row, 4) -> (row, 3), for the faults to spoil."""

    def __init__(self):
        super().__init__()
        self.map = nn.Linear(4, 3)

    def forward(self, x):
        return self.map(x)


class BatchCentered(Faulty):
    def forward(self, x):
        return self.map(x - x.mean(0))


class ForgetsEval(Faulty):
    def forward(self, x):
        return nn.functional.dropout(self.map(x), 0.5)


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


class CutOff(Faulty):
    def forward(self, x):
        return self.map(x).detach() + 0 * self.map.weight.sum() + 0 * self.map.bias.sum()


class Constant(Faulty):
    def forward(self, x):
        return self.map(torch.zeros_like(x))


class NotFinite(Faulty):
    def forward(self, x):
        return self.map(x) / 0


class InfiniteSlope(Faulty):
    def forward(self, x):
        return self.map(x) + (self.map.bias - self.map.bias.detach()).sqrt()


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


class SumsRows(Faulty):
    def forward(self, x):
        return self.map(x).sum(0, keepdim=True)


class Whole(Faulty):
    def forward(self, x):
        return self.map(x).round().long()


class Pair(Faulty):
    def forward(self, x):
        return self.map(x), None


FAULTS = [
    (BatchCentered, "a row depends on the rest of its batch"),
    (ForgetsEval, "a second call gives something else"),
    (GathersInEval, "changes the state"),
    (Unused, "no gradient reaches extra"),
    (Constant, "does not depend on the input"),
    (NotFinite, "not finite"),
    (InfiniteSlope, r"the gradient of (fault\.)?map.bias is not finite"),
    (HiddenStatistics, "state_dict does not hold all"),
    (SharedClosure, "a copy does not compute with its own parameters"),
    (SumsRows, "6 rows give an output of shape"),
    (Whole, "the output is torch.int64"),
    (Pair, "the output is tuple, not a tensor"),
]


@pytest.mark.parametrize(("fault", "message"), FAULTS, ids=lambda part: getattr(part, "__name__", ""))
def test_faults_are_found(fault, message):
    checks = [lambda: check_encoder(fault(), (4,)), lambda: check_decoder(fault(), 4, (3,))]
    if fault not in (GathersInEval, Unused, SharedClosure):  # others spoil a part of a factory's network too
        checks.append(lambda: check_network(lambda sizes, outputs: Joined(fault, sizes, outputs)))
    for check in checks:
        torch.manual_seed(0)
        with pytest.raises(AssertionError, match=message):
            check()


class Joined(nn.Module):
    """A network of several inputs in front of a fault."""

    def __init__(self, fault, sizes, outputs):
        super().__init__()
        self.read = MLP(sizes, 4)
        self.fault = fault()
        self.output = nn.Linear(3, outputs)

    def forward(self, *inputs):
        result = self.fault(self.read(*inputs))
        return (
            self.output(result) if isinstance(result, torch.Tensor) and result.is_floating_point() else result
        )


def test_faults_of_shape():
    with pytest.raises(AssertionError, match=r"shape \(6, 2, 3\), not \(batch, feature\)"):
        check_encoder(nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (2, 3))), (4,))
    with pytest.raises(AssertionError, match=r"shape \(6, 3\), not \(6, 3, 1\)"):
        check_decoder(nn.Linear(4, 3), 4, (3, 1))
    stated = nn.Linear(4, 3)
    stated.num_features = 5
    with pytest.raises(AssertionError, match="num_features is 5, and the output has 3"):
        check_encoder(stated, (4,))


def test_a_decoder_must_let_the_gradient_through_and_start_where_it_is_told():
    with pytest.raises(AssertionError, match="no gradient reaches input 0"):
        check_decoder(CutOff(), 4, (3,))

    class Deaf(Faulty):
        def initialize_output_(self, start):
            pass

    with pytest.raises(AssertionError, match="after initialize_output_ the output is .* away from the start"):
        check_decoder(Deaf(), 4, (3,))


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

    def one_for_all(sizes, outputs):
        return shared

    with pytest.raises(AssertionError, match="two networks share a parameter"):
        check_network(one_for_all)
    with pytest.raises(AssertionError, match="broadcast do not give what they give when expanded"):
        check_network(BadBroadcast)
    with pytest.raises(AssertionError, match=r"give the shape \(6, 5\)"):
        check_network(lambda sizes, outputs: MLP(sizes, outputs + 1))
