"""Vectors of fixed length for numba intrinsics: LLVM instructions behind Python's operators.

LLVM turns a vector longer than the processor's into several instructions that do not wait for each other, which
is what hides their latency. Nothing here knows the processor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

INT16, INT32, INT64, FLOAT32 = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()


class Vector:
    """An LLVM vector of integers or float32; plain numbers in expressions stand for constant vectors.

    Args:
        builder: The LLVM builder that receives the instructions.
        value: An LLVM value of a vector type.
    """

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def _operand(self, other: Vector | float) -> Any:
        if isinstance(other, Vector):
            return other.value
        kind = self.value.type
        number = float(np.float32(other)) if kind.element == FLOAT32 else int(other)
        return ir.Constant(kind, [number] * kind.count)

    def _apply(self, integer: str, other: Vector | float, floating: str = "") -> Vector:
        name = floating if self.value.type.element == FLOAT32 else integer
        return Vector(self.builder, getattr(self.builder, name)(self.value, self._operand(other)))

    def __add__(self, other: Vector | float) -> Vector:
        return self._apply("add", other, "fadd")

    def __sub__(self, other: Vector | float) -> Vector:
        return self._apply("sub", other, "fsub")

    def __mul__(self, other: Vector | float) -> Vector:
        return self._apply("mul", other, "fmul")

    def __truediv__(self, other: Vector | float) -> Vector:
        return Vector(self.builder, self.builder.fdiv(self.value, self._operand(other)))

    def __neg__(self) -> Vector:
        return Vector(self.builder, self.builder.fneg(self.value))

    def __xor__(self, other: Vector | int) -> Vector:
        return self._apply("xor", other)

    def __and__(self, other: Vector | int) -> Vector:
        return self._apply("and_", other)

    def __or__(self, other: Vector | int) -> Vector:
        return self._apply("or_", other)

    def __lshift__(self, other: int) -> Vector:
        return self._apply("shl", other)

    def __rshift__(self, other: int) -> Vector:
        return self._apply("lshr", other)

    def below(self, other: Vector | float) -> Vector:
        """One bit an element: whether the float is below the other; false for NaN."""
        return Vector(self.builder, self.builder.fcmp_ordered("<", self.value, self._operand(other)))

    def above(self, other: Vector | float) -> Vector:
        """One bit an element: whether the float is above the other; false for NaN."""
        return Vector(self.builder, self.builder.fcmp_ordered(">", self.value, self._operand(other)))

    def reaches(self, other: Vector | float) -> Vector:
        """One bit an element: whether the float is at least the other; false for NaN."""
        return Vector(self.builder, self.builder.fcmp_ordered(">=", self.value, self._operand(other)))

    def square_root(self) -> Vector:
        """The square root of each float."""
        kind = self.value.type
        function = cgutils.get_or_insert_function(
            self.builder.module, ir.FunctionType(kind, [kind]), f"llvm.sqrt.v{kind.count}f32"
        )
        return Vector(self.builder, self.builder.call(function, [self.value]))

    def where(self, condition: Vector, other: Vector | float) -> Vector:
        """Each element where its bit of the condition is set, elsewhere that of the other."""
        chosen = self.builder.select(condition.value, self.value, self._operand(other))
        return Vector(self.builder, chosen)

    def at_most(self, bound: float) -> Vector:
        """The smaller of each float and a number."""
        limit = self._operand(bound)
        return Vector(self.builder, self.builder.select(self.below(bound).value, self.value, limit))

    def at_least(self, bound: float) -> Vector:
        """The larger of each float and a number."""
        limit = self._operand(bound)
        above = self.builder.fcmp_ordered(">", self.value, limit)
        return Vector(self.builder, self.builder.select(above, self.value, limit))

    def between(self, low: Vector | float, high: Vector | float) -> Vector:
        """The nearest float from low to high; NaN stays NaN."""
        inside = self.filled(low).where(self.below(low), self)
        return self.filled(high).where(inside.above(high), inside)

    def filled(self, number: Vector | float) -> Vector:
        """A number as a vector of the same kind; a vector stays as it is."""
        return Vector(self.builder, self._operand(number))

    def times_plus(self, factor: Vector | float, addend: Vector | float) -> Vector:
        """self * factor + addend, fused where the processor can."""
        kind = self.value.type
        function = cgutils.get_or_insert_function(
            self.builder.module, ir.FunctionType(kind, [kind] * 3), f"llvm.fmuladd.v{kind.count}f32"
        )
        arguments = [self.value, self._operand(factor), self._operand(addend)]
        return Vector(self.builder, self.builder.call(function, arguments))

    def differs_from(self, other: Vector | float) -> Vector:
        """One bit an element: whether it is not equal to the other; true for NaN."""
        if self.value.type.element == FLOAT32:
            return Vector(self.builder, self.builder.fcmp_unordered("!=", self.value, self._operand(other)))
        return Vector(self.builder, self.builder.icmp_unsigned("!=", self.value, self._operand(other)))

    def to_float(self, *, signed: bool = True) -> Vector:
        """Integers, or the bits of a comparison as unsigned ones, as float32 numbers."""
        kind = ir.VectorType(FLOAT32, self.value.type.count)
        convert = self.builder.sitofp if signed else self.builder.uitofp
        return Vector(self.builder, convert(self.value, kind))

    def permuted(self, order: list[int]) -> Vector:
        """The elements in another order: element i of the answer is element ``order[i]``."""
        places = ir.Constant(ir.VectorType(INT32, len(order)), order)
        return Vector(self.builder, self.builder.shuffle_vector(self.value, self.value, places))

    def view(self, element: Any) -> Vector:
        """The same bits as elements of another type."""
        width = {FLOAT32: 32}
        kind = self.value.type
        bits = kind.count * (width.get(kind.element) or kind.element.width)
        count = bits // (width.get(element) or element.width)
        return Vector(self.builder, self.builder.bitcast(self.value, ir.VectorType(element, count)))

    def element(self, index: int) -> Any:
        """One element, an LLVM scalar."""
        return self.builder.extract_element(self.value, ir.Constant(INT32, index))


def load(builder: Any, pointer: Any, element: Any, count: int, *, align: int) -> Vector:
    """Read a vector from an address that is a multiple of ``align`` bytes."""
    kind = ir.VectorType(element, count)
    value = builder.load(builder.bitcast(pointer, kind.as_pointer()))
    value.align = align
    return Vector(builder, value)


def store(vector: Vector, pointer: Any, *, align: int) -> None:
    """Write a vector to an address that is a multiple of ``align`` bytes."""
    builder = vector.builder
    written = builder.store(vector.value, builder.bitcast(pointer, vector.value.type.as_pointer()))
    written.align = align


def splat(builder: Any, scalar: Any, count: int) -> Vector:
    """A vector of copies of an LLVM scalar."""
    kind = ir.VectorType(scalar.type, count)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(INT32, 0))
    zeros = ir.Constant(ir.VectorType(INT32, count), [0] * count)
    return Vector(builder, builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), zeros))


def concatenate(vectors: list[Vector]) -> Vector:
    """One vector of the elements of several (a power of two of them) of equal length."""
    while len(vectors) > 1:
        builder, count = vectors[0].builder, vectors[0].value.type.count
        order = ir.Constant(ir.VectorType(INT32, 2 * count), list(range(2 * count)))
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [Vector(builder, builder.shuffle_vector(a.value, b.value, order)) for a, b in pairs]
    return vectors[0]


def numbers(builder: Any, element: Any, values: list[int]) -> Vector:
    """A constant vector."""
    return Vector(builder, ir.Constant(ir.VectorType(element, len(values)), values))


def constant(value: int) -> Any:
    """An LLVM int64 constant."""
    return ir.Constant(INT64, value)


def pointers_and_scalars(context: Any, builder: Any, signature: Any, arguments: Any) -> list[Any]:
    """The arguments of an intrinsic, with each contiguous array replaced by the pointer to its first element."""
    plain = []
    for kind, value in zip(signature.args, arguments, strict=True):
        is_array = isinstance(kind, types.Array)
        plain.append(context.make_array(kind)(context, builder, value).data if is_array else value)
    return plain
