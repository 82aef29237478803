"""An evaluation whose parts are kept equals one of a piece, however often it is stopped."""

import dataclasses
import hashlib
import json
import math
import random
import warnings

import pytest
import torch

from discrete_vae import DiscreteVAE
from discrete_vae.boltzmann.base import LogPartition
from discrete_vae.config import EvaluationConfig, ModelConfig, RBMConfig
from discrete_vae.evaluation import evaluate
from discrete_vae.evaluation.evaluate import KeptParts, evaluate_model
from discrete_vae.evaluation.log_likelihood import ExampleLogLikelihoods, MeanLogLikelihood
from discrete_vae.log_partition.bridge import LogPartitionWarning
from discrete_vae.log_partition.estimate import AnnealingDisagreementWarning, CheckedLogPartition
from tests.campaigns import damage

CONFIG = EvaluationConfig(num_samples=4)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return DiscreteVAE.from_config(
        ModelConfig(num_features=6, prior=RBMConfig(num_left=3, num_right=2))
    ).eval()


@pytest.fixture(scope="module")
def x():
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


def test_parts_make_the_whole(model, x, tmp_path):
    whole = evaluate_model(model, x, CONFIG)
    kept = evaluate_model(model, x, CONFIG, parts=KeptParts(tmp_path, "this"))
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


def test_what_was_stopped_goes_on(model, x, tmp_path, monkeypatch):
    class StoppedError(Exception):
        pass

    seen = []

    def report(done, mean):
        seen.append(done)
        if len(seen) == 10:  # inside of the third part
            raise StoppedError

    with pytest.raises(StoppedError):
        evaluate_model(model, x, CONFIG, parts=KeptParts(tmp_path, "this"), report=report)
    assert seen == list(range(1, 11))
    seen.clear()
    found = evaluate_model(
        model, x, CONFIG, parts=KeptParts(tmp_path, "this"), report=lambda done, _: seen.append(done)
    )
    assert seen == [9, 10, 11, *range(1, 12)]
    assert plain(found) == approximately(plain(evaluate_model(model, x, CONFIG)))
    monkeypatch.setattr(evaluate, "evaluate_log_likelihood", None)  # all is there
    monkeypatch.setattr(evaluate, "estimate_log_partition", None)
    assert plain(evaluate_model(model, x, CONFIG, parts=KeptParts(tmp_path, "this"))) == plain(found)


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


def test_the_report_counts_what_was_there(model, x, tmp_path):
    reports = []
    found = evaluate_model(
        model, x, CONFIG, parts=KeptParts(tmp_path, "this"), report=lambda *report: reports.append(report)
    )
    assert reports[10] == (11, pytest.approx(found.log_likelihood.value))
