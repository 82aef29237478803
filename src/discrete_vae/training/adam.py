"""Adam in one streaming pass over weights and moments, with bfloat16 copies of the weights written on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from discrete_vae.compiled.threads import threads_for
from discrete_vae.compiled.trial import warn_of_failure
from discrete_vae.nets.working_weight import WorkingWeight

SMALLEST_SHARED = 200_000
"""Elements from which a step is divided among threads."""


class Adam(torch.optim.Adam):
    """`torch.optim.Adam`, the same to rounding, whose pass on the CPU also reads and writes working copies.

    All parameters of a group are updated in one compiled call, small ones together. Where a weight has a bfloat16
    copy, its gradient is read in bfloat16, the float32 weight and its moments are updated, and the copy is written
    anew. The result does not depend on the number of threads. On other devices torch's fused kernel runs, and the
    copies are made after it.

    Source: Kingma & Ba 2015, algorithm 1, as torch orders its operations.

    Args:
        params: Parameters, float32, or groups of them, as torch takes them.
        lr: Step size.
        betas: Decays of the two moments.
        eps: Added to the root of the second moment.
        weight_decay: Factor on the weight that is added to its gradient.
        working: Weights that products read in another precision, or with memory of their own for the gradient.

    Examples:
        >>> layer = nn.Linear(2, 1)
        >>> optimizer = Adam(layer.parameters(), lr=0.1)
        >>> layer(torch.ones(1, 2)).sum().backward()
        >>> optimizer.step()
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        working: Iterable[WorkingWeight] = (),
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)
        self._working = {each.master: each for each in working}
        self._pairs: list[tuple[nn.Parameter, WorkingWeight | None]] = []  # of all groups, in order
        self._tables: dict[int, _Table] = {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients; memory that is lent for them comes back."""
        super().zero_grad(set_to_none)
        for each in self._working.values():
            each.clear_gradient()

    def gradient_leaves(self) -> list[Tensor]:
        """The tensors whose ``grad`` a step reads: parameters, or what products read in their place."""
        if len(self._pairs) != sum(len(group["params"]) for group in self.param_groups):
            parameters = [parameter for group in self.param_groups for parameter in group["params"]]
            self._pairs = [(parameter, self._working.get(parameter)) for parameter in parameters]
        return [
            parameter if working is None else working.current()
            for parameter, working in self._pairs
            if parameter.requires_grad
        ]

    def gradient_memory(self) -> list[Tensor]:
        """The memory that is lent for gradients."""
        return [each.own_memory() for each in self._working.values()]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take one step with the gradients that there are.

        Args:
            closure: As torch has it.

        Returns:
            What the closure returns.
        """
        if not self._is_compiled():
            return self._torch_step(closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.update()
        return loss

    def update(self) -> None:
        """`step` without a closure and without torch's hooks around it."""
        if not self._is_compiled():
            self.step()
            return
        with torch.no_grad():
            for index, group in enumerate(self.param_groups):
                self._compiled_step(index, group)

    def _is_compiled(self) -> bool:
        """Whether the compiled pass can take the step."""
        return all(_is_compiled(group) for group in self.param_groups) and works()

    def _compiled_step(self, index: int, group: dict[str, Any]) -> None:
        found = []
        for parameter in group["params"]:
            working = self._working.get(parameter)
            gradient = parameter.grad if working is None else working.gradient
            if gradient is not None:
                found.append((parameter, working, gradient))
        if not found:
            return
        table = self._tables.get(index)
        if table is None or not table.fits(self.state, found):
            for parameter, _, _ in found:
                self._prepare(parameter)
            table = self._tables[index] = _Table(self.state, found)
        table.update(found, group)
        changed = [parameter for parameter, _, _ in found]
        torch.autograd.graph.increment_version(changed)
        for _, working, _ in found:
            if working is not None:
                working.written()

    def _prepare(self, parameter: Tensor) -> None:
        """Make the moments of a parameter that has none yet, as torch does."""
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
            state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.contiguous_format)

    def _torch_step(self, closure: Callable[[], Any] | None) -> Any:
        """Torch's own step, on gradients in the masters' precision."""
        for master, working in self._working.items():
            if working.dtype != master.dtype and working.gradient is not None:
                master.grad = working.gradient.to(master.dtype)
        loss = super().step(closure)
        for working in self._working.values():
            working.current()
        return loss


class _Table:
    """Addresses of what one group's step reads and writes, made once.

    Args:
        state: The optimizer's.
        found: Each parameter with its working weight and its gradient.
    """

    def __init__(self, state: Any, found: list[tuple[Any, Any, Tensor]]) -> None:
        from discrete_vae.training.adam_compiled import CHUNK, COPY, FIRST, MASTER, SECOND, STEP

        self._of = [(parameter, working, state[parameter]["exp_avg"]) for parameter, working, _ in found]
        self._addresses = np.zeros((len(found), 6), np.int64)
        for row, (parameter, working, _) in zip(self._addresses, found, strict=True):
            moments = state[parameter]
            row[MASTER] = parameter.data_ptr()
            row[FIRST], row[SECOND] = moments["exp_avg"].data_ptr(), moments["exp_avg_sq"].data_ptr()
            row[STEP] = moments["step"].data_ptr()
            if working is not None and working.dtype != parameter.dtype:
                row[COPY] = working.current().data_ptr()
        sizes = [parameter.numel() for parameter, _, _ in found]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        chunks = np.arange(0, self._starts[-1], CHUNK)
        self._first_of_chunk = np.searchsorted(self._starts, chunks, side="right") - 1
        self._scratch = np.empty((len(found), 2), np.float32)
        self._masters = self._addresses[:, MASTER].tolist()

    def fits(self, state: Any, found: list[tuple[Any, Any, Tensor]]) -> bool:
        """Whether it is still about these parameters, where they are, with these moments."""
        if len(found) != len(self._of):
            return False
        for (parameter, working, _), (own, own_working, moment), address in zip(
            found, self._of, self._masters, strict=True
        ):
            if parameter is not own or working is not own_working or parameter.data_ptr() != address:
                return False
            if state[parameter].get("exp_avg") is not moment:
                return False
        return True

    def update(self, found: list[tuple[Any, Any, Tensor]], group: dict[str, Any]) -> None:
        """Run the pass."""
        from discrete_vae.training.adam_compiled import GRADIENT, update

        kept = [gradient if gradient.is_contiguous() else gradient.contiguous() for _, _, gradient in found]
        self._addresses[:, GRADIENT] = [gradient.data_ptr() for gradient in kept]
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


def _is_compiled(group: dict[str, Any]) -> bool:
    """Whether the compiled pass can do what a group asks for."""
    if group["amsgrad"] or group["maximize"] or group["decoupled_weight_decay"]:
        return False
    for parameter in group["params"]:
        if parameter.dtype != torch.float32 or not parameter.is_cpu or not parameter.is_contiguous():
            return False
    return True


@cache
def works() -> bool:
    """Whether the compiled pass takes torch's steps; tried once in a process.

    Warns:
        KernelWarning: If it does not.
    """
    try:
        _try()
    except Warning:  # the user made warnings errors
        raise
    except Exception as error:
        warn_of_failure("The compiled Adam", error, "torch's own is used")
        return False
    return True


def _try() -> None:
    """Compile, and compare two steps.

    Raises:
        RuntimeError: If they are wrong.
    """
    from discrete_vae.training.adam_compiled import update  # noqa: F401

    start = torch.linspace(-1, 1, 43, device="cpu")
    mine, right = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    table, other = Adam([mine], lr=0.1), torch.optim.Adam([right], lr=0.1)
    for gradient in (start.cos(), start.sin()):
        mine.grad, right.grad = gradient, gradient
        table._compiled_step(0, table.param_groups[0])
        other.step()
    if not torch.allclose(mine, right, rtol=1e-4, atol=1e-6):
        raise RuntimeError("its numbers are wrong")
