"""Block-Gibbs sweeps: checks of a call, random words, the kernels in plain torch, and dispatch among all kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from discrete_vae.boltzmann.base import BoltzmannMachine, check_parameters
from discrete_vae.checks import (
    check_binary,
    check_number,
    check_tensor,
    values_are_known,
    values_are_readable,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.kernels.codegen import LOW, MULTIPLIERS, ROUNDS, WEYL
from discrete_vae.kernels.loops import threads_for
from discrete_vae.kernels.registry import Kernel
from discrete_vae.nets.weights import described
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import keyed_generator

_LARGEST_INVERSE_TEMPERATURE = 1e6
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
    where `gibbs_triton` runs, the uniform of (key, sweep, chain, unit) as `unit_words` defines it. The answer therefore
    depends neither on the number of threads nor on how sweeps and chains are divided among calls. Elsewhere the
    uniforms are the device's own, see `run_on_device`. Who calls answers for other ranges and shapes; on the CPU the
    values of parameters and states are looked at.

    Args:
        energy: The machine, on the device of z.
        z: (chain, unit), in {0,1}.
        num_sweeps: Sweeps to run, at least 1.
        key: Philox key, an integer from 0 to 2^64 - 1.
        first_sweep: Number of the first sweep, at least 1 (0 belongs to the initial state); the last is below 2^64.
        first_chain: Number of the first chain; that of the last one is below 2^32.
        inverse_temperature: (chain,), below 10^6, multiplies all logits of a chain; None is 1.
        clamped: Bool, (unit,) or (chain, unit), True where a unit keeps its value; None means nowhere.
        kernel: The kernel to use; None chooses one by energy and device.

    Returns:
        A new tensor (chain, unit) float32 in {0,1}, without gradient.
    """
    if values_are_readable(energy.bias):
        check_logits(energy)
    # a kernel would read beyond their ends
    if inverse_temperature is not None:
        scale = check_inverse_temperature(inverse_temperature, len(z))
        inverse_temperature = None if scale is None else scale.to(z.device)
    if clamped is not None:
        clamped = check_clamped(clamped, (len(z), energy.num_units)).to(z.device)
    compiles = energy.bias.is_cpu and _compiled_sweeps(energy) is not None
    threads = threads_for(z.numel() * num_sweeps) if compiles else 1
    call = SweepCall(num_sweeps, key, first_sweep, first_chain, inverse_temperature, clamped, threads)
    return (kernel or kernel_for(energy, parallel=threads > 1))(energy, z.float(), call)


def check_inverse_temperature(value: float | Tensor, num_chains: int) -> Tensor | None:
    """The inverse temperatures as (chain,) float32; None for 1."""
    repair = "Give a number near 1, or a tensor (chain,)."
    if isinstance(value, Tensor):
        scale = check_tensor("inverse_temperature", value, (num_chains,)).detach().float()
        largest = float(scale.abs().max()) if values_are_known(scale) else 0.0
    else:
        number = check_number("inverse_temperature", value, repair=repair)
        largest = abs(number)
        scale = None if number == 1 else torch.full((num_chains,), number, dtype=torch.float32, device="cpu")
    if not largest < _LARGEST_INVERSE_TEMPERATURE:
        rule = f"must be finite and below {_LARGEST_INVERSE_TEMPERATURE:g}"
        raise InvalidInputError("inverse_temperature", rule, f"a value of {largest:g}", repair)
    return scale


def check_clamped(clamped: object, shape: tuple[int, int]) -> Tensor:
    """A mask of clamped units, bool (unit,) or (chain, unit), as (1, unit) or (chain, unit)."""
    shapes = {shape, shape[1:], (1, shape[1])}
    is_mask = isinstance(clamped, Tensor) and clamped.dtype == torch.bool and tuple(clamped.shape) in shapes
    if not isinstance(clamped, Tensor) or not is_mask or clamped.layout != torch.strided or clamped.is_meta:
        rule = f"must be a bool tensor of shape ({shape[1]},) or {shape}"
        raise InvalidInputError("clamped", rule, described(clamped), "Give one entry per unit.")
    return clamped.reshape(-1, shape[1])


