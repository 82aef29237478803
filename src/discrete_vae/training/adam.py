"""Adam in one streaming pass over weights and moments, with bfloat16 copies of the weights written on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from discrete_vae.compiled.trial import check_close, tried
from discrete_vae.nets.working_weight import WorkingWeight
from discrete_vae.training.address_table import AddressTable


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
        self._pairs: list[tuple[Tensor, Tensor]] = []  # of all groups, in order
        self._tables: dict[int, AddressTable] = {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients; memory that is lent for them comes back."""
        super().zero_grad(set_to_none)
        for each in self._working.values():
            each.clear_gradient()
        for table in self._tables.values():
            table.forget_gradients()

    def gradient_leaves(self) -> list[Tensor]:
        """The tensors whose ``grad`` a step reads: parameters, or what products read in their place."""
        if len(self._pairs) != sum(len(group["params"]) for group in self.param_groups):
            parameters = [parameter for group in self.param_groups for parameter in group["params"]]
            self._pairs = list(zip(parameters, self._leaves(parameters), strict=True))
        return [leaf for parameter, leaf in self._pairs if parameter.requires_grad]

    def forget_leaves(self) -> None:
        """Look anew at what has the gradients, as parameters have been moved or replaced."""
        self._pairs = []
        self._tables.clear()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take one step with the gradients that there are.

        Args:
            closure: As torch has it.

        Returns:
            What the closure returns.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.update()
        return loss

    @torch.no_grad()
    def update(self) -> None:
        """`step` without a closure and without torch's hooks around it."""
        tables = [self._table(*each) for each in enumerate(self.param_groups)] if works() else [None]
        if None in tables:
            self._torch_step()
            return
        for table, group in zip(tables, self.param_groups, strict=True):
            assert table is not None
            # before the pass, which drives all that was just looked at out of the cache
            torch.autograd.graph.increment_version(table.parameters)
            for working in table.working:
                working.written()
            table.update(group)

    def _leaves(self, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
        """What has the gradient of each parameter."""
        working = [self._working.get(parameter) for parameter in parameters]
        pairs = zip(parameters, working, strict=True)
        return [parameter if own is None else own.current() for parameter, own in pairs]

    def _table(self, index: int, group: dict[str, Any]) -> AddressTable | None:
        """What the compiled pass needs for a group; None where it cannot take the step."""
        if group["amsgrad"] or group["maximize"] or group["decoupled_weight_decay"]:
            return None
        table, parameters = self._tables.get(index), group["params"]
        if table is not None and table.fits(parameters, self.state):
            return table
        if not all(map(_is_plain, parameters)):
            return None
        leaves = self._leaves(parameters)
        for parameter, leaf in zip(parameters, leaves, strict=True):
            if leaf.grad is not None and not self.state[parameter]:
                self.state[parameter].update(_first_moments(parameter))
        table = self._tables[index] = AddressTable(parameters, leaves, self._working, self.state)
        return table

    def _torch_step(self) -> None:
        """Torch's own step, on gradients in the masters' precision."""
        for master, working in self._working.items():
            if working.dtype != master.dtype and working.gradient is not None:
                master.grad = working.gradient.to(master.dtype)
        super().step()
        for each in self._working.values():
            each.current()


def _first_moments(parameter: Tensor) -> dict[str, Tensor]:
    """What a parameter starts with, as torch has it."""
    first, second = (torch.zeros_like(parameter, memory_format=torch.contiguous_format) for _ in range(2))
    return {"step": torch.zeros((), dtype=torch.float32), "exp_avg": first, "exp_avg_sq": second}


def _is_plain(parameter: Tensor) -> bool:
    """Whether the compiled pass can update it."""
    return parameter.dtype == torch.float32 and parameter.is_cpu and parameter.is_contiguous()


@tried("The compiled Adam", "torch's own is used")
def works() -> None:
    """Whether the compiled pass takes torch's steps: two of them, compared."""
    start = torch.linspace(-1, 1, 43)
    mine, right = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    other, state = torch.optim.Adam([right], lr=0.1), {mine: _first_moments(mine)}
    for gradient in (start.cos(), start.sin()):
        mine.grad, right.grad = gradient, gradient
        AddressTable([mine], [mine], {}, state).update(other.param_groups[0])
        other.step()
    check_close((mine.detach(), right.detach()))
