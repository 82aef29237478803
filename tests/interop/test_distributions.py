"""The smoothed Bernoulli: density, moments, KL and draws against its CDF and the noise."""

import copy
import pickle

import pytest
import torch
from torch.distributions import Bernoulli, Independent, constraints, kl_divergence

from discrete_vae import MixtureOfRamps, SpikeExponential, SpikeGaussian, SpikeSlab
from discrete_vae.interop.distributions import SmoothedBernoulli
from discrete_vae.smoothing.spike import SharpLimit
from tests.refusals import refused_argument
from tests.transformations import OVERLAPPING, SMOOTHINGS

LOGITS = torch.tensor([-2.0, 0.0, 1.5], dtype=torch.float64)
SPIKES = [name for name in SMOOTHINGS if name not in OVERLAPPING]
# Values of zeta at equally probable noise: an average over them is an expectation, whatever the measure.
RHO = (torch.arange(40_000, dtype=torch.float64) + 0.5)[:, None] / 40_000


def law_of(name, logits=LOGITS):
    parameters = ()
    if name == "spike-gaussian":
        parameters = (torch.tensor(0.7, dtype=logits.dtype), torch.tensor(1.3, dtype=logits.dtype))
    return SmoothedBernoulli(logits, SMOOTHINGS[name](), *parameters)


@pytest.mark.parametrize("name", SMOOTHINGS)
def test_the_density_is_the_slope_of_the_cdf(name):
    law = law_of(name)
    points = torch.linspace(0.03, 0.97, 20, dtype=torch.float64)
    if "gaussian" in name:  # 4 x - 2 is never 0
        points = torch.cat([4 * points - 2, points.new_tensor([0.01])])
    zeta = points[:, None].expand(-1, 3).clone().requires_grad_()
    (slope,) = torch.autograd.grad(law.cdf(zeta).sum(), zeta)
    torch.testing.assert_close(law.log_prob(zeta.detach()).exp(), slope, rtol=1e-5, atol=1e-7)
    if name in SPIKES:  # the jump at 0
        ends = torch.tensor([[-1e-12], [0.0]], dtype=torch.float64).expand(-1, 3)
        (jump,) = law.smoothing.cdf(ends, LOGITS, *law._parameters).diff(dim=0)
        torch.testing.assert_close(law.log_prob(0 * LOGITS).exp(), jump)
        torch.testing.assert_close(jump, 1 - law.probs)


@pytest.mark.parametrize("name", SMOOTHINGS)
def test_moments_and_entropy_are_expectations_over_the_noise(name):
    law = law_of(name)
    with torch.no_grad():
        zeta = law.icdf(RHO)
        torch.testing.assert_close(law.mean, zeta.mean(0), rtol=0, atol=1e-4)
        torch.testing.assert_close(law.variance, zeta.var(0), rtol=2e-3, atol=1e-4)
        for end, value in enumerate(law.smoothing.support):
            assert (law.icdf(torch.full((3,), end, dtype=torch.float64)) == value).all()
        if name in SPIKES:
            torch.testing.assert_close(law.entropy(), -law.log_prob(zeta).mean(0), rtol=0, atol=2e-3)
        else:
            with pytest.raises(NotImplementedError):
                law.entropy()


@pytest.mark.parametrize("beta", [0.011, 0.3, 30.0])
def test_moments_keep_their_digits_for_every_beta(beta):
    law = SmoothedBernoulli(torch.tensor([40.0], dtype=torch.float64), SpikeExponential(beta=beta))
    rho = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    beta64 = law.smoothing.beta.detach().double()
    x = 1 + torch.log1p(-(1 - rho) * (1 - torch.exp(-beta64))) / beta64
    torch.testing.assert_close(law.mean.detach(), x.mean()[None], rtol=1e-5, atol=0)
    torch.testing.assert_close(law.variance.detach(), x.var()[None], rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (SpikeExponential(beta=3.0), SpikeExponential(beta=1.0)),
        (SpikeExponential(beta=2.0), SpikeSlab()),
        (SpikeSlab(), SpikeExponential(beta=2.0)),
    ],
)
def test_kl_divergences_are_expectations(one, other):
    p = SmoothedBernoulli(LOGITS, one)
    q = SmoothedBernoulli(torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64), other)
    with torch.no_grad():
        zeta = p.icdf(RHO)
        wanted = (p.log_prob(zeta) - q.log_prob(zeta)).mean(0)
        torch.testing.assert_close(kl_divergence(p, q), wanted, rtol=0, atol=1e-3)
        assert (kl_divergence(p, q) > 0).all()
        torch.testing.assert_close(kl_divergence(p, p), torch.zeros(3, dtype=torch.float64))


def test_the_kl_of_gaussians_is_that_of_the_smoothing():
    smoothing = SpikeGaussian(prior_loc=0.5)
    loc, scale = torch.tensor([0.1, 0.9]), torch.tensor([0.5, 2.0])
    logits = torch.tensor([-1.0, 1.0])
    p, q = SmoothedBernoulli(logits, smoothing, loc, scale), SmoothedBernoulli(logits, smoothing)
    assert torch.equal(q.loc, torch.full((2,), 0.5))
    torch.testing.assert_close(kl_divergence(p, q), smoothing.kl(logits, loc, scale))
    ramps, slab = SmoothedBernoulli(LOGITS, MixtureOfRamps()), SmoothedBernoulli(LOGITS, SpikeSlab())
    for pair in ((ramps, ramps), (SmoothedBernoulli(LOGITS, SpikeGaussian()), slab)):  # no closed form
        with pytest.raises(NotImplementedError):
            kl_divergence(*pair)


