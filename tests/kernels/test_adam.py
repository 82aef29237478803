"""Adam in one pass takes torch's steps, whatever is small, missing, or kept in bfloat16 beside."""

import copy
import itertools
import weakref

import pytest
import torch
from torch import nn

from discrete_vae.kernels import adam, loops
from discrete_vae.kernels.adam import Adam
from discrete_vae.nets.mlp import MLP
from discrete_vae.nets.modes import set_precision
from discrete_vae.nets.weights import MixedPrecisionWeight

SHAPES = [(130, 300), (), (1,), (31,), (33,), (64, 3), (0,), (16_500,)]
TOLERANCE = 4 * 2.0**-24  # of numbers near 1: a few roundings a step
PLAIN = torch.optim.Adam


def parameters():
    torch.manual_seed(1)
    return [nn.Parameter(torch.randn(shape).clamp(-1, 1)) for shape in SHAPES]


def gradients(step, dtype=torch.float32):
    torch.manual_seed(100 + step)
    scales = torch.logspace(-4, 3, len(SHAPES))
    found = [
        (scale * torch.randn(shape)).to(dtype).float() for scale, shape in zip(scales, SHAPES, strict=True)
    ]
    return [None if index == 3 and step == 2 else value for index, value in enumerate(found)]


def working_copies(parameters):
    """Of every second one."""
    return [MixedPrecisionWeight(parameter, torch.bfloat16) for parameter in parameters[::2]]


def take(optimizer, step, dtype=torch.float32):
    (group,) = optimizer.param_groups
    group["lr"] = 0.01 * 0.7**step
    for parameter, gradient in zip(group["params"], gradients(step, dtype), strict=True):
        working = getattr(optimizer, "_working", {}).get(parameter)
        if working is None or working.dtype == torch.float32:
            parameter.grad = gradient
        else:
            working.current().grad = None if gradient is None else gradient.to(dtype)
    optimizer.step()


def largest_difference(one, other):
    pairs = zip(one, other, strict=True)
    return max(float((a.detach() - b.detach()).abs().max()) for a, b in pairs if a.numel())


def take_both(one, other, num_steps, dtype=torch.float32, after=lambda: None):
    """Steps of two optimizers; the parameters of each stay equal up to roundings, which their number bounds."""
    differences = []
    for step in range(num_steps):
        take(one, step, dtype)
        take(other, step, dtype)
        after()
        pair = (each.param_groups[0]["params"] for each in (one, other))
        differences.append(largest_difference(*pair) / ((step + 1) * TOLERANCE))
    return max(differences)


@pytest.mark.parametrize(
    "settings", [{}, {"weight_decay": 0.1}, {"eps": 1e-3, "betas": (0.8, 0.99)}], ids=str
)
def test_steps_are_torchs(settings):
    mine, right = parameters(), parameters()
    one, other = Adam(mine, **settings), PLAIN(right, **settings)
    assert adam._UPDATE.is_usable()
    assert take_both(one, other, 6) < 1
    for a, b in zip(mine, right, strict=True):
        for name, value in other.state[b].items():
            scale = float(value.abs().max()) if value.numel() else 0.0
            torch.testing.assert_close(one.state[a][name], value, rtol=0, atol=1e-6 * scale)


def test_moments_that_were_rounded_to_bfloat16_would_be_seen():
    one = Adam(parameters())

    def round_moments():
        for state in one.state.values():
            state["exp_avg"].copy_(state["exp_avg"].bfloat16())

    assert take_both(one, PLAIN(parameters()), 3, after=round_moments) > 1


def test_copies_are_the_masters_rounded_and_gradients_are_read_in_bfloat16():
    mine = parameters()
    working = working_copies(mine)
    one = Adam(mine, working=working)

    def check_copies():
        assert all(torch.equal(each.current(), each.master.bfloat16()) for each in working)

    assert take_both(one, PLAIN(parameters()), 4, torch.bfloat16, check_copies) < 1
    one.zero_grad()
    assert all(each.gradient is None for each in working)


