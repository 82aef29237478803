"""Models of p(x | c): what reads c, how it is given, and what a table with c teaches."""

import math
import pickle
import warnings

import numpy as np
import pytest
import torch

import discrete_vae as dv
from discrete_vae.config import (
    BinaryColumnConfig,
    BlockGibbsConfig,
    ConvolutionalDecoderConfig,
    ConvolutionalEncoderConfig,
    CountColumnConfig,
    DigitsConfig,
    EvaluationConfig,
    ExperimentConfig,
    GaussianHierarchyConfig,
    GaussianLikelihoodConfig,
    MLPDecoderConfig,
    NoHierarchyConfig,
    OrdinalColumnConfig,
    TrainingConfig,
)
from discrete_vae.data.splits import DatasetDescription, DataSplits
from discrete_vae.errors import KernelWarning
from discrete_vae.evaluation.latents import flip_effects, latent_usage
from discrete_vae.figures import FigureRun, evolution_table, generated_examples, reconstructions_table
from discrete_vae.hierarchy.base import NoHierarchy
from discrete_vae.inference.evaluate_run import evaluate_run
from discrete_vae.inference.generate import PriorStates, generate
from discrete_vae.inference.impute import ImputationSettings, impute
from discrete_vae.likelihoods.base import BernoulliLikelihood
from discrete_vae.nets.condition import ConditionEmbedding
from discrete_vae.objectives.gradients import DisARM
from discrete_vae.runs.load import LoadedRun
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training.refit import refit_posterior
from tests.models import small_config
from tests.refusals import refused_argument
from tests.test_condition_exact import COLUMNS, NAN, NUM_FEATURES, X
from tests.training.tiny import QuietProgress

LAYERS = GaussianHierarchyConfig(num_layers=2, num_units=3, posterior_hidden=(6,), prior_hidden=(6,))
OF_KINDS = (
    *COLUMNS,
    CountColumnConfig(name="reads"),
    OrdinalColumnConfig(name="stage", values=("I", "II", "III")),
    BinaryColumnConfig(name="treated"),
)
NETWORKS = {"groups": 2, "hidden": (6,), "decoder": MLPDecoderConfig(hidden=(6,))}
CONFIG = small_config(NUM_FEATURES, units=(3, 2), **NETWORKS, condition=OF_KINDS)
ROWS = X.float().repeat(3, 1)
GIVEN = torch.tensor(
    [[0.0, 2.0, 3.0, 2.0, 1.0], [1.0, -1.0, 0.0, 0.0, 0.0], [1.0, NAN, 9.0, NAN, 1.0]]
).repeat(4, 1)


def made(**changes):
    """A model of a config, with weights far enough from 0 for c to matter."""
    torch.manual_seed(0)
    model = dv.DiscreteVAE.from_config(CONFIG.model_copy(update=changes))
    model.initialize_(ROWS, condition=GIVEN if model.condition is not None else None)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def imputed(model, x, **settings):
    """Ones kept and zeros filled, from few draws."""
    few = ImputationSettings(num_samples=20, num_rounds=2)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*effective samples")
        return impute(model, torch.where(x > 0, x, NAN), settings=few, **settings).std_error


def test_columns_are_read_as_their_kinds_are():
    torch.manual_seed(0)
    embedding = ConditionEmbedding(OF_KINDS)
    assert embedding.num_features == 2 + 1 + 1 + 1 + 1
    embedding.initialize_(GIVEN)
    found = embedding(GIVEN)
    torch.testing.assert_close(found[:3, :2], torch.eye(2)[[0, 1, 1]])
    torch.testing.assert_close(found[:3, 2], torch.tensor([1.0, -1.0, 0.0]))  # energy, standardized
    assert float(found[:, 3].detach().mean()) == pytest.approx(0, abs=1e-6)  # logarithms of counts
    torch.testing.assert_close(found[:3, 4:], torch.tensor([[1.0, 1.0], [-1.0, 0.0], [0.0, 1.0]]))
    assert [name for name, _ in embedding.named_parameters()] == ["missing"]
    with torch.no_grad():
        embedding.missing[1].fill_(7.0)
    moved = embedding(GIVEN) - found
    torch.testing.assert_close(moved, 7.0 * GIVEN[:, 1:2].isnan() * torch.ones(6))


