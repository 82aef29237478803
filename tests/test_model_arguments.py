"""Arguments of public doors: what is refused, dtypes, sources of noise, weights that are not finite."""

import math

import pytest
import torch

import discrete_vae as dv
from discrete_vae import RBM, DiscreteVAE, LatentGroup, exact_log_partition, kl_to_boltzmann
from discrete_vae.config import (
    CategoricalLikelihoodConfig,
    FactorialBernoulliConfig,
    GaussianHierarchyConfig,
    GraphBoltzmannConfig,
    HierarchicalPosteriorConfig,
    RBMConfig,
    instantiate,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import evaluate_elbo, evaluate_log_likelihood
from discrete_vae.evaluation.latents import flip_effects, latent_usage
from discrete_vae.hierarchy.base import NoHierarchy
from discrete_vae.log_partition.estimate import log_partition_surrogate
from discrete_vae.objectives.elbo import Elbo
from discrete_vae.objectives.importance import importance_weighted
from tests.models import small_config
from tests.refusals import refused_argument

CONFIG = small_config(12, units=(4, 3), groups=3, hidden=(16,))
LAYERS = GaussianHierarchyConfig(num_layers=2, num_units=5, posterior_hidden=(8,), prior_hidden=(8,))
X = torch.bernoulli(torch.full((10, 12), 0.4), generator=torch.Generator().manual_seed(0))


def build(**changes):
    torch.manual_seed(0)
    return DiscreteVAE.from_config(CONFIG.model_copy(update=changes)).eval()


@pytest.fixture
def model():
    return build(hierarchy=LAYERS)


NO_LOG_Z = (math.nan, -math.inf, torch.tensor(math.nan), "3.0", [1.0, 2.0], True, object())
NO_SCALARS = tuple(torch.zeros(shape) for shape in ((10, 1), (10,), (0,)))  # they would broadcast
NO_ZETA = tuple(torch.full((2, 7), value) for value in (-0.1, 1.5, math.nan))
NO_X = (
    torch.zeros(2, 11),
    torch.zeros(2, 12, dtype=torch.uint8),
    X.bool(),
    torch.full((2, 12), 255.0),
    2 * X - 1,
    torch.full((2, 12), math.nan),
    X.to("meta"),
)
BOTH = {"seed": 0, "generator": torch.Generator()}
LARGE = RBMConfig(num_left=13, num_right=14)
PARTS = {
    "posterior": dv.HierarchicalPosterior(5, [[0, 1]], (), dv.SpikeSlab()),
    "likelihood": dv.BernoulliLikelihood((5,)),
}
NAN, MASK = torch.tensor([[0.0, torch.nan, 1.0]]), torch.tensor([[True, False, True]])
NO_UNITS = torch.arange(3, device="meta"), torch.arange(3).to_sparse()
NO_MASK = MASK[0].to("meta"), MASK[0].to_sparse()
NO_FEATURES = (None, [[0.5] * 12], *(torch.zeros(shape) for shape in ((2, 12, 1), (2, 11))), X.to("meta"))
ELBO = Elbo(torch.zeros(2), torch.ones(2), torch.ones(2), 1.0, True)
LAYERS_ALONE = dv.NoSharing(4, 2, 3, (5,))
HIERARCHY = dv.GaussianHierarchy(5, dv.NoSharing(4, 2, 3, (5,)), (5,))


def no_layers(num_latents, num_features):
    return NoHierarchy(num_latents=num_latents, num_features=num_features)


def gappy():
    return build(num_features=3, missing=True)


def each(argument, call, values):
    """Rows of the table below: a call of a model and each of some values."""
    return [(argument, lambda model, value=value: call(model, value)) for value in values]


# (the argument that the error names, a call of a model)
REFUSED = [
    *each("log_partition", lambda m, v: m.elbo(X, log_partition=v), (*NO_LOG_Z, *NO_SCALARS)),
    ("log_partition", lambda m: m.log_likelihood(X, 10, log_partition=torch.zeros(10))),
    ("log_partition", lambda m: kl_to_boltzmann(m.prior, m.posterior.rsample(X).groups, math.nan)),
    ("log_partition", lambda _: build(prior=LARGE).log_likelihood(X, 5)),
    ("negative_phase", lambda _: build(prior=LARGE).elbo(X).loss),
    ("negative_phase", lambda m: m.elbo(X, negative_phase=torch.zeros(0, 7))),
    *each("x", lambda m, x: m.elbo(x), NO_X),
    ("x", lambda m: m.encode(NO_X[0])),
    ("x", lambda m: m.reconstruct(NO_X[3])),
    ("x", lambda m: m.log_likelihood(torch.full((2, 12), 0.5), 10)),
    ("x", lambda m: m.log_likelihood(X[:0], 2, log_partition=0.0)),
    ("x", lambda m: evaluate_log_likelihood(m, X[:0], log_partition=0.0, num_samples=2)),
    ("x", lambda m: evaluate_elbo(m, X[:0], log_partition=0.0)),
    ("x", lambda m: latent_usage(m, X[:0])),
    ("x", lambda m: flip_effects(m, X[:0])),
    ("num_samples", lambda m: m.log_likelihood(X, 0)),
    ("chunk_size", lambda m: m.log_likelihood(X, 10, chunk_size=0)),
    *each("zeta", lambda m, zeta: m.decode(zeta), NO_ZETA),
    ("zeta", lambda m: m.sample(2, z=torch.ones(2, 7), zeta=NO_ZETA[1])),
    ("zeta", lambda m: m.decode(torch.zeros(2, 6))),
    ("zeta", lambda m: m.decode(torch.zeros(7))),
    ("h", lambda m: m.decode(torch.zeros(3, 7), torch.zeros(3, 5, 5))),
    *each("statistic", lambda m, s: m.decode(torch.ones(2, 7), statistic=s), (1, "x" * 500)),
    ("statistic", lambda m: m.reconstruct(X, statistic="median")),
    ("n", lambda m: m.sample(0)),
    ("n", lambda m: m.sample()),
    ("z", lambda m: m.sample(3, z=torch.zeros(2, 7))),
    ("z", lambda m: m.sample(z=torch.full((2, 7), -1.0))),
    ("z", lambda m: m.sample(3, zeta=torch.zeros(3, 7))),
    ("seed", lambda m: m.sample(2, **BOTH)),
    ("seed", lambda m: m.encode(X, **BOTH)),
    ("seed", lambda m: m.reconstruct(X, **BOTH)),
    ("seed", lambda m: m.decode(torch.ones(2, 7), **BOTH)),
    ("generator", lambda m: m.elbo(X, generator=0)),
    ("generator", lambda m: m.sample(2, generator="cpu")),
    ("generator", lambda m: m.encode(X, generator=torch.Generator)),
    ("log_weights", lambda _: importance_weighted(torch.zeros(3))),
    ("log_weights", lambda _: importance_weighted(torch.zeros(0, 3))),
    ("posterior", lambda _: DiscreteVAE(prior=RBM(2, 1), **PARTS)),
    ("hierarchy", lambda _: DiscreteVAE(prior=RBM(1, 1), hierarchy=no_layers(3, 5), **PARTS)),
    ("hierarchy", lambda _: DiscreteVAE(prior=RBM(1, 1), hierarchy=no_layers(2, 4), **PARTS)),
    ("mask", lambda _: DiscreteVAE(prior=RBM(1, 1), missing=True, mask="holes", **PARTS)),
    *each(
        "encoder", lambda _, f: DiscreteVAE.from_config(CONFIG, encoder=f), (torch.nn.Flatten, torch.flatten)
    ),
    ("decoder", lambda _: DiscreteVAE.from_config(CONFIG, decoder=torch.sigmoid)),
    *each(
        "the decoder's output",
        lambda _, module: DiscreteVAE.from_config(CONFIG, decoder=module).elbo(X),
        (torch.nn.Linear(7, 11), torch.nn.LSTM(7, 12), torch.nn.Flatten(0)),
    ),
    (
        "the decoder's output",
        lambda _: DiscreteVAE.from_config(CONFIG, decoder=torch.nn.Linear(7, 11)).sample(2),
    ),
    *each(
        "the encoder's output",
        lambda _, module: DiscreteVAE.from_config(CONFIG, encoder=module),
        (torch.nn.LSTM(12, 8), torch.nn.Flatten(0), torch.nn.Unflatten(1, (3, 4))),
    ),
    *each("estimator", lambda m, e: m.estimate_gradient(e, X), (dv.DisARM, "disarm", X)),
    *each("observed", lambda _, v: gappy().elbo(NAN, observed=v), ([[True] * 3], 1.0, MASK.to_sparse())),
    # doors of other packages, which calls with odd arguments once crashed
    ("energy", lambda _: dv.RunningMoments([], 5)),
    ("inverse_temperature", lambda _: RBM(2, 2).free_energy(torch.ones(3, 4), inverse_temperature=[None])),
    ("inverse_temperature", lambda _: RBM(2, 2).free_energy(torch.ones(3, 4), inverse_temperature=1j)),
    ("name", lambda _: dv.load_dataset(["digits"])),
    ("experiment", lambda _: dv.load_experiment(["digits"])),
    *each(
        "start", lambda _, z: dv.bennett_log_partition(RBM(2, 2), start=z), ([[1.0] * 4], torch.tensor(1.0))
    ),
    ("max_beta", lambda _: dv.SpikeExponential(max_beta=torch.ones(2))),
    ("num_chains", lambda _: dv.annealed_log_partition(RBM(2, 2), num_chains=1.5, start=torch.ones(3, 4))),
    ("max_enumerated", lambda _: dv.estimate_log_partition(RBM(3, 2), max_enumerated=-1)),
    ("max_sweeps", lambda _: dv.estimate_log_partition(RBM(3, 2), max_sweeps=1.5)),
    ("chains", lambda _: dv.estimate_log_partition(RBM(3, 2), chains=torch.full((2, 5), 2.0))),
    ("device", lambda _: dv.load_run("runs/none", device="gpu!")),
    ("device", lambda _: DiscreteVAE.from_pretrained("runs/none", device=None)),
    ("path", lambda _: DiscreteVAE.from_pretrained(3)),
    ("path", lambda _: DiscreteVAE.from_pretrained("x" * 5000)),
    ("run_dir", lambda _: dv.load_run(["runs"])),
    ("run_dir", lambda _: dv.load_run("x" * 5000)),
    ("config", lambda _: dv.train(None, None, "runs/none")),
    ("dataset", lambda _: dv.train(dv.load_experiment("digits"), 3, "runs/none")),
    ("path", lambda _: dv.own_experiment(None)),
    ("model.posterior", lambda _: build(posterior=HierarchicalPosteriorConfig(hidden=(9000,) * 2000))),
    ("size", lambda _: dv.own_experiment("mine.npy", size="digit")),
    ("observed", lambda _: dv.BernoulliLikelihood((3,)).check(NAN, MASK.to("meta"))),
    ("observed", lambda _: dv.GaussianLikelihood((3,)).check(NAN, MASK.to_sparse())),
    ("discrete", lambda _: ELBO.weighted_loss(discrete=math.nan)),
    ("continuous", lambda _: ELBO.weighted_loss(continuous="1")),
    ("zeta", lambda _: LAYERS_ALONE.sample(torch.zeros(2, 3))),
    *each("units", lambda _, units: LatentGroup(logits=NAN, zeta=NAN, bits=NAN, units=units), NO_UNITS),
    *each(
        "clamped", lambda _, mask: dv.BlockGibbs(RBM(2, 1), 2, start=torch.zeros(2, 3), clamped=mask), NO_MASK
    ),
    *each("features", lambda m, x: m.posterior.rsample(x), NO_FEATURES),
    *each(
        "num_units",
        lambda _, n: dv.HierarchicalPosterior(2, 1, [3], dv.SpikeSlab(), num_units=n),
        ("3", b"1", 2.0, object),
    ),
    ("features", lambda _: HIERARCHY.rsample(torch.zeros(2, 5).cfloat(), torch.zeros(2, 4))),
    ("features", lambda _: HIERARCHY.rsample(None, torch.zeros(2, 4))),
    ("zeta", lambda _: HIERARCHY.rsample(torch.zeros(2, 5), torch.zeros(2, 4, 1))),
    *each("num_categories", lambda _, n: dv.CategoricalLikelihood((2,), n), (1.5, b"12", [], [3], None)),
    ("parameters", lambda _: dv.NegativeBinomialLikelihood((3,)).sample([0.0])),
    ("start", lambda _: dv.BlockGibbs(RBM(2, 1), 2, start=torch.zeros(2, 3).to_sparse())),
]


@pytest.mark.parametrize(("argument", "call"), REFUSED)
def test_what_breaks_a_rule_is_named(model, argument, call):
    assert refused_argument(call, model) == argument


def test_the_negative_phase_may_have_no_value(model):
    log_partition = log_partition_surrogate(model.prior, torch.zeros(2, 7))
    model.elbo(X, log_partition=log_partition).kl_discrete.sum().backward()
    assert bool(model.prior.bias.grad.isfinite().all())


@pytest.mark.parametrize(
    "likelihood",
    [
        dv.BernoulliLikelihood((3,)),
        instantiate(CategoricalLikelihoodConfig(num_categories=2), event_shape=(3,)),
        dv.NegativeBinomialLikelihood((3,)),
    ],
)
def test_no_bit_code_or_count_is_drawn_from_nan(likelihood):
    parameters = torch.zeros(2, *likelihood.parameter_shape)
    parameters[0, 1] = torch.nan
    assert "parameters" in refused_argument(likelihood.sample, parameters)
    if isinstance(likelihood, dv.NegativeBinomialLikelihood):
        assert bool(likelihood.mode(parameters).isnan().any())
    else:
        assert "parameters" in refused_argument(likelihood.mode, parameters)


def test_autocast_keeps_energies_and_latents(model):
    """Networks may round; energies of tens of nats, the KL and every latent may not."""
    with torch.no_grad():
        model.prior.weight.normal_(0, 4)
        model.prior.bias.normal_(0, 4)
    z = torch.bernoulli(torch.full((50, 7), 0.5))
    energy, log_z = model.prior.energy(z), exact_log_partition(model.prior)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(model.prior.energy(z), energy)
        assert exact_log_partition(model.prior).value == log_z.value
        drawn = model.encode(X)
        assert {drawn.z.dtype, drawn.zeta.dtype, drawn.logits.dtype, drawn.h.dtype} == {torch.float32}
        elbo = model.elbo(X, negative_phase=z, log_partition=log_z)
        assert {elbo.value.dtype, elbo.kl_continuous.dtype, elbo.kl_discrete.dtype} == {torch.float32}
        elbo.loss.backward()
        assert model.log_likelihood(X, 5, log_partition=log_z).value.dtype == torch.float64
        made = model.posterior.networks[0](X)
    assert made.dtype == torch.bfloat16  # so something was rounded


@pytest.mark.parametrize(
    ("prior", "dtype"),
    [
        (CONFIG.prior, torch.float64),
        (FactorialBernoulliConfig(num_units=7), torch.bfloat16),
        (GraphBoltzmannConfig(num_units=7, edges="complete"), torch.float16),
    ],
)
def test_every_method_works_in_every_dtype(prior, dtype):
    model = build(hierarchy=LAYERS, prior=prior).to(dtype)
    draws = model.sample(3, num_sweeps=5)
    assert {draws.mean.dtype, draws.z.dtype, draws.zeta.dtype, draws.h.dtype} == {dtype}
    assert model.encode(X).zeta.dtype == dtype
    assert model.reconstruct(X).dtype == dtype
    given = torch.ones(3, 7), torch.zeros(3, 2, 5)
    assert model.decode(*given).dtype == dtype
    assert model.decode(*given, statistic="mode").dtype == torch.promote_types(dtype, torch.float32)
    assert bool(model.log_likelihood(X, 5).value.isfinite().all())
    assert bool(model.elbo(X).value.isfinite().all())


def test_a_default_dtype_of_float64(default_dtype):
    default_dtype(torch.float64)
    assert build().sample(3, num_sweeps=5).mean.dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_x_of_another_precision_means_the_same(model, dtype):
    calls = [
        lambda x, noise: model.elbo(x, generator=noise).value,
        lambda x, noise: model.encode(x, generator=noise).zeta,
        lambda x, noise: model.reconstruct(x, generator=noise),
        lambda x, noise: model.log_likelihood(x, 20, generator=noise).value,
    ]
    for call in calls:
        assert torch.equal(*(call(x, torch.Generator().manual_seed(1)) for x in (X, X.to(dtype))))


def test_parts_alone_take_every_float_dtype(model):
    sample = model.posterior.rsample(X.to(torch.bfloat16))
    below = model.hierarchy.rsample(X.double(), sample.zeta.double())
    assert sample.zeta.dtype == below.h.dtype == torch.float32
    for dtype in (torch.float16, torch.float64):
        assert LAYERS_ALONE.eval().sample(torch.zeros(2, 4, dtype=dtype)).dtype == torch.float32


@pytest.mark.parametrize("source", ["global", "seed", "generator"])
def test_one_source_governs_the_whole_result(model, source):
    def repeats(first, second):
        return [
            torch.equal(getattr(first, name), getattr(second, name)) for name in ("z", "zeta", "h", "mean")
        ]

    draws = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed if source == "global" else 0)
        given = {"seed": seed, "generator": torch.Generator().manual_seed(seed)}
        more = {} if source == "global" else {source: given[source]}
        draws.append(model.sample(10, num_sweeps=5, **more))
    assert all(repeats(*draws[:2]))
    assert not any(repeats(*draws[1:]))
    if source != "seed":  # it moves on
        assert not any(repeats(draws[2], model.sample(10, num_sweeps=5, **more)))


