"""Evaluation in parts is that of the whole, and that of two processes; parts that are damaged do not count."""

import dataclasses
import hashlib
import json
import math
import os
import random
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from discrete_vae import LogPartition, load_dataset, load_pretrained
from discrete_vae.checks import check_positive_int
from discrete_vae.config import EvaluationConfig
from discrete_vae.distributed import compute_on_rank_zero, process_group, rank, world_size
from discrete_vae.errors import InvalidInputError, LogPartitionWarning
from discrete_vae.evaluation.evaluate import ExampleLogLikelihoods, MeanLogLikelihood
from discrete_vae.inference.encode import encode_rows
from discrete_vae.inference.evaluate_run import (
    KeptParts,
    UnevenWeightsWarning,
    evaluate_model,
    evaluate_run,
    num_modes,
)
from discrete_vae.inference.score import elbo_rows
from discrete_vae.log_partition.estimate import AnnealingDisagreementWarning, CheckedLogPartition
from tests.campaigns import damage
from tests.inference.models import small_model, some_bits
from tests.processes import FORKED, TORCHRUN, start

CONFIG = EvaluationConfig(num_samples=4)
BITS = some_bits(430, seed=1)  # three parts


@pytest.fixture(scope="module")
def model():
    return small_model(scale=0.3)


@pytest.fixture(scope="module")
def whole(model):
    return evaluate_model(model, BITS, CONFIG)


def plain(found):
    return dataclasses.replace(found, seconds=0.0).to_json()


def approximately(fields):
    if isinstance(fields, dict):
        return {key: approximately(value) for key, value in fields.items()}
    return pytest.approx(fields, rel=1e-12) if isinstance(fields, float) else fields


def without_seconds(fields):
    fields["log_partition"]["best"]["seconds"] = None
    return fields


def test_the_sharp_limit_can_be_left_out(model, whole):
    trained, limit, seen = whole.log_likelihood, whole.log_likelihood_limit, []
    assert (trained.num_samples, limit.num_samples, trained.log_partition_std_error) == (4, 4, 0.0)
    assert (trained.value != limit.value, whole.to_json()["log_partition"]["gap"]) == (True, None)
    config = CONFIG.model_copy(update={"sharp_limit": False})
    found = evaluate_model(model, BITS, config, report=lambda done, mean: seen.append(done))
    assert plain(found) == plain(dataclasses.replace(whole, log_likelihood_limit=None))
    assert seen == list(range(1, len(BITS) + 1))
    assert num_modes(model, config) == 1 < num_modes(model, CONFIG)


def test_weighted_examples_keep_their_own_values(model, whole, tmp_path):
    weights = np.linspace(0.5, 3, len(BITS))
    found = evaluate_model(model, BITS, CONFIG, train=BITS, weights=weights, train_weights=weights)
    kept = evaluate_model(model, BITS, CONFIG, weights=weights, parts=KeptParts(tmp_path, "weighted"))
    assert found.log_likelihood == kept.log_likelihood
    values = whole.columns()["log_likelihood"]
    assert np.array_equal(found.columns()["log_likelihood"], values)
    assert np.array_equal(found.columns()["weight"], weights)
    assert found.log_likelihood.value == pytest.approx(np.average(values, weights=weights))
    fields = json.loads(json.dumps(found.to_json()))
    for name in ("log_likelihood", "log_likelihood_limit", "elbo", "independent_features"):
        assert fields[name]["effective_examples"] == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    assert "effective_examples" not in whole.to_json()["elbo"]


def test_weights_that_few_samples_carry_are_reported(model):
    sharp = small_model(scale=0.3)
    with torch.no_grad():
        sharp.decoder.network.output.weight.mul_(100)
    with pytest.warns(UnevenWeightsWarning) as caught:
        evaluate_model(sharp, BITS[:12], EvaluationConfig(num_samples=40))
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate_model(model, BITS[:12], EvaluationConfig(num_samples=400))


def test_what_was_stopped_goes_on(model, whole, tmp_path):
    class StoppedError(Exception):
        pass

    seen = []

    def go_on(stop_at=None):
        def report(done, mean):
            seen.append((done, mean))
            if done == stop_at:
                raise StoppedError

        seen.clear()
        return evaluate_model(model, BITS, CONFIG, parts=KeptParts(tmp_path, "this"), report=report)

    with pytest.raises(StoppedError):
        go_on(stop_at=410)  # inside of the third part
    assert [done for done, _ in seen] == list(range(1, 411))
    found = go_on()
    assert [done for done, _ in seen] == list(range(401, 861))  # those of the limit after the first
    assert seen[29][1] == pytest.approx(found.log_likelihood.value)
    assert without_seconds(plain(found)) == approximately(without_seconds(plain(whole)))
    columns, expected = found.columns(), whole.columns()
    assert columns.keys() == expected.keys()
    assert all((columns[name] == expected[name]).all() for name in columns)  # to the last digit
    assert plain(go_on()) == plain(found)
    assert seen == []  # all was there