@pytest.mark.parametrize("hierarchy", [None, LAYERS], ids=["no layers", "layers"])
def test_the_prior_does_not_read_c_and_everything_else_does(hierarchy):
    model = made(**({} if hierarchy is None else {"hierarchy": hierarchy}))
    one, other = (model.sample(50, condition=GIVEN[row : row + 1], seed=1) for row in (0, 1))
    assert torch.equal(one.z, other.z)
    assert torch.equal(one.zeta, other.zeta)
    assert float((one.mean - other.mean).abs().max()) > 0.05
    if hierarchy is not None:
        assert float((one.h - other.h).abs().max()) > 0.01
    codes = [model.encode(ROWS, condition=GIVEN[row : row + 1], seed=1) for row in (0, 1)]
    assert float((codes[0].logits - codes[1].logits).abs().max()) > 0.05
    every = model.encode(ROWS, condition=GIVEN[:1].expand(len(ROWS), -1), seed=1)
    assert torch.equal(every.logits, codes[0].logits)
    assert torch.equal(
        model.decode(one.zeta, one.h, condition=GIVEN[1:2]),
        model.decode(one.zeta.double(), one.h, condition=GIVEN[1:2].double().expand(50, -1)),
    )


def test_a_row_is_reconstructed_under_another_condition_by_a_saved_model_too(tmp_path):
    model = made(hierarchy=LAYERS)
    drawn = model.encode(ROWS, condition=GIVEN, seed=2)
    found = model.reconstruct(ROWS, condition=GIVEN, decoder_condition=GIVEN[:1], seed=2)
    torch.testing.assert_close(found, model.decode(drawn.zeta, drawn.h, condition=GIVEN[:1]))
    own = model.reconstruct(ROWS, condition=GIVEN, seed=2)
    torch.testing.assert_close(own[::3], found[::3])  # the rows whose own c that is
    assert not torch.allclose(own, found, atol=0.01)
    twin = dv.DiscreteVAE.from_pretrained(model.save_pretrained(tmp_path / "model"))
    assert twin.config == model.config
    assert torch.equal(twin.reconstruct(ROWS, condition=GIVEN, seed=2), own)


def test_samples_without_the_data_have_every_column_missing_and_old_models_no_condition(tmp_path):
    model, plain = made(), made(condition=())
    loaded = LoadedRun(dv.load_experiment("digits"), model, dv.BlockGibbs(model.prior, 3), 5)  # other data
    with pytest.warns(UserWarning, match="every column"):
        c = FigureRun(RunDirectory(tmp_path), lambda: loaded).condition_of_samples(7)
    assert bool(c.isnan().all())
    assert model.sample(7, num_sweeps=1, condition=c).mean.shape == (7, NUM_FEATURES)
    codes = plain.encode(ROWS, seed=1).logits
    del vars(plain)["condition"]  # as those pickled before there was one
    twin = pickle.loads(pickle.dumps(plain))
    assert twin.condition is None
    assert torch.equal(twin.encode(ROWS, seed=1).logits, codes)


def test_sizes_and_data_without_c_are_refused(tmp_path):
    smoothing = dv.SpikeExponential(beta=2.0)
    parts = {
        "prior": dv.RBM(1, 1),
        "posterior": dv.HierarchicalPosterior(NUM_FEATURES + 3, [[0], [1]], (), smoothing),
        "hierarchy": NoHierarchy(num_latents=2, num_features=NUM_FEATURES + 3),
        "likelihood": BernoulliLikelihood((NUM_FEATURES,)),
        "condition": ConditionEmbedding(COLUMNS),
    }
    assert refused_argument(dv.DiscreteVAE, **parts) == "hierarchy"
    config = dv.load_experiment("digits", size="smoke")
    given = config.model_copy(update={"model": config.model.model_copy(update={"condition": COLUMNS})})
    assert "condition" in refused_argument(dv.train, given, dv.load_dataset("digits"), tmp_path / "run")


@pytest.mark.parametrize(
    "call",
    [
        lambda model, **c: model.elbo(ROWS, **c),
        lambda model, **c: model.initialize_(ROWS, **c),
        lambda model, **c: model.estimate_gradient(DisARM.of(model), ROWS, **c),
        lambda model, **c: model.log_likelihood(ROWS, 2, **c),
        lambda model, **c: model.encode(ROWS, **c),
        lambda model, **c: model.reconstruct(ROWS, **c),
        lambda model, **c: model.decode(torch.zeros(len(ROWS), 5), **c),
        lambda model, **c: model.sample(len(ROWS), **c),
        lambda model, **c: dv.encode_rows(model, ROWS, **c),
        lambda model, **c: dv.reconstruct_rows(model, ROWS, **c),
        lambda model, **c: dv.denoise_rows(model, ROWS, **c),
        lambda model, **c: dv.score_rows(model, ROWS, log_partition=0.0, num_samples=2, **c),
        lambda model, **c: dv.elbo_rows(model, ROWS, log_partition=0.0, **c),
        lambda model, **c: imputed(model, ROWS, **c),
    ],
)
def test_wrong_conditions_are_refused_by_name(call):
    model, plain = made(), made(condition=())
    call(model, condition=GIVEN)
    call(plain)
    codes = GIVEN.clone()
    codes[1, 0] = 2.0
    for one, condition in (
        (model, None),
        (plain, GIVEN),
        (model, GIVEN[:5]),
        (model, GIVEN[:, :4]),
        (model, codes),
    ):
        argument = refused_argument(call, one, condition=condition)
        assert "condition" in argument
        assert condition is not codes or "batch" in argument


