"""Wrong data and settings are refused in one line that names them; small parts and large seeds work to the end."""

import numpy as np
import pytest

from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.io import read_json, write_json
from discrete_vae.runs.load import load_run
from discrete_vae.runs.run_directory import RunDirectory
from tests.commands.conftest import TINY


def test_a_wrong_file_is_refused_by_name(refused, tmp_path):
    """Which ones are wrong, the tests of the data say."""
    np.save(tmp_path / "few.npy", np.eye(5, 12))
    for name in ("few.npy", "none.npy"):
        assert name in refused("train", "--data", tmp_path / name, "--run-dir", tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_ten_examples_are_trained_and_evaluated_to_the_end(done, tmp_path):
    """One example each for validation and test, whose standard errors are unknown."""
    run = tmp_path / "run"
    np.save(tmp_path / "ten.npy", np.random.default_rng(0).integers(0, 2, (10, 12)).astype(bool))
    _, err = done("train", "--data", tmp_path / "ten.npy", "--run-dir", run, *TINY)
    assert " ± unknown nats" in err
    validations = [line for line in RunDirectory(run).metrics().read() if "validation_elbo" in line]
    assert len(validations) == 3
    assert all("validation_elbo_std_error" not in line for line in validations)
    assert "unknown" in done("evaluate", run)[0]
    assert read_json(run / "evaluation.json")["elbo"]["elbo_std_error"] is None


def test_every_seed_up_to_the_bound_works(done, tmp_path, data_file):
    for seed in (2**63, 2**64 - 1):
        run = tmp_path / str(seed)
        words = f"--seed {seed} --evaluation.seed {seed} --data.split-seed {seed} --training.num-epochs 2"
        done("train", "--data", data_file, "--run-dir", run, *TINY, *words.split())
        done("evaluate", run, "--num-samples", 20)
        config = read_json(run / "config.json")
        assert [config["seed"], config["evaluation"]["seed"], config["data"]["split_seed"]] == [seed] * 3


@pytest.mark.parametrize(
    ("section", "part", "change"),
    [("model", "decoder", {"hidden": [10**12]}), ("training", "sampler", {"num_chains": 10**12})],
)
def test_a_run_whose_config_asks_for_absurd_sizes_is_refused(trained, section, part, change):
    config = read_json(trained / "config.json")
    config[section][part] |= change
    write_json(trained / "config.json", config)
    with pytest.warns(UserWarning, match="config"), pytest.raises(InvalidInputError, match="memory"):
        load_run(trained, accept_changed_config=True)
