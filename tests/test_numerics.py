"""Elementary functions against float64 and closed forms, bounded parameters, and products that nothing rounds."""

import math
import warnings

import pytest
import torch

from discrete_vae import numerics

GRID = torch.linspace(-40, 40, 4001)


def test_softplus_has_its_digits():
    exact = torch.logaddexp(GRID.double(), torch.zeros(()).double())
    assert float(((numerics.softplus(GRID).double() - exact).abs() / exact).max()) < 2e-7


def test_entropy_and_mean_have_their_digits_and_gradients():
    """One by one, and of all units together, where the mean rounds to 0 or 1 too."""
    wide = GRID.double()
    q, p = torch.sigmoid(wide), torch.sigmoid(-wide)
    larger, smaller = torch.maximum(p, q), torch.minimum(p, q)
    entropy = -(smaller * torch.log(smaller)) - larger * torch.log1p(-smaller)
    x = GRID.clone().requires_grad_()
    mean, joint = numerics.mean_and_entropy(x[:, None])
    each = numerics.bernoulli_entropy(x)
    torch.testing.assert_close(mean[:, 0].detach(), torch.sigmoid(GRID), rtol=3e-7, atol=0)
    for found in (each, joint):
        assert float(((found.detach().double() - entropy).abs() / entropy).max()) < 4e-7
    by_mean, by_joint, by_each = (
        torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for y in (mean, joint, each)
    )
    torch.testing.assert_close(by_mean.double(), q * p, rtol=1e-6, atol=0)
    torch.testing.assert_close(by_joint.double(), -wide * q * p, rtol=1e-6, atol=0)
    torch.testing.assert_close(by_each.double(), -wide * q * p, rtol=1e-5, atol=1e-7)


def test_gradients_of_both_together():
    x = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(numerics.mean_and_entropy, x)


def test_bernoulli_log_prob():
    z = torch.tensor([0.0, 1.0, 0.25])
    logits = torch.tensor([[2.0], [-90.0]])
    got = numerics.bernoulli_log_prob(z, logits)
    law = torch.distributions.Bernoulli(logits=logits, validate_args=False)
    torch.testing.assert_close(got, law.log_prob(z))
    assert got[1, 1].item() == -90.0


def test_bounded_stays_inside_and_lets_the_gradient_lead_back():
    for sign, expected in ((1.0, [0.0, 1.0, 1.0]), (-1.0, [-1.0, -1.0, 0.0])):
        value = torch.tensor([1.0, 2.5, 4.0], requires_grad=True)
        inside = numerics.bounded(value, 2.0, 3.0)
        assert inside.tolist() == [2.0, 2.5, 3.0]
        (sign * inside).sum().backward()
        assert value.grad.tolist() == expected


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_bounds_do_not_hide_what_is_not_finite(value):
    for high in (3.0, math.inf):
        parameter = torch.tensor([value, 2.5], requires_grad=True)
        assert numerics.bounded(parameter, 2.0, high).isnan().tolist() == [True, False]
        numerics.project_(parameter, 2.0, high)
        torch.testing.assert_close(parameter.detach(), torch.tensor([value, 2.5]), equal_nan=True)
    limit, outside = torch.tensor([2.0, 3.0]), torch.tensor([-5.0, 1.0])
    assert numerics.bounded(outside, -limit, limit).tolist() == [-2.0, 1.0]
    numerics.project_(outside, -limit, limit)
    assert outside.tolist() == [-2.0, 1.0]


def test_tf32_is_off_inside_and_back_outside():
    products = torch.backends.mkldnn.matmul
    before = products.fp32_precision
    try:
        products.fp32_precision = "bf16"
        with numerics.full_precision(torch.zeros(1)):
            assert products.fp32_precision == "ieee"
        assert products.fp32_precision == "bf16"
    finally:
        products.fp32_precision = before


@pytest.mark.parametrize("rounding", ["bf16", "ieee"])
def test_a_compiled_graph_says_that_its_products_are_rounded(rounding):
    products = torch.backends.mkldnn.matmul
    before, weight = products.fp32_precision, torch.ones(3, 3)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def energy(z):
        with numerics.full_precision(z):
            return z @ weight

    torch._dynamo.reset()
    try:
        products.fp32_precision = rounding
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                energy(torch.ones(2, 3))
    finally:
        products.fp32_precision = before
    found = [each for each in caught if "torch rounds float32 products" in str(each.message)]
    assert len(found) == (rounding == "bf16")


