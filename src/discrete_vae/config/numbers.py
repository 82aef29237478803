"""Kinds of numbers that configs hold, with the bounds beyond which no part of the library could use them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Seed = Annotated[int, Field(ge=0, le=2**64 - 1)]
"""What `discrete_vae.noise` takes."""

Count = Annotated[int, Field(gt=0, le=10**12)]
"""How many there are of something; what fits the memory is found later, with all numbers at hand."""

Interval = Annotated[int, Field(gt=0, le=2**63 - 1)]
"""Steps between two events; larger than the run means never."""

Repetitions = Annotated[int, Field(gt=0, le=10**9)]
"""How often something is done in a row; products of two such numbers are still counted exactly."""

Factor = Annotated[float, Field(le=1e30)]
"""A number that float32 still holds after some multiplications."""
