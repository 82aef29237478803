"""Two processes of torchrun give the result of one to the last digit; a memory budget is kept."""

import json
from dataclasses import asdict

import pytest
import torch

from discrete_vae import DiscreteVAE
from discrete_vae.config import EvaluationConfig, HierarchicalPosteriorConfig, ModelConfig, RBMConfig
from discrete_vae.distributed import (
    all_reduce_shards,
    compute_on_rank_zero,
    process_group,
    rank,
    shard_indices,
    world_size,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import evaluate_model
from discrete_vae.evaluation.log_likelihood import (
    PART_SIZE,
    evaluate_log_likelihood,
    join_log_likelihoods,
    samples_in_memory,
)
from discrete_vae.inference.encode import encode_rows
from discrete_vae.inference.score import elbo_rows
from tests.processes import plain_processes, start, torchrun

SCRIPT = """
import json, os, sys, torch
from discrete_vae.checks import check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.distributed import compute_on_rank_zero, process_group, rank
from tests.evaluation.test_sharding import evaluate_tiny
torch.set_num_threads(1)
with process_group():
    result = evaluate_tiny()
    try:
        compute_on_rank_zero(lambda: check_positive_int("num_samples", 0))
    except InvalidInputError as error:
        result["error"] = str(error)
    with open(f"{sys.argv[1]}/{rank()}.json", "w") as file:
        json.dump(result, file)
os._exit(0)  # threads of gloo that are still there would sometimes end the interpreter's own way out
"""


def tiny_model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        posterior = HierarchicalPosteriorConfig(groups=2, hidden=(5,))
        return DiscreteVAE.from_config(
            ModelConfig(num_features=6, prior=RBMConfig(num_left=3, num_right=2), posterior=posterior)
        )


def evaluate_tiny():
    x = torch.bernoulli(torch.full((7, 6), 0.4), generator=torch.Generator().manual_seed(0))
    result = evaluate_model(tiny_model(), x, EvaluationConfig(num_samples=40)).to_json()
    codes = encode_rows(tiny_model(), x, draw=True, batch_size=3).arrays()
    one_batch = encode_rows(tiny_model(), x, draw=True).zeta  # of which one of two processes has no share
    scores = elbo_rows(tiny_model(), x, log_partition=0.0, batch_size=3)
    return {name: result[name] for name in ("log_likelihood", "log_likelihood_limit", "elbo")} | {
        "codes": {name: values.tolist() for name, values in codes.items()},
        "one_batch": one_batch.tolist(),
        "scores": [scores.value.tolist(), scores.std_error.tolist()],
    }


def test_one_process_needs_no_group():
    with process_group():
        assert (rank(), world_size()) == (0, 1)
        assert list(shard_indices(3)) == [0, 1, 2]
        assert all_reduce_shards(torch.ones(2)).tolist() == [1, 1]
        assert compute_on_rank_zero(lambda: 5) == 5


@pytest.mark.parametrize("launch", [plain_processes, pytest.param(torchrun, marks=pytest.mark.slow)])
def test_two_processes_equal_one_to_the_last_digit(launch, tmp_path):
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    started = start(launch, [str(script), str(tmp_path)])
    alone = json.loads(json.dumps(evaluate_tiny()))
    for process in started:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
    for number in (0, 1):
        result = json.loads((tmp_path / f"{number}.json").read_text())
        assert result.pop("error").startswith("num_samples must be a positive integer; received 0.")
        assert result == alone


def test_an_evaluation_of_a_piece_has_the_digits_of_one_in_parts():
    size = PART_SIZE + 30
    x = torch.bernoulli(torch.full((size, 6), 0.4), generator=torch.Generator().manual_seed(2))
    settings = {"log_partition": 2.0, "num_samples": 5}
    model, numbers = tiny_model(), range(size)
    parts = [
        evaluate_log_likelihood(model, x[rows], indices=numbers[rows], **settings)
        for rows in (slice(PART_SIZE), slice(PART_SIZE, size))
    ]
    assert evaluate_log_likelihood(model, x, **settings) == join_log_likelihoods(parts)


def test_the_budget_decides_the_chunks_and_not_the_estimate():
    model, x = tiny_model(), torch.zeros(2, 6)
    assert samples_in_memory(model, 1000.0) == 5000
    assert 1 <= samples_in_memory(model, 0.02) < samples_in_memory(model, 0.1) < 3000
    assert samples_in_memory(model, 1e-9) == 1
    small, large = (
        evaluate_log_likelihood(model, x, log_partition=0.0, num_samples=3000, max_memory=budget)
        for budget in (0.1, 100.0)
    )
    assert small.value == pytest.approx(large.value, abs=1e-5)  # the noise of a sample is its own
    assert asdict(small)["log_partition_std_error"] == 0.0
    with pytest.raises(InvalidInputError, match="^max_memory "):
        evaluate_log_likelihood(model, x, log_partition=0.0, num_samples=3, max_memory=0.0)
