"""Block-Gibbs sweeps: checks of a call, and dispatch among the kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from discrete_vae.boltzmann.base import BoltzmannMachine, check_parameters
from discrete_vae.boltzmann.graph import GraphBoltzmann
from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.checks import check_positive_int, check_tensor, values_are_known, values_are_readable
from discrete_vae.errors import InvalidInputError
from discrete_vae.kernels import gibbs_torch
from discrete_vae.kernels.gibbs_torch import SweepCall, fair_coins
from discrete_vae.kernels.loops import threads_for
from discrete_vae.kernels.registry import Kernel
from discrete_vae.nets.weights import described

LARGEST_INVERSE_TEMPERATURE = 1e6
_LARGEST_LOGIT = 1e37  # sums of scaled float32 weights stay finite below this


@torch.no_grad()
def run_sweeps(
    energy: BoltzmannMachine,
    z: Tensor,
    num_sweeps: int,
    *,
    key: int,
    first_sweep: int,
    first_chain: int = 0,
    inverse_temperature: Tensor | None = None,
    clamped: Tensor | None = None,
    kernel: Sweeps | None = None,
) -> Tensor:
    """Run block-Gibbs sweeps; each draws the blocks in the order of ``energy.blocks``, given all others.

    A unit becomes 1 where u < sigmoid(l), with l its logit times the chain's inverse temperature and u, on the CPU and
    where `gibbs_triton` runs, the uniform of (key, sweep, chain, unit) as `discrete_vae.kernels.gibbs_torch`
    defines it. The answer therefore depends neither on the number of threads nor on how sweeps and chains are divided
    among calls. Elsewhere the uniforms are the device's own, see `run_on_device`. Only on the CPU are values looked at.

    Args:
        energy: The machine, with finite parameters on the device of z.
        z: (chain, unit), in {0,1}.
        num_sweeps: Sweeps to run, at least 1.
        key: Philox key, an integer from 0 to 2^64 - 1.
        first_sweep: Number of the first sweep, at least 1 (0 belongs to the initial state); the last one must
            be below 2^64.
        first_chain: Number of the first chain; the last one must be below 2^32.
        inverse_temperature: (chain,), finite, multiplies all logits of a chain; None means 1.
        clamped: Bool, (unit,) or (chain, unit), True where a unit keeps its value; None means nowhere.
        kernel: The kernel to use; None chooses one by energy and device.

    Returns:
        A new tensor (chain, unit) float32 in {0,1}, without gradient.
    """
    check_tensor("z", z, ("chain", energy.num_units))
    num_chains = z.shape[0]
    check_positive_int("z.shape[0]", num_chains, repair="Give at least one chain.")
    check_positive_int("num_sweeps", num_sweeps)
    _check_range("key", key, 0, 2**64)
    _check_range("first_sweep", first_sweep, 1, 2**64 + 1 - num_sweeps)
    _check_range("first_chain", first_chain, 0, 2**32 + 1 - num_chains)
    if z.device != energy.bias.device:
        rule = f"must be on the device of the energy, {energy.bias.device}"
        raise InvalidInputError("z", rule, z.device, "Move it.")
    if inverse_temperature is not None:
        check_tensor("inverse_temperature", inverse_temperature, (num_chains,))
        inverse_temperature = inverse_temperature.to(z.device)
    if values_are_readable(energy.bias):
        check_logits(energy)
        if inverse_temperature is not None:
            _check_inverse_temperature(inverse_temperature)
    threads = threads_for(z.numel() * num_sweeps) if _compiles(energy) else 1
    call = SweepCall(
        num_sweeps=num_sweeps,
        key=key,
        first_sweep=first_sweep,
        first_chain=first_chain,
        inverse_temperature=inverse_temperature,
        clamped=None if clamped is None else check_clamped(clamped, tuple(z.shape)).to(z.device),
        num_threads=threads,
    )
    return (kernel or kernel_for(energy, parallel=threads > 1))(energy, z.float(), call)


def _check_range(name: str, value: object, low: int, end: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < end:
        rule = f"must be an integer from {low} to {end - 1}"
        raise InvalidInputError(name, rule, repr(value), "Use a plain int.")


def check_logits(energy: BoltzmannMachine) -> None:
    """Refuse a machine whose parameters are not finite or so large that logits may not be; waits for an accelerator."""
    check_parameters(energy, below=_LARGEST_LOGIT)


def _check_inverse_temperature(inverse_temperature: Tensor) -> None:
    largest = float(inverse_temperature.abs().max())
    if not largest < LARGEST_INVERSE_TEMPERATURE:
        rule = f"must be finite and below {LARGEST_INVERSE_TEMPERATURE:g}"
        raise InvalidInputError(
            "inverse_temperature", rule, f"a value of {largest:g}", "Give numbers near 1."
        )


def check_clamped(clamped: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a mask of clamped units, bool (unit,) or (chain, unit), as (1, unit) or (chain, unit)."""
    shapes = {shape, shape[1:], (1, shape[1])}
    if not isinstance(clamped, Tensor) or clamped.dtype != torch.bool or tuple(clamped.shape) not in shapes:
        rule = f"must be a bool tensor of shape ({shape[1]},) or {shape}"
        raise InvalidInputError("clamped", rule, described(clamped), "Give one entry per unit.")
    return clamped.reshape(-1, shape[1])


