"""Adam in one streaming pass over weights and moments, with bfloat16 copies of the weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import is_
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from torch import Tensor, nn

from discrete_vae.kernels.codegen import FLOAT32, Numbers, builder_intrinsic, splat, unpacked
from discrete_vae.kernels.loops import ChunkLoop, available_threads, named
from discrete_vae.kernels.registry import Kernel, check_close
from discrete_vae.nets.weights import MixedPrecisionWeight

# The compiled pass of Adam: all parameters of a group, cut into chunks of equal length, in one call.


CHUNK = 16_384  # elements of a chunk

LANES = 32  # elements that are updated together; those left over go one by one

MASTER, GRADIENT, FIRST, SECOND, COPY, STEP = range(6)
"""Columns of the pointer table: the parameter, its gradient, both moments, the bfloat16 copy, the count of steps.

Where there is a copy, the gradient is bfloat16 too; 0 is no copy.
"""


def _update(lanes: int, *, bfloat16: bool) -> Any:
    @builder_intrinsic()
    def update(builder, master, gradient, first, second, copy, place, step_size, spread, scalars):
        learn_first, keep_second, learn_second, eps, decay = (
            splat(builder, scalar, lanes) for scalar in unpacked(builder, scalars, 5)
        )
        weights, moments, squares = (Numbers(builder, part) for part in (master, first, second))
        weight, moment, square = (part.load(place, lanes) for part in (weights, moments, squares))
        g = Numbers(builder, gradient, bfloat16=bfloat16).load(place, lanes) + decay * weight
        moment = moment + (g - moment) * learn_first
        square = square * keep_second + g * g * learn_second
        divisor = square.square_root() / splat(builder, spread, lanes) + eps
        weight = weight - splat(builder, step_size, lanes) * moment / divisor
        weights.store(weight, place)
        moments.store(moment, place)
        squares.store(square, place)
        if bfloat16:
            Numbers(builder, copy, bfloat16=True).store(weight, place)

    return update


@builder_intrinsic(types.float32)
def _count_step(builder, address):
    pointer = builder.inttoptr(address, FLOAT32.as_pointer())
    after = builder.fadd(builder.load(pointer), ir.Constant(FLOAT32, 1.0))
    builder.store(after, pointer)
    return after


def _prepare(pointers, starts, first_of_chunk, scratch, rate, beta1, beta2, eps, decay):
    """Count the step of each parameter, and its two factors; the arguments are those of the loop."""
    for k in range(len(pointers)):
        count = np.float64(_count_step(pointers[k, STEP]))  # pyright: ignore[reportCallIssue]
        scratch[k, 0] = np.float32(rate / (1 - beta1**count))
        scratch[k, 1] = np.float32(math.sqrt(1 - beta2**count))


def _stretch(*, bfloat16: bool) -> Any:
    many, one = _update(LANES, bfloat16=bfloat16), _update(1, bfloat16=bfloat16)

    def stretch(row, place, last, step_size, spread, scalars):
        a, b, c, d, e = row[MASTER], row[GRADIENT], row[FIRST], row[SECOND], row[COPY]
        while place + LANES <= last:
            many(a, b, c, d, e, place, step_size, spread, scalars)
            place += LANES
        while place < last:
            one(a, b, c, d, e, place, step_size, spread, scalars)
            place += 1

    return njit(nogil=True)(named(stretch, ("bfloat16", bfloat16)))


def _make(chunks: Any) -> Callable[..., Any]:
    """One step of Adam: m and v are the moments, g the gradient plus ``decay`` times the weight w.

    m += (1 - beta1) (g - m), v = beta2 v + (1 - beta2) g^2, and with t steps
    w -= rate / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps), as torch computes it.

    The loop's arguments are the pointer table, (parameter, 6) int64; the number of elements before each parameter,
    (parameter + 1,) int64; the parameter that each chunk begins in, (chunk,) int64; memory for two factors,
    (parameter, 2) float32; and the settings.
    """
    wide, narrow = _stretch(bfloat16=False), _stretch(bfloat16=True)

    def update(pointers, starts, first_of_chunk, scratch, rate, beta1, beta2, eps, decay):
        scalars = (
            np.float32(1 - beta1), np.float32(beta2), np.float32(1 - beta2), np.float32(eps), np.float32(decay),
        )  # fmt: skip
        for chunk in chunks(len(first_of_chunk)):
            position = chunk * CHUNK
            end = min(position + CHUNK, starts[-1])
            k = first_of_chunk[chunk]
            while position < end:
                stop = min(end, starts[k + 1])
                place, last = position - starts[k], stop - starts[k]
                if pointers[k, COPY]:
                    narrow(pointers[k], place, last, scratch[k, 0], scratch[k, 1], scalars)
                else:
                    wide(pointers[k], place, last, scratch[k, 0], scratch[k, 1], scalars)
                position = stop
                k += 1
        return 0

    return update


update = ChunkLoop(_make, prepare=_prepare)


SMALLEST_SHARED = 200_000  # elements from which a step is divided among threads


class PointerTable:
    """The pointers of one group's parameters that have a gradient, with their moments and copies, looked up once.

    The leaves have the gradient of each parameter; the attributes are about those that have one.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        leaves: Sequence[Tensor],
        working: Mapping[Any, MixedPrecisionWeight],
        state: Mapping[Any, Mapping[str, Any]],
    ) -> None:
        self._all, self._places, self._moments = list(parameters), _places(parameters), _moments(state)
        self._leaves, gradients = list(leaves), [leaf.grad for leaf in leaves]
        self._have_gradient = [gradient is not None for gradient in gradients]
        pairs = [pair for pair in zip(parameters, leaves, strict=True) if pair[1].grad is not None]
        self.parameters = [parameter for parameter, _ in pairs]
        self.mixed_precision = [working[parameter] for parameter in self.parameters if parameter in working]
        self._pointers = np.zeros((len(pairs), 6), np.int64)
        for row, (parameter, leaf) in zip(self._pointers, pairs, strict=True):
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
        """True if the parameters are the same, where they were, with the same moments; takes in their gradients."""
        gradients = [leaf.grad for leaf in self._leaves]
        # the same ones where they were, even if somebody has set their data
        in_place = _same(gradients, self._gradients) and _places(self._kept) == self._gradient_places
        return (
            _same(parameters, self._all)
            and _places(parameters) == self._places
            and _same(_moments(state), self._moments)
            and (in_place or self._take(gradients))
        )

    def forget_gradients(self) -> None:
        """Keep no gradient alive."""
        self._gradients, self._kept = [], []

    def _take(self, gradients: list[Tensor | None]) -> bool:
        """Look up where gradients are; True if the same parameters have one as before."""
        if [gradient is not None for gradient in gradients] != self._have_gradient:
            return False
        found = [gradient for gradient in gradients if gradient is not None]
        self._kept = [each if each.is_contiguous() else each.contiguous() for each in found]
        self._gradient_places = _places(self._kept)
        self._pointers[:, GRADIENT] = self._gradient_places
        self._gradients = gradients if _same(found, self._kept) else []  # a copy serves one step
        return True

    def update(self, group: Mapping[str, Any]) -> None:
        """Run the compiled pass with the settings of the group and the gradients that `fits` saw."""
        beta1, beta2 = group["betas"]
        threads = 1 if self._starts[-1] < SMALLEST_SHARED else available_threads()
        tables = self._pointers, self._starts, self._first_of_chunk, self._scratch
        decay = float(group["weight_decay"])
        update(threads, *tables, float(group["lr"]), beta1, beta2, group["eps"], decay)


