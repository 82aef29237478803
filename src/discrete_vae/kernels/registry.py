"""Compiled kernels: the dispatch between one and the plain function that it replaces, and how recordings see them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, wraps
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules.module import _has_any_global_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves, tree_map_only

from discrete_vae.errors import KernelWarning

if TYPE_CHECKING:
    from discrete_vae.kernels.capture import Recorder

REGISTRY: dict[str, Callable[..., Any]] = {}
"""The plain functions that a kernel may run in place of, by the path of the kernel."""


@dataclass(eq=False)
class Kernel:
    """An operation with a compiled form, which runs wherever it supports the arguments and has passed its self-test."""

    name: str  # in a warning
    compiled: Callable[..., Any]  # takes and returns what the reference does
    self_test: Callable[[Kernel], object]  # on a small case; raises an error where results are wrong
    reference: Callable[..., Any] | None = None  # plain torch; `load` sets that of `compiled_by`
    supports: Callable[..., bool] = lambda *_: True  # of arguments, beyond what `compiled_by` asks of tensors
    fallback: str = "plain torch is used"  # in a warning
    package: str = "numba"  # the compiler
    _usable: bool | None = field(default=None, init=False)

    def select(self) -> Callable[..., Any]:
        """The compiled form if it is usable, else the reference."""
        if self.is_usable():
            return self.compiled
        assert self.reference is not None
        return self.reference

    def is_usable(self) -> bool:
        """True if the self-test passed, which runs once in a process, before the first use; warns if it fails.

        A compiler's interface is not a stable one in all that is used of it, so a release of it may break a kernel.
        """
        if self._usable is not None:
            return self._usable
        try:
            with (
                torch.inference_mode(False),
                _disable_current_modes(),
                torch.device("cpu"),
                _Float32(),
                torch.no_grad(),
            ):
                self.self_test(self)
            self._usable = True
        except Warning:  # the user made warnings errors
            raise
        except Exception as error:
            message = str(error).strip()
            reason = f"{type(error).__name__}: {message.splitlines()[0] if message else 'no message'}"
            warnings.warn(
                f"{self.name} does not work with this {self.package} ({reason}); {self.fallback}. "
                f"Install a version of {self.package} that is known to work.",
                KernelWarning,
                stacklevel=3,
            )
            self._usable = False
        return self._usable


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def compiled_by(
    path: str, dtypes: Sequence[torch.dtype] = (torch.float32,)
) -> Callable[[FunctionT], FunctionT]:
    """Let a kernel run in place of the decorated plain function, its reference, wherever it takes the arguments.

    These are arguments for which `are_plain` holds, of these dtypes, where `is_eager` does. The path is the kernel's
    module in this package, imported when it is needed first, and its name there, such as ``"norm.project_norm"``.
    """

    def decorate(reference: FunctionT) -> FunctionT:
        REGISTRY[path] = reference

        @wraps(reference)
        def dispatch(*arguments: Any) -> Any:
            if is_eager() and are_plain(arguments, *dtypes):
                kernel = load(path)
                if kernel.supports(*arguments) and kernel.is_usable():
                    return kernel.compiled(*arguments)
            return reference(*arguments)

        return dispatch  # pyright: ignore[reportReturnType]

    return decorate


@cache
def load(path: str) -> Kernel:
    """The kernel of a path, with the plain function that it stands for."""
    module, name = path.split(".")
    kernel: Kernel = getattr(import_module(f"{__package__}.{module}"), name)
    kernel.reference = REGISTRY[path]
    return kernel


# Conditions under which a compiled kernel computes what torch would.


_PLAIN = (Tensor, nn.Parameter)
_DTYPES = (torch.float32, torch.bfloat16)


def is_eager() -> bool:
    """True if torch runs operations as they are: nothing compiles, traces, transforms, intercepts or casts them."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._is_tracing()
        or torch.is_autocast_enabled("cpu")
        or torch._C._are_functorch_transforms_active()
        or (torch._C._len_torch_dispatch_stack() and not is_recording())
        or forward_ad._current_level >= 0
    )


def are_contiguous(values: Iterable[Tensor]) -> bool:
    """True if the numbers of each tensor lie side by side, in its order."""
    return all(map(Tensor.is_contiguous, values))