@pytest.mark.parametrize("hierarchy", [NoHierarchyConfig(), LAYERS], ids=["no layers", "layers"])
def test_paths_and_flips_stay_under_their_condition(hierarchy):
    model, c = made(hierarchy=hierarchy), GIVEN[1:2]
    # of both ends, or of each its own; layers are then made anew under the first's
    for given in (c, GIVEN[1:3]) if isinstance(hierarchy, NoHierarchyConfig) else (c,):
        path = dv.interpolate(model, ROWS[:1], ROWS[1:2], condition=given)
        for place, x, of_end in ((0, ROWS[:1], given[:1]), (-1, ROWS[1:2], given[-1:])):
            end = dv.reconstruct_rows(model, x, condition=of_end, decoder_condition=c, code=True)
            np.testing.assert_allclose(path.mean[place], end[0], atol=1e-5)
    usage = [latent_usage(model, ROWS, condition=given).activity for given in (c, GIVEN)]
    assert not torch.allclose(*usage)
    effects = [flip_effects(model, ROWS, condition=given).change for given in (c, GIVEN)]
    assert not torch.allclose(*effects)


def test_functions_of_rows_read_each_row_with_its_own_condition():
    model = made(hierarchy=LAYERS)
    log_z = dv.exact_log_partition(model.prior).value
    calls = [
        lambda x, c, n: dv.encode_rows(model, x, condition=c, draw=True, numbers=n).probabilities,
        lambda x, c, n: dv.reconstruct_rows(
            model, x, condition=c, decoder_condition=GIVEN[:1], num_draws=2, numbers=n
        ),
        lambda x, c, n: dv.denoise_rows(model, x, condition=c, noise=0.1, num_draws=2, numbers=n),
        lambda x, c, n: (
            dv.score_rows(model, x, condition=c, log_partition=log_z, num_samples=20, numbers=n).value
        ),
        lambda x, c, n: dv.elbo_rows(model, x, condition=c, log_partition=log_z, numbers=n).value,
        lambda x, c, n: imputed(model, x, condition=c, numbers=n),
    ]
    for call in calls:
        whole = call(ROWS, GIVEN, range(len(ROWS)))
        part = call(ROWS[5:7], GIVEN[5:7], [5, 6])
        np.testing.assert_array_equal(whole[5:7], part)
        assert not np.allclose(call(ROWS[5:7], GIVEN[:1], [5, 6]), part)


def test_generated_rows_follow_the_condition():
    model = made(hierarchy=LAYERS)
    for row in (0, 1):
        states = PriorStates(model.prior, torch.zeros(4, 5), num_chains=200)
        c = GIVEN[row : row + 1]
        found = generate(model, states, 4000, condition=c, seed=3)
        # two estimates of the same means: alpha below 1e-4 with 4 features of standard deviation at most 1/2 each
        bound = 4.6 * 0.5 * (2 / 4000) ** 0.5
        for other, near in ((c, True), (GIVEN[1 - row : 2 - row], False)):  # planted: another condition
            mean = model.sample(z=torch.from_numpy(found.z).float(), condition=other, seed=4).mean
            off = torch.from_numpy(found.x).mean(0) - mean.mean(0)
            assert (float(off.abs().max()) < bound) is near


@pytest.mark.parametrize("hierarchy", [NoHierarchyConfig(), LAYERS], ids=["no layers", "layers"])
def test_tables_of_pictures_are_under_the_condition_of_each_chain_and_example(hierarchy):
    model = made(hierarchy=hierarchy)
    sizes = {"num_rows": 2, "num_sweeps": 3, "num_chains": 12}

    def chains():
        return dv.BlockGibbs(model.prior, 12, seed=0)

    calls = [
        lambda c: evolution_table(model, chains(), num_draws=3, condition=c, **sizes).means.transpose(0, 1),
        lambda c: generated_examples(model, chains(), condition=c, **sizes).transpose(0, 1),
        lambda c: reconstructions_table(model, ROWS, condition=c).means,
    ]
    for call in calls:
        own, of_first = call(GIVEN), call(GIVEN[:1])
        torch.testing.assert_close(own[::3], of_first[::3])  # those whose own c that is
        assert not torch.allclose(own[1::3], of_first[1::3], atol=0.01)
        assert refused_argument(call, None) == "condition"


