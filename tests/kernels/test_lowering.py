"""A replay gives what the recorded function gives, to the last bit, on other numbers."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from discrete_vae.errors import KernelWarning
from discrete_vae.kernels.capture import Recorder, ReplayError
from discrete_vae.kernels.lowering import Replay, ReplayedFunctions
from discrete_vae.kernels.registry import custom_op


def replay_of(function, *inputs, state=()):
    with Recorder() as recorder:
        outputs = function(*inputs)
    return Replay(recorder, inputs, outputs, state)


def assert_replays(function, *, shapes, state=(), seed=0):
    """Record on one set of numbers, compare on three others."""
    generator = torch.Generator().manual_seed(seed)

    def draw():
        return [torch.randn(shape, generator=generator) for shape in shapes]

    replay = replay_of(function, *draw(), state=state)
    for _ in range(3):
        replay.compare(function, *draw())
        assert replay.is_checked
    return replay


def in_place(x, _):
    total = x.clone()
    total[:, 1].mul_(3)
    total.view(-1)[2:5].add_(1).clamp_(min=0)
    return [total, total.sum(), torch.mul(x, 2, out=torch.empty_like(x))]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: [x.t() @ y, x[1:].bfloat16().float().sum(0), torch.cat([x, y], 1).chunk(2, 1)[1]],
        lambda x, y: [(x @ y.t()).unsqueeze_(0).squeeze_(0) * 2, y.t() @ x],
        lambda x, _: [x / 2, x / 2.0, x.mul(0.0), x.mul(-0.0), x * 1, x * True],
        in_place,
    ],
    ids=["views and casts", "a change of shape in place", "numbers of another kind", "writes to arguments"],
)
def test_functions(function):
    assert_replays(function, shapes=[(4, 3), (4, 3)])


def test_gradients_and_hooks():
    weight = torch.randn(3, 5, requires_grad=True)

    def function(x):
        hidden = torch.tanh(x @ weight)
        hidden.register_hook(lambda gradient: gradient * 2)
        loss = torch.logsumexp(hidden, 1).sum()
        return [loss.detach(), *torch.autograd.grad(loss, [weight])]

    assert_replays(function, shapes=[(4, 3)], state=[weight])


def test_state_is_read_and_changed_where_it_is():
    running = torch.zeros(3)

    def function(x):
        running.lerp_(x.mean(0), 0.5)
        return [x - running]

    replay = assert_replays(function, shapes=[(4, 3)], state=[running])
    running.fill_(7.0)
    torch.testing.assert_close(replay(torch.ones(4, 3))[0], torch.full((4, 3), -3.0))


def test_running_statistics_that_a_schema_does_not_mention_move_once_per_call():
    norms = [torch.nn.BatchNorm1d(3) for _ in range(2)]
    inputs = torch.randn(4, 8, 3)
    functions = ReplayedFunctions(lambda: [*norms[0].parameters(), *norms[0].buffers()])
    for x in inputs:
        found = functions("norm", lambda x: [norms[0](x).detach()], x)[0]
        torch.testing.assert_close(found, norms[1](x).detach(), rtol=0, atol=0)
    assert functions.reason is None
    for mine, plain in zip(norms[0].buffers(), norms[1].buffers(), strict=True):
        torch.testing.assert_close(mine, plain, rtol=0, atol=0)


def test_a_nan_is_no_zero():
    hidden = [1.0]

    def function(x):
        hidden[0] *= torch.inf
        return [x * (0.0 * hidden[0])]

    replay = replay_of(lambda x: [x * 0.0], torch.ones(2))
    replay.compare(function, torch.ones(2))
    assert not replay.is_checked


def test_an_error_of_the_first_repetition_is_a_warning_and_changes_nothing():
    state, calls = torch.zeros(3), []

    @custom_op(only_read=("x",))
    def add(x: Tensor, total: Tensor):
        def run():
            calls.append(x)
            if len(calls) == 2:  # the first repetition, since a recorded call is the first
                raise IndexError("too large")
            total.add_(x)

        return run

    def function(x):
        state.mul_(2)
        add(x, state)
        return [state.clone()]

    functions = ReplayedFunctions(lambda: [state])
    assert functions("sum", function, torch.ones(3))[0].tolist() == [1, 1, 1]
    with pytest.warns(KernelWarning):
        assert functions("sum", function, torch.ones(3))[0].tolist() == [3, 3, 3]
    assert functions("sum", function, torch.ones(3))[0].tolist() == [7, 7, 7]
    assert len(calls) == 4


def test_torchs_global_noise_is_refused():
    functions = ReplayedFunctions(lambda: [])
    with pytest.warns(KernelWarning):
        functions("dropout", lambda x: [torch.nn.functional.dropout(x)], torch.ones(4))
    assert functions.reason == "it draws from torch's global source of noise"


def test_noise_comes_from_the_source_that_is_given():
    source = torch.Generator().manual_seed(3)

    def function(x, source):
        return [x + torch.rand(x.shape, generator=source), torch.randn(2, generator=source)]

    replay = replay_of(function, torch.zeros(2, 2), source)
    replay.compare(function, torch.ones(2, 2), source)
    assert replay.is_checked
    with pytest.raises(ReplayError, match="another source of noise"):
        replay(torch.ones(2, 2), torch.Generator())
    with pytest.raises(ReplayError, match="source of noise that is no argument"):
        replay_of(lambda x: [torch.rand(x.shape, generator=source)], torch.zeros(2))


@pytest.mark.parametrize(("only_read", "num_operations"), [((), 5), (("x",), 4)])
def test_what_an_operation_of_our_own_only_reads_is_worked_on_once(only_read, num_operations):
    @custom_op(only_read=only_read)
    def double(x: Tensor, out: Tensor):
        return partial(torch.mul, x, 2, out=out)

    def function(x):
        out, first = torch.empty_like(x), x.exp()
        double(x, out)
        return [out + first, out - x.exp()]

    # one call of our own; empty memory needs none
    assert len(assert_replays(function, shapes=[(3,)]).steps) == num_operations


def test_equal_operations_are_joined_as_long_as_memory_does_not_change_between_them():
    def function(x):
        first = x.exp()
        x = x.clone()
        second, third = x[1:].exp(), x[1:].exp() + 1
        x[:2].add_(1)
        fourth, fifth = x[1:].exp(), x[1:].exp() + 1
        return [first, second, third, fourth, fifth, torch.zeros(2).add_(1), torch.zeros(2)]

    # the exponentials of x, of the copy and of what was added to, a copy, three sums of 1, two zeros
    assert len(assert_replays(function, shapes=[(3,)]).steps) == 10


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: [x * x.sum().item()], "looks at a value"),
        (lambda x: [x if x.sum() > 0 else -x], "looks at a value"),
        (lambda x: [x[x > 0]], "depends on values"),
        (lambda x: [x + ELSEWHERE], "neither an argument nor state"),
    ],
)
def test_what_cannot_be_repeated_is_refused(function, reason):
    with pytest.raises(ReplayError, match=reason):
        replay_of(function, torch.ones(3))


ELSEWHERE = torch.ones(3)


OPERATIONS = (
    lambda a, b: a + b,
    lambda a, b: a * b.sigmoid(),
    lambda a, _: a.t(),
    lambda a, _: a[1:3].repeat(2, 1),
    lambda a, b: a.mm(b).tanh(),
    lambda a, _: a.mul_(0.5),
    lambda a, _: a.sum(0, keepdim=True).expand(4, 4).contiguous(),
    lambda a, b: torch.cat([a[:2], b[2:]]),
    lambda a, _: a.to(torch.bfloat16).float(),
)


@pytest.mark.parametrize("seed", range(4))
def test_random_graphs(seed):
    generator = torch.Generator().manual_seed(seed)
    plan = torch.randint(1000, (40, 3), generator=generator).tolist()

    def function(x, y):
        values = [x.clone(), y.clone()]
        for kind, first, second in plan:
            a, b = values[first % len(values)], values[second % len(values)]
            values.append(OPERATIONS[kind % len(OPERATIONS)](a, b))
        return [value.clone() for value in values[::5]]

    assert_replays(function, shapes=[(4, 4), (4, 4)], seed=seed)


def test_memory_is_used_again():
    def function(x):
        for _ in range(50):
            x = torch.sin(x) + 1
        return [x]

    replay = assert_replays(function, shapes=[(100, 100)])
    written = [step.keywords["out"] for step in replay.steps if step.keywords]
    assert len({out.untyped_storage().data_ptr() for out in written}) <= 3


def test_a_function_of_hidden_numbers_is_found_out():
    scale = [1.0]
    functions = ReplayedFunctions(lambda: [])

    def function(x):
        scale[0] += 1
        return [x * scale[0]]

    functions("scaled", function, torch.ones(2))
    with pytest.warns(KernelWarning, match="other numbers"):
        second = functions("scaled", function, torch.ones(2))
    assert second[0].tolist() == [3.0, 3.0]  # the function's own
    assert functions("scaled", function, torch.ones(2))[0].tolist() == [4.0, 4.0]
    assert functions.reason is not None


def test_what_changes_all_the_time_is_not_recorded():
    functions = ReplayedFunctions(lambda: [])

    def call():
        (found,) = functions("double", lambda x: [x + x], torch.tensor(2.0))
        functions.restart()
        return float(found)

    with pytest.warns(KernelWarning, match="changes"):
        found = [call() for _ in range(20)]
    assert found == [4.0] * 20
    assert functions.reason is not None


def test_a_shape_too_many_is_said():
    functions = ReplayedFunctions(lambda: [])
    with pytest.warns(KernelWarning, match="shapes") as caught:
        found = [functions(size, lambda x: [x + x], torch.ones(size))[0] for size in range(20)]
    assert [float(each.sum()) for each in found] == [2.0 * size for size in range(20)]
    assert len(caught) == 1
    assert functions.reason is None
