"""Modes in which networks compute: evaluation within a block, the precision of products, folded norms."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FunctionType
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from discrete_vae.kernels.registry import compiled_by, is_eager
from discrete_vae.nets.convolutional import Convolution, Doubling, Linear
from discrete_vae.nets.mlp import MLP, ConcatLinear, L1BatchNorm, MixedPrecisionLayer
from discrete_vae.nets.weights import MixedPrecisionWeight, check_finite_weights, row_products

ModuleT = TypeVar("ModuleT", bound=nn.Module)
_switching = threading.RLock()


@contextmanager
def eval_mode(module: ModuleT, *, copied: bool = False) -> Iterator[ModuleT]:
    """Yield a module in evaluation mode with the same parameters and buffers; the module itself stays as it is.

    In training mode, or if asked to be copied by who sets its attributes, what is given is a copy of the modules alone,
    so that threads may evaluate a model while another one trains it, or they too. Parts whose copies would not compute
    by themselves, see `_copies`, are switched within the block instead, by one thread at a time.
    """
    if not copied and not any(part.training for part in module.modules()):
        yield module
        return
    kept: list[nn.Module] = []
    twin = _copy(module, {}, kept)
    with switched(*kept):
        yield twin


@contextmanager
def switched(*modules: nn.Module) -> Iterator[None]:
    """Switch modules to evaluation mode within the block, for all threads; each part has its own mode back after."""
    if not any(part.training for module in modules for part in module.modules()):
        yield
        return
    with _switching:
        before = [(part, part.training) for module in modules for part in module.modules()]
        for module in modules:
            module.eval()
        try:
            yield
        finally:
            for part, training in before:
                if type(part).train is not nn.Module.train:  # may do more than set its mode
                    part.train(training)
            for part, training in before:
                part.training = training


_REGISTERED = ("_modules", "_parameters", "_buffers")


def _copy(module: ModuleT, known: dict[int, nn.Module], kept: list[nn.Module]) -> ModuleT:
    """The module in evaluation mode; what cannot be copied is added to ``kept``."""
    if id(module) in known:
        return known[id(module)]  # pyright: ignore[reportReturnType]
    plain = [value for name, value in vars(module).items() if name not in _REGISTERED]
    hidden = [each for each in tree_leaves(plain) if isinstance(each, nn.Module)]  # in a list, say
    if hidden or not _copies(module):
        kept += [module, *hidden]
        return known.setdefault(id(module), module)  # pyright: ignore[reportReturnType]
    twin = known[id(module)] = object.__new__(type(module))
    own = {
        name: None if child is None else _copy(child, known, kept)  # which may have a length that fails
        for name, child in module._modules.items()
    }
    vars(twin).update(vars(module), training=False, _modules=own, _compiled_call_impl=None)
    return twin


def _copies(module: nn.Module) -> bool:
    """True if a shallow copy computes by itself.

    Not if it does something of its own where its mode changes, or has attributes that call this object or another
    module: a replaced `forward`, a lambda that reads ``self``, compiled or scripted modules.
    """
    own = vars(module)
    return (
        type(module).train is nn.Module.train
        and type(module).eval is nn.Module.eval
        and "forward" not in own
        and not isinstance(module, torch.jit.ScriptModule)
        and not any(map(_calls, own.values()))
    )


def _calls(value: object) -> bool:
    """True of a method of a module, and of a function or partial that holds one."""
    if isinstance(value, partial):
        parts = (value.func, *value.args, *value.keywords.values())
        return any(isinstance(part, nn.Module) or _calls(part) for part in parts)
    held = [getattr(value, "__self__", None)]
    if isinstance(value, FunctionType):
        held += [*gc.get_referents(*(value.__closure__ or ())), *(value.__defaults__ or ())]
    return any(isinstance(each, nn.Module) for each in held)


# The precision in which the products of networks are computed.


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}  # precisions by their names in settings

_LAYERS = (ConcatLinear, Convolution, Doubling, Linear)  # a subclass may compute otherwise


def set_precision(module: nn.Module, dtype: torch.dtype) -> list[MixedPrecisionWeight]:
    """Let products of the multilayer perceptrons and convolutional networks in a module be float32 or bfloat16.

    Parameters and the state stay float32: products read copies beside them, which follow their changes, and are
    returned for an optimizer that keeps them. What enters a product is rounded, and so is what comes out; sums inside
    are float32. Networks of other kinds are left alone.
    """
    found: dict[Tensor, MixedPrecisionWeight] = {}  # layers that share a weight share its copy
    for part in module.modules():
        if isinstance(part, MixedPrecisionLayer) and type(part) in _LAYERS:
            weight: nn.Parameter = part.weight  # pyright: ignore[reportAssignmentType]
            if weight not in found:
                found[weight] = MixedPrecisionWeight(weight, dtype)
            part.mixed_precision = found[weight]
    return [*found.values()]


@contextmanager
def precision_of_products(module: nn.Module, dtype: torch.dtype) -> Iterator[list[MixedPrecisionWeight]]:
    """Within the block, the products of a module's networks are computed in a precision, see `set_precision`."""
    before = [
        (part, part.mixed_precision) for part in module.modules() if isinstance(part, MixedPrecisionLayer)
    ]
    try:
        yield set_precision(module, dtype)
    finally:
        for part, weight in before:
            part.mixed_precision = weight