# What is kept.


EXAMPLES = ExampleLogLikelihoods(torch.tensor([4, 7]), *torch.tensor([[-1.1, -0.3], [0.1, 0.2], [3.0, 4]]))
LIKELIHOOD = MeanLogLikelihood(-0.7, math.nan, 0.1, 3.0, 3.5, 1 / 3, 2, 4, 0.0, EXAMPLES)
LOG_PARTITION = CheckedLogPartition(LogPartition(1 / 3, 0.5, "made up", 1, swap_rates=(0.1,)))
ALL = ["log Z", "trained-0", "trained-200"]


def computed_anew(folder, key="this"):
    """An evaluation asks for its parts, all of which must be right; the names of those that were not found."""
    parts, computed = KeptParts(folder, key), []

    def compute(name, found):
        computed.append(name)
        return found

    log_partition = parts.log_partition(lambda: compute(ALL[0], LOG_PARTITION))
    likelihoods = [parts.log_likelihood(n, lambda n=n: compute(n, LIKELIHOOD)) for n in ALL[1:]]
    for found in likelihoods:
        for column in ("index", "value", "std_error", "ess"):
            assert getattr(found.examples, column).tolist() == getattr(EXAMPLES, column).tolist()
    assert (log_partition, likelihoods) == (LOG_PARTITION, [likelihoods[0]] * 2)
    return computed


def test_what_was_warned_of_is_warned_of_again(tmp_path):
    calls = []

    def estimate():
        calls.append(1)
        warnings.warn("too few sweeps", LogPartitionWarning, stacklevel=2)
        warnings.warn("off by a nat", AnnealingDisagreementWarning, stacklevel=2)
        return LOG_PARTITION

    for _ in range(2):
        with pytest.warns(LogPartitionWarning), pytest.warns(AnnealingDisagreementWarning):
            KeptParts(tmp_path, "this").log_partition(estimate)
    assert len(calls) == 1


def test_parts_of_another_evaluation_do_not_count(tmp_path):
    for key in ("this", "other"):
        computed_anew(tmp_path / key, key)
    mine, others = (sorted((tmp_path / key).glob("*/*")) for key in ("this", "other"))
    for path, other in zip(mine, others, strict=True):
        path.write_bytes(other.read_bytes())
    assert computed_anew(tmp_path / "this") == ALL
    first, second = mine[1].read_bytes(), mine[2].read_bytes()
    mine[1].write_bytes(second)
    mine[2].write_bytes(first)
    assert computed_anew(tmp_path / "this") == ALL[1:]


def other_bytes(alter):
    noise = random.Random(0)
    return lambda path: path.write_bytes(alter(path.read_bytes(), noise))


def other_value(value):
    """A right sum of a wrong form."""

    def spoil(path):
        fields = json.loads(path.read_bytes().partition(b"\n")[2])
        if "rows" in fields:
            fields["rows"]["value"] = value
        else:
            fields["found"]["best"] = value
        content = json.dumps(fields).encode()
        path.write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)

    return spoil


@pytest.mark.filterwarnings("ignore::UserWarning")  # a folder of that name keeps the part from being written
@pytest.mark.parametrize(
    ("spoil", "times"),
    [
        *((other_bytes(alter), 10) for alter in damage.BYTES),
        *((kind, 1) for kind in damage.KINDS if kind is not damage.forbid),
        *((other_value(value), 1) for value in (None, "x", [], {}, -1, 10**400, [[1]], True)),
    ],
)
def test_a_damaged_part_is_computed_anew_and_others_are_taken(tmp_path, spoil, times):
    assert computed_anew(tmp_path) == ALL
    assert computed_anew(tmp_path) == []
    for _ in range(times):
        for path in sorted(tmp_path.glob("*/*")):
            spoil(path)
        assert computed_anew(tmp_path) == ALL


# Two processes.


