"""The laws of smoothing transformations, over every one that a config can name."""

import math

import pytest
import torch

from discrete_vae import SpikeExponential, SpikeSmoothing
from discrete_vae.config import SmoothingConfig, instantiate, members
from discrete_vae.numerics import softplus
from discrete_vae.rng import open_uniform
from discrete_vae.smoothing.base import SmoothedDraw, Smoothing
from discrete_vae.smoothing.overlapping import OverlappingSmoothing
from discrete_vae.smoothing.spike import SharpLimit
from discrete_vae.testing import contracts
from tests.refusals import refused_argument
from tests.transformations import SMOOTHINGS, of_prior

BETAS = (0.01, 0.05, 3.0, 20.0, 200.0)
TRAINED = [config for config in members(SmoothingConfig) if config.trains and config.unbiased]
BS = (1.01, 2.0, 30.0, 100.0)


def test_configs_say_which_transformations_have_a_spike():
    for config in members(SmoothingConfig):
        assert config.has_spike != isinstance(instantiate(config()), OverlappingSmoothing), config


def transformations(betas, bs=(30.0,)):
    """Every transformation; those with a beta or a b at several, and with a beta that trains."""
    cases = []
    for config in TRAINED:
        fields, kind = config.model_fields, config().kind
        more = {"trainable": True} if "trainable" in fields else {}
        name, values = ("beta", betas) if "beta" in fields else ("b", bs)
        for value in values if name in fields else ():
            cases.append(pytest.param(config(**{name: value}, **more), id=f"{kind}, {name} {value:g}"))
        if name not in fields:
            cases.append(pytest.param(config(), id=kind))
    return cases


def accuracy(config):
    """Of power functions, which are that steep at 0 and 1, zeta can be right to its last digit, but not F(zeta)."""
    more = {"num_ulps": 1} if config.kind == "overlapping-power" else {}
    return {"tolerance": 5e-7 + 4e-8 * getattr(config, "beta", 0.0), **more}


@pytest.mark.parametrize("config", transformations(BETAS, BS))
def test_float32_over_the_grid_of_rho(config):
    contracts.check_float32(instantiate(config), **accuracy(config))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("config", transformations((3.0,)))
def test_draws_in_low_precision_have_the_law(config, dtype):
    """z = 1 has a probability that 256 values of rho could not have; false with probability 1e-6 per case."""
    smoothing = instantiate(config)
    logits = torch.full((100_000,), -6.5, dtype=dtype)
    parameters = [value.to(dtype) for value in of_prior(smoothing, logits)]
    generator = torch.Generator().manual_seed(0)
    zeta = smoothing.rsample(logits, *parameters, generator=generator)
    assert zeta.dtype == dtype
    assert bool(zeta.isfinite().all())
    z = smoothing.sample_z(zeta, logits, generator=generator).double()
    wanted = float(torch.sigmoid(logits[:1].double()))
    assert abs(float(z.mean()) - wanted) < 4.9 * (wanted / len(logits)) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("config", transformations((0.01, 8.0, 200.0)))
def test_float32_over_every_rho(config):
    smoothing = instantiate(config)
    stride = 9 if smoothing.parameter_names else 1  # nine laws are tried of what depends on x
    contracts.check_float32(smoothing, rho=contracts.rho_grid(stride), **accuracy(config))


@pytest.mark.parametrize("config", transformations((0.05, 3.0, 200.0), BS))
def test_gradient_point_by_point(config):
    contracts.check_pointwise_gradient(instantiate(config))


@pytest.mark.parametrize("config", transformations((0.05, 3.0), (1.5,)))
def test_gradient_of_pair_terms(config):
    contracts.check_pair_gradient(instantiate(config))


# of b: float64 resolves bins of the CDF that hold a twentieth up to about 10
@pytest.mark.parametrize("config", transformations((0.05, 3.0, 8.0), (1.5, 8.0)))
def test_joint_law_of_z_and_zeta(config):
    contracts.check_joint_law(instantiate(config))


