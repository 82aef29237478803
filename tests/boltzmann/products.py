"""Counting what a call asks of torch."""

from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS = {"aten::mm", "aten::addmm", "aten::mv", "aten::addmv", "aten::bmm", "aten::baddbmm", "aten::dot"}


class Operations(TorchDispatchMode):
    """The names of the operations within a block that are no views."""

    def __init__(self):
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not func.is_view and func.name() != "aten::promote_types":  # which computes nothing
            self.names.append(func.name().partition(".")[0])
        return func(*args, **(kwargs or {}))


def operations_of(call):
    """The operations of a call but views."""
    with Operations() as seen:
        call()
    return seen.names


def products_of(call):
    """How many products of matrices or vectors a call makes."""
    return sum(name in PRODUCTS for name in operations_of(call))
