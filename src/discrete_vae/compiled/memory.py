"""What compiled loops do with tensors' memory: vectors at an address, of float32 or of bfloat16.

A tensor's address is read in 60 ns where a numpy array of it takes 2 us, which counts where a training step calls some
hundred loops. Who hands an address over answers for its type, its size and its life. numba knows no bfloat16: it is the
upper half of a float32, and all arithmetic is float32.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from discrete_vae.compiled.vector_ir import FLOAT32, INT16, INT32, Vector, constant, load, store

_NAN = 0x7FC00000


class Numbers:
    """Numbers in a row in memory, read and written as vectors of float32.

    Args:
        builder: The LLVM builder.
        address: LLVM int64, of the first number.
        bfloat16: Whether they are bfloat16, not float32.
    """

    def __init__(self, builder: Any, address: Any, *, bfloat16: bool = False) -> None:
        self._builder, self._bfloat16 = builder, bfloat16
        self._bytes = 2 if bfloat16 else 4
        kind = INT16 if bfloat16 else FLOAT32
        self._pointer = builder.inttoptr(address, kind.as_pointer())

    def load(self, place: Any, count: int) -> Vector:
        """The numbers from a place, LLVM int64, on."""
        pointer = self._builder.gep(self._pointer, [place])
        if not self._bfloat16:
            return load(self._builder, pointer, FLOAT32, count, align=4)
        return widen(load(self._builder, pointer, INT16, count, align=2))

    def store(self, vector: Vector, place: Any) -> None:
        """Write numbers from a place on; bfloat16 are rounded."""
        pointer = self._builder.gep(self._pointer, [place])
        store(narrow(vector) if self._bfloat16 else vector, pointer, align=self._bytes)

    def load_masked(self, place: Any, mask: Any) -> Vector:
        """The numbers from a place on that the mask, an LLVM vector of bits, names; the others are 0."""
        builder, element = self._builder, INT16 if self._bfloat16 else FLOAT32
        kind = ir.VectorType(element, mask.type.count)
        pointer = builder.bitcast(builder.gep(self._pointer, [place]), kind.as_pointer())
        found = Vector(builder, _masked("load", kind, [pointer], mask, builder))
        return widen(found) if self._bfloat16 else found

    def prefetch(self, place: Any, ahead: Any) -> None:
        """Ask for what lies so many bytes, LLVM int64, behind a place; it need not be there."""
        builder = self._builder
        pointer = builder.bitcast(builder.gep(self._pointer, [place]), ir.IntType(8).as_pointer())
        pointer = builder.gep(pointer, [ahead])
        kinds = [pointer.type, INT32, INT32, INT32]
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), kinds), "llvm.prefetch.p0"
        )
        builder.call(function, [pointer, *(ir.Constant(INT32, value) for value in (0, 3, 1))])

    def store_masked(self, vector: Vector, place: Any, mask: Any) -> None:
        """Write the numbers that the mask names from a place on; bfloat16 are rounded."""
        builder, value = self._builder, (narrow(vector) if self._bfloat16 else vector).value
        pointer = builder.bitcast(builder.gep(self._pointer, [place]), value.type.as_pointer())
        _masked("store", value.type, [value, pointer], mask, builder)


def _masked(name: str, kind: Any, arguments: list[Any], mask: Any, builder: Any) -> Any:
    """A masked read, whose other elements are 0, or write."""
    width = 16 if kind.element == INT16 else 32
    letter = "i" if kind.element == INT16 else "f"
    loads = name == "load"
    given = [*arguments, ir.Constant(INT32, width // 8), mask]
    given += [ir.Constant(kind, [0] * kind.count)] if loads else []
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(kind if loads else ir.VoidType(), [value.type for value in given]),
        f"llvm.masked.{name}.v{kind.count}{letter}{width}.p0",
    )
    return builder.call(function, given)


def widen(bits: Vector) -> Vector:
    """Bfloat16 numbers as float32: their bits are the upper half."""
    builder, count = bits.builder, bits.value.type.count
    return (Vector(builder, builder.zext(bits.value, ir.VectorType(INT32, count))) << 16).view(FLOAT32)


def narrow(numbers: Vector) -> Vector:
    """The nearest bfloat16 numbers, of two equally near the one with an even last bit; NaN stays NaN."""
    builder, count = numbers.builder, numbers.value.type.count
    bits = numbers.view(INT32)
    rounded = bits + ((bits >> 16) & 1) + 0x7FFF
    # the carry of a NaN's bits could make it a number
    nan = Vector(builder, builder.fcmp_unordered("uno", numbers.value, numbers.value))
    upper = Vector(builder, ir.Constant(rounded.value.type, [_NAN] * count)).where(nan, rounded) >> 16
    return Vector(builder, builder.trunc(upper.value, ir.VectorType(INT16, count)))


def zeros(builder: Any, count: int) -> Vector:
    """A vector of float32 zeros."""
    return Vector(builder, ir.Constant(ir.VectorType(FLOAT32, count), [0.0] * count))


class Total:
    """A sum of vectors that a loop adds to; it stays in a register.

    Args:
        builder: The LLVM builder.
        count: Length of the vectors.
    """

    def __init__(self, builder: Any, count: int) -> None:
        self._builder, self._count = builder, count
        self._place = cgutils.alloca_once_value(builder, zeros(builder, count).value)
        self.clear()

    def clear(self) -> None:
        """Make it 0 again."""
        self._builder.store(zeros(self._builder, self._count).value, self._place)

    def add(self, vector: Vector) -> None:
        """Add to it."""
        self._builder.store((self.value() + vector).value, self._place)

    def value(self) -> Vector:
        """The sum so far."""
        return Vector(self._builder, self._builder.load(self._place))


class Product(Total):
    """A product of vectors, likewise."""

    def clear(self) -> None:
        """Make it 1 again."""
        self._builder.store((zeros(self._builder, self._count) + 1.0).value, self._place)

    def multiply(self, vector: Vector) -> None:
        """Multiply it."""
        self._builder.store((self.value() * vector).value, self._place)


def minimum(builder: Any, a: Any, b: Any) -> Any:
    """The smaller of two LLVM int64."""
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def loop(builder: Any, start: Any, stop: Any) -> Any:
    """A block that is run for each LLVM int64 from ``start`` to ``stop - 1``; gives the number as ``index``."""
    return cgutils.for_range_slice(builder, start, stop, constant(1), inc=True)
