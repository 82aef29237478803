"""An evaluation whose parts are kept equals one of a piece, however often it is stopped."""

import dataclasses
import warnings

import pytest
import torch

from discrete_vae import DiscreteVAE
from discrete_vae.boltzmann.log_partition import LogPartition
from discrete_vae.config import EvaluationConfig, ModelConfig, RBMConfig
from discrete_vae.evaluation import evaluate
from discrete_vae.evaluation.evaluate import evaluate_model
from discrete_vae.evaluation.kept_parts import KeptParts
from discrete_vae.log_partition.bennett import LogPartitionWarning
from discrete_vae.log_partition.estimate import AnnealingDisagreementWarning, CheckedLogPartition

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
    kept = evaluate_model(model, x, CONFIG, parts=KeptParts(tmp_path / "parts"))
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
            KeptParts(tmp_path).log_partition(estimate)
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
        evaluate_model(model, x, CONFIG, parts=KeptParts(tmp_path), report=report)
    assert seen == list(range(1, 11))
    seen.clear()
    found = evaluate_model(
        model, x, CONFIG, parts=KeptParts(tmp_path), report=lambda done, _: seen.append(done)
    )
    assert seen == [9, 10, 11, *range(1, 12)]
    assert plain(found) == approximately(plain(evaluate_model(model, x, CONFIG)))
    monkeypatch.setattr(evaluate, "evaluate_log_likelihood", None)  # all is there
    monkeypatch.setattr(evaluate, "estimate_log_partition", None)
    assert plain(evaluate_model(model, x, CONFIG, parts=KeptParts(tmp_path))) == plain(found)


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04 torn", b"{}", b'{"best": null, "forward": 1, "reverse": 2}']
)
def test_a_damaged_part_is_computed_anew(model, x, tmp_path, content):
    found = plain(evaluate_model(model, x, CONFIG, parts=KeptParts(tmp_path)))
    for path in tmp_path.iterdir():
        path.write_bytes(content)
    assert plain(evaluate_model(model, x, CONFIG, parts=KeptParts(tmp_path))) == found


def test_the_report_counts_what_was_there(model, x, tmp_path):
    reports = []
    found = evaluate_model(
        model, x, CONFIG, parts=KeptParts(tmp_path), report=lambda *report: reports.append(report)
    )
    assert reports[10] == (11, pytest.approx(found.log_likelihood.value))