MIN_PRODUCTS = 2e6
"""Multiplications in the mean product of networks from which bfloat16 gains, if the processor has instructions for it.

It is twice the number at which what they save pays for the longer call of a layer; docs/lab-notes.md,
"When is bfloat16 faster?".
"""


def gains_by_bfloat16(module: nn.Module, rows: int) -> bool:
    """True if the products of a module's multilayer perceptrons are large enough to be faster in bfloat16."""
    sizes = [part.weight.numel() for part in module.modules() if type(part) is ConcatLinear]
    return bool(sizes) and rows * sum(sizes) / len(sizes) >= MIN_PRODUCTS


def precision_for(module: nn.Module, asked: str, device: torch.device | str, *, rows: int) -> str:
    """Resolve a setting of the precision, a key of `DTYPES` or "auto", for products of so many rows on a device.

    "auto" is bfloat16 where device and networks gain by it.
    """
    if asked != "auto":
        return asked
    return "bfloat16" if has_fast_bfloat16(device) and gains_by_bfloat16(module, rows) else "float32"


def has_fast_bfloat16(device: torch.device | str = "cpu") -> bool:
    """True if the processor has instructions for products of bfloat16."""
    kind = torch.device(device).type
    if kind == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    if kind != "cpu":
        return False
    if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported():
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return False


# Batch-norm folding: multilayer perceptrons for evaluation, with the norms' statistics folded into linear maps. A
# norm with given statistics is an affine map of each feature: it scales the rows of the weight in front of it and
# gives it a bias. Product, bias and rectifier are then one operation, and no pass over the activations is left. The
# share of features that many calls have in common, x in importance sampling, is computed once.