def _places(tensors: Iterable[Tensor]) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


def _moments(state: Mapping[Any, Mapping[str, Any]]) -> list[Any]:
    """The moments and steps of each parameter; by the state's values, since a tensor takes long to look up."""
    return list(chain.from_iterable(of_parameter.values() for of_parameter in state.values()))


def _same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


class Adam(torch.optim.Adam):
    """`torch.optim.Adam`, the same to rounding, whose pass on the CPU also reads and writes working copies.

    All parameters of a group, float32, are updated in one compiled call, small ones together. Where one of the working
    weights has a bfloat16 copy, its gradient is read in bfloat16, the float32 weight and its moments are updated, and
    the copy is written anew. The result does not depend on the number of threads. On other devices torch's fused kernel
    runs, and the copies are made after it. The weight decay is a factor on the weight that is added to its gradient.

    Source: Kingma & Ba 2015, algorithm 1, as torch orders its operations.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        working: Iterable[MixedPrecisionWeight] = (),
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)
        self._working = {each.master: each for each in working}
        self._claim()
        self._pairs: list[tuple[Tensor, Tensor]] = []  # of all groups, in order
        self._tables: dict[int, PointerTable] = {}

    def _claim(self) -> None:
        for each in self._working.values():
            each.claimed = True

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_working": self._working}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"_working": vars(self).get("_working", {})} | state)
        self._claim()
        self._pairs, self._tables = [], {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients; memory that is lent for them comes back."""
        super().zero_grad(set_to_none)
        for each in self._working.values():
            each.clear_gradient()
        for table in self._tables.values():
            table.forget_gradients()

    @property
    def num_parameters(self) -> int:
        """Parameters of all groups."""
        return sum(len(group["params"]) for group in self.param_groups)

    def gradient_leaves(self) -> list[Tensor]:
        """The tensors whose ``grad`` a step reads: parameters, or what products read in their place."""
        if len(self._pairs) != self.num_parameters:
            parameters = [parameter for group in self.param_groups for parameter in group["params"]]
            self._pairs = list(zip(parameters, self._leaves(parameters), strict=True))
        return [leaf for parameter, leaf in self._pairs if parameter.requires_grad]

    def forget_leaves(self) -> None:
        """Look anew at what has the gradients, as parameters have been moved or replaced."""
        self._pairs = []
        self._tables.clear()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take one step with the gradients that there are; a closure is as torch has it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.update()
        return loss

    @torch.no_grad()
    def update(self) -> None:
        """`step` without a closure and without torch's hooks around it."""
        tables = [self._table(*each) for each in enumerate(self.param_groups)]
        if None in tables:
            self._torch_step()
            return
        for table, group in zip(tables, self.param_groups, strict=True):
            assert table is not None
            # before the pass, which drives all that was just looked at out of the cache
            torch.autograd.graph.increment_version(table.parameters)
            for working in table.mixed_precision:
                working.written()
            table.update(group)

    def _leaves(self, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
        return [self._working[each].current() if each in self._working else each for each in parameters]

    def _table(self, index: int, group: dict[str, Any]) -> PointerTable | None:
        """The pointer table of a group; None where the compiled pass cannot take the step."""
        if group["amsgrad"] or group["maximize"] or group["decoupled_weight_decay"]:
            return None
        if getattr(self, "grad_scale", None) is not None or getattr(self, "found_inf", None) is not None:
            return None  # of torch.amp.GradScaler
        table, parameters = self._tables.get(index), group["params"]
        if table is not None and table.fits(parameters, self.state):
            return table
        if not (_UPDATE.supports(*parameters) and _UPDATE.is_usable()):
            return None
        leaves = self._leaves(parameters)
        for parameter, leaf in zip(parameters, leaves, strict=True):
            if leaf.grad is not None:
                state = self.state[parameter]
                if state:  # loaded moments may lie in another order
                    state.update({name: each.contiguous() for name, each in state.items()})
                else:
                    state.update(_first_moments(parameter))
        table = self._tables[index] = PointerTable(parameters, leaves, self._working, self.state)
        return table

    def _torch_step(self) -> None:
        """Torch's own step, on gradients in the masters' precision."""
        for master, working in self._working.items():
            if working.dtype != master.dtype and working.gradient is not None:
                master.grad = working.gradient.to(master.dtype)
        for group in self.param_groups:  # the fused form pairs numbers by their places in memory
            group["fused"] = all(not each.is_cpu or each.is_contiguous() for each in group["params"])
        super().step()
        for each in self._working.values():
            each.current()


def _first_moments(parameter: Tensor) -> dict[str, Tensor]:
    first, second = (torch.zeros_like(parameter, memory_format=torch.contiguous_format) for _ in range(2))
    step = torch.zeros((), dtype=torch.float32, device=parameter.device)
    return {"step": step, "exp_avg": first, "exp_avg_sq": second}


def _check_update(_kernel: Kernel) -> None:
    """Compare two steps with torch's."""
    start = torch.linspace(-1, 1, 43)
    mine, right = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    other, state = torch.optim.Adam([right], lr=0.1), {mine: _first_moments(mine)}
    for gradient in (start.cos(), start.sin()):
        mine.grad, right.grad = gradient, gradient
        PointerTable([mine], [mine], {}, state).update(other.param_groups[0])
        other.step()
    check_close((mine.detach(), right.detach()))


_UPDATE = Kernel(
    "The compiled Adam",
    update,
    _check_update,
    supports=lambda *parameters: all(
        each.dtype == torch.float32 and each.is_cpu and each.is_contiguous() for each in parameters
    ),
    fallback="torch's own is used",
)