def test_evaluations_in_bfloat16_by_two_threads_leave_the_model_as_it_was(model):
    config = EvaluationConfig(num_samples=4, precision="bfloat16")
    before = elbo_rows(model, BITS, log_partition=0.0).value
    alone = plain(evaluate_model(model, BITS[:3], config))
    second_is_in, first_is_done, others = threading.Event(), threading.Event(), []

    def evaluate(report):
        return plain(evaluate_model(model, BITS[:3], config, report=report))

    def in_second(*_):
        second_is_in.set()
        first_is_done.wait(60)

    def in_first(*_):
        if not others:  # the second one begins while the first computes, and ends after it
            others.append(threads.submit(evaluate, in_second))
            second_is_in.wait(60)

    with ThreadPoolExecutor(1) as threads:
        assert evaluate(in_first) == alone
        first_is_done.set()
        assert others[0].result() == alone
    assert np.array_equal(elbo_rows(model, BITS, log_partition=0.0).value, before)


def main(folder):
    """What each of the two does."""
    torch.set_num_threads(1)
    own = in_a_group_of_its_own(folder)
    with process_group():
        result = evaluate_tiny()
        try:
            compute_on_rank_zero(lambda: check_positive_int("num_samples", 0))
        except InvalidInputError as error:
            result["error"] = error.argument
        result["own"], result["differing"] = own, [*differing()]
        (folder / f"{rank()}.json").write_text(json.dumps(result))
    os._exit(0)  # threads of gloo that are still there would sometimes end the interpreter's own way out


def differing():
    """What is refused where the second process has another config, other weights, other data."""
    dataset, number = load_dataset("digits"), rank()
    for seed, shift, first in ((number, 0.0, 0), (0, number, 0), (0, 0.0, number)):
        loaded = load_pretrained("digits")
        with torch.no_grad():
            loaded.model.prior.bias.add_(shift)
        refused = None
        try:
            evaluate_run(loaded, dataset, CONFIG.model_copy(update={"seed": seed}), np.array([first]))
        except InvalidInputError as error:
            refused = error.argument
        yield refused


def in_a_group_of_its_own(folder):
    """What a process does with rows that are its own while it shares something else with the other one."""
    found, own = {}, int(os.environ["RANK"])
    for backend in ("gloo", "cuda:gloo"):  # the latter takes no tensors of the CPU
        store = torch.distributed.FileStore(str(folder / backend.replace(":", "-")), 2)
        torch.distributed.init_process_group(backend, store=store, rank=own, world_size=2)
        try:
            found[f"outside, {backend}"] = codes_of(own)
            with process_group():
                found[f"inside, {backend}"] = world_size(), codes_of(0)
            found[f"after, {backend}"] = codes_of(own)
        except InvalidInputError as error:
            found["refused"] = error.received
        torch.distributed.destroy_process_group()
    return found


def codes_of(number):
    return encode_rows(small_model(), some_bits(7, seed=number), batch_size=3).zeta.tolist()


def evaluate_tiny():
    model, x = small_model(), some_bits(7)
    result = evaluate_model(model, x, EvaluationConfig(num_samples=40)).to_json()
    codes = encode_rows(model, x, draw=True, batch_size=3).arrays()
    one_batch = encode_rows(model, x, draw=True).zeta  # of which one of two processes has no share
    scores = elbo_rows(model, x, log_partition=0.0, batch_size=3)
    return {name: result[name] for name in ("log_likelihood", "log_likelihood_limit", "elbo")} | {
        "codes": {name: values.tolist() for name, values in codes.items()},
        "one_batch": one_batch.tolist(),
        "scores": [scores.value.tolist(), scores.std_error.tolist()],
    }


@pytest.mark.filterwarnings("ignore::UserWarning")  # of uneven weights
@pytest.mark.parametrize("launch", [FORKED, pytest.param(TORCHRUN, marks=pytest.mark.slow)])
def test_two_processes_equal_one_to_the_last_digit(launch, tmp_path):
    process = start(*launch, "-m", "tests.inference.test_evaluate_run", tmp_path)
    alone = json.loads(json.dumps(evaluate_tiny()))
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    for number in (0, 1):
        result = json.loads((tmp_path / f"{number}.json").read_text())
        assert result.pop("error") == "num_samples"
        assert result.pop("differing") == ["config", "checkpoint", "data"]
        own = result.pop("own")
        assert own.pop("refused") == "cuda:gloo"
        assert own.pop("inside, gloo") == [2, codes_of(0)]
        assert list(own.values()) == [codes_of(number)] * 3  # no row of the other's
        assert result == alone


if __name__ == "__main__":
    main(Path(sys.argv[1]))
