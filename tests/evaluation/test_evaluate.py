"""The evaluation of a model: sums, errors, keyed noise, kept parts, repeats, a baseline."""

import copy
import dataclasses
import hashlib
import json
import math
import random
import warnings

import numpy as np
import pytest
import scipy.stats
import torch

from discrete_vae import RBM, BlockGibbs, DiscreteVAE, LogPartition, exact_log_partition
from discrete_vae.config import (
    EvaluationConfig,
    HierarchicalPosteriorConfig,
    ModelConfig,
    RBMConfig,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation import evaluate
from discrete_vae.evaluation.evaluate import (
    KeptParts,
    UnevenWeightsWarning,
    evaluate_elbo,
    evaluate_model,
    independent_features,
    repeat_log_partition,
)
from discrete_vae.evaluation.log_likelihood import (
    ExampleLogLikelihoods,
    MeanLogLikelihood,
    evaluate_log_likelihood,
)
from discrete_vae.likelihoods.families import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    GaussianLikelihood,
    NegativeBinomialLikelihood,
)
from discrete_vae.log_partition.bridge import LogPartitionWarning
from discrete_vae.log_partition.estimate import (
    AnnealingDisagreementWarning,
    CheckedLogPartition,
    estimate_log_partition,
    quick_log_partition,
)
from tests.campaigns import damage


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    made = DiscreteVAE.from_config(
        ModelConfig(
            num_features=6,
            prior=RBMConfig(num_left=3, num_right=2),
            posterior=HierarchicalPosteriorConfig(groups=2, hidden=(5,)),
        )
    )
    with torch.no_grad():
        made.prior.weight.normal_()
    return made


@pytest.fixture(scope="module")
def x():
    return torch.bernoulli(torch.full((12, 6), 0.4), generator=torch.Generator().manual_seed(0))


def test_log_likelihood_is_the_mean_over_examples(model, x):
    seen = []
    estimate = evaluate_log_likelihood(
        model, x, log_partition=1.0, num_samples=200, report=lambda done, mean: seen.append((done, mean))
    )
    alone = [evaluate_log_likelihood(model, x[:k], log_partition=1.0, num_samples=200).value for k in (1, 2)]
    assert seen[0] == (1, pytest.approx(alone[0]))
    assert seen[1] == (2, pytest.approx(alone[1]))
    assert seen[-1] == (12, pytest.approx(estimate.value))
    assert estimate.num_examples == 12
    assert 0 < estimate.monte_carlo_std_error < estimate.std_error
    assert 1 <= estimate.min_ess <= estimate.median_ess <= 200
    assert 0 < estimate.doubling_gain < 0.1


def test_log_partition_shifts_everything(model, x):
    low, high = (evaluate_log_likelihood(model, x, log_partition=z, num_samples=50).value for z in (0.0, 2.0))
    assert low - high == pytest.approx(2.0)
    a, b = (evaluate_elbo(model, x, log_partition=z) for z in (0.0, 2.0))
    assert b.kl_discrete - a.kl_discrete == pytest.approx(2.0, abs=1e-5)
    assert a.elbo == pytest.approx(a.reconstruction - a.kl_discrete - a.kl_continuous, abs=1e-9)


def test_the_error_of_log_z_joins_that_of_the_elbo(model, x):
    found = evaluate_elbo(model, x, log_partition=1.0, log_partition_std_error=0.3)
    assert found.log_partition_std_error == 0.3
    assert found.total_std_error == pytest.approx(math.sqrt(found.elbo_std_error**2 + 0.09))
    alone = evaluate_elbo(model, x, log_partition=1.0)
    assert alone.total_std_error == alone.elbo_std_error == found.elbo_std_error


def test_an_example_has_its_noise_in_every_choice(model, x):
    whole = evaluate_log_likelihood(model, x, log_partition=1.0, num_samples=20).examples
    chosen = [2, 3, 7]
    part = evaluate_log_likelihood(
        model, x[chosen], log_partition=1.0, num_samples=20, indices=chosen
    ).examples
    assert part.index.tolist() == chosen
    for name in ("value", "std_error", "ess"):
        assert getattr(part, name).equal(getattr(whole, name)[chosen])
    with pytest.raises(InvalidInputError, match="^indices "):
        evaluate_log_likelihood(model, x, log_partition=1.0, num_samples=20, indices=chosen)