def test_a_seed_governs_codes_and_means_and_leaves_the_global_generator_alone(model):
    before = torch.random.get_rng_state()
    for method, argument in (("reconstruct", X), ("decode", torch.ones(10, 7))):
        first, second, other = (getattr(model, method)(argument, seed=seed) for seed in (3, 3, 4))
        assert torch.equal(first, second)
        assert not torch.equal(first, other)
    assert torch.equal(model.encode(X, seed=3).h, model.encode(X, seed=3).h)
    model.sample(4, num_sweeps=2, seed=0)
    assert torch.equal(before, torch.random.get_rng_state())


DOORS = {
    "sample": lambda model: model.sample(4, num_sweeps=2),
    "encode": lambda model: model.encode(X),
    "reconstruct": lambda model: model.reconstruct(X),
    "decode": lambda model: model.decode(torch.full((2, 7), 0.5)),
    "log_likelihood": lambda model: model.log_likelihood(X, 5, log_partition=3.0),
}
READS = {
    "prior.weight": ("sample", "log_likelihood"),
    "prior.bias": ("sample", "log_likelihood"),
    "posterior.networks.0.layers.0.weight": ("encode", "reconstruct", "log_likelihood"),
    "posterior.norms.2.scale": ("encode", "reconstruct", "log_likelihood"),
    "posterior.smoothing.beta": ("sample", "encode", "reconstruct"),
    "hierarchy.posterior.1.network.output.bias": ("encode", "reconstruct", "log_likelihood"),
    "hierarchy.prior.networks.0.network.layers.0.weight": ("sample", "decode", "log_likelihood"),
    "decoder.network.output.bias": ("sample", "reconstruct", "decode", "log_likelihood"),
}


