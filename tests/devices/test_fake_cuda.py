"""On fake CUDA tensors nothing mixes devices, and nothing reads a value from the device."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import DataDependentOutputException

from discrete_vae.boltzmann.base import BoltzmannMachine
from tests.devices.models import CHANGES, build, data, empty_twin


@pytest.fixture(params=CHANGES)
def on_fake_cuda(request):
    """A model, a batch and chains on a device that is not there."""
    model = build(request.param)
    x, chains = data(model)
    with FakeTensorMode():
        empty_twin(model, "cuda")
        yield model, torch.empty(x.shape, device="cuda"), torch.empty(chains.shape, device="cuda")


def test_a_training_step(on_fake_cuda):
    model, x, chains = on_fake_cuda
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    elbo = model(x, negative_phase=chains, log_partition=3.0)
    assert elbo.value.device.type == "cuda"
    assert elbo.value.shape == (6,)
    assert elbo.loss.device.type == "cuda"
    # torch's engine starts a real device for a backward pass; what it computes is in test_compile.py
    for part in model.parameters():
        part.grad = torch.zeros_like(part)
    optimizer.step()
    model.project_()


def test_evaluation_and_drawing(on_fake_cuda):
    model, x, chains = on_fake_cuda
    assert model.log_likelihood(x, 7, log_partition=3.0, chunk_size=4).value.device.type == "cuda"
    drawn = model.encode(x)
    assert drawn.zeta.device.type == drawn.h.device.type == "cuda"
    assert model.reconstruct(x).shape == x.shape
    assert model.decode(drawn.zeta, drawn.h).device.type == "cuda"
    assert model.sample(z=chains).mean.shape == (len(chains), *model.event_shape)


def test_energies(on_fake_cuda):
    model, _, chains = on_fake_cuda
    prior = model.prior
    assert isinstance(prior, BoltzmannMachine)
    results = [prior.energy(chains), prior.free_energy(chains)]
    for block in range(len(prior.blocks)):
        results += [prior.block_logits(chains, block), prior.free_energy(chains, block, 0.5)]
    assert {part.device.type for part in results} == {"cuda"}


def test_a_constant_that_stayed_behind_is_found():
    """The planted fault: mixing devices is an error here as it is on a real one."""
    model = build("a graph")
    _, chains = data(model)
    left_behind = model.prior._edge_places
    with FakeTensorMode(allow_non_fake_inputs=True):
        empty_twin(model, "cuda")
        model.prior._buffers["_edge_places"] = left_behind
        with pytest.raises(RuntimeError, match="device"):
            model.prior.energy(torch.empty(chains.shape, device="cuda"))


def test_a_look_at_a_value_is_found():
    with FakeTensorMode(), pytest.raises(DataDependentOutputException):
        bool(torch.zeros(1, device="cuda").any())