def test_elbo_lies_below_the_log_likelihood(model, x):
    log_z = exact_log_partition(model.prior).value
    elbo = evaluate_elbo(model, x, log_partition=log_z, num_samples=200)
    likelihood = evaluate_log_likelihood(model, x, log_partition=log_z, num_samples=2000)
    assert elbo.elbo < likelihood.value
    assert elbo.num_samples == 200


def test_weights_that_few_samples_carry_are_reported(model, x):
    sharp = copy.deepcopy(model)
    with torch.no_grad():
        sharp.decoder.network.output.weight.mul_(100)
    with pytest.warns(UnevenWeightsWarning, match=r"by [\d.]+ nats\. .* \d\.\d of 40\)") as caught:
        evaluate_model(sharp, x, EvaluationConfig(num_samples=40))
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate_model(model, x, EvaluationConfig(num_samples=400))


def test_one_example_has_no_spread(model, x):
    assert math.isnan(evaluate_elbo(model, x[:1], log_partition=0.0).elbo_std_error)
    assert math.isnan(evaluate_log_likelihood(model, x[:1], log_partition=0.0, num_samples=5).std_error)


def test_evaluate_model_is_plain_values(model, x):
    import json

    result = evaluate_model(model, x, EvaluationConfig(num_samples=50))
    assert result.log_partition.best.method == "enumeration"
    text = json.dumps(result.to_json())
    assert json.loads(text)["log_likelihood"]["num_samples"] == 50
    assert result.log_partition.gap is None
    assert result.log_likelihood.log_partition_std_error == 0.0
    assert result.log_likelihood_limit.num_samples == 50
    assert result.log_likelihood_limit.value != result.log_likelihood.value


def test_bridge_sampling_where_enumeration_is_out_of_reach():
    rbm = RBM(6, 6)
    with torch.no_grad():
        rbm.weight.normal_(generator=torch.Generator().manual_seed(0))
    chains = BlockGibbs(rbm, 300, seed=1).step(200)
    estimate = estimate_log_partition(
        rbm, chains=chains, std_error=0.03, num_chains=300, num_temperatures=100, max_enumerated=4
    )
    exact = exact_log_partition(rbm).value
    assert estimate.best.method == "bridge sampling"
    assert estimate.best.converged
    assert abs(estimate.best.value - exact) < 4 * estimate.best.std_error
    for check in (estimate.forward, estimate.reverse):
        assert check.num_samples == 300
        assert abs(check.value - exact) < 4 * check.std_error
    assert estimate.gap == estimate.reverse.value - estimate.forward.value


def test_annealing_that_disagrees_is_reported():
    rbm = RBM(6, 6)
    with torch.no_grad():
        rbm.weight.fill_(4.0)
        rbm.bias.fill_(-11.5)  # all-on has exp(6) of the weight, and the chains know all-off alone
    with pytest.warns(
        AnnealingDisagreementWarning, match="reverse annealing all modes that its chains do not know"
    ):
        estimate = estimate_log_partition(
            rbm, chains=torch.zeros(50, 12), std_error=0.05, num_temperatures=50, max_enumerated=4
        )
    assert estimate.best.value == pytest.approx(exact_log_partition(rbm).value, abs=0.2)


def test_quick_log_partition_enumerates_or_anneals():
    rbm = RBM(3, 5)
    settings = {"num_chains": 10, "num_temperatures": 5}
    assert quick_log_partition(rbm, max_enumerated=3, **settings).method == "enumeration"
    without_weights = quick_log_partition(RBM(64, 64), max_enumerated=2, **settings)
    assert (without_weights.value, without_weights.std_error) == (pytest.approx(128 * math.log(2)), 0)
    with torch.no_grad():
        rbm.weight[0, 0] = 1e-3
    assert quick_log_partition(rbm, max_enumerated=2, **settings).method == "annealed forward"


def test_numbers_are_checked(model, x):
    with pytest.raises(InvalidInputError, match="^num_samples "):
        evaluate_elbo(model, x, log_partition=0.0, num_samples=0)


