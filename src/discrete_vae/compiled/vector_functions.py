"""Elementary functions of vectors in LLVM instructions."""

from __future__ import annotations

from discrete_vae.compiled.vector_ir import FLOAT32, INT32, Vector

# 2^f for |f| <= 1/2, relative error below 3e-7 in float32
_EXP2 = (1.00000007165, 0.693146967064, 0.240221197239, 0.0555071327496, 0.00967554133066, 0.00132764715186)
_ROUND = 1.5 * 2.0**23  # adding it rounds a float32 to an integer, which then stands in the low bits


def power_of_two(t: Vector) -> Vector:
    """2^t of float32 from -126 to 126, relative error below 3e-7."""
    whole = t + _ROUND
    rest = t - (whole - _ROUND)
    power = rest.times_plus(_EXP2[5], _EXP2[4])
    for coefficient in _EXP2[3::-1]:
        power = power.times_plus(rest, coefficient)
    return (power.view(INT32) + (whole.view(INT32) << 23)).view(FLOAT32)  # into the exponent
