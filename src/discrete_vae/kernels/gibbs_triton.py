"""The CUDA kernel for restricted Boltzmann machines: all sweeps of a call in one launch, on the words of the CPU.

A program advances a tile of chains and keeps their states in registers from the first sweep to the last. A side's
logits are one product of states and weights for all chains of the tile. States are exact in bfloat16, and float32
weights are the sum of three bfloat16 numbers, w = hi + mid + lo with 8 bits of w's 24 in each, so three products on
tensor cores that accumulate in float32 round no weight; a plain product would round to 8 bits, TF32 to 11.

The bound is the arithmetic of a draw, not memory: a spin takes one exponential and a fourth of ten rounds of Philox.
`benchmarks/RESULTS.md` has what to expect.

Triton is no dependency: CUDA builds of torch bring it along.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.kernels.gibbs import LARGEST_UNIFORM, SweepCall

# Triton's language is not Python's to a type checker, and it is not installed everywhere.
# pyright: reportArgumentType=false, reportInvalidTypeForm=false, reportGeneralTypeIssues=false
# pyright: reportCallIssue=false, reportMissingImports=false


LARGEST_SIDES = 1 << 14
"""Product of the padded sides up to which weights fit a program's shared memory: 128 + 128 units.

The right side has up to three columns more, so that 127 + 127 units are too many.
"""

_SMALLEST_SIDE = 16  # of the matrices that tensor cores multiply
_SMALL_SIDES = 1 << 12
_BELOW_ONE = tl.constexpr(LARGEST_UNIFORM)


@triton.jit
def _uniforms(chain, first_quad, sweep, key, CHAINS: tl.constexpr, UNITS: tl.constexpr):  # noqa: N803
    """The uniforms of `unit_words` of a tile of chains and the units from 4 first_quad on, (chain, unit) float32."""
    quad = first_quad + tl.arange(0, UNITS // 4)[None, :] + tl.zeros([CHAINS, 1], tl.int32)
    low = (sweep & 0xFFFFFFFF).to(tl.uint32) + tl.zeros_like(quad).to(tl.uint32)
    high = (sweep >> 32).to(tl.uint32) + tl.zeros_like(quad).to(tl.uint32)
    x0, x1, x2, x3 = tl.philox(key, quad, chain[:, None] + tl.zeros_like(quad).to(tl.uint32), low, high, 10)
    words = tl.join(tl.join(x0, x2), tl.join(x1, x3)).reshape(CHAINS, UNITS)
    # as signed integers: processors turn those into floats four times as fast
    return tl.minimum((words >> 8).to(tl.int32).to(tl.float32) * 2.0**-24 + 2.0**-25, _BELOW_ONE)


@triton.jit
def _draw(logits, uniform, state, keep, inside, inverse_temperature, CLAMPED: tl.constexpr):  # noqa: N803
    """The new state of a side: 1 where u < sigmoid(inverse temperature * logit)."""
    on = (uniform * (1.0 + tl.exp(-logits * inverse_temperature)) < 1.0) & inside
    drawn = tl.where(on, 1.0, 0.0).to(state.dtype)
    return tl.where(keep, state, drawn) if CLAMPED else drawn


@triton.jit(do_not_specialize=["num_sweeps", "first_chain", "first_sweep", "key"])
def _run(
    after,
    before,
    parts,
    bias,
    clamped,
    clamped_step,
    inverse_temperatures,
    num_chains,
    num_left,
    num_right,
    num_sweeps,
    first_chain: tl.uint32,
    first_sweep: tl.uint64,
    key: tl.uint64,
    LEFT: tl.constexpr,  # noqa: N803 (Triton's way to write what is known when a kernel is compiled)
    RIGHT: tl.constexpr,  # noqa: N803
    CHAINS: tl.constexpr,  # noqa: N803
    CLAMPED: tl.constexpr,  # noqa: N803
    TEMPERED: tl.constexpr,  # noqa: N803
):
    """Run all sweeps of one tile of chains; see `run` for the arguments."""
    num_units = num_left + num_right
    row = tl.program_id(0) * CHAINS + tl.arange(0, CHAINS)
    present = (row < num_chains)[:, None]
    chain = row.to(tl.uint32) + tl.cast(first_chain, tl.uint32)
    row = row.to(tl.int64)[:, None]
    origin = num_left // 4 * 4  # the right side's first counter may begin with units of the left
    left_unit, right_unit = tl.arange(0, LEFT)[None, :], origin + tl.arange(0, RIGHT)[None, :]
    in_left = left_unit < num_left
    in_right = (right_unit >= num_left) & (right_unit < num_units)
    left_bias = tl.load(bias + left_unit, in_left, 0.0)
    right_bias = tl.load(bias + right_unit, in_right, 0.0)
    kind: tl.constexpr = parts.dtype.element_ty
    left = tl.load(before + row * num_units + left_unit, present & in_left, 0.0).to(kind)
    right = tl.load(before + row * num_units + right_unit, present & in_right, 0.0).to(kind)
    keep_left, keep_right = in_left, in_right
    if CLAMPED:
        keep_left = tl.load(clamped + row * clamped_step + left_unit, present & in_left, 0) != 0
        keep_right = tl.load(clamped + row * clamped_step + right_unit, present & in_right, 0) != 0
    inverse_temperature = tl.full([CHAINS, 1], 1.0, tl.float32)
    if TEMPERED:
        inverse_temperature = tl.load(inverse_temperatures + row, present, 1.0)
    weight = parts + tl.arange(0, LEFT)[:, None] * RIGHT + tl.arange(0, RIGHT)[None, :]
    sweep = tl.cast(first_sweep, tl.uint64)
    for _ in range(num_sweeps):
        logits = tl.zeros([CHAINS, LEFT], tl.float32)
        for part in tl.static_range(3):
            w = tl.load(weight + part * LEFT * RIGHT)
            logits = tl.dot(right, tl.trans(w), logits, input_precision="ieee")
        u = _uniforms(chain, 0, sweep, key, CHAINS, LEFT)
        left = _draw(logits + left_bias, u, left, keep_left, in_left, inverse_temperature, CLAMPED)
        logits = tl.zeros([CHAINS, RIGHT], tl.float32)
        for part in tl.static_range(3):
            w = tl.load(weight + part * LEFT * RIGHT)
            logits = tl.dot(left, w, logits, input_precision="ieee")
        u = _uniforms(chain, origin // 4, sweep, key, CHAINS, RIGHT)
        right = _draw(logits + right_bias, u, right, keep_right, in_right, inverse_temperature, CLAMPED)
        sweep += 1
    tl.store(after + row * num_units + left_unit, left.to(tl.float32), present & in_left)
    tl.store(after + row * num_units + right_unit, right.to(tl.float32), present & in_right)


def run(energy: RBM, z: Tensor, call: SweepCall) -> Tensor:
    """Run the sweeps in one launch, for a machine that `fits`, with parameters that are finite in float32.

    The states are those of the reference and the CPU kernel, but for draws within rounding (about 1e-6 in the logit).
    Those before, (chain, unit) float32 in {0,1}, are not looked at.
    """
    num_chains, num_units = z.shape
    z, after = z.contiguous(), torch.empty_like(z, memory_format=torch.contiguous_format)
    left, right = padded_sides(energy)
    parts = split_weights(energy.weight.detach().float(), left, right, first=energy.num_left % 4)
    if z.is_cuda:  # elsewhere Triton interprets, which multiplies the bits of bfloat16 as integers
        parts = parts.bfloat16()
    chains = tile_of(left, right)
    temperatures, clamped = call.inverse_temperature, call.clamped
    with torch.cuda.device(z.device if z.is_cuda else -1):
        _run[(triton.cdiv(num_chains, chains),)](
            after,
            z,
            parts,
            energy.bias.detach().float().contiguous(),
            z if clamped is None else clamped.to(torch.uint8).contiguous(),
            num_units if clamped is not None and len(clamped) > 1 else 0,
            z if temperatures is None else temperatures.float().contiguous(),
            num_chains,
            energy.num_left,
            energy.num_right,
            call.num_sweeps,
            call.first_chain,
            call.first_sweep,
            call.key,
            LEFT=left,
            RIGHT=right,
            CHAINS=chains,
            CLAMPED=clamped is not None,
            TEMPERED=temperatures is not None,
            num_warps=4,
            enable_fp_fusion=True,  # Triton warns where nobody says; the uniforms are exact with it and without
        )
    return after


def fits(energy: RBM) -> bool:
    """True if a machine's weights fit a program."""
    left, right = padded_sides(energy)
    return left * right <= LARGEST_SIDES


