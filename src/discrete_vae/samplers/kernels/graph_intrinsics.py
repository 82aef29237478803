"""The two inner steps of the CPU kernel for graphs, as numba intrinsics for 16 chains: random words, and decisions.

The loops around them are in `graph_compiled`; see there for the layout.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from discrete_vae.compiled.vector_ir import (
    FLOAT32,
    INT32,
    INT64,
    Vector,
    constant,
    load,
    numbers,
    pointers_and_scalars,
    splat,
    store,
)
from discrete_vae.compiled.vector_philox import LOW, philox_rounds
from discrete_vae.samplers.kernels.vector_spins import comes_on

LANES = 16  # chunks are filled up to a multiple of this many chains
_BYTES = ir.VectorType(ir.IntType(8), LANES)


@intrinsic
def draw_words(_typing, words, stride, first, counter, chain, sweep, key):
    """Philox4x32-10 for the chains ``chain`` to ``chain + 15``.

    Args:
        words: (4, chain) uint32, receives word k of each chain in row k.
        stride: int64, length of a row.
        first: int64, column of the first chain.
        counter: uint64.
        chain: uint64.
        sweep: uint64.
        key: uint64.
    """

    def generate(context, builder, signature, arguments):
        words, stride, first, counter, chain, sweep, key = pointers_and_scalars(
            context, builder, signature, arguments
        )
        low, high = builder.and_(sweep, constant(LOW)), builder.lshr(sweep, constant(32))
        x0, x2, x3 = (splat(builder, word, LANES) for word in (counter, low, high))
        x1 = splat(builder, chain, LANES) + numbers(builder, INT64, list(range(LANES)))
        for row, x in enumerate(philox_rounds(builder, (x0, x1, x2, x3), key, 0)):
            narrow = Vector(builder, builder.trunc(x.value, ir.VectorType(INT32, LANES)))
            place = builder.add(builder.mul(stride, constant(row)), first)
            store(narrow, builder.gep(words, [place]), align=4)
        return context.get_dummy_value()

    return types.void(words, stride, first, counter, chain, sweep, key), generate


@intrinsic
def decide(_typing, spins, spin, field, words, word, first):
    """Draw the spins of one unit in 16 chains, see `comes_on`.

    Args:
        spins: uint8, receives 0 or 1.
        spin: int64, where the unit's row begins.
        field: (chain,) float32, -log2(e) times the logits.
        words: uint32.
        word: int64, where the unit's row begins.
        first: int64, column of the first chain.
    """

    def generate(context, builder, signature, arguments):
        spins, spin, field, words, word, first = pointers_and_scalars(context, builder, signature, arguments)
        t = load(builder, builder.gep(field, [first]), FLOAT32, LANES, align=4)
        drawn = load(builder, builder.gep(words, [builder.add(word, first)]), INT32, LANES, align=4)
        on = Vector(builder, builder.zext(comes_on(t, drawn).value, _BYTES))
        store(on, builder.gep(spins, [builder.add(spin, first)]), align=1)
        return context.get_dummy_value()

    return types.void(spins, spin, field, words, word, first), generate