# their bounds hold whatever the parameter is
BOUNDED = {"posterior.norms.2.scale", "posterior.smoothing.beta"}


@pytest.mark.parametrize("name", READS)
def test_a_weight_that_is_not_finite_stops_what_reads_it(name):
    for door in READS[name]:
        part = name.removeprefix("prior.") if door == "sample" else name
        for value in (math.nan, math.inf):
            if value == math.inf and name in BOUNDED and door in ("encode", "log_likelihood"):
                continue
            model = build(hierarchy=LAYERS)
            with torch.no_grad():
                model.get_parameter(name).view(-1)[0] = value
            with pytest.raises(InvalidInputError, match=part):
                DOORS[door](model)


def test_finite_weights_that_overflow_are_seen_in_the_logits(model):
    with torch.no_grad():
        model.posterior.networks[0].output.weight.fill_(3e38)
    with pytest.raises(InvalidInputError, match="the posterior network's logits"):
        model.encode(X)
    logits = torch.full((3, 7), math.nan)
    zeta = model.smoothing.rsample(logits)
    group = LatentGroup(logits=logits, zeta=zeta, bits=model.smoothing.bits(zeta, logits))
    assert bool(kl_to_boltzmann(model.prior, [group], 3.0).isnan().all())  # those of ones own pass it on


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_chains_start_where_they_are_told_in_any_precision(dtype):
    start, clamped = X[:, :7], torch.ones(7, dtype=torch.bool)
    chains = dv.BlockGibbs(RBM(4, 3), 10, start=start.to(dtype), clamped=clamped)
    assert torch.equal(chains.step(1), start)
