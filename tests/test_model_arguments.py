"""What the model makes of wrong values: log Z, latents, dtypes, sources of noise, weights that are not finite."""

import math

import pytest
import torch

from discrete_vae import (
    RBM,
    DiscreteVAE,
    LatentGroup,
    Reparameterized,
    RunningMoments,
    SpikeExponential,
    annealed_log_partition,
    bennett_log_partition,
    exact_log_partition,
    kl_to_boltzmann,
    load_dataset,
    load_experiment,
)
from discrete_vae.config import (
    FactorialBernoulliConfig,
    GaussianHierarchyConfig,
    GraphBoltzmannConfig,
    HierarchicalPosteriorConfig,
    ModelConfig,
    RBMConfig,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import evaluate_elbo
from discrete_vae.evaluation.latents import flip_effects, latent_usage
from discrete_vae.evaluation.log_likelihood import evaluate_log_likelihood
from discrete_vae.log_partition.bridge import log_partition_surrogate
from discrete_vae.objectives.importance import importance_weighted

CONFIG = ModelConfig(
    num_features=12,
    prior=RBMConfig(num_left=4, num_right=3),
    posterior=HierarchicalPosteriorConfig(groups=3, hidden=(16,)),
)
LAYERS = GaussianHierarchyConfig(num_layers=2, num_units=5, posterior_hidden=(8,), prior_hidden=(8,))
X = torch.bernoulli(torch.full((10, 12), 0.4), generator=torch.Generator().manual_seed(0))


def build(**changes):
    torch.manual_seed(0)
    return DiscreteVAE.from_config(CONFIG.model_copy(update=changes)).eval()


@pytest.fixture
def model():
    return build(hierarchy=LAYERS)


def calls_with_log_partition(model):
    sample = model.posterior.rsample(X)
    return {
        "elbo": lambda value: model.elbo(X, log_partition=value),
        "kl_to_boltzmann": lambda value: kl_to_boltzmann(model.prior, sample.groups, value),
        "log_likelihood": lambda value: model.log_likelihood(X, 10, log_partition=value),
    }


@pytest.mark.parametrize("call", ["elbo", "kl_to_boltzmann", "log_likelihood"])
class TestLogPartition:
    @pytest.mark.parametrize("shape", [(10, 1), (10,), (1, 1), (0,)])
    def test_shapes_that_would_broadcast(self, model, call, shape):
        message = "log_partition must be a finite number or a scalar tensor; received a tensor of shape"
        with pytest.raises(InvalidInputError, match=message):
            calls_with_log_partition(model)[call](torch.zeros(shape))

    @pytest.mark.parametrize(
        "value", [math.nan, math.inf, -math.inf, torch.tensor(math.nan), "3.0", [1.0, 2.0], True, object()]
    )
    def test_what_is_no_number(self, model, call, value):
        with pytest.raises(
            InvalidInputError, match="log_partition must be a finite number or a scalar tensor"
        ):
            calls_with_log_partition(model)[call](value)

    @pytest.mark.parametrize("value", [3, 3.0, torch.tensor(3.0), torch.tensor([3.0]), torch.tensor(3)])
    def test_numbers(self, model, call, value):
        found = calls_with_log_partition(model)[call](value)
        assert getattr(found, "value", found).shape == (10,)


def test_the_negative_phase_may_have_no_value(model):
    log_partition = log_partition_surrogate(model.prior, torch.zeros(2, 7))
    model.elbo(X, log_partition=log_partition).kl_discrete.sum().backward()
    assert bool(model.prior.bias.grad.isfinite().all())


@pytest.mark.parametrize("wrong", [-0.1, 1.5, math.nan])
def test_zeta_outside_its_domain(model, wrong):
    zeta = torch.full((2, 7), wrong)
    for call in (lambda: model.decode(zeta), lambda: model.sample(2, z=torch.ones(2, 7), zeta=zeta)):
        with pytest.raises(
            InvalidInputError, match=r"zeta must hold values in \[0, 1\]; received a value of"
        ):
            call()


def test_spins_in_place_of_bits(model):
    with pytest.raises(InvalidInputError, match="Map -1 and 1 to 0 and 1"):
        model.sample(z=torch.full((2, 7), -1.0))
    with pytest.raises(InvalidInputError, match=r"map -1\.\.1 to 0\.\.1 by \(x \+ 1\) / 2"):
        model.encode(2 * X - 1)


PRIORS = [
    CONFIG.prior,
    FactorialBernoulliConfig(num_units=7),
    GraphBoltzmannConfig(num_units=7, edges="complete"),
]


def test_autocast_keeps_energies_and_latents():
    """Networks may round; energies of tens of nats, the KL and every latent may not."""
    model = build(hierarchy=LAYERS)
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


class TestDtypes:
    @pytest.mark.parametrize("prior", PRIORS, ids=lambda prior: prior.kind)
    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
    def test_every_method_works_in_every_dtype(self, prior, dtype):
        model = build(hierarchy=LAYERS, prior=prior).to(dtype)
        draws = model.sample(3, num_sweeps=5)
        assert {draws.mean.dtype, draws.z.dtype, draws.zeta.dtype, draws.h.dtype} == {dtype}
        assert model.encode(X).zeta.dtype == dtype
        assert model.reconstruct(X).dtype == dtype
        assert model.decode(torch.ones(3, 7), torch.zeros(3, 2, 5)).dtype == dtype
        assert bool(model.log_likelihood(X, 5).value.isfinite().all())
        assert bool(model.elbo(X).value.isfinite().all())

    def test_a_default_dtype_of_float64(self):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            assert build().sample(3, num_sweeps=5).mean.dtype == torch.float64
        finally:
            torch.set_default_dtype(before)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
    def test_x_of_another_precision_means_the_same(self, model, dtype):
        other = X.to(dtype)
        for method in ("elbo", "encode", "reconstruct", "log_likelihood"):
            more = (20,) if method == "log_likelihood" else ()
            found = [
                getattr(model, method)(x, *more, generator=torch.Generator().manual_seed(1))
                for x in (X, other)
            ]
            name = {"elbo": "value", "encode": "zeta", "log_likelihood": "value"}.get(method)
            first, second = found if name is None else (getattr(part, name) for part in found)
            assert torch.equal(first, second), method

    @pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64])
    def test_x_that_is_not_floating_point_is_told_how(self, model, dtype):
        with pytest.raises(InvalidInputError, match=rf"received {dtype}\. Convert it with x\.float\(\)"):
            model.elbo(X.to(dtype))

    def test_another_device_is_named(self, model):
        for call in (model.elbo, model.encode, model.reconstruct):
            with pytest.raises(
                InvalidInputError, match="x must be a dense tensor with values; received a tensor on meta"
            ):
                call(X.to("meta"))

    def test_parts_alone_take_every_float_dtype(self):
        model = build(hierarchy=LAYERS)
        sample = model.posterior.rsample(X.to(torch.bfloat16))
        below = model.hierarchy.rsample(X.double(), sample.zeta.double())
        assert sample.zeta.dtype == below.h.dtype == torch.float32