def test_images_have_a_condition_too():
    changes = {
        "num_features": None,
        "event_shape": (1, 8, 8),
        "encoder": ConvolutionalEncoderConfig(num_features=4, widths=(2, 2)),
        "decoder": ConvolutionalDecoderConfig(widths=(2, 2)),
    }
    model = dv.DiscreteVAE.from_config(CONFIG.model_copy(update=changes)).eval()
    x = torch.bernoulli(torch.full((12, 1, 8, 8), 0.5), generator=torch.Generator().manual_seed(0))
    found = [model.reconstruct(x, condition=GIVEN, decoder_condition=c, seed=1) for c in (GIVEN, GIVEN[:1])]
    assert found[0].shape == x.shape
    assert torch.allclose(found[0][::3], found[1][::3])
    assert not torch.allclose(*found)


# A table in which c shifts x.


def made_table(*, conditioned):
    """Rows of four kinds in two batches, the second of which shifts every value; and the test rows as in the other."""
    generator = torch.Generator().manual_seed(0)

    def normals(*shape):
        return torch.randn(shape, generator=generator)

    patterns, direction = 1.5 * normals(4, 8), 4 * normals(8)
    kind, batch = (torch.randint(count, (1400,), generator=generator) for count in (4, 2))
    alike = patterns[kind] + 0.5 * normals(1400, 8)
    x, swapped = alike + batch[:, None] * direction, alike + (1 - batch)[:, None] * direction
    known = torch.where(torch.rand(1400, 1, generator=generator) < 0.05, NAN, batch[:, None].float())
    sizes = (1000, 100, 300)
    given = dict(zip(("train", "valid", "test"), known.split(sizes), strict=True)) if conditioned else {}
    about = DatasetDescription("made", "1", "", "", None)
    data = DataSplits("made", *x.split(sizes), (8,), False, about, conditions=given)
    return data, batch[-300:, None].float(), swapped[-300:]


def trained(folder, *, conditioned):
    networks = {"groups": 2, "hidden": (32,), "decoder": MLPDecoderConfig(hidden=(32,))}
    parts = {"likelihood": GaussianLikelihoodConfig(), "condition": COLUMNS[:1] if conditioned else ()}
    model = small_config(8, units=(4, 4), **networks, **parts)
    training = TrainingConfig(
        num_epochs=40,
        batch_size=100,
        sampler=BlockGibbsConfig(num_chains=50),
        num_sweeps=3,
        log_every=100,
        validate_every=100,
        independent_start=True,
    )
    evaluation = EvaluationConfig(num_samples=20, num_annealed_chains=20, num_temperatures=20)
    parts = {"model": model, "training": training, "evaluation": evaluation}
    config = ExperimentConfig(name="made", size="smoke", data=DigitsConfig(), **parts)  # the data are given
    table = made_table(conditioned=conditioned)
    with warnings.catch_warnings():
        warnings.simplefilter("error", KernelWarning)  # steps are recorded
        dv.train(config, table[0], folder, progress=QuietProgress())
    return dv.load_run(folder), *table


def test_codes_agree_across_batches_with_the_condition_and_not_without(tmp_path):
    agreement, values = {}, {}
    for conditioned in (True, False):
        loaded, data, batch, swapped = trained(tmp_path / str(conditioned), conditioned=conditioned)
        own, other = (batch, 1 - batch) if conditioned else (None, None)
        codes = [
            dv.encode_rows(loaded.model, x, condition=c).bits for x, c in ((data.test, own), (swapped, other))
        ]
        agreement[conditioned] = float((codes[0] == codes[1]).mean())
        values[conditioned] = evaluate_run(loaded, data).result.elbo.elbo
        if conditioned:
            assert len(np.unique(codes[0], axis=0)) > 3  # kinds have codes of their own
            found = dv.reconstruct_rows(
                loaded.model, data.test, condition=own, decoder_condition=other, num_draws=5
            )
            error = float(np.sqrt(np.mean((found - swapped.numpy()) ** 2)))
            assert error < 1.0  # the noise is 0.5, the batches are 4 apart
            log_z = dv.exact_log_partition(loaded.model.prior).value
            refit = refit_posterior(loaded.model, data, loaded.chains, log_partition=log_z, num_steps=3)
            assert math.isfinite(refit.after.elbo)
    assert agreement[True] > 0.85
    assert agreement[False] < 0.6
    assert values[True] > values[False] + 0.5
