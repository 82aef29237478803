"""Transformations with at most one parameter of their own."""

from __future__ import annotations

from torch import Tensor

from discrete_vae.bounds import bounded
from discrete_vae.smoothing.base import Smoothing


class OneParameterSmoothing(Smoothing):
    """A transformation whose law has one scalar parameter for all units, or none."""

    def _parameter(self) -> Tensor | None:
        """The parameter, a scalar, if there is one."""
        return None

    def _bounds(self) -> tuple[Tensor, Tensor] | None:
        """Where the parameter is kept, scalars, see `discrete_vae.bounds.bounded`; None is nowhere."""
        return None

    def _bounded_parameter(self) -> Tensor | None:
        """The parameter, kept inside its bounds."""
        parameter, bounds = self._parameter(), self._bounds()
        return parameter if parameter is None or bounds is None else bounded(parameter, *bounds)