def check_logits(energy: BoltzmannMachine) -> None:
    """Refuse a machine whose parameters are not finite or so large that logits may not be; waits for an accelerator."""
    check_parameters(energy, below=_LARGEST_LOGIT)


# The definition of the random words of all Markov chains. A unit's word is word ``unit % 4`` of the output of
# Philox4x32-10 for the counter (unit // 4, chain, sweep low, sweep high) under a 64-bit key, so it does not depend on
# the device, the number of threads, or on how chains and sweeps are divided among calls. Sweep 0 is the initial state.


LARGEST_UNIFORM = 1 - 2.0**-24  # the largest float32 below 1


def philox4x32(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ten rounds of Philox4x32, on int64 tensors of values from 0 to 2^32 - 1 under a 64-bit key.

    Source: Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3.
    """
    x0, x1, x2, x3 = counter
    key_0, key_1 = key & LOW, key >> 32
    for _ in range(ROUNDS):
        # int64 products wrap to the right low 64 bits; shift and mask then read them as unsigned
        product_0, product_1 = x0 * MULTIPLIERS[0], x2 * MULTIPLIERS[1]
        x0 = ((product_1 >> 32) & LOW) ^ x1 ^ key_0
        x2 = ((product_0 >> 32) & LOW) ^ x3 ^ key_1
        x1, x3 = product_1 & LOW, product_0 & LOW
        key_0, key_1 = (key_0 + WEYL[0]) & LOW, (key_1 + WEYL[1]) & LOW
    return x0, x1, x2, x3


def unit_words(
    num_chains: int,
    num_units: int,
    *,
    key: int,
    sweep: int,
    first_chain: int = 0,
    device: torch.device | str = "cpu",
) -> Tensor:
    """The random words of one sweep over a whole machine, (chain, unit) int64, values from 0 to 2^32 - 1."""
    quads = torch.arange((num_units + 3) // 4, device=device)
    chains = torch.arange(first_chain, first_chain + num_chains, device=device)[:, None]
    low, high = (torch.full((), word, device=device) for word in (sweep & LOW, sweep >> 32))
    words = philox4x32((quads, chains, low, high), key)
    return torch.stack(torch.broadcast_tensors(*words), dim=-1).flatten(1)[:, :num_units]


def uniforms(words: Tensor) -> Tensor:
    """The float32 uniforms u = (word >> 8) 2^-24 + 2^-25 of int64 words, in the open unit interval.

    The sum is rounded to float32, and the one value that would become 1 stays below it: a unit whose
    probability is 1 must never be drawn as 0.
    """
    return ((words >> 8).float() * 2.0**-24 + 2.0**-25).clamp_max_(LARGEST_UNIFORM)


def fair_coins(
    num_chains: int, num_units: int, *, key: int, first_chain: int = 0, device: torch.device | str = "cpu"
) -> Tensor:
    """The initial state of chains, (chain, unit) float32: 1 where the uniform of sweep 0 is below 1/2."""
    words = unit_words(num_chains, num_units, key=key, sweep=0, first_chain=first_chain, device=device)
    return (uniforms(words) < 0.5).float()


# The reference kernel, for any Boltzmann machine in plain torch, and what every kernel is asked to do.


_LARGEST_PART = 1 << 22  # spins that are advanced together; their random words take a dozen int64 each


@dataclass(frozen=True, eq=False, repr=False)
class SweepCall(ShowsShapes):
    """Arguments of one call of a kernel, as checked by `run_sweeps`.

    Clamped units are (chain, unit) or (1, unit); threads are those of a compiled kernel, as torch has its own number.
    """

    num_sweeps: int
    key: int
    first_sweep: int
    first_chain: int
    inverse_temperature: Tensor | None
    clamped: Tensor | None
    num_threads: int = 1


def run_reference(energy: BoltzmannMachine, z: Tensor, call: SweepCall) -> Tensor:
    """Run the sweeps one block after another: z_i = 1 where u_i < sigmoid(inverse temperature * logit_i).

    The chains are advanced in parts of 2^22 spins, so that random words take half a gigabyte at most. Of the machine
    only `blocks` and `compute_block_logits` are used. States before and after, which are a new tensor, are
    (chain, unit) float32 in {0,1}.
    """
    check_binary("z", z)
    size, parts = max(1, _LARGEST_PART // z.shape[1]), []
    for index, part in enumerate(z.split(size)):
        rows, first_chain = slice(index * size, (index + 1) * size), call.first_chain + index * size
        t, clamped = call.inverse_temperature, call.clamped
        t = None if t is None else t[rows]
        clamped = clamped if clamped is None or len(clamped) == 1 else clamped[rows]
        words = (
            unit_words(*part.shape, key=call.key, sweep=sweep, first_chain=first_chain, device=z.device)
            for sweep in range(call.first_sweep, call.first_sweep + call.num_sweeps)
        )
        parts.append(_swept(energy, part, map(uniforms, words), t, clamped))
    return torch.cat(parts)


def _swept(
    energy: BoltzmannMachine,
    z: Tensor,
    noises: Iterable[Tensor],
    inverse_temperature: Tensor | None,
    clamped: Tensor | None,
) -> Tensor:
    """The states after sweeps with given uniforms, (chain, unit) for each, which are made when they are needed."""
    z = z.clone()
    # latents stay in float32 or better even where the surroundings run in bfloat16
    with torch.autocast(z.device.type, enabled=False):
        for noise in noises:
            for index in range(len(energy.blocks)):
                place = energy.block_place(index)
                logits = energy.compute_block_logits(z, index)
                if inverse_temperature is not None:
                    logits = logits * inverse_temperature[:, None]
                drawn = noise[:, place] < torch.sigmoid(logits)
                if clamped is not None:
                    drawn = torch.where(clamped[:, place], z[:, place] != 0, drawn)
                # a slice converts while it copies
                z[:, place] = drawn if isinstance(place, slice) else drawn.to(z.dtype)
    return z


_MIN_UNIFORM = 2.0**-25  # in place of 0, for which a unit of any probability would come on


def run_on_device(energy: BoltzmannMachine, z: Tensor, call: SweepCall) -> Tensor:
    """Run the sweeps with the device's own random numbers, from one generator keyed by (key, first sweep, first chain).

    The law is that of every kernel, the stream is another one: it is the same for the same calls on the same kind of
    device, but differs from the CPU's and depends on how sweeps are divided among calls. For an RBM a sweep is 12
    launches (the words of `unit_words` alone would be a hundred), and nothing waits for the device or is copied to it.
    Beside the states it needs their size again for the noise, and that of a block for its logits.
    """
    generator = keyed_generator(call.key, call.first_sweep, call.first_chain, device=z.device)
    noise = torch.empty_like(z)
    noises = (noise.uniform_(generator=generator).clamp_min_(_MIN_UNIFORM) for _ in range(call.num_sweeps))
    return _swept(energy, z, noises, call.inverse_temperature, call.clamped)


# Dispatch among the kernels.


Sweeps = Callable[[Any, Tensor, SweepCall], Tensor]
"""Runs the sweeps of a checked call on states (chain, unit) float32 and returns new ones."""


def kernel_for(energy: BoltzmannMachine, *, parallel: bool = False) -> Sweeps:
    """The fastest kernel for a machine where it lies, on several threads or on one.

    On the CPU that is a compiled one for an RBM or a graph, else the reference. On a CUDA device it is a compiled one
    for an RBM of some 128 + 128 units at most where Triton is installed, else `run_on_device`, which other devices take
    too. A float64 machine keeps its precision and so takes the reference or `run_on_device`, as one does whose kernel
    fails.
    """
    bias, sweeps = energy.bias, _compiled_sweeps(energy)
    if bias.device.type == "cpu":
        return run_reference if sweeps is None else cpu_kernel(type(energy), parallel).select()
    is_rbm = bias.device.type == "cuda" and sweeps == "gibbs_rbm" and values_are_known(bias)
    # tensor cores multiply bfloat16 from 8.0 on
    if is_rbm and find_spec("triton") and torch.cuda.get_device_capability(bias.device) >= (8, 0):
        from discrete_vae.kernels import gibbs_triton  # takes a while

        if gibbs_triton.fits(energy):  # pyright: ignore[reportArgumentType]
            return triton_kernel(bias.device, *gibbs_triton.padded_sides(energy)).select()  # pyright: ignore[reportArgumentType]
    return run_on_device


def _compiled_sweeps(energy: BoltzmannMachine) -> str | None:
    """The module of a machine's compiled sweeps, which it names for its exact type: a subclass may differ."""
    return None if energy.bias.dtype == torch.float64 else vars(type(energy)).get("_compiled_sweeps")


@cache
def cpu_kernel(kind: type, parallel: bool) -> Kernel:
    """The CPU kernel for a kind of machine; where it fails on several threads, it runs on one."""
    module = import_module(f"{__package__}.{vars(kind)['_compiled_sweeps']}")

    def on_one_thread(energy: Any, z: Tensor, call: SweepCall) -> Tensor:
        return cpu_kernel(kind, False).select()(energy, z, replace(call, num_threads=1))

    def self_test(kernel: Kernel) -> None:
        energy = kind(*module.OF_EIGHT).float()
        for parameter in energy.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter))
        _check_states(kernel, energy, fair_coins(40, 8, key=1), {}, num_threads=2 if parallel else 1)

    name = f"The compiled sampler for {kind.__name__}"
    if parallel:
        name, fallback = f"{name} on several threads", "one thread is used"
        return Kernel(name, module.run, self_test, on_one_thread, fallback=fallback)
    fallback = "plain torch is used, some ten times slower"
    return Kernel(name, module.run, self_test, run_reference, fallback=fallback)