def parts(draws):
    return [getattr(draws, name) for name in ("z", "zeta", "h", "mean")]


def repeats(first, second):
    return [torch.equal(a, b) for a, b in zip(parts(first), parts(second), strict=True)]


class TestWrongObjects:
    def test_one_axis_is_no_row_of_zeta(self):
        model = build()
        with pytest.raises(InvalidInputError, match="zeta must have shape"):
            model.decode(torch.zeros(model.prior.num_units))

    @pytest.mark.parametrize(
        "use", [exact_log_partition, annealed_log_partition, lambda energy: RunningMoments(energy, 5)]
    )
    def test_what_is_no_machine(self, use):
        with pytest.raises(InvalidInputError, match="energy must be a BoltzmannMachine; received a list"):
            use([])

    @pytest.mark.parametrize("wrong", ["x", {}, 1j, [None], object()])
    def test_what_is_no_inverse_temperature(self, wrong):
        with pytest.raises(InvalidInputError, match="inverse_temperature must be a number"):
            RBM(2, 2).free_energy(torch.ones(3, 4), inverse_temperature=wrong)

    @pytest.mark.parametrize("load", [load_dataset, load_experiment])
    def test_what_is_no_name(self, load):
        with pytest.raises(InvalidInputError, match="must be one of"):
            load(["digits"])

    @pytest.mark.parametrize(
        "start", [[[1.0] * 4], torch.tensor(1.0), torch.ones(0, 4), torch.full((3, 4), 2.0)]
    )
    def test_what_are_no_states_to_start_from(self, start):
        with pytest.raises(InvalidInputError, match="start must"):
            bennett_log_partition(RBM(2, 2), start=start)

    def test_a_bound_of_beta_that_is_no_number(self):
        with pytest.raises(InvalidInputError, match="max_beta must be a finite number"):
            SpikeExponential(max_beta=torch.ones(2))

    def test_the_number_of_chains_is_read_even_where_the_start_gives_it(self):
        with pytest.raises(InvalidInputError, match="num_chains must be a positive integer"):
            annealed_log_partition(RBM(2, 2), num_chains=1.5, start=torch.ones(3, 4))


class TestNothing:
    def test_a_negative_phase_without_chains(self, model):
        for call in (
            model.elbo,
            lambda x, **more: model.estimate_gradient(Reparameterized.of(model), x, **more),
        ):
            with pytest.raises(InvalidInputError, match="negative_phase must hold at least one state"):
                call(X, negative_phase=torch.zeros(0, 7))

    @pytest.mark.parametrize(
        "evaluate",
        [
            lambda model, x: model.log_likelihood(x, 2, log_partition=0.0),
            lambda model, x: evaluate_log_likelihood(model, x, log_partition=0.0, num_samples=2),
            lambda model, x: evaluate_elbo(model, x, log_partition=0.0),
            latent_usage,
            flip_effects,
        ],
    )
    def test_no_examples(self, model, evaluate):
        with pytest.raises(InvalidInputError, match="x must have at least one row"):
            evaluate(model, X[:0])

    def test_no_samples(self):
        with pytest.raises(InvalidInputError, match="log_weights must hold at least one sample"):
            importance_weighted(torch.zeros(0, 3))


