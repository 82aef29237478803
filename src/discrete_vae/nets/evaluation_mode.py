"""Evaluation mode for the length of a block, in which threads do not meet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

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
        training = [part for module in modules for part in module.modules() if part.training]
        for module in modules:
            module.eval()
        try:
            yield
        finally:
            for part in training:
                part.training = True


def _copy(module: ModuleT, known: dict[int, nn.Module], kept: list[nn.Module]) -> ModuleT:
    """The module in evaluation mode; what cannot be copied is added to ``kept``."""
    if id(module) in known:
        return known[id(module)]  # pyright: ignore[reportReturnType]
    if not _copies(module):
        kept.append(module)
        return known.setdefault(id(module), module)  # pyright: ignore[reportReturnType]
    twin = known[id(module)] = object.__new__(type(module))
    own = {name: child and _copy(child, known, kept) for name, child in module._modules.items()}
    vars(twin).update(vars(module), training=False, _modules=own)
    return twin


def _copies(module: nn.Module) -> bool:
    """True if a shallow copy computes by itself.

    Not if it does something of its own where its mode changes, or has attributes that call this object or another
    module: a replaced `forward`, compiled or scripted modules.
    """
    own = vars(module)
    return (
        type(module).train is nn.Module.train
        and type(module).eval is nn.Module.eval
        and "forward" not in own
        and not isinstance(module, torch.jit.ScriptModule)
        and not any(isinstance(getattr(value, "__self__", None), nn.Module) for value in own.values())
    )