@cache
def triton_kernel(device: torch.device, left: int, right: int) -> Kernel:
    """The CUDA kernel for RBMs whose sides are padded to these powers of two; its self-test waits for the device."""
    from discrete_vae.boltzmann.rbm import RBM
    from discrete_vae.kernels import gibbs_triton

    def self_test(kernel: Kernel) -> None:
        energy, generator = RBM(left, right).float(), torch.Generator().manual_seed(1)
        energy.weight.normal_(0, 2 * (left + right) ** -0.5, generator=generator)
        start = fair_coins(20, left + right, key=1)
        clamped = {"clamped": fair_coins(20, left + right, key=2).bool()}
        tempered = {"inverse_temperature": torch.linspace(0, 2, 20)}
        for options in ({}, clamped, tempered, clamped | tempered):  # each is compiled by itself
            # a draw in a million is within rounding, and then changes what comes after it
            _check_states(kernel, energy, start, options, device=device, most_wrong=0.01)

    return Kernel(
        f"The compiled sampler for RBM of {left} + {right} units on {device}",
        gibbs_triton.run,
        self_test,
        run_on_device,
        fallback="plain torch is used, with 12 launches per sweep",
        package="triton",
    )


def _check_states(
    kernel: Kernel,
    energy: BoltzmannMachine,
    start: Tensor,
    options: Mapping[str, Tensor],  # of the call: inverse_temperature, clamped
    *,
    num_threads: int = 1,
    device: torch.device | str = "cpu",
    most_wrong: float = 0.0,
) -> None:
    call = replace(SweepCall(2, 1, 1, 0, None, None, num_threads=num_threads), **options)
    expected = run_reference(energy.to("cpu"), start, call)
    call = replace(call, **{name: value.to(device) for name, value in options.items()})
    found = kernel.compiled(energy.to(device), start.to(device), call).cpu()
    if float((found != expected).float().mean()) > most_wrong:
        raise RuntimeError("its states are wrong")
