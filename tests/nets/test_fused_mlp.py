"""A network as one operation gives what its parts give, in value and in gradient, in both precisions."""

import copy

import pytest
import torch
from torch import nn

from discrete_vae.kernels import norm as kernel
from discrete_vae.kernels.adam import Adam
from discrete_vae.kernels.norm import norm_form
from discrete_vae.nets import mlp
from discrete_vae.nets.mlp import MLP, ConcatLinear, L1BatchNorm
from discrete_vae.nets.modes import set_precision

EPS32, EPS16 = 2.0**-24, 2.0**-9  # half a unit in the last place
FORMS = [((), True, False), ((48, 37), False, False), ((100, 33, 9), True, True)]
LEADS = [((60,), (60,)), ((60,), (7, 60)), ((1, 60), (7, 1))]


@pytest.fixture(autouse=True)
def every_size(monkeypatch):
    monkeypatch.setattr(mlp, "SMALLEST_FUSED", 0)


def plain(made):
    """A copy whose layers are called one by one, as one of them has a hook."""
    made = copy.deepcopy(made)
    made.output.register_forward_hook(lambda *_: None)
    return made


def network(hidden, bias, training):
    torch.manual_seed(3)
    made = MLP([20, 5, 3], 11, hidden, bias=bias).train(training)
    with torch.no_grad():
        for norm in made.modules():
            if isinstance(norm, nn.Module) and hasattr(norm, "running_mean"):
                for tensor in norm.tensors():
                    tensor.add_(0.3 * torch.rand_like(tensor))
    return made


def inputs_of(leads, dtype=torch.float32):
    torch.manual_seed(4)
    first, others = leads
    values = [torch.randn(*first, 20), torch.randn(*others, 5), torch.randn(*others, 3)]
    return [value.to(dtype).requires_grad_(index > 0) for index, value in enumerate(values)]


def figures(made, inputs):
    """Output, gradients by inputs and parameters, and running averages."""
    out = made(*inputs)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(6)).to(out.dtype)
    (out * weights).sum().backward()
    found = {"output": out.detach()}
    found |= {f"input {i}": value.grad for i, value in enumerate(inputs) if value.requires_grad}
    for name, part in made.named_modules():
        for own, parameter in part.named_parameters(recurse=False):
            working = part.mixed_precision if isinstance(part, ConcatLinear) and own == "weight" else None
            found[f"{name}.{own}"] = parameter.grad if working is None else working.gradient
        found |= {f"{name}.{own}": buffer for own, buffer in part.named_buffers(recurse=False)}
    return found


def distance(one, other):
    return float((one.double() - other.double()).norm() / other.double().norm())


@pytest.mark.parametrize("training", [True, False], ids=["batch", "running"])
@pytest.mark.parametrize("leads", LEADS, ids=str)
@pytest.mark.parametrize(("hidden", "bias", "keeps_memory"), FORMS, ids=str)
def test_float32_is_right_to_rounding(hidden, bias, leads, training, keeps_memory):
    made = network(hidden, bias, training)
    exact = plain(made).double()
    if keeps_memory:
        Adam(made.parameters(), working=set_precision(made, torch.float32))
    found = figures(made, inputs_of(leads))
    right = figures(exact, inputs_of(leads, torch.float64))
    # sums of up to 420 terms of either sign, through at most four layers and back
    tolerance = 420**0.5 * 2 * (len(hidden) + 1) * EPS32
    for name, value in right.items():
        assert distance(found[name], value) < tolerance * (10 if "bias" in name else 1), name


@pytest.mark.parametrize("training", [True, False], ids=["batch", "running"])
@pytest.mark.parametrize("leads", LEADS, ids=str)
def test_bfloat16_rounds_what_enters_and_leaves_products(leads, training):
    made = network((48,), True, training)
    with torch.no_grad():
        made.layers[1].offset.fill_(9.0)  # the rectifier is open: at its kink a rounding has no bound
    exact, one_by_one = plain(made).double(), plain(made)
    for each in (made, one_by_one):
        Adam(each.parameters(), working=set_precision(each, torch.bfloat16))
    fused, parts = figures(made, inputs_of(leads)), figures(one_by_one, inputs_of(leads))
    right = figures(exact, inputs_of(leads, torch.float64))
    for name, value in right.items():
        assert fused[name].dtype == parts[name].dtype, name
        # each number on the way is rounded a few times, and the norm's gradient takes differences of such numbers
        assert distance(fused[name], value) < 20 * EPS16, name
        assert distance(parts[name], value) < 20 * EPS16, name
    assert fused["output"].dtype == torch.float32
    assert distance(fused["output"], right["output"]) > EPS16 / 10  # bfloat16 was used


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradients_of_two_calls_and_two_backward_passes_add_up(dtype):
    made = network((8,), True, True)
    (working, *others) = set_precision(made, dtype)
    Adam(made.parameters(), working=[working, *others])
    inputs = inputs_of(LEADS[0])

    def gradient(times, calls):
        made.zero_grad()
        for linear in (part for part in made.modules() if isinstance(part, ConcatLinear)):
            linear.mixed_precision.clear_gradient()
        for _ in range(times):
            sum(made(*inputs).square().sum() for _ in range(calls)).backward()
        return working.gradient.float().clone()  # its memory is written again

    once = gradient(1, 1)
    assert working.gradient.data_ptr() == working.memory.data_ptr()  # no copy was made
    for times, calls in ((2, 1), (1, 2), (2, 2)):
        torch.testing.assert_close(gradient(times, calls), times * calls * once, rtol=0.05, atol=0.05)
    torch.testing.assert_close(gradient(1, 1), once)


