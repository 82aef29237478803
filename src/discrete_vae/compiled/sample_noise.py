"""Uniform and normal numbers of the random words of passes over samples."""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.compiled.elementary import cos_and_sin, log
from discrete_vae.compiled.sample_rows import Keys, Made, SamplePass
from discrete_vae.compiled.vector_ir import Vector, concatenate


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


def draw_uniforms(shape: tuple[int, int, int], keys: Keys) -> Tensor:
    """The uniform numbers that a pass of this shape, (sample, example, column), and these keys meets."""
    return _drawn(_UNIFORMS, shape, keys)


def draw_normals(shape: tuple[int, int, int], keys: Keys) -> Tensor:
    """The normal numbers, likewise."""
    return _drawn(_NORMALS, shape, keys)


def _drawn(run: SamplePass, shape: tuple[int, int, int], keys: Keys) -> Tensor:
    found = torch.empty(shape, dtype=torch.float32, device="cpu")
    run([found], [found], total=torch.zeros(shape[:2], dtype=torch.float32, device="cpu"), keys=keys)
    return found


def _uniform_body(_elements: list[Vector], _numbers: list[Vector], words: list[Vector]) -> Made:
    return Made([uniforms(words)])


def _normal_body(_elements: list[Vector], _numbers: list[Vector], words: list[Vector]) -> Made:
    return Made([normals(words)])


_UNIFORMS = SamplePass("uniforms", _uniform_body, elements=[False], outputs=[False], noise=True)
_NORMALS = SamplePass("normals", _normal_body, elements=[False], outputs=[False], noise=True)