def padded_sides(energy: RBM) -> tuple[int, int]:
    """The powers of two that hold the sides, the right one from its first counter on."""
    sides = energy.num_left, energy.num_right + energy.num_left % 4
    left, right = (max(_SMALLEST_SIDE, triton.next_power_of_2(side)) for side in sides)
    return left, right


def tile_of(left: int, right: int) -> int:
    """Chains of a program for padded sides: few, so that a training step's chains reach most processors.

    A product of more chains reads larger weights less often, and needs less shared memory.
    """
    return 16 if left * right <= _SMALL_SIDES else 64


def split_weights(weight: Tensor, left: int, right: int, *, first: int) -> Tensor:
    """Weights (left, right) float32 as three parts of which each is exact in bfloat16, and whose sum they are.

    A part is what is left of a weight, rounded to 8 bits, the smallest part first. Differences of a number and its
    rounded value are exact, so nothing is left after three parts but of numbers below 1e-30, whose last bits no
    bfloat16 can hold. The parts, (part, left, right), are filled up with 0; the first right unit has column first.
    """
    parts = weight.new_zeros(3, left, right)
    for part in reversed(parts.unbind()):
        place = part[: weight.shape[0], first : first + weight.shape[1]]
        place.copy_(weight.bfloat16())
        weight = weight - place
    return parts
