"""Public callables with one wrong argument: an error of the library, or a result as if nothing had been wrong.

A call that does not fit a signature (an unknown name, a missing argument) is Python's TypeError. So may be an object of
another class than the annotation names, a model say; wrong numbers, texts and tensors are always the library's errors.
"""

import dataclasses
import warnings

import numpy as np
import torch
from torch import Tensor

from discrete_vae.errors import DiscreteVAEError
from tests.campaigns.engine import Campaign, Finding, Outcome
from tests.campaigns.public_calls import public_calls


def _with(wrong):
    """Puts a number into the fourth place of a tensor."""
    return lambda t: torch.where(torch.arange(t.numel()).reshape(t.shape) == 3, wrong, t)


_NEVER_TENSORS = {
    "an axis more": lambda t: t.unsqueeze(-1),
    "an axis more in front, twice": lambda t: t.expand(2, 2, *t.shape),
    "a feature less": lambda t: t[..., :-1],
    "a feature more": lambda t: torch.cat([t, t[..., :1]], -1),
    "a scalar": lambda t: t.flatten()[0],
    "nothing": lambda t: t[..., :0],
    "complex": lambda t: t.to(torch.complex64),
    "on meta": lambda t: t.to("meta"),
    "sparse": lambda t: t.to_sparse(),
    "NaN": _with(torch.nan),
    "infinite": _with(torch.inf),
    "None": lambda t: None,
    "text": lambda t: "text",
    "a list": lambda t: t.tolist(),
    "numpy": lambda t: t.detach().numpy(),
    "a number": lambda t: 1.0,
}
_OUTSIDE = {
    "two": lambda t: t + 2.0,
    "negative": lambda t: -(2 * t - 1).abs() - 1e-3,
    "small": lambda t: t - 1e-3,
}
_SHAPES = list(_NEVER_TENSORS)[:6]
_DOUBTFUL_TENSORS = {
    "float64": lambda t: t.double(),
    "float16": lambda t: t.half(),
    "bfloat16": lambda t: t.bfloat16(),
    "int64": lambda t: t.long(),
    "bool": lambda t: t.bool(),
    "with gradient": lambda t: t.clone().requires_grad_(t.is_floating_point()),
    "strided": lambda t: t.t().contiguous().t() if t.dim() == 2 else t,
    "a subclass": lambda t: torch.nn.Parameter(t, requires_grad=False),
}
_NEVER_NUMBERS = ("3", None, [], {}, float("nan"), float("inf"), -float("inf"), 1j, b"1", object)
_NEVER_NUMBERS += (torch.ones(2, 2), torch.ones(10, 1))
_NEVER_WHOLE = (1.5, -1, -(10**30), True, "x", np.ones(3))
_DOUBTFUL_NUMBERS = (0, 1, 2, np.int64(3), np.float32(1.0), torch.tensor(2), -1.0, 1e-300, 0.0)
_NEVER_TEXTS = (None, "", 3, "digit", "DIGITS", "digits\n", b"digits", ["digits"], "x" * 5000, "\x1b[31m")
_NEVER_OBJECTS = (None, "text", 3, [], object(), -1, float("nan"))
_NEVER_OBJECTS += ([[1, 2, 3]], [["a", "b"]], [-1], [True], {"a": 1})


def prepare(folder):
    """The calls with their right results."""
    calls = [call for call in public_calls(folder) if call.arguments]  # without one there is nothing to alter
    return [(call, _result(call, call.arguments)) for call in calls]


