"""Small parts, settings that a later verb would refuse, and too little memory: found at the start."""

import json
import shlex

import numpy as np
import pytest

from discrete_vae.errors import InvalidInputError
from discrete_vae.load import load_run
from tests.commands.conftest import TINY

FEW = np.random.default_rng(0).integers(0, 2, (10, 12)).astype(bool)


def test_ten_examples_are_trained_and_evaluated_to_the_end(done, tmp_path):
    """One example each for validation and test, whose standard errors are unknown."""
    np.save(tmp_path / "ten.npy", FEW)
    _, err = done("train", "--data", tmp_path / "ten.npy", "--run-dir", tmp_path / "run", *TINY)
    assert " +- unknown nats" in err
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    validations = [line for line in lines if "validation_elbo" in line]
    assert len(validations) == 3
    assert all("validation_elbo_std_error" not in line for line in validations)
    out, err = done("evaluate", tmp_path / "run")
    assert "unknown" in out
    assert json.loads((tmp_path / "run" / "evaluation.json").read_text())["elbo"]["elbo_std_error"] is None


@pytest.mark.parametrize("seed", [2**63, 2**64 - 1])
def test_every_seed_up_to_the_bound_works(done, tmp_path, data_file, seed):
    words = shlex.split(
        f"--seed {seed} --evaluation.seed {seed} --data.split-seed {seed} --training.num-epochs 2"
    )
    done("train", "--data", data_file, "--run-dir", tmp_path / "run", *TINY, *words)
    done("evaluate", tmp_path / "run", "--num-samples", 20)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        (("model", "posterior"), {"hidden": [10**12, 10**12]}),
        (("model", "decoder"), {"hidden": [10**12]}),
        (("model", "prior"), {"num_left": 10**12}),
        (("training", "sampler"), {"num_chains": 10**12}),
    ],
)
def test_a_run_whose_config_asks_for_absurd_sizes_is_refused(trained, part, change):
    config = json.loads((trained / "config.json").read_text())
    config[part[0]][part[1]] |= change
    (trained / "config.json").write_text(json.dumps(config))
    with pytest.warns(UserWarning, match="config"), pytest.raises(InvalidInputError, match="memory"):
        load_run(trained, accept_changed_config=True)
