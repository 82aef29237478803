"""On a real GPU: the numbers of the CPU, laws by enumeration, and no wait inside a step. Skipped without one."""

import copy
from contextlib import contextmanager

import pytest
import torch

from discrete_vae import (
    RBM,
    BlockGibbs,
    ParallelTempering,
    RunningMoments,
    TrajectoryTempering,
    annealed_log_partition,
    bennett_log_partition,
    exact_log_partition,
)
from discrete_vae.kernels.gibbs import run_sweeps
from discrete_vae.numerics import full_precision
from discrete_vae.testing import check_mean, enumerate_machine
from tests.boltzmann.graphs import FIVE_UNITS, randomize
from tests.devices.models import CHANGES, build, data
from tests.oracles.transitions import check_sweeps

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


@contextmanager
def waiting_is_an_error():
    """Inside, an operation that waits for the device raises; torch does not see every one."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", CHANGES)
def test_a_training_step_waits_for_nothing(name):
    model = build(name).cuda()
    x, states = (part.cuda() for part in data(model))
    chains = BlockGibbs(model.prior, 9, seed=0, start=states)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)

    def step():
        model(x, negative_phase=chains.step(2), log_partition=3.0).loss.backward()
        optimizer.step()
        model.project_()

    step()  # libraries start, and Adam makes its moments
    with waiting_is_an_error():
        step()
    assert all(bool(part.grad.isfinite().all()) for part in model.parameters())


@pytest.mark.parametrize("name", CHANGES)
def test_the_objective_and_its_gradient_are_those_of_the_cpu(name, fixed_noise):
    # In 64 bits: in 32, rounding switches a rectifier on for one device and off for the other.
    model = build(name).double()
    twin, found = copy.deepcopy(model).cuda(), {}
    x, states = (part.double() for part in data(model))
    for each, device in ((model, "cpu"), (twin, "cuda")):
        elbo = each(x.to(device), negative_phase=states.to(device), log_partition=3.0)
        elbo.loss.backward()
        gradients = {key: part.grad.cpu() for key, part in each.named_parameters()}
        found[device] = elbo.value.detach().cpu(), gradients
    torch.testing.assert_close(found["cuda"][0], found["cpu"][0])
    for key, gradient in found["cpu"][1].items():
        scale = max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(found["cuda"][1][key], gradient, rtol=1e-7, atol=1e-8 * scale)


@pytest.mark.parametrize("name", CHANGES)
def test_evaluation_and_drawing(name):
    model = build(name).cuda().eval()
    x, states = (part.cuda() for part in data(model))
    likelihood = model.log_likelihood(x, 7, log_partition=3.0, chunk_size=4)
    assert likelihood.value.device.type == "cuda"
    assert bool(likelihood.value.isfinite().all())
    drawn, again = (model.encode(x, seed=1) for _ in range(2))
    assert torch.equal(drawn.zeta, again.zeta)
    for statistic in ("mean", "mode", "sample"):
        assert model.reconstruct(x, statistic=statistic, seed=1).shape == x.shape
    assert model.decode(drawn.zeta, drawn.h).device.type == "cuda"
    assert model.sample(z=states, seed=1).mean.shape == (len(states), *model.event_shape)


@pytest.mark.parametrize("name", FIVE_UNITS)
def test_energies_are_those_of_the_cpu_under_autocast_and_tf32(name):
    machine = FIVE_UNITS[name]()
    twin = copy.deepcopy(machine).cuda()
    z = torch.bernoulli(torch.full((100, 5), 0.5), generator=torch.Generator().manual_seed(0))
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        with torch.autocast("cuda", torch.bfloat16):
            found = twin.energy(z.cuda()), twin.free_energy(z.cuda())
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    for got, want in zip(found, (machine.energy(z), machine.free_energy(z)), strict=True):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got.cpu(), want, rtol=1e-5, atol=1e-5)


def test_products_are_exact_inside_and_rounded_outside():
    """The planted fault: without the guard TF32 is seen, on devices that have it."""
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("the device has no TF32")
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(256, 256, generator=generator, dtype=torch.float64) for _ in range(2))
    exact, narrow = a @ b, (a.float().cuda(), b.float().cuda())
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        rounded = (narrow[0] @ narrow[1]).double().cpu()
        with full_precision(narrow[0]):
            kept = (narrow[0] @ narrow[1]).double().cpu()
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert float((kept - exact).abs().max()) < 1e-3 < float((rounded - exact).abs().max())


@pytest.mark.parametrize("name", FIVE_UNITS)
def test_sweeps_keep_the_law(name):
    machine = FIVE_UNITS[name]()
    twin = copy.deepcopy(machine).cuda()
    check_sweeps(machine, lambda z: run_sweeps(twin, z.cuda(), 1, key=7, first_sweep=1).cpu(), repeats=3000)


def test_chains_wait_for_nothing_and_their_state_goes_to_the_cpu_and_back():
    rbm = randomize(RBM(5, 4)).cuda()
    chains, moments = BlockGibbs(rbm, 600, seed=1), RunningMoments(rbm, 600)
    chains.step(2, moments=moments)
    with waiting_is_an_error():
        chains.step(20, moments=moments)
    saved = {name: value.cpu() for name, value in chains.state_dict().items()}
    expected = chains.step(3)
    twin = BlockGibbs(rbm, 600, seed=1)
    twin.load_state_dict(saved)
    assert torch.equal(twin.step(3), expected)
    assert moments.value().mean.device.type == "cuda"


@pytest.mark.parametrize("kind", [BlockGibbs, ParallelTempering, TrajectoryTempering])
def test_chains_sample_the_machine(kind):
    machine = randomize(RBM(3, 2))
    mean = enumerate_machine(machine).pair_moments().diagonal()
    chains = kind(machine.cuda(), 4000, seed=3)
    z = chains.step(60).cpu().double()
    check_mean(z.reshape(100, 40, 5).mean(1), mean.detach())


def test_log_partition_is_the_exact_one():
    rbm = randomize(RBM(5, 4))
    exact = exact_log_partition(rbm).value
    rbm = rbm.cuda()
    assert exact_log_partition(rbm).value == pytest.approx(exact, abs=1e-5)
    annealed = annealed_log_partition(rbm, num_chains=1000, num_temperatures=200)
    bridge = bennett_log_partition(rbm, std_error=0.02, num_chains=100)
    for found in (annealed, bridge):
        assert abs(found.value - exact) < 6 * found.std_error