@Campaign(
    "api-calls",
    "a public function with one wrong argument",
    bounded=60,
    long=2000,
    prepare=prepare,
    limit=30.0,
)
def api_calls(stage, chosen, number, folder):
    """One call with one argument altered."""
    call, right = chosen.choice(stage)  # by chance: a few numbers at equal steps would meet few calls
    arguments, name = dict(call.arguments), chosen.choice(sorted(call.arguments))
    done, value, never, signature = _altered(call, name, chosen)
    if signature:
        arguments = {key: part for key, part in arguments.items() if key != name} | {done: value}
    else:
        arguments[name] = value
    shown = f"{call.name}, {name}: {done}"
    try:
        result = _result(call, arguments)
    except DiscreteVAEError as error:
        fine = "; received " in str(error) and str(error).isprintable()
        return Finding(Outcome.REFUSED if fine else Outcome.CRASHED, f"{shown}\n{error}")
    except Exception as error:
        an_object = not isinstance(call.arguments[name], int | float | str | Tensor)
        fine = isinstance(error, TypeError) and (signature or an_object)
        what = f"{shown}\n{type(error).__name__}: {str(error)[:500]}"
        return Finding(Outcome.REFUSED if fine else Outcome.CRASHED, what)
    if never:
        return Finding(Outcome.WRONG, f"{shown}\ntaken: {_shapes(result)}")
    follows = name in call.sizes or name in call.free
    if not follows and _shapes(result) != _shapes(right):
        return Finding(Outcome.WRONG, f"{shown}\nshapes {_shapes(result)} instead of {_shapes(right)}")
    if done == "NaN" and name not in call.gaps and all(bool(one.isfinite().all()) for one in result):
        return Finding(Outcome.WRONG, f"{shown}\nNaN has vanished")
    numbers = [one for one in result if one.is_floating_point()]
    finite = all(bool(one.isfinite().all()) for one in numbers)
    if done not in ("NaN", "infinite") and name not in call.sizes and not finite:
        return Finding(Outcome.WRONG, f"{shown}\na result that is not finite")
    same = len(result) == len(right) and all(torch.equal(*pair) for pair in zip(result, right, strict=True))
    return Finding(Outcome.EQUAL if same else Outcome.OTHER)


def _altered(call, name, chosen):
    """What is done to an argument, its value, whether that must be refused, whether the signature is what is wrong."""
    value, optional = call.arguments[name], name in call.optional
    if chosen.random() < 0.04:
        return f"{name}_", value, True, True
    if isinstance(value, Tensor):
        outside = {} if name in call.real or not value.is_floating_point() else _OUTSIDE
        tables = {**_NEVER_TENSORS, **outside, **_DOUBTFUL_TENSORS}
        done = chosen.choice(list(tables))
        never = done in _NEVER_TENSORS or done in outside
        never &= not (optional and done == "None")
        never &= not (name in call.free and done in _SHAPES)
        never &= not (name in call.real and done in ("NaN", "infinite"))
        never &= not (name in call.gaps and done == "NaN")
        return done, tables[done](value.clone()), never, False
    if isinstance(value, int | float):
        never_values = (*_NEVER_NUMBERS, *(_NEVER_WHOLE if isinstance(value, int) else ("x", np.ones(3))))
        seeds = (2**64, 2**64 - 1) if name == "seed" else ()
        wrong = chosen.choice([*never_values, *_DOUBTFUL_NUMBERS, *seeds])
        never = any(wrong is one for one in never_values) and not (optional and wrong is None)
        never &= not (name == "max_beta" and wrong == float("inf") if isinstance(wrong, float) else False)
        return repr(wrong)[:100], wrong, never, False
    if isinstance(value, str):
        wrong = chosen.choice(_NEVER_TEXTS)
        return repr(wrong)[:100], wrong, not (optional and wrong is None), False
    wrong = chosen.choice(_NEVER_OBJECTS)
    never = not isinstance(value, list)  # for some of which texts and whole numbers have a meaning
    return repr(wrong)[:100], wrong, never and not (optional and wrong is None), False


def _result(call, arguments):
    """All tensors and numbers of what a call returns, with the same noise each time."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(_tensors(call.function(**arguments)))


def _tensors(value):
    if isinstance(value, Tensor):
        return [value.detach()]
    if isinstance(value, float):
        return [torch.tensor(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        parts.pop("seconds", None)
        parts |= {"value": value.value} if isinstance(getattr(value, "value", None), Tensor) else {}
        return [tensor for part in parts.values() for tensor in _tensors(part)]
    return []


def _shapes(result):
    return [tuple(tensor.shape) for tensor in result]
