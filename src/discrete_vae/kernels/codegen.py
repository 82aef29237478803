"""Vectors of LLVM instructions for numba intrinsics: operators, elementary functions, random words, memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

INT16, INT32, INT64, FLOAT32 = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()


def _operator(integer: str, floating: str = "") -> Callable[[Any, Any], Vector]:
    """An operator of vectors, by the names of LLVM's instructions."""

    def apply(self: Vector, other: Vector | float) -> Vector:
        name = floating if self.value.type.element == FLOAT32 else integer
        return Vector(self.builder, getattr(self.builder, name)(self.value, self._operand(other)))

    return apply


def _comparison(sign: str) -> Callable[[Any, Any], Vector]:
    def compare(self: Vector, other: Vector | float) -> Vector:
        return Vector(self.builder, self.builder.fcmp_ordered(sign, self.value, self._operand(other)))

    return compare


class Vector:
    """An LLVM vector of integers or float32; plain numbers in expressions stand for constant vectors.

    LLVM turns a vector longer than the processor's into several instructions that do not wait for each other, which
    hides their latency. Nothing here knows the processor.
    """

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def _operand(self, other: Vector | float) -> Any:
        if isinstance(other, Vector):
            return other.value
        kind = self.value.type
        number = float(np.float32(other)) if kind.element == FLOAT32 else int(other)
        return ir.Constant(kind, [number] * kind.count)

    __add__, __sub__ = _operator("add", "fadd"), _operator("sub", "fsub")
    __mul__, __truediv__ = _operator("mul", "fmul"), _operator("sdiv", "fdiv")
    __xor__, __and__, __or__ = _operator("xor"), _operator("and_"), _operator("or_")
    __lshift__, __rshift__ = _operator("shl"), _operator("lshr")

    def __neg__(self) -> Vector:
        return Vector(self.builder, self.builder.fneg(self.value))

    # one bit an element: the float is below the other, above it, at least it; false for NaN
    below, above, reaches = _comparison("<"), _comparison(">"), _comparison(">=")

    def _called(self, name: str, *arguments: Any) -> Vector:
        kind = self.value.type
        name = f"{name}.v{kind.count}f32"
        return Vector(self.builder, _call(self.builder, name, kind, [self.value, *arguments]))

    def square_root(self) -> Vector:
        """The square root of each float."""
        return self._called("sqrt")

    def where(self, condition: Vector, other: Vector | float) -> Vector:
        """Each element where its bit of the condition is set, elsewhere that of the other."""
        chosen = self.builder.select(condition.value, self.value, self._operand(other))
        return Vector(self.builder, chosen)

    def at_most(self, bound: float) -> Vector:
        """The smaller of each float and a number."""
        return self.where(self.below(bound), bound)

    def at_least(self, bound: Vector | float) -> Vector:
        """The larger of each float and a number; NaN stays NaN."""
        return self.filled(bound).where(self.below(bound), self)

    def between(self, low: Vector | float, high: Vector | float) -> Vector:
        """The nearest float from low to high; NaN stays NaN."""
        inside = self.at_least(low)
        return self.filled(high).where(inside.above(high), inside)

    def filled(self, number: Vector | float) -> Vector:
        """A number as a vector of the same kind; a vector stays as it is."""
        return Vector(self.builder, self._operand(number))

    def times_plus(self, factor: Vector | float, addend: Vector | float) -> Vector:
        """self * factor + addend, fused where the processor can."""
        return self._called("fmuladd", self._operand(factor), self._operand(addend))

    def differs_from(self, other: Vector | float) -> Vector:
        """One bit an element: it is not equal to the other; true for NaN."""
        compare = (
            self.builder.fcmp_unordered if self.value.type.element == FLOAT32 else self.builder.icmp_unsigned
        )
        return Vector(self.builder, compare("!=", self.value, self._operand(other)))

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
        kind = self.value.type
        bits, width = (32 if each == FLOAT32 else each.width for each in (kind.element, element))
        wide = ir.VectorType(element, kind.count * bits // width)
        return Vector(self.builder, self.builder.bitcast(self.value, wide))

    def element(self, index: int) -> Any:
        """One element, an LLVM scalar."""
        return self.builder.extract_element(self.value, ir.Constant(INT32, index))


def _call(builder: Any, name: str, returns: Any, arguments: Sequence[Any]) -> Any:
    """Call one of LLVM's own functions."""
    kind = ir.FunctionType(returns, [value.type for value in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}"), arguments)


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


def numbers(builder: Any, element: Any, values: list[int] | list[float]) -> Vector:
    """A constant vector."""
    return Vector(builder, ir.Constant(ir.VectorType(element, len(values)), values))


def constant(value: int) -> Any:
    """An LLVM int64 constant."""
    return ir.Constant(INT64, value)


unpacked = cgutils.unpack_tuple  # the members of an LLVM tuple


def builder_intrinsic(returns: Any = types.void) -> Callable[[Callable[..., Any]], Any]:
    """Make a numba intrinsic of a function that takes an LLVM builder and the arguments, and generates instructions.

    In place of a contiguous array it is given the pointer to its first element. It returns an LLVM value of a type,
    None for `types.void`.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        def typed(_typing: Any, *kinds: Any) -> Any:
            def generate(context: Any, builder: Any, kind: Any, values: Any) -> Any:
                plain = []
                for each, value in zip(kind.args, values, strict=True):
                    is_array = isinstance(each, types.Array)
                    plain.append(
                        context.make_array(each)(context, builder, value).data if is_array else value
                    )
                found = function(builder, *plain)
                return context.get_dummy_value() if found is None else found

            return returns(*kinds), generate

        typed.__signature__ = signature(function)  # pyright: ignore[reportFunctionMemberAccess]
        typed.__name__ = typed.__qualname__ = function.__name__
        return intrinsic(typed)

    return decorate


# Elementary functions of float32 vectors, branch-free, right over the whole range: NaN stays NaN, errors are at most 2
# units in the last place. numba's own functions are a scalar call of the C library for each number.


_LOG2_E = 1 / math.log(2)
_QUARTER = math.pi / 2
# (sin r - r) / r^3 and (cos r - 1 + r^2 / 2) / r^4, both of r^2, for |r| <= pi / 4
_SIN = (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)
_COS = (4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)
_LOG_2 = (0.693359375, -2.12194440e-4)  # their sum; a multiple of the first by an exponent is exact
_ROUND = 1.5 * 2.0**23  # adding it rounds a float32 to an integer, which then stands in the low bits
# (e^r - 1 - r) / r^2 for |r| <= log(2) / 2
_EXP = (0.5, 0.16666667163, 0.041666354985, 0.008333273232, 0.001394101098, 0.00019914198492)
# (log(1 + f) - f + f^2 / 2) / f^3 for |f| <= 1/3
_LOG = (
    0.33333334327, -0.24999821186, 0.19999596968, -0.16679559648, 0.14304442704, -0.12196028978, 0.10754388571,
    -0.12844014168, 0.12006578595,
)  # fmt: skip
_TWO_THIRDS, _ONE, _EXPONENT, _SIGN = 0x3F2AAAAB, 0x3F800000, -0x800000, -0x80000000


def magnitude(x: Vector) -> Vector:
    """|x|."""
    return (x.view(INT32) & 0x7FFFFFFF).view(FLOAT32)


def bounded(x: Vector, low: Vector | float, high: Vector | float) -> Vector:
    """As `discrete_vae.numerics.bounded` has it: NaN where a number is not finite."""
    inside = x.between(low, high)
    return inside + (x - inside) * 0


def inward(gradient: Vector, own: Vector, used: Vector) -> Vector:
    """A gradient, 0 where descent would push a parameter that lies outside its bounds further out."""
    outward = ((own - used) * gradient).below(0.0)
    return gradient.filled(0).where(outward, gradient)


def _polynomial(x: Vector, coefficients: tuple[float, ...]) -> Vector:
    total = x.times_plus(coefficients[-1], coefficients[-2])
    for coefficient in coefficients[-3::-1]:
        total = total.times_plus(x, coefficient)
    return total


def _power_of_two(n: Vector) -> Vector:
    """2^n of whole numbers between -126 and 127."""
    return ((n + (_ROUND + 127)).view(INT32) << 23).view(FLOAT32)


def _split(x: Vector) -> tuple[Vector, Vector]:
    """The nearest n to x log2(e), and e^r - 1 of the rest r = x - n log 2."""
    n = (x * _LOG2_E + _ROUND) - _ROUND
    rest = n.times_plus(-_LOG_2[1], n.times_plus(-_LOG_2[0], x))
    return n, (rest * rest).times_plus(_polynomial(rest, _EXP), rest)


def exp(x: Vector) -> Vector:
    """e^x; subnormal numbers come out too."""
    n, rise = _split(x.between(-104, 89))
    half = (n * 0.5 + _ROUND) - _ROUND
    return (rise + 1) * _power_of_two(half) * _power_of_two(n - half)


def exp_of_negative(x: Vector) -> Vector:
    """e^x of numbers up to 0 at a lower price; below -87, where it is next to nothing, it stays what it is there."""
    n, rise = _split(x.at_least(-87))
    return (rise + 1) * _power_of_two(n)


def expm1(x: Vector) -> Vector:
    """e^x - 1, with all its digits near 0."""
    n, rise = _split(x.between(-20, 89))
    half = _power_of_two(n - 1)  # 2^n itself may be infinite where the result is not
    half = half.times_plus(rise, half - 0.5)
    return half + half


def log(x: Vector) -> Vector:
    """log x of positive numbers that are neither subnormal nor infinite; NaN stays NaN."""
    exponent = (x.view(INT32) - _TWO_THIRDS) & _EXPONENT
    f = (x.view(INT32) - exponent).view(FLOAT32) - 1
    return _log_of_scaled(f, exponent.to_float() * 2.0**-23) + (x - x)


def _log_of_scaled(f: Vector, n: Vector) -> Vector:
    """log((1 + f) 2^n)."""
    square = f * f
    tail = square.times_plus(-0.5, square * f * _polynomial(f, _LOG))
    return n.times_plus(_LOG_2[0], f + n.times_plus(_LOG_2[1], tail))


def cos_and_sin(quarters: Vector) -> tuple[Vector, Vector]:
    """Cosine and sine of so many quarter turns, from -2^21 to 2^21; within 2^-23 of the right value."""
    shifted = quarters + _ROUND
    r = (quarters - (shifted - _ROUND)) * _QUARTER
    square = r * r
    sine = (square * r).times_plus(_polynomial(square, _SIN), r)
    cosine = (square * square).times_plus(
        _polynomial(square, _COS), square.times_plus(-0.5, square.filled(1))
    )
    n = shifted.view(INT32)
    odd = (n & 1).differs_from(0)
    of_cosine, of_sine = sine.where(odd, cosine).view(INT32), cosine.where(odd, sine).view(INT32)
    signs = ((n + 1) & 2) << 30, (n & 2) << 30
    return (of_cosine ^ signs[0]).view(FLOAT32), (of_sine ^ signs[1]).view(FLOAT32)


def log1p(x: Vector) -> Vector:
    """log(1 + x), with all its digits near 0; minus infinity at -1, NaN below."""
    u = x + 1
    exponent = (u.view(INT32) - _TWO_THIRDS) & _EXPONENT
    fraction = (u.view(INT32) - exponent).view(FLOAT32) - 1
    # what 1 + x was rounded by; from 2^30 on x is u
    lost = (x - (u - 1)).where(x.below(2.0**30), 0.0)
    scale = (exponent * -1 + _ONE).view(FLOAT32).where(x.below(2.0**30), 0.0)  # 2^-n
    result = _log_of_scaled(lost.times_plus(scale, fraction), exponent.to_float() * 2.0**-23)
    special = x.filled(math.nan).where(x.below(-1), x.where(x.differs_from(-1), -math.inf))
    return result.where(x.above(-1) & x.below(math.inf), special)


def tanh(x: Vector) -> Vector:
    """tanh x = -t / (2 + t) with t = e^(-2|x|) - 1, and the sign of x."""
    size = magnitude(x)
    fall = expm1(size * -2)
    quotient = -fall / (fall + 2)
    return (quotient.view(INT32) | (x.view(INT32) & _SIGN)).view(FLOAT32)


# 2^f for |f| <= 1/2, relative error below 3e-7 in float32
_EXP2 = (1.00000007165, 0.693146967064, 0.240221197239, 0.0555071327496, 0.00967554133066, 0.00132764715186)


def comes_on(t: Vector, words: Vector) -> Vector:
    """One bit per element: u (1 + 2^t) < 1, with t = -logit log2(e) and u the uniform of a 32-bit word.

    u and 1 are scaled by 2^24. t is clamped to +-126, beyond which the decision is the same for every u.
    """
    t = t.where(t.above(-126), -126).at_most(126)
    whole = t + _ROUND
    power = _polynomial(t - (whole - _ROUND), _EXP2)
    power = (power.view(INT32) + (whole.view(INT32) << 23)).view(FLOAT32)  # into the exponent
    u = ((words >> 8).to_float() + 0.5).at_most(2**24 - 1)
    return u.times_plus(power, u).below(2**24)


# The rounds of Philox4x32 on vectors of LLVM instructions.


LOW = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def philox_rounds(
    builder: Any, state: tuple[Vector, Vector, Vector, Vector], key: Any, first: int
) -> tuple[Vector, Vector, Vector, Vector]:
    """Philox4x32 from a round, counted from 0, to the last, under an LLVM int64 as the key.

    The state is x0 to x3, 64-bit integers whose low halves count; the high ones may hold anything.
    """
    x0, x1, x2, x3 = state
    count = x0.value.type.count
    halves = builder.and_(key, constant(LOW)), builder.lshr(key, constant(32))
    for i in range(first, ROUNDS):
        keys = [
            splat(builder, builder.add(half, constant(i * step)), count)
            for half, step in zip(halves, WEYL, strict=True)
        ]
        product_0, product_1 = times(x0, 0), times(x2, 1)
        x0, x1 = (product_1 >> 32) ^ x1 ^ keys[0], product_1
        x2, x3 = (product_0 >> 32) ^ x3 ^ keys[1], product_0
    return x0, x1, x2, x3


def times(x: Vector, multiplier: int) -> Vector:
    """The product of the low halves with a multiplier of Philox, 64 bits."""
    return (x & LOW) * MULTIPLIERS[multiplier]


# Tensors' memory: vectors at an address, which is had far sooner than a numpy array of a tensor. Who hands an address
# over answers for its type, its size and its life. numba knows no bfloat16: it is the upper half of a float32, and all
# arithmetic is float32.


_NAN = 0x7FC00000


class Numbers:
    """float32 or bfloat16 numbers in a row from an address, LLVM int64, on, read and written as float32 vectors."""

    def __init__(self, builder: Any, address: Any, *, bfloat16: bool = False) -> None:
        self._builder, self._bfloat16 = builder, bfloat16
        self._element, self._bytes, self._suffix = (INT16, 2, "i16") if bfloat16 else (FLOAT32, 4, "f32")
        self._pointer = builder.inttoptr(address, self._element.as_pointer())

    def load(self, place: Any, count: int) -> Vector:
        """The numbers from a place, LLVM int64, on."""
        pointer = self._builder.gep(self._pointer, [place])
        found = load(self._builder, pointer, self._element, count, align=self._bytes)
        return widen(found) if self._bfloat16 else found

    def store(self, vector: Vector, place: Any) -> None:
        """Write numbers from a place on; bfloat16 are rounded."""
        pointer = self._builder.gep(self._pointer, [place])
        store(narrow(vector) if self._bfloat16 else vector, pointer, align=self._bytes)

    def load_masked(self, place: Any, mask: Any) -> Vector:
        """The numbers from a place on that the mask, an LLVM vector of bits, names; the others are 0."""
        builder, kind = self._builder, ir.VectorType(self._element, mask.type.count)
        zeros = ir.Constant(kind, [0] * kind.count)
        given = self._at(place, kind), ir.Constant(INT32, self._bytes), mask, zeros
        found = Vector(builder, _call(builder, f"masked.load.v{kind.count}{self._suffix}.p0", kind, given))
        return widen(found) if self._bfloat16 else found

    def store_masked(self, vector: Vector, place: Any, mask: Any) -> None:
        """Write the numbers that the mask names from a place on; bfloat16 are rounded."""
        value = (narrow(vector) if self._bfloat16 else vector).value
        given = value, self._at(place, value.type), ir.Constant(INT32, self._bytes), mask
        _call(self._builder, f"masked.store.v{mask.type.count}{self._suffix}.p0", ir.VoidType(), given)

    def prefetch(self, place: Any, ahead: Any) -> None:
        """Ask for what lies so many bytes, LLVM int64, behind a place; it need not be there."""
        pointer = self._builder.gep(self._at(place, ir.IntType(8)), [ahead])
        settings = (ir.Constant(INT32, value) for value in (0, 3, 1))
        _call(self._builder, "prefetch.p0", ir.VoidType(), [pointer, *settings])

    def _at(self, place: Any, kind: Any) -> Any:
        return self._builder.bitcast(self._builder.gep(self._pointer, [place]), kind.as_pointer())


def widen(bits: Vector) -> Vector:
    """Bfloat16 numbers as float32: their bits are the upper half."""
    builder, count = bits.builder, bits.value.type.count
    return (Vector(builder, builder.zext(bits.value, ir.VectorType(INT32, count))) << 16).view(FLOAT32)


def narrow(numbers: Vector) -> Vector:
    """The nearest bfloat16 numbers, of two equally near the one with an even last bit; NaN stays NaN."""
    bits = numbers.view(INT32)
    rounded = bits + ((bits >> 16) & 1) + 0x7FFF
    # the carry of a NaN's bits could make it a number
    upper = rounded.filled(_NAN).where(numbers.differs_from(numbers), rounded) >> 16
    return Vector(bits.builder, bits.builder.trunc(upper.value, ir.VectorType(INT16, upper.value.type.count)))


class Total:
    """A sum of vectors that a loop adds to; it stays in a register."""

    _start = 0.0

    def __init__(self, builder: Any, count: int) -> None:
        self._builder, self._first = builder, numbers(builder, FLOAT32, [self._start] * count).value
        self._place = cgutils.alloca_once_value(builder, self._first)

    def clear(self) -> None:
        """Make it again what it was at the start: 0, or 1 as a product."""
        self._builder.store(self._first, self._place)

    def add(self, vector: Vector) -> None:
        """Add to it."""
        self._builder.store((self.value() + vector).value, self._place)

    def value(self) -> Vector:
        """The sum so far."""
        return Vector(self._builder, self._builder.load(self._place))


class Product(Total):
    """A product of vectors, likewise."""

    _start = 1.0

    def multiply(self, vector: Vector) -> None:
        """Multiply it."""
        self._builder.store((self.value() * vector).value, self._place)


def minimum(builder: Any, a: Any, b: Any) -> Any:
    """The smaller of two LLVM int64."""
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def loop(builder: Any, start: Any, stop: Any) -> Any:
    """A block that is run for each LLVM int64 from ``start`` to ``stop - 1``; gives the number as ``index``."""
    return cgutils.for_range_slice(builder, start, stop, constant(1), inc=True)
