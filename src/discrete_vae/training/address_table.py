"""Where in memory a step of Adam finds what it reads and writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import is_
from typing import Any

import numpy as np
from torch import Tensor

from discrete_vae.compiled.threads import threads_for
from discrete_vae.nets.working_weight import WorkingWeight

SMALLEST_SHARED = 200_000
"""Elements from which a step is divided among threads."""


class AddressTable:
    """The addresses of one group's parameters that have a gradient, with their moments and copies, looked up once.

    Args:
        parameters: Of the group.
        leaves: What has the gradient of each.
        working: Weights that products read in place of some parameters.
        state: The optimizer's, with the moments of those that have a gradient.

    Attributes:
        parameters: Those that have a gradient.
        working: What products read in place of some of them.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        leaves: Sequence[Tensor],
        working: Mapping[Any, WorkingWeight],
        state: Mapping[Any, Mapping[str, Any]],
    ) -> None:
        from discrete_vae.training.adam_compiled import CHUNK, COPY, FIRST, MASTER, SECOND, STEP

        self._all, self._places, self._moments = list(parameters), _places(parameters), _moments(state)
        self._leaves, gradients = list(leaves), [leaf.grad for leaf in leaves]
        self._have_gradient = [gradient is not None for gradient in gradients]
        pairs = [pair for pair in zip(parameters, leaves, strict=True) if pair[1].grad is not None]
        self.parameters = [parameter for parameter, _ in pairs]
        self.working = [working[parameter] for parameter in self.parameters if parameter in working]
        self._addresses = np.zeros((len(pairs), 6), np.int64)
        for row, (parameter, leaf) in zip(self._addresses, pairs, strict=True):
            moments = state[parameter]
            row[MASTER] = parameter.data_ptr()
            row[FIRST], row[SECOND] = moments["exp_avg"].data_ptr(), moments["exp_avg_sq"].data_ptr()
            row[STEP] = moments["step"].data_ptr()
            if leaf.dtype != parameter.dtype:
                row[COPY] = leaf.data_ptr()
        self._starts = np.cumsum([0, *(parameter.numel() for parameter in self.parameters)]).astype(np.int64)
        chunks = np.arange(0, self._starts[-1], CHUNK)
        self._first_of_chunk = np.searchsorted(self._starts, chunks, side="right") - 1
        self._scratch = np.empty((len(pairs), 2), np.float32)
        self._take(gradients)

    def fits(self, parameters: Sequence[Tensor], state: Mapping[Any, Mapping[str, Any]]) -> bool:
        """Whether it is still about these parameters, where they are, with these moments; takes in their gradients.

        Args:
            parameters: Of the group, as they are now.
            state: The optimizer's.
        """
        gradients = [leaf.grad for leaf in self._leaves]
        return (
            _same(parameters, self._all)
            and _places(parameters) == self._places
            and _same(_moments(state), self._moments)
            and (_same(gradients, self._gradients) or self._take(gradients))
        )

    def forget_gradients(self) -> None:
        """Keep no gradient alive."""
        self._gradients, self._kept = [], []

    def _take(self, gradients: list[Tensor | None]) -> bool:
        """Look up where gradients are; says whether the same parameters have one as before."""
        from discrete_vae.training.adam_compiled import GRADIENT

        if [gradient is not None for gradient in gradients] != self._have_gradient:
            return False
        found = [gradient for gradient in gradients if gradient is not None]
        self._kept = [each if each.is_contiguous() else each.contiguous() for each in found]
        self._addresses[:, GRADIENT] = _places(self._kept)
        self._gradients = gradients if _same(found, self._kept) else []  # a copy serves one step
        return True

    def update(self, group: Mapping[str, Any]) -> None:
        """Run the compiled pass with the gradients that `fits` saw.

        Args:
            group: Settings of the group.
        """
        from discrete_vae.training.adam_compiled import update

        beta1, beta2 = group["betas"]
        update(
            threads_for(int(self._starts[-1]), SMALLEST_SHARED),
            self._addresses,
            self._starts,
            self._first_of_chunk,
            self._scratch,
            float(group["lr"]),
            beta1,
            beta2,
            group["eps"],
            float(group["weight_decay"]),
        )


def _places(tensors: Iterable[Tensor]) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


def _moments(state: Mapping[Any, Mapping[str, Any]]) -> list[Any]:
    """One moment of each parameter; by the state's values, since a tensor takes long to look up."""
    return [of_parameter.get("exp_avg") for of_parameter in state.values()]


def _same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether two lists hold the same objects."""
    return len(some) == len(others) and all(map(is_, some, others))
