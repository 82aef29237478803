"""A compiled kernel is tried once in a process before it is used; where it fails, the slower one steps in."""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

from discrete_vae.boltzmann.graph import GraphBoltzmann
from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.compiled.trial import warn_of_failure
from discrete_vae.samplers.kernels import torch_device, torch_reference
from discrete_vae.samplers.kernels.philox import fair_coins
from discrete_vae.samplers.kernels.torch_reference import SweepCall

# exact types only: a subclass may have other conditionals
COMPILED: dict[type, str] = {RBM: "numba_bipartite", GraphBoltzmann: "numba_graph"}
"""The module of this package with the compiled kernel of a machine."""


class Kernel(Protocol):
    """Runs the sweeps of a checked call and returns new states."""

    # a kernel may ask for one class of machines only, so the type of the energy is left open
    def __call__(self, energy: Any, z: Tensor, call: SweepCall, /) -> Tensor:
        """Advance z (chain, unit) float32 and return a new tensor."""
        ...


@cache
def tried_kernel(kind: type, *, parallel: bool) -> Kernel:
    """The compiled kernel of a kind of machine, if it gives the reference's states on a small one.

    numba's interface for such kernels is not a stable one, so a release of numba may break them.

    Args:
        kind: A key of `COMPILED`.
        parallel: Whether it is to run on several threads.

    Returns:
        The kernel; where it fails, the same on one thread, and where that fails, the reference.

    Warns:
        KernelWarning: If it fails.
    """
    try:
        kernel: Kernel = importlib.import_module(f"{__package__}.{COMPILED[kind]}").run
        _try(kernel, kind, parallel=parallel)
    except Warning:  # the user made warnings errors
        raise
    except Exception as error:
        warn_of_failure(
            f"The compiled sampler for {kind.__name__}",
            error,
            "one thread is used" if parallel else "plain torch is used, some ten times slower",
            where=" on several threads" if parallel else "",
        )
        return _on_one_thread(kind) if parallel else torch_reference.run
    return kernel


@cache
def tried_device_kernel(device: torch.device, left: int, right: int) -> Kernel:
    """The CUDA kernel for RBMs, if it gives the reference's states for sides of these sizes on this device.

    Waits for the device, once per size.

    Args:
        device: A CUDA device.
        left: A power of two, the padded size of the left side.
        right: Likewise.

    Returns:
        The kernel; where it fails, `torch_device.run`.

    Warns:
        KernelWarning: If it fails.
    """
    try:
        kernel: Kernel = importlib.import_module(f"{__package__}.triton_bipartite").run
        _try_on_device(kernel, device, left, right)
    except Warning:
        raise
    except Exception as error:
        what = f"The compiled sampler for RBM of {left} + {right} units on {device}"
        warn_of_failure(what, error, "plain torch is used, with 12 launches per sweep", package="triton")
        return torch_device.run
    return kernel


def _try_on_device(kernel: Kernel, device: torch.device, left: int, right: int) -> None:
    """Run a machine of this size with a few chains.

    Raises:
        RuntimeError: If more states than rounding explains are not those of the reference.
    """
    with torch.device("cpu"), torch.no_grad():
        energy, generator = RBM(left, right).float(), torch.Generator().manual_seed(1)
        energy.weight.normal_(0, 2 * (left + right) ** -0.5, generator=generator)
        call, start = SweepCall(2, 1, 1, 0, None, None), fair_coins(20, left + right, key=1)
        expected = torch_reference.run(energy, start, call)
    found = kernel(energy.to(device), start.to(device), call).cpu()
    # a draw in a million is within rounding, and then changes what comes after it
    if float((found != expected).float().mean()) > 0.01:
        raise RuntimeError("its states are wrong")


def _on_one_thread(kind: type) -> Kernel:
    kernel = tried_kernel(kind, parallel=False)
    return lambda energy, z, call: kernel(energy, z, replace(call, num_threads=1))


def _try(kernel: Kernel, kind: type, *, parallel: bool) -> None:
    """Run a small machine, which also compiles.

    Raises:
        RuntimeError: If the states are not those of the reference.
    """
    with torch.device("cpu"), torch.no_grad():
        energy = RBM(5, 3) if kind is RBM else GraphBoltzmann(8, "complete")
        for parameter in energy.float().parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel(), dtype=torch.float32).view_as(parameter))
        call = SweepCall(2, 1, 1, 0, None, None, num_threads=2 if parallel else 1)
        start = fair_coins(40, 8, key=1)
        if not torch.equal(kernel(energy, start, call), torch_reference.run(energy, start, call)):
            raise RuntimeError("its states are wrong")