def test_the_list_of_all_tests_names_every_transformation():
    assert list(SMOOTHINGS) == [config().kind for config in TRAINED]


LIMIT = pytest.param(None, id="sharp limit")


@pytest.mark.parametrize("config", [*transformations((0.01, 3.0, 200.0)), LIMIT])
def test_a_unit_that_is_on_for_sure_is_never_drawn_off(config):
    """At each float32 number that `open_uniform` draws near 0 and 1; one with z = 0 would weigh e^45 too much."""
    smoothing = SharpLimit() if config is None else instantiate(config)
    near = torch.arange(1, 2**12) * 2.0**-24
    rho = torch.cat([near, 1 - near, torch.linspace(2**-12, 1 - 2**-12, 10_000)])
    for certain in (45.0,) if isinstance(smoothing, OverlappingSmoothing) else (18.0, 45.0):
        logits = torch.full_like(rho, certain)
        drawn = smoothing.draw(rho, logits, *of_prior(smoothing, rho))
        assert bool((drawn.z == 1).all())


@pytest.mark.parametrize("config", [*transformations((0.01, 3.0, 200.0)), LIMIT])
def test_a_nan_comes_out(config):
    """zeta = 0 would say z = 0 and hide a broken network."""
    smoothing = SharpLimit() if config is None else instantiate(config)
    rho, logits = torch.tensor([0.1, 0.9, 0.5, 0.6]), torch.tensor([math.nan, math.nan, 0.0, math.inf])
    parameters = of_prior(smoothing, rho)
    zeta, drawn = smoothing.icdf(rho, logits, *parameters), smoothing.draw(rho, logits, *parameters)
    assert zeta[3] > 0
    for value in (zeta, smoothing.rsample(logits, *parameters), drawn.zeta, drawn.bits, drawn.z):
        assert value.isnan().tolist() == [True, True, False, False]
    broken, zeros = torch.tensor([math.nan, 0.5]), torch.zeros(2)
    for value in (smoothing.bits(broken, zeros), smoothing.sample_z(broken, zeros)):
        assert value.isnan().tolist() == [True, False]


class WrongCdf(SpikeExponential):
    def survival(self, zeta):
        return 1 - zeta


class NoSafeBranch(SpikeExponential):
    """The unused branch is masked after the logarithm, which leaves NaN in the gradient."""

    def _icdf(self, rho, logits):
        v = (1 - rho) / torch.sigmoid(logits)
        zeta = 1 + torch.log1p(v * torch.expm1(-self.beta)) / self.beta
        return torch.where(v < 1, zeta, 0.0)


class FreshZ(SpikeExponential):
    """z is drawn again instead of being read off zeta."""

    def sample_zeta(self, z, *, generator=None):
        return super().sample_zeta(z, generator=generator) ** 2


class Ramp(SpikeSmoothing):
    """r(zeta|z=1) = 2 zeta, as docs/smoothing.md has it: the base needs three functions."""

    def survival(self, zeta):
        return 1 - zeta.square()

    def inverse_survival(self, v, parameter):
        return (1 - v).sqrt()

    def slopes(self, v, zeta, parameter):
        return 0.5 / (1 - v).sqrt(), None


class RampByHand(Smoothing):
    """The same by autograd: right, but the 1 / q^2 of its gradient is infinite at logits that networks reach."""

    def _icdf(self, rho, logits):
        v = (1 - rho) / torch.sigmoid(logits)
        on = v < 1
        return torch.where(on, torch.where(on, 1 - v, 1.0).sqrt(), 0.0)

    def _cdf(self, zeta, logits):
        off = torch.sigmoid(-logits)
        return torch.where(zeta < 0, 0.0, off + (1 - off) * zeta.clamp(0, 1).square())

    def _bits(self, zeta, logits):
        z, slope = (zeta.detach() > 0).to(logits.dtype), softplus(logits)
        return z + (1 - z) * (slope - slope.detach())

    def sample_z(self, zeta, logits, *, generator=None):
        return (zeta.detach() > 0).to(zeta.dtype)

    def sample_zeta(self, z, *, generator=None):
        return z * open_uniform(z, generator=generator).sqrt()


