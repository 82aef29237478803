"""Fused row reductions: one compiled pass over rows that a function of vectors describes, with sums along rows.

A dozen short operations of torch, each of which costs microseconds before it begins, are one pass here, and what lies
between stays in registers. Rows lie in two axes, sample and example, so that what all samples share is read where it
is. Noise is made where it is used, from the sample's number and the example's key, so that it does not depend on how
samples and examples are divided.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from discrete_vae.kernels.codegen import (
    FLOAT32,
    INT32,
    INT64,
    LOW,
    Numbers,
    Product,
    Total,
    Vector,
    builder_intrinsic,
    concatenate,
    constant,
    cos_and_sin,
    log,
    loop,
    minimum,
    numbers,
    philox_rounds,
    splat,
    unpacked,
)
from discrete_vae.kernels.loops import ChunkLoop, available_threads
from discrete_vae.kernels.registry import custom_op

LANES = 32  # elements that are worked on together

SMALLEST_SHARED = 30_000
"""Elements from which a reduction is divided among threads: waking a second one takes as long as fewer."""

KEY = 0x6469736372657465  # key of the words; examples, samples and draws are told apart by the counters

_COUNTERS = LANES // 4  # of a block; each gives four words
_AHEAD = 2  # rows that are asked for before they are read; waiting for them would take as long as the work
_FACTORS = 64  # blocks whose factors, each at most 2, are multiplied before a logarithm is taken


class Block(NamedTuple):
    """What a body makes of a block of columns."""

    outputs: Sequence[Vector] = ()  # are written
    terms: Sequence[Vector] = ()  # whose sums over a row are wanted
    spread: Vector | None = None  # is written to all places of the call's spread
    factors: Sequence[Vector] = ()  # numbers from 1 to 2 whose logarithms are subtracted from the first sum


Body = Callable[..., Block | tuple[Sequence[Vector], Sequence[Vector]]]


_Form = tuple[str, int, str, int, str, bool]
"""How many elements, numbers per row, outputs, sums and spread a call has, and whether it draws noise.