def test_gradients_of_copies_that_no_optimizer_reads_arrive_at_the_parameters():
    made = network((8,), True, True)
    set_precision(made, torch.bfloat16)
    claimed = copy.deepcopy(made)
    Adam(claimed.parameters(), working=set_precision(claimed, torch.bfloat16))
    expected = figures(claimed, inputs_of(LEADS[0]))
    figures(made, inputs_of(LEADS[0]))
    for name, parameter in made.named_parameters():
        assert parameter.grad.dtype == torch.float32
        assert torch.equal(parameter.grad, expected[name].float()), name


@torch.inference_mode()
def test_copies_of_weights_that_count_no_versions_follow_them():
    made, inputs = network((8,), True, False), inputs_of(LEADS[0])
    set_precision(made, torch.bfloat16)
    before = made(*inputs)
    made.output.weight.mul_(2.0)
    assert not torch.equal(made(*inputs), before)


def test_working_copies_follow_the_parameters():
    made = network((8,), True, True)
    Adam(made.parameters(), working=set_precision(made, torch.bfloat16))
    weight, working = made.output.weight, made.output.mixed_precision
    for change in (
        lambda: nn.init.constant_(weight, 0.3),
        lambda: made.load_state_dict(network((8,), True, True).state_dict()),
        lambda: made.initialize_output_(0.0, 0.1),
    ):
        change()
        assert torch.equal(working.current(), weight.bfloat16())
    assert not any("mixed_precision" in name for name in made.state_dict())
    weight.data.fill_(0.1)  # which no version counts
    assert torch.equal(working.current(), weight.bfloat16())
    for line in (weight.data[3], weight.data[:, 2]):
        line.fill_(0.5)
        assert torch.equal(working.current(), weight.bfloat16())
    leaf = working.current()
    weight.data = torch.randn_like(weight)
    assert torch.equal(working.current(), weight.bfloat16())
    assert working.current() is leaf  # the one that an optimizer knows
    weight.requires_grad_(False)
    assert not working.current().requires_grad
    values = [torch.rand(5, size, dtype=torch.float64) for size in (20, 5, 3)]
    wide = made.double()(*values)
    for part in made.modules():
        if hasattr(part, "mixed_precision"):
            part.mixed_precision = None
    assert torch.equal(wide, made(*values))


def test_hooks_and_own_layers_are_called():
    made, seen = network((8,), True, True), []
    made.layers[1].register_forward_hook(lambda *arguments: seen.append(1))
    made(*inputs_of(LEADS[0]))
    assert seen == [1]

    class Own(ConcatLinear):
        def forward(self, *inputs):
            seen.append(2)
            return super().forward(*inputs)

    made.output = Own([8], 11)
    made(*inputs_of(LEADS[0]))
    assert 2 in seen

    replaced = network((8,), True, True)
    whole = replaced.layers[0].forward
    replaced.layers[0].forward = lambda *inputs: seen.append(3) or whole(*inputs)
    replaced(*inputs_of(LEADS[0]))
    assert 3 in seen


@pytest.mark.parametrize("lead", [(5,), (3, 5)])
def test_outputs_may_be_written_in_place(lead):
    """As by `torch.nn.ReLU(inplace=True)`; gradients are those of the function that writes elsewhere."""
    norm, x = L1BatchNorm(4), torch.randn(*lead, 4)
    for module in (network((8,), True, True), norm):
        inputs = (x,) if module is norm else inputs_of((lead, lead))
        found = []
        for relu in (torch.relu, torch.relu_):
            out = relu(module(*inputs))
            found.append(torch.autograd.grad(out.sum(), [*module.parameters()]))
        torch.testing.assert_close(*found)


def test_the_norms_gradients_and_a_dropped_mean():
    torch.manual_seed(5)
    rows, width = 50, 43
    x, gradient = torch.randn(rows, width) + 1, torch.randn(rows, width)
    scale, offset = torch.rand(width) + 0.5, torch.randn(width)
    form, out = norm_form(1e-3, 0.1, None, True), torch.empty_like(x)
    statistics, own = torch.empty(2, width), (scale, offset)
    kernel.normalize(x, out, own, statistics, (torch.zeros(width), torch.ones(width)), form)
    inside = [value.double().requires_grad_() for value in (x, scale, offset)]
    centred = inside[0] - inside[0].mean(0)
    right = torch.relu(centred * (inside[1] / (centred.abs().mean(0) + 1e-3)) + inside[2])
    exact = torch.autograd.grad(right, inside, gradient.double())
    by_x = gradient.clone()
    found = by_x, torch.empty(width), torch.empty(width)
    kernel.normalize_backward(x, out, by_x, own, statistics, found[1:], form)
    tolerance = 50 * EPS32
    assert distance(out, right.detach()) < tolerance
    assert all(distance(one, other) < tolerance for one, other in zip(found, exact, strict=True))
    without_mean = by_x + torch.randn(1, width) * by_x.std() * 0.01
    assert distance(without_mean, exact[0]) > tolerance  # the check would see a lost mean of a hundredth
    assert float(by_x.sum(0).abs().max()) < 1e-4  # what is centred has a centred gradient