def test_copies_are_rounded_to_nearest_even_and_nan_stays():
    numbers = [0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0x7F7FFFFF, 0x00800000, 0x7FFFFFFF, 0x40490FDB]
    bits = torch.tensor(numbers)
    values = bits.to(torch.int32).view(torch.float32).repeat(9)
    master = nn.Parameter(values.clone())
    working = MixedPrecisionWeight(master, torch.bfloat16)
    optimizer = Adam([master], lr=0.0, working=[working])
    working.current().grad = torch.zeros(72, dtype=torch.bfloat16)
    with torch.no_grad():
        working.current().zero_()
    optimizer.step()
    written = working._value.detach()
    expected = values.bfloat16()
    assert torch.equal(written.isnan(), expected.isnan())
    assert torch.equal(written.nan_to_num(7.0), expected.nan_to_num(7.0))


def test_a_copy_on_an_accelerator_is_read_without_a_look_at_its_numbers():
    master = nn.Parameter(torch.empty(3, 4, device="meta"), requires_grad=False)
    working = MixedPrecisionWeight(master, torch.bfloat16)
    assert working.current() is working.current()  # a tensor that has no numbers would refuse the look


@pytest.mark.skipif(not loops.has_parallel_regions(), reason="torch has no OpenMP of GNU's kind here")
def test_the_result_does_not_depend_on_threads(monkeypatch):
    monkeypatch.setattr(adam, "SMALLEST_SHARED", 0)
    one, other = Adam(parameters()), Adam(parameters())
    threads = itertools.cycle((1, 3))  # one step of each in turn
    monkeypatch.setattr(adam, "available_threads", lambda: next(threads))
    assert take_both(one, other, 3) == 0


def test_a_state_that_was_saved_goes_on_bit_for_bit():
    mine = parameters()
    one = Adam(mine)
    for step in range(3):
        take(one, step)
    again = [nn.Parameter(parameter.detach().clone()) for parameter in mine]
    other = Adam(again)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    assert take_both(one, other, 2) == 0


@pytest.mark.parametrize(
    "change",
    ["a moved parameter", "a gradient that is written over", "a gradient's new data", "other moments"],
)
def test_what_changes_between_steps_is_read_anew(change):
    """With gradients whose strides are not the parameter's."""
    mine, right = nn.Parameter(torch.ones(6, 4)), nn.Parameter(torch.ones(6, 4))
    pairs = (Adam([mine], lr=0.1), mine), (PLAIN([right], lr=0.1), right)
    for _, parameter in pairs:
        parameter.grad = torch.ones(4, 6).T
    for step in range(4):
        for optimizer, parameter in pairs:
            gradient = torch.arange(24.0).view(4, 6).T + step
            if change == "a moved parameter":
                parameter.grad, parameter.data = gradient, parameter.data.clone()
            elif change == "a gradient's new data":
                parameter.grad.data = gradient.contiguous()
            else:
                parameter.grad.copy_(gradient)
            optimizer.step()
            if change == "other moments":
                state = optimizer.state[parameter]
                optimizer.state[parameter] = {name: torch.full_like(old, 7.0) for name, old in state.items()}
    torch.testing.assert_close(mine, right)


@pytest.mark.parametrize("order", ["transposed", "apart"])
def test_parameters_may_lie_in_memory_in_any_order(order):
    start, found = torch.randn(6, 4), []
    for kind in (Adam, PLAIN):
        value = start.T.contiguous().T if order == "transposed" else torch.stack([start, start], -1)[..., 0]
        parameter = nn.Parameter(value if kind is Adam else start.clone())
        optimizer = kind([parameter], lr=0.1)
        for step in range(3):
            parameter.grad = torch.arange(24.0).view(6, 4).cos() + step
            optimizer.step()
        found.append(parameter)
    torch.testing.assert_close(*found)