def are_plain(values: Iterable[Any], *dtypes: torch.dtype) -> bool:
    """True if the tensors among the values are ordinary ones on the CPU, of these types, and not empty.

    Without types these are float32 and bfloat16.
    """
    dtypes = dtypes or _DTYPES
    # a plain loop is three times as fast as all() of a generator, and this runs at every step
    for value in values:
        if type(value) in _PLAIN:
            if value.dtype not in dtypes or not value.is_cpu or not value.numel():
                return False
        elif isinstance(value, Tensor):
            return False
    return True


def has_hooks(modules: Iterable[nn.Module]) -> bool:
    """True if something is to be called with one of these modules."""
    for each in modules:
        if each._forward_hooks or each._forward_pre_hooks or each._backward_hooks or each._backward_pre_hooks:
            return True
    return bool(_has_any_global_hook())


# Operations of our own, as a recording of torch's operations sees them.


P = ParamSpec("P")


def _recorder() -> Recorder | None:
    """The recorder that sees torch's operations on this thread."""
    if not torch._C._len_torch_dispatch_stack():
        return None
    from discrete_vae.kernels.capture import Recorder

    modes = reversed(_get_current_dispatch_mode_stack())
    return next((mode for mode in modes if isinstance(mode, Recorder)), None)


def is_recording() -> bool:
    """True if a recorder, and nothing else, sees torch's operations on this thread."""
    return _recorder() is not None and torch._C._len_torch_dispatch_stack() == 1


def custom_op(
    *, only_read: Collection[str] = ()
) -> Callable[[Callable[P, Callable[[], object]]], Callable[P, None]]:
    """Make one operation of a function that reads and writes the memory of its tensors, which torch does not see.

    What is decorated takes the operation's arguments and returns a function without arguments that does it. The
    decorated function does it at once; a recording takes it as one call, and a replay lowers it once. It makes no
    tensors, and those that it is given have to stay where they are between the two calls. It may write to all arguments
    but those named as only read. What nobody writes to is computed once by a replay, however often it was recorded.
    """

    def decorate(lower: Callable[P, Callable[[], object]]) -> Callable[P, None]:
        parameters = signature(lower)

        @wraps(lower)
        def call(*arguments: P.args, **keywords: P.kwargs) -> None:
            recorder = _recorder()
            if recorder is None:
                lower(*arguments, **keywords)()
            else:
                recorder.call(call, arguments, keywords)

        def may_write(*arguments: P.args, **keywords: P.kwargs) -> list[Tensor]:
            given = parameters.bind(*arguments, **keywords).arguments
            return tensors_in([value for name, value in given.items() if name not in only_read])

        call.lower, call.may_write = lower, may_write  # pyright: ignore[reportAttributeAccessIssue]
        return call

    return decorate


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors among arguments or results, however nested in lists, tuples and dictionaries."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


# Self-tests.


def agrees_on(
    cases: Callable[[], Iterable[tuple[Any, ...]]], *, tolerance: float = 1e-4
) -> Callable[[Kernel], None]:
    """A self-test that compares a kernel with its reference, on the arguments of each case.

    Compared are results, the arguments afterwards and, of arguments that require a gradient, the gradients of a
    weighted sum of the results.
    """

    def self_test(kernel: Kernel) -> None:
        assert kernel.reference is not None
        for arguments in cases():
            mine, plain = (_outcome(function, arguments) for function in (kernel.compiled, kernel.reference))
            check_close(*zip(mine, plain, strict=True), tolerance=tolerance)

    return self_test


def _outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Tensor]:
    given = tree_map_only(
        Tensor, lambda each: each.detach().clone().requires_grad_(each.requires_grad), arguments
    )
    leaves = [tensor for tensor in tensors_in(given) if tensor.requires_grad]
    with torch.set_grad_enabled(bool(leaves)):
        results = tensors_in(function(*given))
        gradients: Sequence[Tensor] = ()
        if leaves:
            weights = [torch.arange(each.numel()).cos().view(each.shape) for each in results]
            gradients = torch.autograd.grad(results, leaves, weights)
    return [*results, *tensors_in(given), *gradients]


def check_close(*pairs: tuple[Tensor, Tensor], tolerance: float = 1e-5) -> None:
    """Compare a kernel's results with plain torch's."""
    for mine, plain in pairs:
        if not torch.allclose(mine.float(), plain.float(), rtol=tolerance, atol=tolerance):
            raise RuntimeError("its numbers are wrong")


class _Float32(TorchFunctionMode):
    """A block that makes float32 tensors, whatever torch's default dtype is."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        return result.float() if isinstance(result, Tensor) and result.dtype == torch.float64 else result