Where there is a word, it has a letter for each: "f" for float32 and "h" for bfloat16.
"""


class Keys(NamedTuple):
    """Keys of the noise of some rows."""

    of_example: Tensor  # a number of 64 bits per example, (example,) int64
    first_sample: int  # its number, from 0; that of the last must be below 2^32
    draw: int  # its number, below 2^16: what is drawn with the same number is the same noise


@dataclass(eq=False)
class RowReduction:
    """A fused reduction over rows of float32 or bfloat16 tensors, compiled at its first call.

    Operands have one number per element or one per row. They are read and written where they are; the caller answers
    for their types and shapes.

    Args:
        name: Tells it apart from all others that share the body's module.
        body: Takes vectors of elements, of each row's numbers, repeated, and, where keys are given, of the random
            words, two of 16 32-bit integers. Returns a `Block`, or its outputs and terms.
        adds: Whether sums are added to what is there.
        factors: Whether the body gives factors.
        prefetches: Whether to ask for rows before they are read, for rows that are not in the cache.
        finish: Where it is given, the sums are over all elements, one number each, and are taken row by row, on one
            thread. It takes them and each row's numbers and returns what is written in their place.
    """

    name: str
    body: Body
    _: KW_ONLY
    adds: bool = False
    factors: bool = False
    prefetches: bool = False
    finish: Callable[[list[Vector], list[Vector]], Sequence[Vector]] | None = None
    _loops: dict[Any, ChunkLoop] = field(default_factory=dict, init=False)

    def lower(
        self,
        elements: Sequence[Tensor],
        per_row: Sequence[Tensor] = (),
        outputs: Sequence[Tensor] = (),
        sums: Sequence[Tensor] = (),
        spread: Sequence[Tensor] = (),
        keys: Keys | None = None,
    ) -> Callable[[], object]:
        """The reduction of these tensors as a function without arguments; a call of the reduction itself runs it.

        Elements and outputs are (..., element), as `as_rows` gives them, the tensors of spread likewise, of one
        precision. Numbers per row and sums are (...), as `as_numbers` gives them, or scalars: shared by all rows, or
        sums over all.
        """
        *lead, num_columns = elements[0].shape
        samples, examples = (math.prod(lead[:-1]), lead[-1]) if len(lead) > 1 else (math.prod(lead), 1)
        of_elements, kinds = _places(elements)
        of_outputs, kinds_of_outputs = _places(outputs)
        of_spread, kinds_of_spread = _places(spread)
        form = kinds, len(per_row), kinds_of_outputs, len(sums), kinds_of_spread[:1], keys is not None
        places = [*of_elements, *_places_of_numbers(per_row), *of_outputs, *_places_of_numbers(sums)]
        is_small = samples * examples * num_columns < SMALLEST_SHARED
        threads = 1 if self.finish is not None or is_small else available_threads()
        if threads > 1 and keys is None and samples < examples and not spread:
            # the first axis is divided
            triples = zip(places[::3], places[1::3], places[2::3], strict=True)
            places = [part for at, first, second in triples for part in (at, second, first)]
            samples, examples = examples, samples
        per_chunk = samples if threads == 1 else max(1, 8 // examples)
        table = torch.tensor(of_spread, device="cpu") if spread else None
        compiled = self._loop(form)
        run = partial(
            compiled.serial if threads == 1 else partial(compiled, threads),
            tuple(places),
            (0, 0) if table is None else (table.data_ptr(), len(spread)),
            (0, 0, 0) if keys is None else (keys.of_example.data_ptr(), keys.first_sample, keys.draw),
            samples,
            examples,
            num_columns,
            per_chunk,
        )
        return run if table is None else lambda _kept=table: run()

    __call__ = custom_op(only_read=("elements", "per_row", "keys"))(lower)

    def _loop(self, form: _Form) -> ChunkLoop:
        if form not in self._loops:
            step = self._step(form)
            module = sys.modules[self.body.__module__]

            def make(chunks: Any) -> Callable[..., Any]:
                def run(places, table, draw, samples, examples, num_columns, per_chunk):
                    for chunk in chunks((samples + per_chunk - 1) // per_chunk):
                        for sample in range(chunk * per_chunk, min((chunk + 1) * per_chunk, samples)):
                            for example in range(examples):
                                step(places, table, draw, sample, example, samples, examples, num_columns)
                    return 0

                # the cache's name of it
                run.__qualname__ = f"{module.__name__}.{self.name} {' '.join(map(str, form))}"
                return run

            self._loops[form] = ChunkLoop(make, sources=(module,))
        return self._loops[form]

    def _step(self, form: _Form) -> Any:
        elements, per_row, outputs, sums, spread, noise = form
        last_element, last_row, last_output, count = accumulate((len(elements), per_row, len(outputs), sums))
        kinds = f"{elements}{'f' * per_row}{outputs}{'f' * sums}"

        @builder_intrinsic()
        def step(builder, places, table, draw, sample, example, samples, examples, num_columns):

            def start(address, of_sample, of_example):
                offset = builder.add(builder.mul(of_sample, sample), builder.mul(of_example, example))
                return builder.add(address, offset)

            given = unpacked(builder, places, 3 * count)
            triples = [given[3 * index : 3 * index + 3] for index in range(count)]
            starts = [start(*triple) for triple in triples]
            rows = [
                Numbers(builder, at, bfloat16=kind == "h") for at, kind in zip(starts, kinds, strict=True)
            ]
            singles = [builder.inttoptr(at, FLOAT32.as_pointer()) for at in starts]
            ahead = [builder.mul(triple[2], constant(_AHEAD)) for triple in triples[:last_element]]
            of_row = [splat(builder, builder.load(at), LANES) for at in singles[last_element:last_row]]
            words_of = _words(builder, unpacked(builder, draw, 3), sample, example) if noise else None
            first_place, num_places = unpacked(builder, table, 2)
            first_row = builder.inttoptr(first_place, INT64.as_pointer())
            totals, product = [Total(builder, LANES) for _ in range(sums)], Product(builder, LANES)
            blocks = builder.sdiv(builder.add(num_columns, constant(LANES - 1)), constant(LANES))

            def work(block: Any) -> None:
                first = builder.mul(block, constant(LANES))
                left = splat(builder, builder.trunc(builder.sub(num_columns, first), INT32), LANES)
                lanes = numbers(builder, INT32, list(range(LANES)))
                mask = builder.icmp_signed("<", lanes.value, left.value)  # the columns that the row has
                if self.prefetches:
                    for read, distance in zip(rows, ahead, strict=False):
                        read.prefetch(first, distance)
                vectors = [read.load_masked(first, mask) for read in rows[:last_element]]
                words = () if words_of is None else (words_of(block),)
                made = Block(*self.body(vectors, of_row, *words))  # pyright: ignore[reportArgumentType]
                for vector, write in zip(made.outputs, rows[last_row:last_output], strict=True):
                    write.store_masked(vector, first, mask)
                if made.spread is not None:
                    with loop(builder, constant(0), num_places) as (index, _):
                        table_row = builder.gep(first_row, [builder.mul(index, constant(3))])
                        triple = (builder.gep(table_row, [constant(k)]) for k in range(3))
                        place = start(*(builder.load(each) for each in triple))
                        there = Numbers(builder, place, bfloat16=spread == "h")
                        there.store_masked(made.spread, first, mask)
                for total, term in zip(totals, made.terms, strict=True):
                    total.add(term.where(Vector(builder, mask), 0.0))
                for factor in made.factors:
                    product.multiply(factor.where(Vector(builder, mask), 1.0))

            if self.factors:
                groups = builder.sdiv(builder.add(blocks, constant(_FACTORS - 1)), constant(_FACTORS))
                with loop(builder, constant(0), groups) as (group, _):
                    from_block = builder.mul(group, constant(_FACTORS))
                    to_block = minimum(builder, builder.add(from_block, constant(_FACTORS)), blocks)
                    product.clear()
                    with loop(builder, from_block, to_block) as (block, _):
                        work(block)
                    totals[0].add(-log(product.value()))
            else:
                with loop(builder, constant(0), blocks) as (block, _):
                    work(block)
            found = [total_of(total.value()) for total in totals]
            before = [splat(builder, builder.load(at), LANES) for at in singles[last_output:]]
            if self.adds:
                found = [old + new for old, new in zip(before, found, strict=True)]
            if self.finish is not None:
                number = builder.add(builder.mul(sample, examples), example)
                last = builder.sub(builder.mul(samples, examples), constant(1))
                at_start, at_end = (
                    Vector(builder, builder.icmp_signed("==", number, place)) for place in (constant(0), last)
                )
                found = [new.where(at_start, old + new) for old, new in zip(before, found, strict=True)]
                ends = self.finish(found, of_row)
                found = [end.where(at_end, total) for end, total in zip(ends, found, strict=True)]
            for vector, at in zip(found, singles[last_output:], strict=True):
                builder.store(vector.element(0), at)

        return step


def _places(tensors: Sequence[Tensor]) -> tuple[list[int], str]:
    """Of each tensor (..., element) its address and the distances in bytes of samples and examples; and its letter."""
    found, kinds = [], ""
    for value in tensors:
        size, axes = value.element_size(), value.dim()
        if axes > 3:
            value, axes = value.view(-1, *value.shape[-2:]), 3
        if value.shape[-1] > 1 and value.stride(-1) != 1:
            raise ValueError("the elements of a row must lie next to each other")
        first = value.stride(0) * size if axes > 1 else 0
        found += (value.data_ptr(), first, value.stride(1) * size if axes > 2 else first)
        kinds += "f" if size == 4 else "h"
    return found, kinds


def _places_of_numbers(tensors: Sequence[Tensor]) -> list[int]:
    """Likewise of float32 tensors (...) or scalars, in which rows do not move."""
    found = []
    for value in tensors:
        found += (value.data_ptr(), 0, 0) if value.numel() == 1 else _places([value.unsqueeze(-1)])[0]
    return found


def as_rows(value: Tensor) -> Tensor:
    """The tensor (..., element) itself if a reduction can read it where it is, else a contiguous copy."""
    consecutive = value.stride(-1) == 1 or value.shape[-1] == 1
    return value if consecutive and value.dim() <= 3 else value.contiguous()


def as_numbers(value: Tensor) -> Tensor:
    """The tensor (...) itself if a reduction can read it where it is, else a contiguous copy."""
    return value if value.dim() <= 2 else value.contiguous()


def total_of(vector: Vector, width: int = LANES) -> Vector:
    """The sum of each so many elements next to each other, a power of two, in each of them."""
    while width > 1:
        width //= 2
        vector = vector + vector.permuted([index ^ width for index in range(vector.value.type.count)])
    return vector


def _words(builder: Any, draw: list[Any], sample: Any, example: Any) -> Callable[[Any], list[Vector]]:
    """The maker of a block's random words: Philox of the counters (draw and place, sample, key of the example)."""
    keys, first_sample, number = draw
    of_example = builder.load(builder.gep(builder.inttoptr(keys, INT64.as_pointer()), [example]))
    halves = builder.and_(of_example, constant(LOW)), builder.lshr(of_example, constant(32))
    of_sample, low_key, high_key = (
        splat(builder, value, _COUNTERS) for value in (builder.add(first_sample, sample), *halves)
    )
    start = builder.shl(number, constant(16))

    def of_block(block: Any) -> list[Vector]:
        origin = builder.add(start, builder.mul(block, constant(_COUNTERS)))
        places = splat(builder, origin, _COUNTERS) + numbers(builder, INT64, list(range(_COUNTERS)))
        x0, x1, x2, x3 = philox_rounds(builder, (places, of_sample, low_key, high_key), constant(KEY), 0)
        return [((high << 32) | (low & LOW)).view(INT32) for low, high in ((x0, x1), (x2, x3))]

    return of_block


