"""Small parts, settings that a later verb would refuse, and too little memory: found at the start."""

import json
import shlex
import shutil

import numpy as np
import pytest

from discrete_vae.cli import main
from discrete_vae.errors import InvalidInputError
from discrete_vae.load import load_run
from tests.commands.conftest import TINY

FEW = np.random.default_rng(0).integers(0, 2, (10, 12)).astype(bool)


def test_ten_examples_are_trained_and_evaluated_to_the_end(cli, tmp_path):
    """One example each for validation and test, whose standard errors are unknown."""
    np.save(tmp_path / "ten.npy", FEW)
    status, _, err = cli("train", "--data", tmp_path / "ten.npy", "--run-dir", tmp_path / "run", *TINY)
    assert status == 0, err
    assert " +- unknown nats" in err
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    validations = [line for line in lines if "validation_elbo" in line]
    assert len(validations) == 3
    assert all("validation_elbo_std_error" not in line for line in validations)
    status, out, err = cli("evaluate", tmp_path / "run")
    assert status == 0, err
    assert "unknown" in out
    assert json.loads((tmp_path / "run" / "evaluation.json").read_text())["elbo"]["elbo_std_error"] is None


@pytest.fixture(scope="module")
def trained_on_images(tmp_path_factory, data_file):
    folder = tmp_path_factory.mktemp("images")
    np.save(folder / "images.npy", np.load(data_file).reshape(-1, 3, 4))
    assert main(["train", "--data", str(folder / "images.npy"), "--run-dir", str(folder / "run"), *TINY]) == 0
    return folder / "run"


@pytest.mark.parametrize("verb", ["train", "validate"])
@pytest.mark.parametrize(
    ("words", "argument"),
    [
        ("--training.batch-size 1", "--training.batch-size"),
        ("--evaluation.num-annealed-chains 1", "--evaluation.num-annealed-chains"),
        ("--evaluation.num-examples 251", "--evaluation.num-examples"),
        (f"--evaluation.seed {2**64}", "--evaluation.seed"),
        (f"--seed {2**64}", "--seed"),
        ("--training.beta-bound.start 1e300", "--training.beta-bound.start"),
        (f"--training.num-sweeps {2**63 - 1}", "--training.num-sweeps"),
        (f"--training.num-epochs {'9' * 400}", "--training.num-epochs"),
        (f"--training.num-epochs {'9' * 5000}", "--training.num-epochs"),
        ("--evaluation.max-memory 1e308", "--evaluation.max-memory"),
        (
            "--training.sampler parallel-tempering --training.sampler.inverse-temperatures 0.5 0.2",
            "--training.sampler.inverse-temperatures",
        ),
        ("--training.sampler.num-chains 3000000000", "--training.sampler.num-chains"),
        ("--evaluation.num-annealed-chains 3000000000", "--evaluation.num-annealed-chains"),
        ("--model.prior.num-left 3000000000", "model.prior"),
        ("--model.posterior.hidden 3000000000", "model.posterior"),
        ("--model.posterior.hidden 3000000000 3000000000", "model"),
        ("--model.prior graph --model.prior.num-units 9999999 --model.prior.edges complete", "--model.prior"),
    ],
)  # fmt: skip
def test_settings_that_cannot_work_are_refused_at_the_start(refused, tmp_path, verb, words, argument):
    run_dir = ["--run-dir", tmp_path / "run"] if verb == "train" else []
    error = refused(verb, "digits", "--size", "smoke", *run_dir, *words.split())
    assert error.startswith(f"error: {argument} ")
    assert len(error) < 500


@pytest.mark.parametrize("seed", [2**63, 2**64 - 1])
def test_every_seed_up_to_the_bound_works(cli, tmp_path, data_file, seed):
    words = shlex.split(
        f"--seed {seed} --evaluation.seed {seed} --data.split-seed {seed} --training.num-epochs 2"
    )
    status, _, err = cli("train", "--data", data_file, "--run-dir", tmp_path / "run", *TINY, *words)
    assert status == 0, err
    assert cli("evaluate", tmp_path / "run", "--num-samples", 20)[0] == 0


def test_a_model_that_needs_more_than_is_free_is_refused_with_the_need(
    refused, tmp_path, data_file, monkeypatch
):
    monkeypatch.setattr("discrete_vae.system.available_memory", lambda: 2**20)
    error = refused(
        "train", "--data", data_file, "--run-dir", tmp_path / "run", *TINY, "--model.posterior.hidden", 9999
    )
    assert (
        "model.posterior must fit this machine's memory; received a need of at least 0.0 GiB for weights"
        in error
    )
    assert "Make the networks narrower" in error