CONFIG = EvaluationConfig(num_samples=4)


@pytest.fixture(scope="module")
def small_model():
    torch.manual_seed(0)
    return DiscreteVAE.from_config(
        ModelConfig(num_features=6, prior=RBMConfig(num_left=3, num_right=2))
    ).eval()


@pytest.fixture(scope="module")
def bits():
    return torch.bernoulli(torch.full((11, 6), 0.4), generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(evaluate, "_KEPT_EXAMPLES", 4)


def plain(found):
    fields = dataclasses.replace(found, seconds=0.0).to_json()
    fields["log_partition"]["best"]["seconds"] = None
    return fields


def approximately(fields):
    if isinstance(fields, dict):
        return {key: approximately(value) for key, value in fields.items()}
    return pytest.approx(fields, rel=1e-12) if isinstance(fields, float) else fields


def test_parts_make_the_whole(small_model, bits, tmp_path):
    whole = evaluate_model(small_model, bits, CONFIG)
    kept = evaluate_model(small_model, bits, CONFIG, parts=KeptParts(tmp_path, "this"))
    assert plain(kept) == approximately(plain(whole))
    columns, expected = kept.columns(), whole.columns()
    assert columns.keys() == expected.keys()
    assert all((columns[name] == expected[name]).all() for name in columns)  # to the last digit


def test_what_was_warned_of_is_warned_of_again(tmp_path):
    calls = []

    def estimate():
        calls.append(1)
        warnings.warn("too few sweeps", LogPartitionWarning, stacklevel=2)
        warnings.warn("off by a nat", AnnealingDisagreementWarning, stacklevel=2)
        return CheckedLogPartition(LogPartition(1.0, 0.5, "made up", 1))

    for _ in range(2):
        with (
            pytest.warns(LogPartitionWarning, match="too few sweeps"),
            pytest.warns(AnnealingDisagreementWarning, match="off by a nat"),
        ):
            KeptParts(tmp_path, "this").log_partition(estimate)
    assert len(calls) == 1


def test_what_was_stopped_goes_on(small_model, bits, tmp_path, monkeypatch):
    class StoppedError(Exception):
        pass

    seen = []

    def report(done, mean):
        seen.append(done)
        if len(seen) == 10:  # inside of the third part
            raise StoppedError

    with pytest.raises(StoppedError):
        evaluate_model(small_model, bits, CONFIG, parts=KeptParts(tmp_path, "this"), report=report)
    assert seen == list(range(1, 11))
    seen.clear()
    found = evaluate_model(
        small_model,
        bits,
        CONFIG,
        parts=KeptParts(tmp_path, "this"),
        report=lambda done, _: seen.append(done),
    )
    assert seen == [9, 10, 11, *range(1, 12)]
    assert plain(found) == approximately(plain(evaluate_model(small_model, bits, CONFIG)))
    monkeypatch.setattr(evaluate, "evaluate_log_likelihood", None)  # all is there
    monkeypatch.setattr(evaluate, "estimate_log_partition", None)
    assert plain(evaluate_model(small_model, bits, CONFIG, parts=KeptParts(tmp_path, "this"))) == plain(found)


EXAMPLES = ExampleLogLikelihoods(torch.tensor([4, 7]), *torch.tensor([[-1.1, -0.3], [0.1, 0.2], [3.0, 4]]))
LIKELIHOOD = MeanLogLikelihood(-0.7, math.nan, 0.1, 3.0, 3.5, 1 / 3, 2, 4, 0.0, EXAMPLES)
LOG_PARTITION = CheckedLogPartition(LogPartition(1 / 3, 0.5, "made up", 1, swap_rates=(0.1,)))


class Evaluated:
    """The parts of an evaluation as one after another asks for them; each that was found counts."""

    def __init__(self, folder, key="this"):
        self._parts, self.computed = KeptParts(folder, key), []
        self.log_partition = self._parts.log_partition(lambda: self._compute("log Z", LOG_PARTITION))
        self.likelihoods = [
            self._parts.log_likelihood(name, lambda name=name: self._compute(name, LIKELIHOOD))
            for name in ("trained-0", "trained-200")
        ]

    def _compute(self, name, found):
        self.computed.append(name)
        return found

    def is_right(self):
        rows = [vars(found.examples) for found in self.likelihoods]
        same = all(
            row[key].tolist() == value.tolist() for row in rows for key, value in vars(EXAMPLES).items()
        )
        return same and self.log_partition == LOG_PARTITION and self.likelihoods == [self.likelihoods[0]] * 2


ALL = ["log Z", "trained-0", "trained-200"]


def files(folder):
    return sorted(folder.glob("*/*"))


def test_parts_are_taken_up_to_the_last_digit(tmp_path):
    assert Evaluated(tmp_path).computed == ALL
    again = Evaluated(tmp_path)
    assert (again.computed, again.is_right()) == ([], True)


@pytest.mark.parametrize("alter", damage.BYTES)
def test_a_damaged_part_is_computed_anew(tmp_path, alter):
    Evaluated(tmp_path)
    contents = {path: path.read_bytes() for path in files(tmp_path)}
    noise = random.Random(0)
    for _ in range(10):
        for path, content in contents.items():
            path.write_bytes(alter(content, noise))
        again = Evaluated(tmp_path)
        assert (again.computed, again.is_right()) == (ALL, True)


@pytest.mark.parametrize("replace", set(damage.KINDS) - {damage.forbid})
def test_what_is_no_file_is_computed_anew(tmp_path, replace):
    Evaluated(tmp_path)
    for path in files(tmp_path):
        replace(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a folder of that name keeps the part from being written
        again = Evaluated(tmp_path)
    assert (again.computed, again.is_right()) == (ALL, True)


def test_parts_of_another_evaluation_do_not_count(tmp_path):
    """Neither those with another key, planted in the folder of this one, nor those of another place in it."""
    for key in ("this", "other"):
        Evaluated(tmp_path / key, key)
    mine, others = files(tmp_path / "this"), files(tmp_path / "other")
    for path, other in zip(mine, others, strict=True):
        path.write_bytes(other.read_bytes())
    assert Evaluated(tmp_path / "this").computed == ALL
    first, second = mine[1].read_bytes(), mine[2].read_bytes()
    mine[1].write_bytes(second)
    mine[2].write_bytes(first)
    assert Evaluated(tmp_path / "this").computed == ALL[1:]


@pytest.mark.parametrize("value", [None, "x", [], {}, -1, 10**400, [[1]], True])
def test_a_part_with_a_right_sum_and_a_wrong_form_is_computed_anew(tmp_path, value):
    Evaluated(tmp_path)
    for path in files(tmp_path):
        fields = json.loads(path.read_bytes().partition(b"\n")[2])
        if "rows" in fields:
            fields["rows"]["value"] = value
        else:
            fields["found"]["best"] = value
        content = json.dumps(fields).encode()
        path.write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
    again = Evaluated(tmp_path)
    assert (again.computed, again.is_right()) == (ALL, True)


def test_the_report_counts_what_was_there(small_model, bits, tmp_path):
    reports = []
    found = evaluate_model(
        small_model,
        bits,
        CONFIG,
        parts=KeptParts(tmp_path, "this"),
        report=lambda *report: reports.append(report),
    )
    assert reports[10] == (11, pytest.approx(found.log_likelihood.value))


@pytest.mark.parametrize("dynamic", [False, True])
def test_equals_the_product_of_bernoulli_laws(dynamic):
    random = np.random.default_rng(0)
    train = random.random((30, 5))
    train = train if dynamic else (train < 0.3).astype(float)
    x = (random.random((9000, 5)) < 0.4).astype(np.float32)  # more rows than one chunk
    means = (train.sum(0) + 0.5) / 31
    per_example = scipy.stats.bernoulli.logpmf(x, means).sum(1)
    found = independent_features(BernoulliLikelihood((5,)), torch.tensor(train), torch.tensor(x))
    assert found.value == pytest.approx(per_example.mean(), abs=1e-12)
    assert found.std_error == pytest.approx(per_example.std(ddof=1) / math.sqrt(9000), abs=1e-12)
    assert found.num_examples == 9000


def test_a_constant_feature_stays_finite():
    found = independent_features(BernoulliLikelihood((2,)), torch.zeros(9, 2), torch.tensor([[1.0, 0.0]]))
    assert found.value == pytest.approx(math.log(0.05) + math.log(0.95))
    assert math.isnan(found.std_error)


def test_a_constant_real_feature_brings_nothing():
    train = torch.cat(
        [torch.randn(99, 1, generator=torch.Generator().manual_seed(0)), torch.full((99, 1), 5.0)], 1
    )
    x = torch.tensor([[0.3, 5.0], [-1.0, 7.0]])
    alone = independent_features(GaussianLikelihood((1,)), train[:, :1], x[:, :1])
    assert independent_features(GaussianLikelihood((2,)), train, x) == alone


def test_another_number_of_features_is_refused():
    with pytest.raises(InvalidInputError, match="^x "):
        independent_features(BernoulliLikelihood((2,)), torch.zeros(9, 2), torch.zeros(9, 3))


def gaps(values, share=0.3):
    return np.where(np.random.default_rng(9).random(values.shape) < share, np.nan, values)


def of_laws(logpmf, train, x):
    """Mean over examples of the sum over their observed entries of each column's own law."""
    terms = np.stack([logpmf(train[:, i][~np.isnan(train[:, i])], x[:, i]) for i in range(x.shape[1])], 1)
    return np.where(np.isnan(x), 0, terms).sum(1).mean()


def gaussian(seen, x):
    return scipy.stats.norm.logpdf(x, seen.mean(), seen.std())


def bernoulli(seen, x):
    p = (seen.sum() + 0.5) / (len(seen) + 1)
    return np.where(x == 1, np.log(p), np.log1p(-p))


def categorical(seen, x):
    counts = np.array([(seen == code).sum() for code in range(4)]) + 0.5
    return np.log(counts / counts.sum())[np.nan_to_num(x).astype(int)]


def negative_binomial(seen, x):
    size = seen.mean() ** 2 / (seen.var() - seen.mean())
    return scipy.stats.nbinom.logpmf(np.nan_to_num(x), size, size / (size + seen.mean()))


@pytest.mark.parametrize(
    ("likelihood", "law", "draw"),
    [
        (GaussianLikelihood, gaussian, lambda random, shape: random.normal(3.0, 2.0, shape)),
        (BernoulliLikelihood, bernoulli, lambda random, shape: 1.0 * (random.random(shape) < 0.3)),
        (
            lambda shape: CategoricalLikelihood(shape, 4),
            categorical,
            lambda random, shape: random.integers(0, 4, shape),
        ),
        (
            NegativeBinomialLikelihood,
            negative_binomial,
            lambda random, shape: random.negative_binomial(2, 0.2, shape),
        ),
    ],
)
def test_each_law_is_fitted_to_what_was_observed(likelihood, law, draw):
    random = np.random.default_rng(0)
    train, x = (gaps(draw(random, (rows, 3)).astype(float)) for rows in (400, 50))
    untouched = likelihood((3,))
    before = {name: value.clone() for name, value in untouched.state_dict().items()}
    found = independent_features(untouched, torch.tensor(train).float(), torch.tensor(x).float())
    assert found.value == pytest.approx(of_laws(law, train, x), abs=2e-5)
    assert all(torch.equal(value, before[name]) for name, value in untouched.state_dict().items())


def test_mean_spread_and_stated_error():
    values, seeds, seen = iter([1.0, 2.0, 3.0]), [], []

    def estimate(seed):
        seeds.append(seed)
        return LogPartition(next(values), 0.5, "bridge sampling", 10)

    repeated = repeat_log_partition(estimate, 3, seed=7, report=lambda number, found: seen.append(number))
    assert (repeated.mean, repeated.std, repeated.rms_std_error) == (2.0, 1.0, 0.5)
    assert len(set(seeds)) == 3
    assert seen == [1, 2, 3]


def test_one_repeat_has_no_spread():
    assert math.isnan(repeat_log_partition(lambda seed: LogPartition(1.0, 0.1, "x", 1), 1).std)
    with pytest.raises(InvalidInputError, match="^repeats "):
        repeat_log_partition(lambda seed: LogPartition(1.0, 0.1, "x", 1), 0)