class BitsWithoutGradient(SpikeExponential):
    """z itself in pair terms: a bias that no value shows."""

    def draw(self, rho, logits, *, generator=None):
        zeta, z = self._icdf(rho, logits), (rho >= torch.sigmoid(-logits)).to(rho.dtype)
        return SmoothedDraw(z.detach(), zeta, z + 0 * logits)


class OtherDraw(SpikeExponential):
    """Trains with another law than icdf's."""

    def draw(self, rho, logits, *, generator=None):
        return super().draw(rho.square(), logits, generator=generator)


class OtherDensity(Ramp):
    def log_density_of_one(self, zeta, parameter):
        return zeta.log()


class OwnGenerator(RampByHand):
    """Draws do not repeat."""

    def sample_zeta(self, z, *, generator=None):
        return super().sample_zeta(z)


class UntrainedPower(Ramp):
    """r(zeta|z=1) = a zeta^(a - 1), whose a learns nothing: the base does not know of it."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor(2.0))


@pytest.mark.parametrize("own", [Ramp(), SpikeExponential()], ids=["own", "built in"])
def test_a_checked_transformation_stays_as_it_is(own):
    before = {name: value.clone() for name, value in own.state_dict().items()}
    contracts.check_smoothing(own)
    assert all(value.dtype == before[name].dtype for name, value in own.state_dict().items())
    assert all(torch.equal(value, before[name]) for name, value in own.state_dict().items())


@pytest.mark.parametrize(
    ("check", "fault"),
    [
        (lambda s: contracts.check_float32(s, tolerance=1e-6), WrongCdf(beta=3.0)),
        (lambda s: contracts.check_float32(s, tolerance=1e-3), NoSafeBranch(beta=20.0)),
        (contracts.check_pointwise_gradient, WrongCdf(beta=3.0)),
        (contracts.check_joint_law, FreshZ(beta=3.0)),
        (contracts.check_smoothing, RampByHand()),
        (contracts.check_smoothing, BitsWithoutGradient(beta=3.0)),
        (contracts.check_smoothing, OtherDraw(beta=3.0)),
        (contracts.check_smoothing, OtherDensity()),
        (contracts.check_joint_law, OwnGenerator()),
        (contracts.check_smoothing, UntrainedPower()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_planted_faults_are_rejected(check, fault):
    with pytest.raises(AssertionError):
        check(fault)


@pytest.mark.parametrize("config", transformations((3.0,)))
def test_refusals(config):
    smoothing, zeros, nan = instantiate(config), torch.zeros(2), torch.tensor([0.5, math.nan])
    law = of_prior(smoothing, zeros)
    calls = [
        ("rho", smoothing.icdf, torch.tensor([0]), torch.zeros(1)),
        ("logits", smoothing.rsample, [0.0]),
        *(("rho", smoothing.icdf, rho + zeros, zeros, *law) for rho in (-0.1, 1.0, 1.5, math.nan)),
        *(("zeta", getattr(smoothing, each), torch.zeros(3), zeros) for each in ("cdf", "bits", "sample_z")),
        ("zeta", smoothing.cdf, nan, zeros, *law),
        *(
            ("parameters", getattr(smoothing, each), zeros, zeros, *law, nan)
            for each in ("icdf", "cdf", "bits")
        ),
        ("parameters", smoothing.rsample, zeros, *law, zeros + 1),
        ("z", smoothing.sample_zeta, torch.tensor([0.5])),
    ]
    for argument, *call in calls:
        assert refused_argument(*call) == argument


@pytest.mark.parametrize("config", transformations((3.0,)))
def test_the_cdf_outside_of_the_support(config):
    smoothing = instantiate(config)
    below, above = smoothing.support
    ends = torch.tensor([max(below - 1, -1e30), min(above + 1, 1e30)])
    assert smoothing.cdf(ends, torch.zeros(2), *of_prior(smoothing, ends)).tolist() == [0.0, 1.0]
