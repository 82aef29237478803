"""What both CPU kernels do to vectors: the decision whether a unit comes on."""

from __future__ import annotations

from discrete_vae.compiled.vector_functions import power_of_two
from discrete_vae.compiled.vector_ir import Vector


def comes_on(t: Vector, words: Vector) -> Vector:
    """One bit per element: whether u (1 + 2^t) < 1, with t = -logit log2(e) and u the uniform of a word.

    u and 1 are scaled by 2^24. t is clamped to +-126, beyond which the decision is the same for every u.

    Args:
        t: float32.
        words: 32-bit integers, as many.
    """
    t = t.at_least(-126).at_most(126)
    power = power_of_two(t)
    u = ((words >> 8).to_float() + 0.5).at_most(2**24 - 1)
    return u.times_plus(power, u).below(2**24)