class TestSourcesOfNoise:
    def test_samples_are_new_each_time(self, model):
        """100 draws of 7 bits in ten calls: one stream of chains would give ten times the same ten."""
        rows = torch.cat([model.sample(10, num_sweeps=5).z for _ in range(10)])
        assert len(rows.unique(dim=0)) > 40
        assert not any(repeats(model.sample(10, num_sweeps=5), model.sample(10, num_sweeps=5)))

    def test_the_global_seed_governs_all_of_it(self, model):
        found = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            found.append(model.sample(10, num_sweeps=5))
        assert all(repeats(*found[:2]))
        assert not any(repeats(*found[1:]))

    def test_the_same_seed_repeats_the_whole_result(self, model):
        draws = [model.sample(10, num_sweeps=5, seed=seed) for seed in (3, 3, 4)]
        assert all(repeats(*draws[:2]))
        assert not any(repeats(*draws[1:]))
        for method, argument in (("reconstruct", X), ("decode", torch.ones(10, 7))):
            first, second, other = (getattr(model, method)(argument, seed=seed) for seed in (3, 3, 4))
            assert torch.equal(first, second)
            assert not torch.equal(first, other)
        assert torch.equal(model.encode(X, seed=3).h, model.encode(X, seed=3).h)

    def test_a_generator_governs_all_of_it_and_moves_on(self, model):
        generators = [torch.Generator().manual_seed(3) for _ in range(2)]
        first, second = (model.sample(10, num_sweeps=5, generator=generator) for generator in generators)
        assert all(repeats(first, second))
        assert not any(repeats(first, model.sample(10, num_sweeps=5, generator=generators[0])))

    def test_a_seed_leaves_the_global_generator_alone(self, model):
        before = torch.random.get_rng_state()
        model.sample(4, num_sweeps=2, seed=0)
        model.reconstruct(X, seed=0)
        assert torch.equal(before, torch.random.get_rng_state())

    def test_two_sources_are_one_too_many(self, model):
        both = {"seed": 0, "generator": torch.Generator()}
        for call in (
            lambda: model.sample(2, **both),
            lambda: model.encode(X, **both),
            lambda: model.reconstruct(X, **both),
            lambda: model.decode(torch.ones(2, 7), **both),
        ):
            with pytest.raises(InvalidInputError, match="seed must not be given together with generator"):
                call()

    @pytest.mark.parametrize("generator", [0, "cpu", torch.Generator])
    def test_what_is_no_generator(self, model, generator):
        for call in (
            lambda: model.elbo(X, generator=generator),
            lambda: model.sample(2, generator=generator),
            lambda: model.encode(X, generator=generator),
        ):
            with pytest.raises(InvalidInputError, match=r"generator must be a torch\.Generator"):
                call()

    def test_the_states_set_the_number(self, model):
        assert model.sample(z=torch.ones(6, 7)).mean.shape == (6, 12)
        with pytest.raises(InvalidInputError, match=r"z must have shape \(5, 7\)"):
            model.sample(5, z=torch.ones(6, 7))
        with pytest.raises(InvalidInputError, match="n must be a positive integer; received None"):
            model.sample()


def plant(model, name, value):
    with torch.no_grad():
        model.get_parameter(name).view(-1)[0] = value


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


BOUNDED = {
    "posterior.norms.2.scale",
    "posterior.smoothing.beta",
}  # their bounds hold whatever the parameter is


@pytest.mark.parametrize(
    ("name", "door", "value"),
    [
        (name, door, value)
        for name in READS
        for door in READS[name]
        for value in (math.nan, math.inf)
        if value != math.inf or name not in BOUNDED or door not in ("encode", "log_likelihood")
    ],
)
def test_a_weight_that_is_not_finite_stops_what_reads_it(model, name, door, value):
    plant(model, name, value)
    part = name.removeprefix("prior.") if door == "sample" else name
    with pytest.raises(
        InvalidInputError, match=rf"{part} must be finite.*received a (value|sum) of (nan|inf)"
    ):
        DOORS[door](model)


def test_finite_weights_that_overflow_are_seen_in_the_logits(model):
    with torch.no_grad():
        model.posterior.networks[0].output.weight.fill_(3e38)
    with pytest.raises(InvalidInputError, match="the posterior network's logits must be finite"):
        model.encode(X)


def test_a_broken_encoder_is_named_by_the_loss(model):
    plant(model, "posterior.networks.0.layers.0.weight", math.nan)
    with pytest.raises(InvalidInputError, match=r"posterior\.networks\.0\.layers\.0\.weight must be finite"):
        model.elbo(X, log_partition=3.0)


def test_groups_of_a_posterior_of_ones_own_see_it_too(model):
    logits = torch.full((3, 7), math.nan)
    zeta = model.smoothing.rsample(logits)
    group = LatentGroup(logits=logits, zeta=zeta, bits=model.smoothing.bits(zeta, logits))
    assert bool(kl_to_boltzmann(model.prior, [group], 3.0).isnan().all())
