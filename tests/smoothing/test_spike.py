"""Transformations with a spike: closed forms, limits, bounds, extremes, written-out gradients, the compiled draw."""

import math

import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from discrete_vae import SpikeExponential, SpikeGaussian, SpikeSlab
from discrete_vae.kernels.registry import Kernel
from discrete_vae.smoothing.spike import SharpLimit, StraightThrough
from discrete_vae.testing import contracts
from tests.refusals import refused_argument
from tests.transformations import noise_and_logits

SMOOTHINGS = {
    "exponential": lambda: SpikeExponential(beta=3.0).double(),
    "exponential, fixed": lambda: SpikeExponential(beta=3.0, trainable=False).double(),
    "slab": SpikeSlab,
    "sharp": SharpLimit,
}


def printed(smoothing, rho, logits):
    """Eq. probabilistic-encoder and section spike-and-slab as printed, with the unused branch made harmless."""
    q = torch.sigmoid(logits)
    on = rho >= 1 - q
    level = torch.where(on, (rho + q - 1) / q, 0.5)  # F(zeta | z = 1)
    if isinstance(smoothing, SpikeExponential):
        level = torch.log(level * torch.expm1(smoothing.beta) + 1) / smoothing.beta
    return torch.where(on, torch.ones_like(level) if isinstance(smoothing, SharpLimit) else level, 0.0)