@pytest.mark.parametrize("name", SMOOTHINGS)
def test_draws_have_the_law_and_carry_gradients(name):
    logits = LOGITS.float().requires_grad_()
    law = law_of(name, logits)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draws = law.rsample((40_000,))
        again = law.sample((2, 5))
    assert again.shape == (2, 5, 3)
    assert not again.requires_grad
    error = (law.variance / 40_000).sqrt()
    assert ((draws.mean(0) - law.mean).abs() < 5 * error).all()
    # d/dl E zeta by the draws and by the closed form
    (found,) = torch.autograd.grad(draws.mean(0).sum(), logits, retain_graph=True)
    (wanted,) = torch.autograd.grad(law.mean.sum(), logits)
    torch.testing.assert_close(found, wanted, rtol=0.1, atol=0.01)


@pytest.mark.parametrize("name", SMOOTHINGS)
def test_shapes_follow_torchs_conventions(name):
    law = law_of(name)
    assert (law.batch_shape, law.event_shape) == ((3,), ())
    wide = law.expand((4, 3))
    assert (wide.batch_shape, wide.mean.shape, wide.rsample((2,)).shape) == ((4, 3), (4, 3), (2, 4, 3))
    assert torch.equal(wide.mean[1], law.mean)
    zeta = Independent(law, 1).rsample((5,))
    assert Independent(law, 1).log_prob(zeta).shape == (5,)
    assert law.support.check(zeta).all()
    for copied in (copy.deepcopy(law), pickle.loads(pickle.dumps(law))):
        assert torch.equal(copied.mean, law.mean)
    assert type(law.smoothing).__name__ in repr(law)


def test_arguments_are_validated_as_torch_does():
    law = SmoothedBernoulli(LOGITS, SpikeSlab(), validate_args=True)  # torch.compile turns the default off
    outside = torch.tensor(1.5, dtype=torch.float64)
    for method in (law.log_prob, law.cdf):
        with pytest.raises(ValueError, match="support"):
            method(outside)
    free = SmoothedBernoulli(LOGITS, SpikeSlab(), validate_args=False)
    assert (free.log_prob(outside) == -torch.inf).all()
    torch.testing.assert_close(free.cdf(outside), torch.ones_like(LOGITS))
    with pytest.raises(ValueError, match="scale"):
        SmoothedBernoulli(LOGITS, SpikeGaussian(), LOGITS, -torch.ones(3), validate_args=True)
    with pytest.raises(ValueError, match="logits"):
        SmoothedBernoulli(torch.tensor([torch.nan]), SpikeSlab(), validate_args=True)
    assert law.expand((2, 3))._validate_args is True
    assert free.expand((2, 3))._validate_args is False
    assert isinstance(SmoothedBernoulli(LOGITS, SpikeGaussian()).support, type(constraints.real))


def test_the_smoothings_parameter_learns_through_the_density():
    def log_prob(smoothing, dtype=torch.float64):
        law = SmoothedBernoulli(torch.tensor([0.5], dtype=dtype), smoothing)
        return law.log_prob(torch.tensor(0.4).to(dtype))

    smoothing = SpikeExponential(beta=2.0)
    (found,) = torch.autograd.grad(log_prob(smoothing, torch.float32).sum(), smoothing.beta)
    above, below = (log_prob(SpikeExponential(beta=beta)).item() for beta in (2.001, 1.999))
    assert found.item() == pytest.approx((above - below) / 0.002, rel=1e-3)


def test_wrong_arguments_are_named():
    slab, gaussian, sharp = SpikeSlab(), SpikeGaussian(), SharpLimit()
    for argument, *given in (
        *(("smoothing", LOGITS, kind) for kind in (sharp, Bernoulli(0.5), SpikeGaussian(shifted=True))),
        ("logits", [0.0], slab),
        *(("parameters", LOGITS, kind, LOGITS) for kind in (slab, gaussian)),
        ("loc", LOGITS[:3], gaussian, torch.zeros(2), torch.ones(2)),
    ):
        assert refused_argument(SmoothedBernoulli, *given) == argument
    assert refused_argument(SmoothedBernoulli(LOGITS, slab).icdf, 0.5) == "value"
    assert refused_argument(sharp.log_prob, torch.ones(1), torch.zeros(1)) == "smoothing"
    assert refused_argument(sharp.conditional_moments) == "smoothing"


@pytest.mark.parametrize("logits", [(0.0, 18.0), (18.0, -18.0), (-110.0, 3.0), (200.0, 200.0)])
def test_large_logits_keep_their_digits(logits):
    """Against float64 sums over both bits; sigmoid(18) is 1 in float32."""
    first, second = (torch.tensor([logit], dtype=torch.float64) for logit in logits)
    signs = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    log_p, log_q = (torch.nn.functional.logsigmoid(signs * each) for each in (first, second))
    of_bits, entropy = ((log_p.exp() * each).sum() for each in (log_p - log_q, -log_p))
    smoothing = SpikeSlab()
    p, q = (SmoothedBernoulli(each.float(), smoothing) for each in (first, second))
    torch.testing.assert_close(kl_divergence(p, q).double().sum(), of_bits, rtol=1e-5, atol=1e-12)
    torch.testing.assert_close(p.entropy().double().sum(), entropy, rtol=1e-5, atol=1e-12)  # a slab has none