# Dispatch among the kernels.


Sweeps = Callable[[Any, Tensor, SweepCall], Tensor]
"""Runs the sweeps of a checked call on states (chain, unit) float32 and returns new ones."""

# exact types only: a subclass may have other conditionals
_COMPILED: dict[type, str] = {RBM: "gibbs_rbm", GraphBoltzmann: "gibbs_graph"}


def kernel_for(energy: BoltzmannMachine, *, parallel: bool = False) -> Sweeps:
    """The fastest kernel for a machine where it lies, on several threads or on one.

    On the CPU that is a compiled one for an RBM or a graph, else the reference. On a CUDA device it is a compiled one
    for an RBM of up to 128 + 128 units where Triton is installed, else `run_on_device`, which other devices take too. A
    float64 machine keeps its precision and so takes the reference or `run_on_device`, as one does whose kernel fails.
    """
    if energy.bias.device.type == "cpu":
        return cpu_kernel(type(energy), parallel).select() if _compiles(energy) else gibbs_torch.run
    if not _suits_triton(energy):
        return gibbs_torch.run_on_device
    from discrete_vae.kernels import gibbs_triton

    return triton_kernel(energy.bias.device, *gibbs_triton.padded_sides(energy)).select()  # pyright: ignore[reportArgumentType]


def _compiles(energy: BoltzmannMachine) -> bool:
    bias = energy.bias
    return type(energy) in _COMPILED and bias.device.type == "cpu" and bias.dtype != torch.float64


def _suits_triton(energy: BoltzmannMachine) -> bool:
    bias = energy.bias
    if type(energy) is not RBM or bias.device.type != "cuda" or bias.dtype == torch.float64:
        return False
    if not values_are_known(bias) or find_spec("triton") is None:
        return False
    if torch.cuda.get_device_capability(bias.device) < (8, 0):  # tensor cores that multiply bfloat16
        return False
    from discrete_vae.kernels import gibbs_triton  # takes a while

    return gibbs_triton.fits(energy)


@cache
def cpu_kernel(kind: type, parallel: bool) -> Kernel:
    """The CPU kernel for a kind of machine; where it fails on several threads, it runs on one."""
    compiled = import_module(f"{__package__}.{_COMPILED[kind]}").run

    def on_one_thread(energy: Any, z: Tensor, call: SweepCall) -> Tensor:
        return cpu_kernel(kind, False).select()(energy, z, replace(call, num_threads=1))

    def self_test(kernel: Kernel) -> None:
        energy = (RBM(5, 3) if kind is RBM else GraphBoltzmann(8, "complete")).float()
        for parameter in energy.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter))
        _check_states(kernel, energy, fair_coins(40, 8, key=1), num_threads=2 if parallel else 1)

    name = f"The compiled sampler for {kind.__name__}"
    if parallel:
        name, fallback = f"{name} on several threads", "one thread is used"
        return Kernel(name, compiled, self_test, on_one_thread, fallback=fallback)
    fallback = "plain torch is used, some ten times slower"
    return Kernel(name, compiled, self_test, gibbs_torch.run, fallback=fallback)


@cache
def triton_kernel(device: torch.device, left: int, right: int) -> Kernel:
    """The CUDA kernel for RBMs whose sides are padded to these powers of two; its self-test waits for the device."""
    from discrete_vae.kernels import gibbs_triton

    def self_test(kernel: Kernel) -> None:
        energy, generator = RBM(left, right).float(), torch.Generator().manual_seed(1)
        energy.weight.normal_(0, 2 * (left + right) ** -0.5, generator=generator)
        # a draw in a million is within rounding, and then changes what comes after it
        _check_states(kernel, energy, fair_coins(20, left + right, key=1), device=device, most_wrong=0.01)

    return Kernel(
        f"The compiled sampler for RBM of {left} + {right} units on {device}",
        gibbs_triton.run,
        self_test,
        gibbs_torch.run_on_device,
        fallback="plain torch is used, with 12 launches per sweep",
        package="triton",
    )


def _check_states(
    kernel: Kernel,
    energy: BoltzmannMachine,
    start: Tensor,
    *,
    num_threads: int = 1,
    device: torch.device | str = "cpu",
    most_wrong: float = 0.0,
) -> None:
    """Compare two sweeps with the reference's."""
    call = SweepCall(2, 1, 1, 0, None, None, num_threads=num_threads)
    expected = gibbs_torch.run(energy, start, call)
    found = kernel.compiled(energy.to(device), start.to(device), call).cpu()
    if float((found != expected).float().mean()) > most_wrong:
        raise RuntimeError("its states are wrong")
