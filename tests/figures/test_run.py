"""Tables and pictures of a run's samples: chains, features, reconstructions."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from discrete_vae import RBM, BlockGibbs, DiscreteVAE
from discrete_vae.config import GaussianHierarchyConfig
from discrete_vae.figures.run import (
    ReconstructionTable,
    draw_evolution,
    draw_feature_statistics,
    draw_reconstructions,
    evolution_table,
    feature_statistics_table,
    reconstructions_table,
)
from tests.refusals import refused_argument


def fresh(model, num_chains=3):
    return BlockGibbs(model.prior, num_chains, seed=5)


def test_rows_are_the_states_of_the_chains_and_the_model_stays_as_it_is(model):
    chains, twin = fresh(model), fresh(model)
    before = {name: value.clone() for name, value in model.train().state_dict().items()}
    table = evolution_table(model, chains, num_rows=4, num_sweeps=7, num_draws=2)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(table.z, torch.stack([twin.step(7) for _ in range(4)]))
    assert (chains.sweep, table.num_sweeps) == (28, 7)
    for count, asked, shown in ((9, {}, 5), (2, {}, 2), (9, {"num_chains": 8}, 8)):  # five unless told
        table = evolution_table(model, fresh(model, count), num_rows=1, num_sweeps=1, **asked)
        assert table.z.shape[1] == shown


def test_draws_decode_their_state_and_follow_the_seed(model):
    table = evolution_table(model, fresh(model), num_rows=2, num_draws=3)
    assert table.means.shape == (2, 3, 3, 12)
    assert not torch.equal(table.means[:, :, 0], table.means[:, :, 1])
    first, again, other = (
        evolution_table(model, fresh(model), num_rows=2, seed=seed).means for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(first[:1], evolution_table(model, fresh(model), num_rows=1).means)
    # A beta this large leaves zeta at z, so that a mean says whose z it came from.
    model.smoothing.max_beta = 1e6
    with torch.no_grad():
        model.smoothing.beta.fill_(1e5)
    table = evolution_table(model, fresh(model), num_rows=3, num_draws=2)
    for draw in range(2):
        torch.testing.assert_close(table.means[:, :, draw], model.decode(table.z), rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        *(({name: 0}, name) for name in ("num_rows", "num_sweeps", "num_draws", "num_chains")),
        ({"num_chains": 4}, "num_chains"),
        ({"chains": BlockGibbs(RBM(4, 3), 3)}, "chains"),
    ],
)
def test_wrong_arguments_of_an_evolution_leave_the_chains_alone(changes, argument, model):
    arguments = {"chains": fresh(model)} | changes
    before = arguments["chains"].sweep
    assert refused_argument(evolution_table, model, **arguments) == argument
    assert arguments["chains"].sweep == before


def test_draws_of_a_group_share_zeta_and_differ_in_their_continuous_layers(model, pixels):
    hierarchy = GaussianHierarchyConfig(num_layers=2, num_units=3, posterior_hidden=(4,), prior_hidden=(4,))
    torch.manual_seed(0)
    model = DiscreteVAE.from_config(model.config.model_copy(update={"hierarchy": hierarchy}))
    table = evolution_table(model, fresh(model), num_rows=2, num_sweeps=1)
    assert table.varies == "their continuous layers"
    assert not torch.equal(table.means[:, :, 0], table.means[:, :, 1])
    assert len(pixels(draw_evolution(table, (3, 4))))
    with torch.no_grad():
        model.decoder.network.layers[0].weight[:, 7:].zero_()  # the decoder reads zeta alone
    table = evolution_table(model, fresh(model), num_rows=2, num_sweeps=1)
    torch.testing.assert_close(table.means, table.means[:, :, :1].expand_as(table.means), rtol=0, atol=1e-6)


NUM_FEATURES = 30


def mixture(shape, seed, *, flip=0.1, coupled=True):
    """Means of x given one of two centers, (*shape, feature); without coupling, each feature takes its own center."""
    random = np.random.default_rng(seed)
    own = (*shape, NUM_FEATURES if not coupled else 1)
    center = np.arange(NUM_FEATURES) % 2 == 0
    kind = random.random(own) < 0.5
    return torch.from_numpy(np.where(kind ^ center, 1 - flip, flip))


def draw(means, seed):
    return torch.bernoulli(means, generator=torch.Generator().manual_seed(seed))


def coins(shape, seed, p=0.3):
    return draw(torch.full(shape, p), seed)


def test_samples_of_the_right_model_lie_in_the_band_and_those_without_the_correlations_do_not():
    """Both axes estimate +-0.64, the correlation of two bits flipped with probability 0.1."""
    x = draw(mixture((1000,), 0), 0)
    found = feature_statistics_table(x, draw(mixture((20, 200), 1), 1))
    assert (found.num_examples, found.num_samples) == (1000, 4000)
    assert len(found.correlations.data) == NUM_FEATURES * (NUM_FEATURES - 1) // 2
    np.testing.assert_allclose(np.abs(found.correlations.samples), 0.64, atol=0.07)
    np.testing.assert_allclose(np.abs(found.correlations.data), 0.64, atol=0.13)
    assert 0.9 < found.correlations.share_inside <= 1
    assert found.means.share_inside > 0.6  # of one shared coin: all features err together
    apart = feature_statistics_table(x, draw(mixture((20, 200), 1, coupled=False), 1))
    assert apart.means.share_inside > 0.6
    assert apart.correlations.share_inside < 0.01


def test_independent_noise_fills_the_band_as_normal_errors_do_and_other_means_are_seen():
    x = coins((2000, 100), 0)
    found = feature_statistics_table(x, coins((20, 100, 100), 1))
    assert abs(found.correlations.share_inside - 0.95) < 0.015  # 4950 pairs
    assert abs(found.means.share_inside - 0.95) < 0.09
    means = feature_statistics_table(x[:, :10], coins((20, 200, 10), 1, 0.4)).means
    assert means.share_inside == 0
    assert abs(means.distance - 0.1) < 0.02


def test_errors_of_samples_are_those_of_whole_chains():
    x, states = coins((4000, 6), 0), coins((3, 6), 1)
    found = feature_statistics_table(x, states.expand(20, 3, 6)).means  # chains that stand still
    p = states.double().mean(0)
    widened = stats.t.ppf(0.975, 2) / stats.norm.ppf(0.975)  # two degrees of freedom
    expected = (p * (1 - p) / 4000 + widened**2 * states.double().var(0) / 3).sqrt()
    np.testing.assert_allclose(found.std_error, expected, rtol=1e-6)
    few = feature_statistics_table(coins((5000, 60), 2), coins((2, 10, 60), 3))
    assert few.correlations.share_inside > 0.85  # errors of single draws would all be 0
    one = feature_statistics_table(coins((5000, 60), 4), coins((400, 1, 60), 5))
    assert abs(one.correlations.share_inside - 0.95) < 0.03  # 1770 pairs


def test_constant_features_have_no_correlation_and_of_very_many_some_are_compared():
    x = coins((100, 4), 0, 0.5)
    x[:, 1], x[:, 3] = 0, 1
    found = feature_statistics_table(x, coins((20, 20, 4), 1, 0.5))
    assert len(found.correlations.data) == 1
    assert np.isfinite(found.correlations.std_error).all()
    many = feature_statistics_table(coins((50, 700), 0), coins((10, 10, 700), 1))
    assert (len(many.means.data), len(many.correlations.data)) == (700, 256 * 255 // 2)


@pytest.mark.parametrize(
    ("num_examples", "num_features", "num_chains"), [(100, 1, 40), (1, 5, 40), (6, 12, 2)]
)
def test_picture_of_feature_statistics(num_examples, num_features, num_chains, pixels):
    x, samples = coins((num_examples, num_features), 0), coins((5, num_chains, num_features), 1)
    table = feature_statistics_table(x, samples)
    picture = pixels(draw_feature_statistics(table, name="mine"))
    assert picture.shape[1] == 1140
    colors = picture.flatten(0, 1)
    assert ((colors[:, 2] - colors[:, 0]) > 0.3).sum() > 10  # points are blue


def normal(shape, seed, *, coupled=True):
    """Features of other scales and offsets that share one factor, correlation 0.5."""
    random = np.random.default_rng(seed)
    factor = random.normal(size=(*shape, 1 if coupled else 12))
    x = np.sqrt(0.5) * (factor + random.normal(size=(*shape, 12)))
    return torch.from_numpy(x * np.logspace(-2, 3, 12) + np.logspace(-1, 3, 12))


def test_real_values_with_gaps(pixels):
    """The band holds what scales, offsets and gaps leave: a right model inside, one without correlations outside."""
    x = normal((2000,), 0)
    x[torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.2] = torch.nan
    x[:, 3] = torch.nan  # a feature that was never observed
    found = feature_statistics_table(x, normal((10, 200), 1))
    assert (len(found.means.data), len(found.correlations.data)) == (11, 55)
    np.testing.assert_allclose(found.correlations.data, 0.5, atol=0.11)
    assert found.correlations.share_inside > 0.8
    assert found.means.distance < 0.1
    assert not found.in_unit_interval
    assert feature_statistics_table(x, normal((10, 200), 1, coupled=False)).correlations.share_inside < 0.05
    assert len(pixels(draw_feature_statistics(found)))


X = coins((90, 12), 0, 0.4)


def test_examples_are_evenly_spaced_and_means_are_theirs_by_the_seed(model, monkeypatch):
    table = reconstructions_table(model, X, num_examples=30)
    assert torch.equal(table.indices, torch.arange(0, 90, 3))
    assert torch.equal(table.examples, X[::3])
    assert len(reconstructions_table(model, X).indices) == 90
    assert len(reconstructions_table(model, X.repeat(2, 1)).indices) == 100  # unless told
    other = reconstructions_table(model, X, num_examples=30, seed=1)
    assert torch.equal(table.means, reconstructions_table(model, X, num_examples=30).means)
    assert not torch.equal(table.means, other.means)
    monkeypatch.setattr(model, "reconstruct", lambda x, condition, generator: 1 - x)
    table = reconstructions_table(model, X, num_examples=17)
    assert torch.equal(table.means, 1 - table.examples)


@pytest.mark.parametrize("image_shape", [(3, 4), None])
def test_pictures_of_images_and_of_tables(image_shape, model, pixels):
    samples = draw_evolution(evolution_table(model, fresh(model, 5), num_rows=6, num_draws=2), image_shape)
    pairs = draw_reconstructions(reconstructions_table(model, X, num_examples=47), image_shape)
    for picture in map(pixels, (samples, pairs)):
        assert min(picture.shape[:2]) > 100
        assert len(picture[..., 0].unique()) > 20
        assert picture.std() > 0.05


@pytest.mark.parametrize("num_features", [2, 12])
def test_each_strip_of_a_narrow_table_has_its_label(num_features):
    values = torch.rand(20, num_features, generator=torch.Generator().manual_seed(0))
    figure = draw_reconstructions(ReconstructionTable(values, values, torch.arange(20)))
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["input", "reconstruction"] * 20
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert all(upper.y0 >= lower.y1 for upper, lower in itertools.pairwise(boxes))  # none covers the next


def test_the_upper_one_of_a_pair_is_the_input(pixels):
    table = ReconstructionTable(torch.ones(1, 12), torch.zeros(1, 12), torch.arange(1))
    drawn = pixels(draw_reconstructions(table, (3, 4)))
    ink = (drawn == 0).all(-1).sum(1)  # a row of pixels; labels add a few
    assert (ink[-8 - 73 : -8 - 37] >= 48).all()
    assert (ink[-8 - 36 : -8] < 40).all()


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda _: feature_statistics_table(torch.zeros(0, 3), torch.zeros(20, 1, 3)), "x"),
        (lambda _: feature_statistics_table(torch.zeros(9, 3), torch.zeros(1, 1, 3)), "samples"),
        (lambda _: feature_statistics_table(torch.zeros(9, 3), torch.zeros(20, 1, 4)), "samples"),
        (lambda _: feature_statistics_table(torch.full((9, 3), torch.inf), torch.zeros(20, 1, 3)), "x"),
        *((lambda m, n=n: reconstructions_table(m, X, num_examples=n), "num_examples") for n in (0, 91)),
        *((lambda m, x=x: reconstructions_table(m, x, num_examples=2), "x") for x in (X[:, 1:], 2 * X)),
    ],
)
def test_wrong_arguments_are_named(call, argument, model):
    assert refused_argument(call, model) == argument


def test_constant_features_have_no_spread_under_any_weights():
    noise = torch.Generator().manual_seed(0)
    x, samples = torch.randn(300, 3, generator=noise), torch.randn(4, 50, 3, generator=noise)
    x[:, 1], x[:, 2] = -0.42421296, 0.1
    found = feature_statistics_table(x, samples, weights=np.random.default_rng(0).random(300))
    assert len(found.correlations.data) == 0
    np.testing.assert_allclose(found.means.data[1:], [-0.42421296, 0.1], rtol=1e-6)


def test_weights_count_as_repeated_examples():
    x, samples = draw(mixture((300,), 0), 0), draw(mixture((20, 50), 1), 1)
    times = torch.arange(300) % 3 + 1
    weighted = feature_statistics_table(x, samples, weights=times.double().numpy() / 7)
    repeated = feature_statistics_table(x.repeat_interleave(times, 0), samples)
    plain = feature_statistics_table(x, samples)
    for name in ("means", "correlations"):
        found, wanted, other = (getattr(each, name) for each in (weighted, repeated, plain))
        np.testing.assert_allclose(found.data, wanted.data)
        assert (found.std_error > wanted.std_error).all()  # of fewer examples
        assert np.abs(found.data - other.data).max() > 1e-3