def uniforms(words: list[Vector]) -> Vector:
    """32 numbers (word // 2^8 + 1/2) 2^-24 of the open unit interval."""
    joint = concatenate(words)
    return (((joint >> 8).to_float() + 0.5) * 2.0**-24).at_most(1 - 2.0**-24)


def normals(words: list[Vector]) -> Vector:
    """32 standard normal numbers: a radius and an angle give two.

    Source: Box & Muller 1958, A note on the generation of random normal deviates.
    """
    of_radius, of_angle = words
    uniform = (of_radius.to_float(signed=False) + 0.5) * 2.0**-32
    radius = (log(uniform) * -2).square_root()
    cosine, sine = cos_and_sin(of_angle.to_float() * 2.0**-30)
    return concatenate([radius * cosine, radius * sine])


def _drawn(run: RowReduction, shape: tuple[int, int, int], keys: Keys) -> Tensor:
    found = torch.empty(shape, dtype=torch.float32, device="cpu")
    run([found], outputs=[found], keys=keys)
    return found


# the numbers that a reduction of a shape, (sample, example, column), draws by its keys
draw_uniforms = partial(_drawn, RowReduction("uniforms", lambda _, __, words: Block([uniforms(words)])))
draw_normals = partial(_drawn, RowReduction("normals", lambda _, __, words: Block([normals(words)])))
