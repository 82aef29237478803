"""On fake CUDA tensors nothing mixes devices, and nothing reads a value from the device."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import DataDependentOutputException

from discrete_vae.boltzmann.base import BoltzmannMachine
from tests.devices.models import CHANGES, build, data, empty_twin


@pytest.mark.parametrize("name", CHANGES)
def test_training_evaluation_drawing_and_energies(name):
    model = build(name)
    x, chains = data(model)
    with FakeTensorMode():
        empty_twin(model, "cuda")
        x, chains = torch.empty(x.shape, device="cuda"), torch.empty(chains.shape, device="cuda")
        optimizer = torch.optim.Adam(model.parameters(), foreach=True)
        elbo = model(x, negative_phase=chains, log_partition=3.0)
        assert elbo.value.shape == (6,)
        # torch's engine starts a real device for a backward pass; what it computes is in test_compile.py
        for part in model.parameters():
            part.grad = torch.zeros_like(part)
        optimizer.step()
        model.project_()
        drawn, prior = model.encode(x), model.prior
        assert model.reconstruct(x).shape == x.shape
        assert model.sample(z=chains).mean.shape == (len(chains), *model.event_shape)
        found = [elbo.value, elbo.loss, drawn.zeta, drawn.h, model.decode(drawn.zeta, drawn.h)]
        found.append(model.log_likelihood(x, 7, log_partition=3.0, chunk_size=4).value)
        assert isinstance(prior, BoltzmannMachine)
        found += [prior.energy(chains), prior.free_energy(chains)]
        for block in range(len(prior.blocks)):
            found += [prior.block_logits(chains, block), prior.free_energy(chains, block, 0.5)]
        assert {part.device.type for part in found} == {"cuda"}


def test_a_constant_that_stayed_behind_is_found():
    """The planted fault: mixing devices is an error here as it is on a real one."""
    model = build("a graph and missing entries")
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