@pytest.mark.parametrize(
    ("part", "change"),
    [
        (("model", "posterior"), {"hidden": [10**12]}),
        (("model", "posterior"), {"hidden": [10**12, 10**12]}),
        (("model", "decoder"), {"hidden": [10**12]}),
        (("model", "prior"), {"num_left": 10**12}),
        (("training", "sampler"), {"num_chains": 10**12}),
    ],
)
def test_a_run_whose_config_asks_for_absurd_sizes_is_refused(trained_on_images, tmp_path, part, change):
    run = tmp_path / "run"
    shutil.copytree(trained_on_images, run)
    config = json.loads((run / "config.json").read_text())
    config[part[0]][part[1]] |= change
    (run / "config.json").write_text(json.dumps(config))
    with (
        pytest.warns(UserWarning, match="config.json"),
        pytest.raises(InvalidInputError, match="must fit this machine's memory"),
    ):
        load_run(run, accept_changed_config=True)


@pytest.mark.parametrize(
    ("words", "argument"),
    [
        ("--start fresh --num-chains 99999999999999999", "images"),
        ("--start fresh --num-chains 9 --num-rows 99999", "images"),
        ("--num-draws 100000", "images"),
        (f"--checkpoint {'9' * 5000}", "--checkpoint"),
        ("--start ~nouser/states.npy", "--start"),
        ("--out ~nouser/grid.png", "--out"),
    ],
)
def test_pictures_that_cannot_be_are_refused(refused, trained_on_images, words, argument):
    assert refused("sample", trained_on_images, *words.split()).startswith(f"error: {argument} ")


def test_chains_that_do_not_fit_are_refused(refused, trained, monkeypatch):
    from discrete_vae.samplers.gibbs import BlockGibbs

    build = BlockGibbs.__init__

    def fail(self, energy, num_chains, **keywords):
        if num_chains == 9:
            raise RuntimeError(
                "[enforce fail at x.cpp:1] DefaultCPUAllocator: can't allocate memory: 9 bytes."
            )
        build(self, energy, num_chains, **keywords)

    monkeypatch.setattr(BlockGibbs, "__init__", fail)
    error = refused("sample", trained, "--start", "fresh", "--num-chains", 9)
    assert "--num-chains must fit this machine's memory; received more than" in error


@pytest.mark.parametrize(
    "states",
    [
        np.zeros((2, 5), "U1"),
        np.zeros((2, 5), "M8[s]"),
        np.zeros((2, 5), "i4,f4"),
        np.zeros((2, 5), complex),
        np.full((2, 5), 2),
        np.full((2, 5), np.nan),
        np.zeros((0, 5)),
        np.zeros(5),
    ],
    ids=str,
)
def test_start_states_that_are_none_are_refused(refused, trained, tmp_path, states):
    np.save(tmp_path / "states.npy", states)
    assert refused("sample", trained, "--start", tmp_path / "states.npy").startswith("error: --start ")


@pytest.mark.parametrize("dtype", [">f8", ">i2", "g", bool])
def test_start_states_of_any_width_and_byte_order_are_taken(cli, trained_on_images, tmp_path, dtype):
    np.save(tmp_path / "states.npy", np.eye(2, 5).astype(dtype))
    words = (
        "--start",
        tmp_path / "states.npy",
        "--out",
        tmp_path / "x.png",
        "--num-rows",
        1,
        "--num-sweeps",
        1,
    )
    status, _, err = cli("sample", trained_on_images, *words)
    assert status == 0, err


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
def test_a_standard_error_that_is_none_is_refused(refused, trained, value):
    assert refused("log-partition", trained, "--std-error", value).startswith("error: --std-error ")


@pytest.mark.parametrize("run_dir", ["~nouser/x", "", "runs/\udcff", "a\0b"])
def test_run_dirs_that_are_none_are_refused(refused, data_file, run_dir):
    assert refused("train", "--data", data_file, "--run-dir", run_dir, *TINY).startswith("error: --run-dir ")


@pytest.mark.parametrize(
    "words",
    [("train", "--data", "bad\udcff.npy", "--run-dir", "run"), ("validate", "--data", "~nouser/x.npy")],
)
def test_a_data_path_that_config_json_could_not_hold_is_refused(refused, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    assert refused(*words, *TINY).startswith("error: --data ")