EXTREME = [0.0, -0.0, 1e-6, -1e-6, 17.0, -17.0, 88.0, -88.0, 104.0, -104.0, 1e4, -1e4]


def wide_logits(*shape):
    logits = 6 * torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    logits[..., : len(EXTREME)] = torch.tensor(EXTREME)
    return logits


@pytest.mark.parametrize("shape", [(13,), (3, 5, 33)])
def test_compiled_mean_and_entropy(shape):
    generator = torch.Generator().manual_seed(1)
    weights, of_row = torch.randn(*shape, generator=generator), torch.randn(shape[:-1], generator=generator)
    wide = wide_logits(*shape).double()
    terms = (weights.abs() + (wide * of_row[..., None]).abs()) * wide.sigmoid() * (-wide).sigmoid()
    for share in ((1, 1), (1, 0), (0, 1)):
        found = []
        for dtype in (torch.float32, torch.float64):
            logits = wide_logits(*shape).to(dtype).requires_grad_()
            mean, entropy = numerics.mean_and_entropy(logits)
            parts = [(weights * mean).sum(), (of_row * entropy).sum()]
            total = sum(part for part, there in zip(parts, share, strict=True) if there)
            found.append([mean, entropy, *torch.autograd.grad(total, logits)])
        for mine, exact in zip(found[0][:2], found[1][:2], strict=True):
            torch.testing.assert_close(mine.double(), exact, rtol=2e-6, atol=1e-37)
        # the gradient is the difference of its terms
        assert bool(((found[0][2] - found[1][2]).abs() <= 2e-6 * terms + 1e-37).all())


@pytest.mark.parametrize("shape", [(100, 784), (3, 5, 33)])
def test_compiled_joint_log_probability(shape):
    """Relative to the sum of its terms, which all have one sign, in float32."""
    fractions = torch.rand(*shape, generator=torch.Generator().manual_seed(2))
    for value in (fractions, (wide_logits(*shape) > 1).float()):
        found = []
        for dtype in (torch.float32, torch.float64):
            logits = wide_logits(*shape).to(dtype).requires_grad_()
            joint = numerics.joint_bernoulli_log_prob(value.to(dtype), logits, 1)
            weights = torch.linspace(-1, 2, joint.numel(), dtype=dtype).view_as(joint)
            found.append([joint, *torch.autograd.grad((weights * joint).sum(), logits)])
        torch.testing.assert_close(found[0][0].double(), found[1][0], rtol=2e-6, atol=0)
        torch.testing.assert_close(found[0][1].double(), found[1][1], rtol=3e-6, atol=3e-7)


def test_compiled_passes_keep_nan_and_read_layouts_where_they_are():
    logits = wide_logits(4, 20)
    logits[1, 3] = torch.nan
    mean, entropy = numerics.mean_and_entropy(logits)
    assert entropy.isnan().tolist() == [False, True, False, False]
    assert int(mean.isnan().sum()) == 1
    joint = numerics.joint_bernoulli_log_prob(torch.ones(20), logits, 1)  # broadcast
    assert joint.isnan().tolist() == [False, True, False, False]
    part = wide_logits(4, 40)[:, 5:25]
    assert all(map(torch.equal, numerics.mean_and_entropy(part), numerics.mean_and_entropy(part.clone())))
    images = part.reshape(2, 2, 4, 5)
    whole = numerics.joint_bernoulli_log_prob(images.sigmoid(), images, 2)
    torch.testing.assert_close(whole, numerics.bernoulli_log_prob(images.sigmoid(), images).sum((-2, -1)))


def test_second_derivatives_of_the_joint_log_probability():
    logits = wide_logits(4, 20).requires_grad_()
    joint = numerics.joint_bernoulli_log_prob(torch.zeros(4, 20), logits, 1)
    (first,) = torch.autograd.grad(joint.sum(), logits, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), logits)
    exact = -torch.sigmoid(logits.detach()) * torch.sigmoid(-logits.detach())
    torch.testing.assert_close(second, exact, rtol=2e-6, atol=1e-7)