def check_gradients(drawn, plain, wanted, **tolerances):
    """Gradients of zeta and bits, together and alone, are those of plain formulas."""
    shape = drawn.zeta.shape
    weights = torch.randn(2, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for share in ((1, 1), (1, 0), (0, 1)):
        found = []
        for parts in ((drawn.zeta, drawn.bits), plain):
            total = sum(each * (w * part).sum() for each, w, part in zip(share, weights, parts, strict=True))
            settings = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
            found.append(torch.autograd.grad(total, wanted, **settings))
        for got, expected in zip(*found, strict=True):
            torch.testing.assert_close(got, expected, **tolerances)


@pytest.mark.parametrize("name", SMOOTHINGS)
def test_values_and_gradients_are_those_of_the_printed_formulas(name):
    smoothing = SMOOTHINGS[name]()
    rho, logits = (value.requires_grad_() for value in noise_and_logits(200, 3))
    drawn = smoothing.draw(rho, logits)
    zeta = printed(smoothing, rho, logits)
    bits = smoothing.bits(zeta.detach(), logits)
    torch.testing.assert_close(drawn.zeta, zeta, rtol=0, atol=1e-12)
    assert torch.equal(drawn.bits, bits)
    assert torch.equal(drawn.z, bits)
    assert not drawn.z.requires_grad
    check_gradients(drawn, (zeta, bits), [rho, logits, *smoothing.parameters()], rtol=1e-9, atol=1e-12)


def test_small_beta_is_the_slab():
    rho, logits = noise_and_logits(200, 3)
    narrow = SpikeExponential(beta=0.01).double().icdf(rho, logits)
    torch.testing.assert_close(narrow, SpikeSlab().icdf(rho, logits), rtol=0, atol=2e-3)


@pytest.mark.parametrize("beta", [3.0, 200.0])
def test_z_is_read_back_from_zeta_even_where_it_rounds_to_zero(beta):
    smoothing = SpikeExponential(beta=beta)
    logits = torch.full((1 << 20,), 12.0)
    rho = torch.rand(1 << 20, generator=torch.Generator().manual_seed(0))
    threshold = torch.sigmoid(-logits)
    zeta = smoothing.icdf(rho, logits)
    assert bool((zeta[rho > threshold * (1 + 1e-5)] > 0).all())
    assert bool((zeta[rho < threshold * (1 - 1e-5)] == 0).all())


def test_parameters_of_more_rows_than_the_logits_have_noise_of_their_own():
    drawn = SpikeGaussian().rsample(torch.zeros(3), torch.zeros(100, 3), torch.ones(100, 3))
    assert drawn.shape == (100, 3)
    assert len(drawn[drawn > 0].unique()) > 50


def test_an_average_of_buffers_keeps_an_absent_bound():
    smoothing = SpikeExponential()
    averaged = AveragedModel(smoothing, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    for _ in range(2):
        averaged.update_parameters(smoothing)
    rho, logits = noise_and_logits(20)
    assert torch.equal(averaged.module.icdf(rho, logits), smoothing.icdf(rho, logits))


def test_project_brings_beta_back_and_a_fixed_one_is_no_parameter():
    smoothing = SpikeExponential(beta=5.0, max_beta=4.0)
    for bound, beta, projected in ((4.0, 5.0, 4.0), (3.0, 4.0, 3.0), (3.0, -2.0, 0.01)):
        smoothing.bound_sharpness_(bound)
        with torch.no_grad():
            smoothing.beta.fill_(beta)
        smoothing.project_()
        assert smoothing.beta.item() == pytest.approx(projected)
    smoothing = SpikeExponential(beta=5.0, max_beta=4.0)
    drawn = smoothing.icdf(torch.tensor([0.9]), torch.zeros(1))
    smoothing.requires_grad_(False)  # frozen it is the same transformation
    assert torch.equal(smoothing.icdf(torch.tensor([0.9]), torch.zeros(1)), drawn)
    fixed = SpikeExponential(beta=2.0, trainable=False)
    assert list(fixed.parameters()) == []
    assert fixed.state_dict()["beta"].item() == 2.0


def random_law(rows=400, seed=0):
    """rho, logits, loc and scale, float64."""
    generator = torch.Generator().manual_seed(seed)
    rho = torch.rand(rows, 3, generator=generator, dtype=torch.float64)
    logits, loc, scale = 2 * torch.randn(3, rows, 3, generator=generator, dtype=torch.float64)
    return rho, logits, loc / 2, (scale / 4).exp()


def published(rho, logits, loc, scale, *, shifted):
    """Section sec:spike-and-gaussian as printed, differentiable by autograd, with unused branches made harmless."""
    q, normal = torch.sigmoid(logits), torch.distributions.Normal(0.0, 1.0)
    step = torch.zeros_like(q) if shifted else q * normal.cdf(-loc / scale).detach()
    lower, spike = rho < step.detach(), (rho >= step) & (rho <= step + 1 - q)
    level = torch.where(lower, rho / q, (rho - 1) / q + 1)
    zeta = loc + scale * normal.icdf(torch.where(spike, 0.5, level))
    return torch.where(spike, 0.0, zeta)


@pytest.mark.parametrize("shifted", [False, True])
def test_values_and_gradients_with_parameters_of_x_are_those_of_the_published_formulas(shifted):
    rho, *law = random_law()
    wanted = [rho.requires_grad_(), *(value.requires_grad_() for value in law)]
    smoothing = SpikeGaussian(shifted=shifted)
    drawn = smoothing.draw(rho, *law)
    zeta = published(rho, *law, shifted=shifted)
    bits = smoothing.bits(zeta, law[0])
    torch.testing.assert_close(drawn.zeta, zeta, rtol=0, atol=1e-9)
    assert torch.equal(drawn.bits, bits)
    assert torch.equal(drawn.z, (zeta != 0).double())
    assert not drawn.z.requires_grad
    check_gradients(drawn, (zeta, bits), wanted, rtol=1e-6, atol=1e-9)


def test_both_forms_have_one_law():
    """The fraction below each of some points, in the far part of which the shifted form has its jump."""
    rho = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    logits, loc, scale = (torch.full_like(rho, value) for value in (0.3, 0.4, 0.8))
    for shifted in (False, True):
        smoothing = SpikeGaussian(shifted=shifted)
        zeta = smoothing.icdf(rho, logits, loc, scale)
        for point in (-1.0, -1e-9, 0.0, 0.3, 1.5):
            level = smoothing.cdf(torch.tensor([point], dtype=torch.float64), logits[:1], loc[:1], scale[:1])
            assert float((zeta <= point).double().mean()) == pytest.approx(float(level), abs=2e-5)


def test_the_shifted_form_is_no_inverse_of_the_cdf():
    """The contract that every unbiased transformation keeps finds it."""
    with pytest.raises(AssertionError, match="zeta decreases in rho"):
        contracts.check_float32(SpikeGaussian(shifted=True), tolerance=1e-6)
    with pytest.raises(AssertionError):
        contracts.check_pointwise_gradient(SpikeGaussian(shifted=True))


@pytest.mark.parametrize(("shifted", "far"), [(False, 0.0), (True, -1.0)])
def test_the_bias_is_that_of_the_documentation(shifted, far):
    """E d f(zeta)/dl is q p (E[f | z=1] - f(0)), in the shifted form with f(-infinity) in place of f(0)."""
    rho = (torch.arange(400_000, dtype=torch.float64) + 0.5) / 400_000
    logits = torch.full_like(rho, 0.4).requires_grad_()
    loc, scale = torch.full_like(rho, 0.5), torch.full_like(rho, 1.5)
    zeta = SpikeGaussian(shifted=shifted).icdf(rho, logits, loc, scale)
    gradient = torch.autograd.grad(torch.tanh(zeta).mean(), logits)[0].sum()
    given_z = torch.tanh(zeta[zeta != 0]).mean()
    q = torch.sigmoid(logits[0])
    assert float(gradient) == pytest.approx(float((q * (1 - q) * (given_z - far)).detach()), abs=1e-4)


@pytest.mark.parametrize("ratio", [-3.0, 0.5, 3.0])
def test_the_slope_is_bounded(ratio):
    """abs(d zeta / d l) <= scale p / phi(loc/scale), and comes near it."""
    rho = torch.linspace(1e-6, 1 - 1e-6, 400_001, dtype=torch.float64)
    logits = torch.zeros_like(rho).requires_grad_()
    zeta = SpikeGaussian().icdf(rho, logits, 2.0 * torch.full_like(rho, ratio), 2.0 * torch.ones_like(rho))
    slope = torch.autograd.grad(zeta.sum(), logits)[0].abs().max()
    bound = 2.0 * 0.5 * math.sqrt(2 * math.pi) * math.exp(ratio**2 / 2)
    assert 0.6 * bound < float(slope) < bound


def test_parameters_stay_inside_their_bounds_and_begin_as_the_priors():
    raw = torch.randn(2, 1000, generator=torch.Generator().manual_seed(0)) * 100
    loc, scale = SpikeGaussian(max_ratio=2.0, log_scale_bound=3.0).constrain(*raw)
    assert float((loc / scale).abs().max()) <= 2.0 + 1e-6
    assert float(scale.log().abs().max()) <= 3.0 + 1e-6
    smoothing = SpikeGaussian(prior_loc=-1.3)
    loc, scale = smoothing.constrain(torch.zeros(1), torch.zeros(1))
    assert (loc.item(), scale.item()) == (pytest.approx(-1.3), 1.0)
    assert smoothing.prior_parameters == (-1.3, 1.0)
    assert float(smoothing.kl(torch.ones(1), loc, scale)) == pytest.approx(0, abs=1e-7)


def test_kl_and_log_ratio_are_torchs_and_so_are_the_gradients_of_the_kl():
    rho, *law = random_law()
    logits, loc, scale = (value.requires_grad_() for value in law)
    smoothing = SpikeGaussian(prior_loc=0.7)
    normal = torch.distributions.Normal(loc, scale)
    prior = torch.distributions.Normal(torch.tensor(0.7, dtype=torch.float64), 1.0)
    expected = torch.sigmoid(logits) * torch.distributions.kl_divergence(normal, prior)
    got = smoothing.kl(logits, loc, scale)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)
    weights = torch.cos(torch.arange(got.numel(), dtype=torch.float64)).view_as(got)
    found = (torch.autograd.grad((weights * value).sum(), law) for value in (got, expected))
    torch.testing.assert_close(*found, rtol=1e-8, atol=1e-11)
    zeta = smoothing.icdf(rho, *law)
    expected = torch.where(zeta == 0, 0.0, prior.log_prob(zeta) - normal.log_prob(zeta))
    torch.testing.assert_close(smoothing.log_ratio(zeta, loc, scale), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extremes(dtype):
    """Saturated logits are finite with finite gradients, z is read back from zeta, and rho = 0 is no infinity."""
    logits = torch.tensor([-1000.0, -90.0, -30.0, 30.0, 90.0, 1000.0], dtype=dtype, requires_grad=True)
    law = [torch.full((6,), value, dtype=dtype, requires_grad=True) for value in (0.5, 2.0)]
    for rho in (0.0, 0.3, 0.5, 1 - 2.0**-24):
        for shifted in (False, True):
            smoothing = SpikeGaussian(shifted=shifted)
            zeta = smoothing.icdf(torch.full((6,), rho, dtype=dtype), logits, *law)
            assert bool(zeta.isfinite().all())
            total = zeta.sum() + smoothing.bits(zeta, logits).sum() + smoothing.kl(logits, *law).sum()
            gradients = torch.autograd.grad(total, [logits, *law])
            assert all(bool(gradient.isfinite().all()) for gradient in gradients)
            assert zeta[:2].tolist() == [0, 0]
            assert bool((zeta[-2:] != 0).all()) or (shifted and rho == 0)


@pytest.mark.parametrize("rho", [1e-12, 1e-9, 1e-3])
def test_the_tail_is_inverted_too(rho):
    """With z = 1 for certain, zeta is the normal quantile, however small rho is."""
    smoothing, law = SpikeGaussian(), [torch.tensor([value], dtype=torch.float64) for value in (0.0, 1.0)]
    rho, logits = (torch.tensor([value], dtype=torch.float64) for value in (rho, 40.0))
    zeta = smoothing.icdf(rho, logits, *law)
    torch.testing.assert_close(zeta, torch.special.ndtri(rho))
    torch.testing.assert_close(smoothing.cdf(zeta, logits, *law), rho, rtol=1e-4, atol=0)


def test_zeta_of_z_is_never_zero():
    """Rounding near the spike could make 0 of a zeta whose z is 1; then z would be read back wrongly."""
    smoothing = SpikeGaussian()
    ticks = (torch.arange(-2000, 2000, dtype=torch.float64) * 2.0**-24 + 0.5).float()
    logits, loc, scale = (torch.full_like(ticks, value) for value in (40.0, 0.0, 1.0))
    drawn = smoothing.draw(ticks, logits, loc, scale)
    assert bool((drawn.z == 1).all())
    assert bool((drawn.zeta != 0).all())
    again = smoothing.sample_zeta(torch.ones(100_000), generator=torch.Generator().manual_seed(0))
    assert bool((again != 0).all())


@pytest.mark.parametrize("part", [2, 3])
def test_a_nan_in_a_parameter_of_x_comes_out(part):
    law = [torch.tensor([0.3, 0.3]), torch.zeros(2), torch.zeros(2), torch.ones(2)]
    law[part] = torch.tensor([math.nan, 1.0])
    drawn = SpikeGaussian().draw(*law)
    for value in (drawn.z, drawn.zeta, drawn.bits):
        assert value.isnan().tolist() == [True, False]


ZERO, GAUSSIAN = torch.zeros(1), SpikeGaussian()
REFUSED = [
    *(("beta", SpikeExponential, beta) for beta in (0.0, -1.0, math.nan, math.inf, "3")),
    ("max_beta", SpikeExponential(beta=1.0).bound_sharpness_, -1.0),
    *(("max_ratio", lambda ratio: SpikeGaussian(max_ratio=ratio), ratio) for ratio in (0.0, 11)),
    ("log_scale_bound", lambda bound: SpikeGaussian(log_scale_bound=bound), -1.0),
    *(("prior_loc", lambda loc: SpikeGaussian(prior_loc=loc, max_ratio=2.0), loc) for loc in (math.nan, 2.0)),
    ("parameters", GAUSSIAN.icdf, ZERO + 0.3, ZERO),
    ("loc", GAUSSIAN.rsample, torch.zeros(3), torch.zeros(2), torch.ones(3)),
    ("scale", GAUSSIAN.rsample, ZERO, ZERO, ZERO - 0.5),
    ("scale", GAUSSIAN.rsample, torch.zeros(4), torch.zeros(2, 4), torch.ones(3, 4)),
    ("zeta", GAUSSIAN.check_zeta, torch.tensor([math.inf]), (1,)),
]


def test_refusals():
    GAUSSIAN.check_zeta(torch.tensor([-7.5, 0.0, 12.0]), (3,))
    for argument, *call in REFUSED:
        assert refused_argument(*call) == argument


def test_straight_through_is_right_where_the_loss_is_linear_and_biased_elsewhere():
    """Against the derivative by q of the mean of f over z, exact; f is an extension of the loss off the bits."""
    rho = ((torch.arange(1000, dtype=torch.float64) + 0.5) / 1000).unsqueeze(-1)
    logits = torch.tensor([-2.0, 0.4, 3.0], dtype=torch.float64, requires_grad=True)
    drawn = StraightThrough().draw(rho.expand(1000, 3), logits.expand(1000, 3))
    plain = SharpLimit().draw(rho.expand(1000, 3), logits.expand(1000, 3))
    assert torch.equal(drawn.zeta, plain.zeta)
    assert torch.equal(drawn.bits, plain.bits)
    q = torch.sigmoid(logits.detach())
    slope = q * (1 - q)
    for f, exact, expected, biased in (
        (lambda z: 2 * z - 1, 2.0, 2.0, False),
        (lambda z: z.square(), 1.0, 2 * drawn.z.mean(0), True),  # f(1) - f(0), and the mean of f'(z)
    ):
        (found,) = torch.autograd.grad(f(drawn.zeta).mean(0).sum(), logits, retain_graph=True)
        torch.testing.assert_close(found, expected * slope, rtol=1e-9, atol=0)
        assert bool(((found - exact * slope).abs() > 0.01).any()) == biased


def test_bits_are_z_with_the_published_gradient():
    logits = torch.tensor([-1.0, 0.5, 2.0, 9.0], dtype=torch.float64, requires_grad=True)
    smoothing = SpikeExponential(beta=3.0)
    bits = smoothing.bits(torch.tensor([0.0, 0.0, 0.3, 0.0], dtype=torch.float64), logits)
    assert bits.tolist() == [0, 0, 1, 0]
    bits.sum().backward()
    q = torch.sigmoid(logits.detach())
    dq = q * (1 - q)
    torch.testing.assert_close(logits.grad, (1 - bits.detach()) / (1 - q) * dq, rtol=1e-9, atol=1e-15)


# The compiled draw against the plain formulas in float64.


EPS = 2.0**-24


def draw_twice(beta, rho, logits, *, trainable=True, max_beta=math.inf):
    """zeta, bits and the gradients of a weighted sum, compiled and by plain formulas of the same numbers in float64."""
    found = []
    weights = torch.randn(2, *rho.shape, generator=torch.Generator().manual_seed(1))
    for dtype in (torch.float32, torch.float64):
        smoothing = SpikeExponential(beta, trainable, max_beta).to(dtype)
        leaf = logits.detach().to(dtype).requires_grad_()
        drawn = smoothing.draw(rho.to(dtype), leaf)
        used = type(drawn.zeta.grad_fn).__name__
        assert used == ("_FusedDrawBackward" if dtype == torch.float32 else "PlainDrawBackward")
        total = (weights[0] * drawn.zeta + weights[1] * drawn.bits).sum()
        wanted = [leaf, *smoothing.parameters()]
        found.append((drawn.zeta.detach(), drawn.bits.detach(), *torch.autograd.grad(total, wanted)))
    return found


@pytest.mark.parametrize(
    ("beta", "shape"),
    [(0.01, (100, 32)), (1.0, (5,)), (3.0, (7, 45)), (30.0, (3, 2, 33)), (200.0, (100, 32))],
)
def test_values_and_gradients_of_the_compiled_draw(beta, shape):
    """Within some roundings, as far as these are magnified: d zeta / dv holds 1 / (1 - v c), up to e^beta."""
    rho, logits = noise_and_logits(*shape, scale=4.0, dtype=torch.float32)
    mine, exact = draw_twice(beta, rho, logits)
    v = (1 - rho.double()) / torch.sigmoid(logits.double())
    magnified = 1 / (1 + v.clamp(max=1) * math.expm1(-beta))
    of_zeta = 16 * EPS * (1 + magnified / beta)
    same = mine[1] == exact[1]
    assert bool((same | ((v - 1).abs() < 4 * EPS)).all())
    assert bool(((mine[0] > 0) == (mine[1] == 1)).all())
    assert bool(((mine[0] - exact[0]).abs() <= of_zeta)[same].all())
    assert bool(((mine[2] - exact[2]).abs() <= 1e-6 + 32 * EPS * magnified * exact[2].abs())[same].all())
    of_beta = 3 * (of_zeta + 4 * EPS * exact[0] / beta).sum()
    assert float((mine[3] - exact[3]).abs()) <= float(of_beta)


def test_a_compiled_draw_of_a_fixed_beta_and_absent_gradients():
    rho, logits = noise_and_logits(20, 9, scale=4.0, dtype=torch.float32)
    mine, exact = draw_twice(3.0, rho, logits, trainable=False)
    torch.testing.assert_close(mine[2].double(), exact[2], rtol=1e-4, atol=1e-5)
    for index in (0, 1):
        found = []
        for dtype in (torch.float32, torch.float64):
            leaf = logits.to(dtype).requires_grad_()
            drawn = SpikeExponential(3.0, trainable=False).to(dtype).draw(rho.to(dtype), leaf)
            part = (drawn.zeta, drawn.bits)[index]
            found.append(torch.autograd.grad(part.sum(), leaf)[0].double())
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_extremes_of_the_compiled_draw():
    """NaN comes out and is no spike, saturated logits give 0 and 1, every zeta of z = 1 is above 0."""
    nan, inf = math.nan, math.inf
    logits = torch.tensor([nan, -inf, inf, -200.0, 200.0, -88.5, 0.0]).requires_grad_()
    rho = torch.full((7,), 0.75)
    drawn = SpikeExponential(3.0).draw(rho, logits)
    assert bool(drawn.zeta[0].isnan() & drawn.bits[0].isnan() & drawn.z[0].isnan())
    assert drawn.bits[1:].tolist() == [0, 1, 0, 1, 0, 1]
    assert drawn.zeta[[1, 3, 5]].tolist() == [0, 0, 0]
    (gradient,) = torch.autograd.grad((drawn.zeta + drawn.bits)[1:].sum(), logits)
    assert bool(gradient[1:].isfinite().all())
    near = torch.linspace(0.5 - 3e-7, 0.5 + 3e-7, 64)
    drawn = SpikeExponential(3.0).draw(near, torch.zeros(64))
    assert bool(((drawn.zeta > 0) == (drawn.bits == 1)).all())
    assert 0 < float(drawn.z.mean()) < 1
    smoothing = SpikeExponential()
    with torch.no_grad():
        smoothing.beta.fill_(inf)  # a diverged step must be found
    assert bool(smoothing.draw(torch.tensor([0.9]), torch.zeros(1)).zeta.isnan())


def test_layouts_are_read_where_they_are_by_the_compiled_draw():
    """Logits shared by samples, noise that is a part of wider rows, gradients with strides: all as copies give."""
    wide = torch.rand(6, 40, generator=torch.Generator().manual_seed(2)).clamp(1e-3, 1 - 1e-3)
    rho, logits = wide[:, 8:27], torch.randn(19, 6).t().requires_grad_()
    weights = torch.randn(6, 50)[:, 5:24]
    found = []
    for own in (lambda value: value, torch.clone):
        smoothing = SpikeExponential(2.0)
        drawn = smoothing.draw(own(rho), own(logits))
        total = (drawn.zeta * own(weights) + drawn.bits * own(weights)).sum()
        found.append([drawn.zeta, *torch.autograd.grad(total, (logits, smoothing.beta))])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_a_failing_self_test_leaves_plain_torch(monkeypatch):
    monkeypatch.setattr(Kernel, "is_usable", lambda self: False)
    logits = torch.zeros(4, requires_grad=True)
    drawn = SpikeExponential(3.0).draw(torch.full((4,), 0.7), logits)
    assert type(drawn.zeta.grad_fn).__name__ == "PlainDrawBackward"
