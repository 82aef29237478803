"""The model's interface: shapes, modes, sampling, reconstruction, errors."""

import copy
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from discrete_vae import BlockGibbs, DiscreteVAE, LeaveOneOut, exact_log_partition
from discrete_vae.config import (
    ConvolutionalDecoderConfig,
    GaussianHierarchyConfig,
    MLPDecoderConfig,
    ModelConfig,
    RBMConfig,
    SharingConfig,
    members,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import evaluate_elbo, independent_features
from discrete_vae.evaluation.latents import latent_usage
from discrete_vae.inference.encode import denoise_rows, encode_rows
from discrete_vae.inference.generate import interpolate
from discrete_vae.inference.impute import ImputationSettings, impute
from discrete_vae.inference.score import elbo_rows
from discrete_vae.nets.mlp import MLPDecoder
from discrete_vae.objectives.importance import importance_weighted
from tests.models import small_config

NETWORKS = {"groups": 3, "hidden": (16,), "decoder": MLPDecoderConfig(hidden=(8,))}
CONFIG = small_config(12, units=(4, 3), **NETWORKS)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return DiscreteVAE.from_config(CONFIG)


@pytest.fixture
def x():
    return torch.bernoulli(torch.full((20, 12), 0.4), generator=torch.Generator().manual_seed(0))


def test_elbo_has_its_parts_and_projection_reaches_every_bounded_part(model, x):
    elbo = model.elbo(x)
    assert elbo.value.shape == elbo.kl_discrete.shape == elbo.kl_continuous.shape == (20,)
    torch.testing.assert_close(elbo.value, elbo.reconstruction - elbo.kl_discrete - elbo.kl_continuous)
    (-elbo.value.mean()).backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
    draws, again = (model.sample(15, num_sweeps=20, seed=3) for _ in range(2))
    assert draws.mean.shape == (15, 12)
    assert bool(((draws.mean > 0) & (draws.mean < 1)).all())
    assert torch.equal(draws.z, (draws.zeta != 0).float())
    assert torch.equal(draws.mean, again.mean)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(10.0)
    model.smoothing.bound_sharpness_(4.0)
    model.project_()
    assert model.smoothing.beta.item() == 4.0
    norms = model.posterior.norms
    assert all(float(norm.scale.detach().max()) == 3.0 == float(norm.offset.detach().max()) for norm in norms)


@pytest.mark.parametrize(
    ("kind", "hierarchy", "smoothing"),
    [
        ("bernoulli", "none", "spike-gaussian"),
        ("bernoulli", "gaussian", "ramps"),
        ("gaussian", "gaussian", "spike-exponential"),
        ("negative-binomial", "none", "spike-exponential"),
        ("categorical", "gaussian", "spike-gaussian"),
    ],
)
def test_a_model_can_be_that_of_independent_features(kind, hierarchy, smoothing, x):
    layers = {"num_layers": 2, "num_units": 3, "posterior_hidden": (5,), "prior_hidden": (4,)}
    parts = {
        "hierarchy": {"kind": hierarchy, **(layers if hierarchy == "gaussian" else {})},
        "smoothing": {"kind": smoothing},
        "likelihood": {"kind": kind},
    }
    model = DiscreteVAE.from_config(ModelConfig(**CONFIG.model_dump() | parts)).double()
    expected = independent_features(model.likelihood, x, x[:7]).value
    before = evaluate_elbo(model, x[:7], log_partition=7 * math.log(2))
    model.make_independent_(x.double())
    found = evaluate_elbo(model, x[:7], log_partition=7 * math.log(2))
    assert found.elbo == pytest.approx(expected, abs=1e-9)
    assert found.kl_discrete == pytest.approx(0, abs=1e-12)
    assert found.kl_continuous == 0
    assert abs(before.elbo - expected) > 0.1
    bound = model.eval().log_likelihood(x[:7], 20, log_partition=7 * math.log(2)).value
    assert float(bound.mean()) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("call", ["elbo", "estimate_gradient"])
def test_a_weight_that_is_not_finite_is_named_at_the_step_that_meets_it(call, model, x):
    with torch.no_grad():
        model.posterior.networks[1].layers[0].weight[0, 0] = torch.nan
    with pytest.raises(InvalidInputError, match=r"posterior\.networks\.1\.layers\.0\.weight"):
        model.elbo(x) if call == "elbo" else model.estimate_gradient(LeaveOneOut.of(model, num_samples=2), x)


def test_log_partition_may_be_a_record_a_number_or_a_tensor(model, x):
    record = exact_log_partition(model.prior)
    values = [
        model.eval().elbo(x, log_partition=given, generator=torch.Generator().manual_seed(0)).kl_discrete
        for given in (record, record.value, torch.tensor(record.value), None)
    ]
    for value in values[1:]:
        torch.testing.assert_close(value, values[0])


@pytest.mark.parametrize("sharing", members(SharingConfig))
def test_continuous_layers_have_their_shapes_and_gradients(sharing, x):
    torch.manual_seed(0)
    hierarchy = GaussianHierarchyConfig(
        num_layers=4, num_units=5, posterior_hidden=(16,), prior_hidden=(8,), sharing=sharing()
    )
    model = DiscreteVAE.from_config(CONFIG.model_copy(update={"hierarchy": hierarchy}))
    elbo = model.elbo(x)
    assert elbo.kl_continuous.shape == (20,)
    assert float(elbo.kl_continuous.detach().min()) > 0
    (-elbo.value.mean()).backward()
    assert all(p.grad is not None and float(p.grad.abs().max()) > 0 for p in model.parameters())
    drawn, sample = model.encode(x), model.sample(6, num_sweeps=5)
    assert (drawn.h.shape, sample.h.shape) == ((20, 4, 5), (6, 4, 5))
    assert bool(((drawn.z == 0) | (drawn.z == 1)).all())
    assert model.reconstruct(x).shape == (20, 12)
    assert torch.equal(sample.mean, model.decode(sample.zeta, sample.h))
    # one state of the prior may vary its continuous layers
    z = BlockGibbs(model.prior, 2, seed=1).step(5).repeat_interleave(5, 0)
    zeta = model.smoothing.sample_zeta(z[::5]).detach().repeat_interleave(5, 0)
    draws = model.sample(10, z=z, zeta=zeta)
    assert torch.equal(draws.zeta, zeta)
    assert len({tuple(row.tolist()) for row in draws.mean}) == 10
    assert model.decode(zeta.reshape(2, 5, 7)).shape == (2, 5, 12)


def test_importance_weighted_by_hand():
    weights = torch.tensor([[1.0, 2.0], [3.0, 2.0]])
    got = importance_weighted(weights.log())
    torch.testing.assert_close(got.value, torch.tensor([2.0, 2.0], dtype=torch.float64).log())
    torch.testing.assert_close(got.ess, torch.tensor([16 / 10, 2.0], dtype=torch.float64), rtol=1e-6, atol=0)
    torch.testing.assert_close(
        got.std_error, torch.tensor([2**0.5 / 2**0.5 / 2, 0.0], dtype=torch.float64), rtol=1e-6, atol=1e-7
    )
    halves = torch.tensor([3.0**0.5, 2.0], dtype=torch.float64)
    torch.testing.assert_close(got.doubling_gain, (2 / halves).log(), rtol=1e-6, atol=1e-7)
    one = importance_weighted(torch.zeros(1, 3))
    assert bool(one.std_error.isnan().all() and one.doubling_gain.isnan().all())


def test_an_example_has_the_digits_of_its_own_weights_and_its_rise_is_over_both_halves():
    random = torch.Generator().manual_seed(0)
    log_weights = 3 * torch.randn(101, 67, generator=random, dtype=torch.float64)
    order = torch.randperm(67, generator=random)
    got, moved = importance_weighted(log_weights), importance_weighted(log_weights[:, order].contiguous())
    for name in ("value", "std_error", "ess", "doubling_gain"):
        assert torch.equal(getattr(got, name)[order], getattr(moved, name)), name
    halves = [importance_weighted(part).value for part in (log_weights[:50], log_weights[51:])]
    torch.testing.assert_close(got.doubling_gain, got.value - (halves[0] + halves[1]) / 2)


def test_a_loop_that_forgets_to_project_keeps_the_bounds(model, x):
    model.smoothing.bound_sharpness_(3.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=30.0)
    norms = list(model.posterior.norms)
    for _ in range(5):
        optimizer.zero_grad()
        model.elbo(x).loss.backward()
        optimizer.step()
        for norm in copy.deepcopy(norms):
            norm.eval().running_mean.zero_()
            norm.running_deviation.fill_(1 - norm.eps)
            offset, above = norm(torch.tensor([[0.0], [1.0]]).expand(2, norm.num_features))
            assert bool(((above - offset > 2 - 1e-4) & (above - offset < 3 + 1e-4)).all())
            assert bool((offset.abs() <= above - offset + 1e-4).all())
        assert 0.0099 <= model.smoothing._bounded_parameter().item() <= 3.5
    outside = torch.cat([norm.scale.detach() for norm in norms])
    assert bool(((outside < 2) | (outside > 3)).any())  # the parameters themselves did leave


class Watched(torch.nn.Module):
    """An encoder whose norm and dropout depend on the mode; remembers that of a model at each call."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(12, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Dropout(0.5)
        )
        self.modes = []

    def forward(self, x):
        self.modes.append(all(part.training for part in self.of_model()))
        return self.layers(x)


LAYERS = GaussianHierarchyConfig(num_layers=1, num_units=3, prior_hidden=(5,), posterior_hidden=(5,))
EVALUATIONS = {
    "encode": lambda model, x: model.encode(x, seed=1).zeta,
    "decode": lambda model, x: model.decode(x[:, :7], seed=1),
    "sample": lambda model, x: model.sample(z=x[:, :7], seed=1).mean,
    "log_likelihood": lambda model, x: (
        model.log_likelihood(x, 30, keys=range(len(x)), log_partition=1.0).value
    ),
    "evaluate_elbo": lambda model, x: torch.tensor(evaluate_elbo(model, x, log_partition=1.0).elbo),
    "latent_usage": lambda model, x: latent_usage(model, x).layer_kl,
    "denoise_rows": lambda model, x: torch.tensor(denoise_rows(model, x, noise=0.1, num_draws=4)),
    "encode_rows": lambda model, x: torch.tensor(encode_rows(model, x, draw=True).continuous),
    "elbo_rows": lambda model, x: torch.tensor(
        elbo_rows(model, x[:3], log_partition=1.0, num_samples=5).value
    ),
    "impute": lambda model, x: torch.tensor(
        impute(
            model,
            x[:3].masked_fill(x[:3] < 0.5, torch.nan),
            settings=ImputationSettings(num_samples=8, num_rounds=1),
        ).filled
    ),
    "interpolate": lambda model, x: torch.tensor(interpolate(model, x[:1], x[1:2]).mean),
}


def watched_model():
    torch.manual_seed(0)
    encoder = Watched()
    config = CONFIG.model_copy(update={"hierarchy": LAYERS, "missing": False})
    watched: list[torch.nn.Module] = [encoder]  # a function that held a module would be switched with it
    encoder.of_model = lambda: [part for each in watched for part in each.modules()]
    model = DiscreteVAE.from_config(config, encoder=encoder)
    watched[:] = [model]
    encoder.modes.clear()
    return model


def test_an_encoder_may_name_what_it_reads_num_features(x):
    encoder = torch.nn.Linear(12, 8)
    encoder.num_features = 12
    model = DiscreteVAE.from_config(CONFIG.model_copy(update={"missing": False}), encoder=encoder)
    assert bool(model.elbo(x[:8]).loss.isfinite())


@pytest.mark.parametrize("name", EVALUATIONS)
@pytest.mark.filterwarnings("ignore:.*effective samples")
def test_evaluations_in_four_threads_leave_a_model_in_training_mode_alone(name, x):
    model, evaluate, x = watched_model(), EVALUATIONS[name], x[:8]
    right = evaluate(copy.deepcopy(model).eval(), x)
    before = copy.deepcopy(model.state_dict())
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: evaluate(model, x), range(4)))
    assert all(torch.equal(each, right) for each in found)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(model.encoder.modes)
    assert all(part.training for part in model.modules())


class Frozen(MLPDecoder):
    """A decoder that does something where its mode changes, or whose forward was replaced."""

    def train(self, mode=True):
        self.shift = 0.0 if mode else 2.0
        return super().train(mode)

    def forward(self, latents):
        return super().forward(latents) + self.shift


class Merging(MLPDecoder):
    """A decoder that takes a correction into its weights where it is evaluated, and out of them again."""

    def train(self, mode=True):
        if mode != self.training:
            self.network.output.weight.data += -1.0 if mode else 1.0
        return super().train(mode)


def test_what_a_part_does_for_evaluation_is_taken_back():
    model = DiscreteVAE.from_config(CONFIG, decoder=Merging(7, (12,), (9,))).train()
    before = model.decoder.network.output.weight.clone()
    model.encoder.eval()
    model.decode(torch.rand(20, 7))
    torch.testing.assert_close(model.decoder.network.output.weight, before)
    assert model.decoder.training
    assert not model.encoder.training


def test_a_saved_model_is_within_its_bounds_and_the_one_that_is_saved_stays(model, tmp_path):
    model.smoothing.bound_sharpness_(2.0)
    zeta = torch.rand(3, 7)
    saved = DiscreteVAE.from_pretrained(model.save_pretrained(tmp_path / "m"))
    assert (model.smoothing.beta.item(), saved.smoothing.beta.item()) == (3.0, 2.0)
    assert torch.equal(saved.eval().decode(zeta), model.eval().decode(zeta))


def test_an_exchanged_posterior_brings_its_order_of_pairs():
    groups = ((0, 1, 2, 3), (4, 5, 6)), ((4, 5, 6), (0, 1, 2, 3))
    first, second = (
        DiscreteVAE.from_config(small_config(12, units=(4, 3), **NETWORKS | {"groups": each})).eval()
        for each in groups
    )
    with torch.no_grad():
        first.prior.weight.normal_()
    second.prior, second.decoder, second.posterior = first.prior, first.decoder, first.posterior
    x = torch.bernoulli(torch.full((40, 12), 0.4))
    found = [
        model.elbo(x, generator=torch.Generator().manual_seed(0)).kl_discrete for model in (first, second)
    ]
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("replaced", [False, True])
def test_parts_that_cannot_be_copied_are_switched_for_the_call(replaced):
    torch.manual_seed(0)
    decoder = MLPDecoder(7, (12,), (9,)) if replaced else Frozen(7, (12,), (9,))
    if replaced:
        of_class = decoder.forward
        decoder.forward = lambda latents: of_class(latents) + 1
    model = DiscreteVAE.from_config(CONFIG, decoder=decoder).train()
    before, zeta = copy.deepcopy(model.state_dict()), torch.rand(20, 7)
    found = model.decode(zeta)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(part.training for part in model.modules())
    assert torch.equal(found, model.eval().decode(zeta))


@pytest.mark.parametrize(
    "decoder", [MLPDecoderConfig(hidden=(9,)), ConvolutionalDecoderConfig(widths=(16, 32))]
)
@pytest.mark.parametrize("order", ["apart", "transposed"])
def test_parameters_may_lie_in_memory_in_any_order(decoder, order):
    layers = GaussianHierarchyConfig(num_layers=1, num_units=3, posterior_hidden=(8,), prior_hidden=(8,))
    parts = {"prior": RBMConfig(num_left=4, num_right=4), "hierarchy": layers, "decoder": decoder}
    torch.manual_seed(0)
    model = DiscreteVAE.from_config(ModelConfig(event_shape=(1, 12, 12), **parts))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    other, x = copy.deepcopy(model), torch.bernoulli(torch.rand(9, 1, 12, 12))

    def moved(value):
        if order == "transposed":
            return value.t().contiguous().t() if value.dim() == 2 else value.clone()
        return torch.stack([value, value + 5], -1)[..., 0] if value.dim() else value.clone()

    other.load_state_dict({name: moved(value) for name, value in model.state_dict().items()}, assign=True)
    for train in (False, True):
        found = []
        for each in (model.train(train), other.train(train)):
            value = each.elbo(x, log_partition=0.0, generator=torch.Generator().manual_seed(3)).value
            gradients = torch.autograd.grad(value.sum(), [*each.parameters()], allow_unused=True)
            with torch.no_grad():
                zeta = torch.linspace(0, 1, 8 * 300).view(300, 8)
                decoded = each.eval().decode(zeta, generator=torch.Generator().manual_seed(3))
            found.append([value, decoded, *gradients])
        for one, two in zip(*found, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-3)