class FoldedMLP:
    """An MLP with its batch norms folded into its linear maps, from weights and running statistics as they are."""

    def __init__(self, network: MLP) -> None:
        self.dtype = network.output.product_weight().dtype
        self._weights: list[Tensor] = []
        self._biases: list[Tensor] = []
        layers = [*network.layers, network.output]
        for linear, norm in zip(layers[::2], [*layers[1::2], None], strict=True):
            assert isinstance(linear, ConcatLinear)
            weight, bias = linear.weight.detach(), linear.bias
            if isinstance(norm, L1BatchNorm):
                factor, bias = norm.affine()
                weight = weight * factor[:, None]
            self._weights.append(weight)
            self._biases.append(weight.new_zeros(len(weight)) if bias is None else bias.detach())
        first = self._weights[0]
        self._of_shared = first[:, : network.input_sizes[0]].contiguous()
        self._of_rest = first[:, network.input_sizes[0] :].to(self.dtype).contiguous()
        self._weights = [weight.to(self.dtype) for weight in self._weights]
        self._wide_bias = self._biases[0]
        self._biases = [bias.to(self.dtype) for bias in self._biases]
        self._kept: tuple[weakref.ref[Tensor], int, Tensor] | None = None

    def __call__(self, *inputs: Tensor) -> Tensor:
        if len(inputs) == 1:
            return self._once(inputs[0], lambda: self._run(inputs))
        return self._run(inputs)

    def _run(self, inputs: Sequence[Tensor]) -> Tensor:
        lead = torch.broadcast_shapes(*(value.shape[:-1] for value in inputs))
        shared, rest = inputs[0], inputs[1:]
        if shared.shape[:-1] == lead:
            return self._after(0, self._joined(inputs, lead)).view(*lead, -1)
        return self._with_shared(shared, self._joined(rest, lead), lead).view(*lead, -1)

    def of_rows(self, rows: Tensor, shared: Tensor | None = None) -> Tensor:
        """The network at the rows of samples, (sample, example, output), in the precision of the products, as rows are.

        Rows, which may be written anew between calls, are all inputs, or all but the first, beside each other: (sample,
        example, column), contiguous. The first, shared, (example, feature), is read once while it lives and does not
        change.
        """
        lead, flat = rows.shape[:-1], rows.flatten(0, 1)
        if shared is None:
            return self._after(0, flat).view(*lead, -1)
        return self._with_shared(shared, flat, lead).view(*lead, -1)

    def _with_shared(self, shared: Tensor, rows: Tensor, lead: torch.Size) -> Tensor:
        """The network where the first input has fewer leading axes than the rows of all others."""
        # of x alone, so it costs next to nothing and may keep all its digits
        share = self._once(shared, lambda: row_products(shared, self._of_shared, self._wide_bias))
        rectify = len(self._weights) > 1
        if share.numel() == share.shape[-1]:
            bias = share.flatten().to(self.dtype)
            return self._after(1, row_products(rows, self._of_rest, bias, rectify=rectify))
        hidden = row_products(rows, self._of_rest)
        hidden = _add_shared_(hidden.view(*lead, -1), share, rectify)
        return self._after(1, hidden.flatten(0, -2))

    def _after(self, first: int, rows: Tensor) -> Tensor:
        for index in range(first, len(self._weights)):
            rectify = index < len(self._weights) - 1
            rows = row_products(rows, self._weights[index], self._biases[index], rectify=rectify)
        return rows

    def _joined(self, inputs: Sequence[Tensor], lead: torch.Size) -> Tensor:
        """The inputs beside each other, (row, column), in the precision of products."""
        if len(inputs) == 1:
            return inputs[0].expand(*lead, -1).reshape(lead.numel(), -1).to(self.dtype)
        sizes = [value.shape[-1] for value in inputs]
        joint = torch.empty(*lead, sum(sizes), dtype=self.dtype, device=inputs[0].device)
        for value, place in zip(inputs, joint.split(sizes, -1), strict=True):
            place.copy_(value)
        return joint.view(lead.numel(), -1)

    def _once(self, value: Tensor, make: Callable[[], Tensor]) -> Tensor:
        """Result of an earlier call for the same tensor, while that lives and does not change."""
        if value.is_inference():  # it has no version, which would tell of changes
            return make()
        kept = self._kept
        if kept is None or kept[0]() is not value or kept[1] != value._version:
            kept = self._kept = (weakref.ref(value, self._forget), value._version, make())
        return kept[2]

    def _forget(self, reference: weakref.ref[Tensor]) -> None:
        if self._kept is not None and self._kept[0] is reference:
            self._kept = None


@compiled_by("norm.add_shared", (torch.float32, torch.bfloat16))
def _add_shared_(rows: Tensor, shared: Tensor, rectify: bool) -> Tensor:
    """Add what rows (sample, example, feature) share, in place, with a rectifier or without."""
    rows.add_(shared)
    return rows.relu_() if rectify else rows


@contextmanager
def folded_networks(module: nn.Module) -> Iterator[None]:
    """Within the block, the multilayer perceptrons of a module compute as `FoldedMLP`; parameters must not change.

    Networks with hooks or layers of other kinds are left as they are. Blocks may be nested. The rectifier of the fused
    operation makes 0 of a NaN, so weights are looked at before.
    """
    check_finite_weights(module)
    networks = [part for part in module.modules() if isinstance(part, MLP) and _folds(part)]
    try:
        with torch.no_grad():
            for network in networks:
                network.folded = FoldedMLP(network)
        yield
    finally:
        for network in networks:
            network.folded = None


def _folds(network: MLP) -> bool:
    replaced = "forward" in vars(network)
    if replaced or network.folded is not None or not is_eager() or (layers := network.plain_layers()) is None:
        return False
    return not any(norm.training for norm in layers[1])