def test_moments_of_another_order_in_memory_are_loaded():
    mine = [nn.Parameter(torch.ones(6, 4)) for _ in range(2)]
    one, other = Adam([mine[0]], lr=0.1), Adam([mine[1]], lr=0.1)
    for step in range(4):
        for optimizer, parameter in zip((one, other), mine, strict=True):
            parameter.grad = torch.arange(24.0).view(6, 4).cos() + step
            optimizer.step()
        state = copy.deepcopy(one.state_dict())
        state["state"][0]["exp_avg"] = state["state"][0]["exp_avg"].T.contiguous().T
        other.load_state_dict(state)
    torch.testing.assert_close(*mine, rtol=0, atol=0)


def test_gradients_that_are_forgotten_are_not_kept_alive():
    mine = nn.Parameter(torch.ones(5))
    optimizer = Adam([mine])
    mine.grad = torch.ones(5)
    kept = weakref.ref(mine.grad)
    optimizer.step()
    optimizer.zero_grad()
    assert kept() is None


def test_float64_is_torchs_own():
    mine = nn.Parameter(torch.ones(3, dtype=torch.float64))
    right = nn.Parameter(mine.detach().clone())
    for optimizer, parameter in ((Adam([mine]), mine), (torch.optim.Adam([right], fused=True), right)):
        parameter.grad = torch.arange(3.0, dtype=torch.float64)
        optimizer.step()
    assert torch.equal(mine, right)


def test_a_saved_graph_notices_the_step():
    weight = nn.Parameter(torch.ones(3))
    out = (weight * weight).sum()
    weight.grad = torch.ones(3)
    Adam([weight]).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_a_copy_of_model_and_optimizer_goes_on_by_itself():
    mine = parameters()
    one = Adam(mine, working=working_copies(mine))
    take(one, 0, torch.bfloat16)
    _, other = copy.deepcopy((mine, one))
    before = [parameter.detach().clone() for parameter in mine]
    assert take_both(one, other, 2, torch.bfloat16) == 0
    other.zero_grad()
    assert largest_difference(mine, before) > 0


def test_a_copy_of_a_claimed_network_has_gradients_of_its_own():
    network = MLP([6], 4, (5,))
    alone = copy.deepcopy(network)
    set_precision(alone, torch.bfloat16)
    Adam(network.parameters(), working=set_precision(network, torch.bfloat16))
    copied, x = copy.deepcopy(network), torch.rand(3, 6)
    for each in (alone, copied):
        each(x).square().sum().backward()
    for expected, found in zip(alone.parameters(), copied.parameters(), strict=True):
        assert torch.equal(found.grad, expected.grad)


def test_a_state_is_loaded_beside_copies():
    mine = parameters()
    copies = working_copies(mine)
    one = Adam(mine, working=copies)
    take(one, 0, torch.bfloat16)
    one.load_state_dict(copy.deepcopy(one.state_dict()))
    leaves = {id(leaf) for leaf in one.gradient_leaves()}
    assert all(id(each.current()) in leaves for each in copies)


def test_a_gradient_that_overflowed_is_skipped_by_torchs_scaler():
    mine, right = nn.Parameter(torch.ones(40)), nn.Parameter(torch.ones(40))
    for optimizer, parameter in ((Adam([mine], lr=0.1), mine), (PLAIN([right], lr=0.1, fused=True), right)):
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for value in (1.0, torch.inf, 2.0):
            optimizer.zero_grad()
            scaler.scale((value * parameter).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    torch.testing.assert_close(mine, right)


def test_copies_stay_where_they_are_while_averages_are_swapped_in_and_out():
    mine, right = (nn.Parameter(torch.linspace(-1, 1, 600).view(20, 30)) for _ in range(2))
    (working,) = working_copies([mine])
    one, other = Adam([mine], working=[working]), PLAIN([right])
    for _ in range(3):
        working.current().grad, right.grad = (
            torch.full((20, 30), 0.5).to(d) for d in (torch.bfloat16, torch.float32)
        )
        one.step()
        other.step()
        own, place = mine.data, working.current().data_ptr()
        mine.data = torch.zeros_like(own)
        assert torch.equal(working.current(), torch.zeros(20, 30, dtype=torch.bfloat16))
        mine.data = own
        assert torch.equal(working.current(), own.bfloat16())
        assert working.current().data_ptr() == place
    torch.testing.assert_close(mine, right)
