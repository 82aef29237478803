"""dvae evaluate end to end: what it prints, what it writes, and that the numbers cohere."""

import json
import math
import re
import shutil
from importlib import import_module
from statistics import fmean

import numpy as np
import pytest
import torch

from discrete_vae.cli.options import worth
from discrete_vae.config import instantiate
from discrete_vae.data.splits import load_data, training_subset
from discrete_vae.evaluation.evaluate import independent_features
from discrete_vae.inference.evaluate_run import evaluate_run
from discrete_vae.log_partition.estimate import exact_log_partition
from discrete_vae.runs.io import read_json, write_json
from discrete_vae.runs.load import load_run
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.system import computing_on
from tests.cli.conftest import TINY, columns_of, forge, snapshot


def evaluation(run):
    return read_json(run / "evaluation.json")


def kept(run):
    """The evaluations by checkpoint, samples, examples and seed."""
    found = map(read_json, (run / "evaluations").glob("*.json"))
    names = ("num_samples", "num_examples", "seed")
    return {(each["step"], *(each["config"][name] for name in names)): each for each in found}


def number(out, name):
    return float(re.search(rf"^ *{name} +(-?[\d.]+)", out, re.MULTILINE)[1])


@pytest.mark.filterwarnings("ignore:the last doubling of the importance samples")
def test_digits_smoke(done, tmp_path):
    """The run that the help recommends as a first one."""
    run = tmp_path / "run"
    out, err = done("train", "digits", "--size", "smoke", "--run-dir", run)
    assert "nats per example better than independent columns" in " ".join(out.split())
    assert "warning" not in (out + err).lower()
    out, err = done("evaluate", run, "--num-samples", "1000", "--num-examples", "60", "--device", "cpu")
    assert err.startswith(f"{computing_on(torch.device('cpu'))}\n")
    found = evaluation(run)
    likelihood, elbo, prior = found["log_likelihood"], found["elbo"], found["log_partition"]["best"]
    first = f"{run}, checkpoint of step {found['step']}, digits: 60 test examples"
    assert " ".join(out.split()).startswith(first)
    assert f"log-likelihood {likelihood['value']:15.3f} ± {likelihood['std_error']:.3f}" in out
    assert f"ELBO {elbo['elbo']:25.3f} ± {elbo['elbo_std_error']:.3f}" in out
    assert "KL continuous" not in out  # of a model without continuous layers
    assert f"Written to {run / 'evaluation.json'}" in out.splitlines()
    assert out.splitlines()[-1] == f"Next: dvae report {run}"
    # within 5 standard errors of the Monte-Carlo noise, the bound lies below
    assert likelihood["value"] > elbo["elbo"] - 5 * likelihood["monte_carlo_std_error"]
    split = elbo["reconstruction"] - elbo["kl_discrete"] - elbo["kl_continuous"]
    assert elbo["elbo"] == pytest.approx(split, abs=1e-6)
    assert min(elbo["kl_discrete"], -elbo["reconstruction"]) > 0
    assert elbo["kl_continuous"] == 0
    assert -64 * math.log(2) < elbo["elbo"] < likelihood["value"] < -15
    # sides of 16 units: log Z is exact, and equals enumeration of the checkpoint's prior
    assert (prior["method"], prior["std_error"]) == ("enumeration", 0)
    assert prior["value"] == pytest.approx(exact_log_partition(load_run(run).model.prior).value, abs=1e-9)
    assert re.search(r"log Z +[\d.]+ \(exact\) +enumeration", out)


def test_every_option_reaches_the_evaluation(done, trained):
    done("evaluate", trained, "--num-samples", 7, "--num-examples", 3, "--seed", 5, "--checkpoint", 4)
    found = evaluation(trained)
    assert (found["step"], found["config"]["seed"]) == (4, 5)
    assert (found["log_likelihood"]["num_samples"], found["log_likelihood"]["num_examples"]) == (7, 3)
    done("evaluate", trained)
    found, best = evaluation(trained), read_json(trained / "best.json")["step"]
    assert (found["step"], found["log_likelihood"]["num_examples"]) == (best, 6)
    loaded = load_run(trained)
    of_function = evaluate_run(loaded, instantiate(loaded.config.data)).fields
    assert all(of_function[name] == found[name] for name in ("log_likelihood", "elbo"))
    out, _ = done("evaluate", trained, "--checkpoint", "last")
    assert f"{trained / 'evaluation.json'} keeps a more complete one" in out
    assert evaluation(trained)["step"] == best
    assert set(kept(trained)) == {(4, 7, 3, 5), (best, 20, None, 0), (6, 20, None, 0)}


def test_a_large_prior_is_bridged_and_annealed_both_ways(done, tmp_path, data_file):
    words = "--model.prior.num-left 26 --model.prior.num-right 26 --evaluation.log-partition-std-error 0.05 "
    words += "--evaluation.num-annealed-chains 20 --evaluation.num-temperatures 50 --evaluation.num-chain-sweeps 10"
    done("train", "--data", data_file, "--run-dir", tmp_path / "run", *TINY, *words.split())
    out, _ = done("evaluate", tmp_path / "run", "--num-samples", "500")
    assert re.search(r"log Z +[\d.]+ ± 0\.\d+ +bridge sampling", out)
    for direction in ("forward", "reverse"):
        assert re.search(rf"check +[\d.]+ ± 0\.\d+ +annealed {direction}", out)
    found = evaluation(tmp_path / "run")["log_partition"]
    assert found["gap"] == pytest.approx(found["reverse"]["value"] - found["forward"]["value"])


def test_evaluating_leaves_all_but_its_own_files_alone(done, trained, tmp_path):
    before, threads, elsewhere = snapshot(trained), torch.get_num_threads(), tmp_path / "new" / "found.json"
    out, _ = done("evaluate", trained, "--out", elsewhere)
    assert f"Written to {elsewhere}" in out
    assert snapshot(trained) == before
    assert f"{read_json(elsewhere)['log_likelihood']['value']:.3f}" == f"{number(out, 'log-likelihood'):.3f}"
    done("evaluate", trained)
    after = snapshot(trained)
    new = {path.relative_to(trained): after.pop(path) for path in after.keys() - before.keys()}
    best, folder, of_settings = (new[path] for path in sorted(new))
    assert (best, folder) == (of_settings, None)
    assert after == before
    assert torch.get_num_threads() == threads


@pytest.mark.filterwarnings("always")
def test_other_data_are_a_warning_and_a_changed_config_displaces_no_evaluation(done, trained, tmp_path):
    done("evaluate", trained, "--num-examples", 2)
    before, config = evaluation(trained), read_json(trained / "config.json")
    np.save(tmp_path / "other.npy", np.eye(60, 12))
    config["data"] |= {"path": str(tmp_path / "other.npy"), "split_seed": 1}
    write_json(trained / "config.json", config)
    for words in (["--num-examples", 2], []):
        out, err = done("evaluate", trained, "--accept-changed-config", *words)
        assert "warning: the data (other.npy) are not those that the run was trained on" in err
        assert f"{trained / 'evaluation.json'} keeps a more complete one" in out
    assert evaluation(trained) == before
    assert len(list((trained / "evaluations").iterdir())) == 3
    picture = ["feature-statistics", trained, "--out", tmp_path / "picture.png"]
    _, err = done("figure", *picture, "--accept-changed-config")
    assert "warning: the data (other.npy) are not those that the run was trained on" in err


def test_a_file_that_has_moved_is_found_in_the_folder_that_is_given(done, refused, tmp_path, data_file):
    file, folder, run = tmp_path / data_file.name, tmp_path / "moved", tmp_path / "run"
    shutil.copy(data_file, file)
    done("train", "--data", file, "--run-dir", run, *TINY)
    folder.mkdir()
    file.rename(folder / file.name)
    for words in (["evaluate", run], ["train", "--resume", "--run-dir", run]):
        assert "--data-dir" in refused(*words)
        assert "not those" not in done(*words, "--data-dir", folder)[1]
    refused("evaluate", run, "--data-dir", tmp_path)


def test_an_error_is_neither_rounded_to_zero_nor_called_exact(done, tmp_path):
    """Log Z of 50 units is known to a ten-thousandth; test rows that are alike do not make their mean exact."""
    x, file, run = np.random.default_rng(0).integers(0, 2, (40, 12)), tmp_path / "x.npz", tmp_path / "run"
    np.savez(file, x_train=x[:30], x_valid=x[30:], x_test=np.repeat(x[:1], 4, 0))
    sizes = ["--model.prior.num-left", 25, "--model.prior.num-right", 25]
    wanted = ["--evaluation.log-partition-std-error", "0.0003", "--evaluation.num-annealed-chains", 20]
    done("train", "--data", file, *TINY, *sizes, *wanted, "--run-dir", run)
    lines = done("evaluate", run, "--num-samples", "500")[0].splitlines()
    columns, log_z = (next(line for line in lines if name in line) for name in ("independent", "log Z"))
    assert "(exact)" not in columns
    error = evaluation(run)["log_partition"]["best"]["std_error"]
    assert error < 0.0005
    assert float(log_z.split("±")[1].split()[0]) == pytest.approx(error, abs=5e-5)


def test_the_table_stands_where_nothing_can_be_written_any_more(cli, trained, monkeypatch):
    def full(path, fields):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("discrete_vae.runs.results.write_json", full)
    per_example = trained.parent / "rows.csv"
    status, out, err = cli("evaluate", trained, "--per-example", per_example)
    assert (status, number(out, "log-likelihood") < 0) == (2, True)
    assert re.search(r"error: \S*step-\S*\.json must be writable; received No space left on device\.", err)
    assert len(per_example.read_text().splitlines()) == 7  # the other file is written all the same


@pytest.mark.parametrize("options", [[], ["--out", "DIR/x.json"], ["--per-example", "DIR/x.csv"]])
def test_what_cannot_be_written_is_found_before_the_work(refused, trained, monkeypatch, options):
    def work(*_, **__):
        raise AssertionError("evaluated before the check")

    monkeypatch.setattr(import_module("discrete_vae.inference.evaluate_run"), "evaluate_model", work)
    (trained / "evaluations").write_text("in the way")
    options = [word.replace("DIR", str(trained / "evaluations")) for word in options]
    assert "which is no folder" in refused("evaluate", trained, *options)


@pytest.mark.parametrize("ending", [".csv", ".npz"])
def test_each_example_has_its_row(done, trained, tmp_path, ending):
    path = tmp_path / f"rows{ending}"
    done("evaluate", trained, "--num-examples", 4, "--per-example", path)
    if ending == ".csv":
        columns = {name: [*map(float, cells)] for name, cells in columns_of(path).items()}
    else:
        columns = {name: column.tolist() for name, column in np.load(path).items()}
    found = evaluation(trained)
    assert fmean(columns["log_likelihood"]) == found["log_likelihood"]["value"]
    assert fmean(columns["limit_log_likelihood"]) == found["log_likelihood_limit"]["value"]
    assert min(columns["ess"]) == found["log_likelihood"]["min_ess"]
    error = math.sqrt(sum(value**2 for value in columns["std_error"])) / 4
    assert error == pytest.approx(found["log_likelihood"]["monte_carlo_std_error"])
    assert columns["index"] == sorted(set(columns["index"]))
    assert len(columns["index"]) == 4
    assert set(columns["index"]) < set(range(6))


def test_the_precision_is_an_option_and_kept(done, trained):
    values = {}
    for asked in ("float32", "auto", "bfloat16"):  # so small a model gains nothing
        done("evaluate", trained, "--precision", asked)
        found = evaluation(trained)
        assert found["config"]["precision"] == ("float32" if asked == "auto" else asked)
        values[asked] = found["log_likelihood"]["value"]
    assert values["float32"] == values["auto"] != values["bfloat16"]
    assert abs(values["float32"] - values["bfloat16"]) < 0.1
    assert len(list((trained / "evaluations").iterdir())) == 2


def test_the_sharp_limit_is_an_option(done, refused, trained):
    """An evaluation without it stands beside one with it, and does not take its place."""
    out, _ = done("evaluate", trained, "--sharp-limit", "false")
    assert "sharp limit" not in out
    first = evaluation(trained)
    assert first["log_likelihood_limit"] is None
    done("evaluate", trained, "--sharp-limit", "true")
    found = evaluation(trained)
    assert found["log_likelihood"] == first["log_likelihood"]
    done("evaluate", trained, "--sharp-limit", "false")
    assert evaluation(trained) == found
    assert len(list((trained / "evaluations").iterdir())) == 2
    assert "--sharp-limit" in refused("evaluate", trained, "--sharp-limit", "maybe")


def test_the_last_lines_say_what_the_model_is_worth(done, trained, tmp_path):
    """Its error is that of the differences, example by example, and log Z here is exact."""
    out, _ = done("evaluate", trained, "--per-example", tmp_path / "rows.npz")
    found = evaluation(trained)
    baseline = found["independent_features"]
    assert number(out, "independent columns") == pytest.approx(baseline["value"], abs=5e-4)
    assert baseline["num_examples"] == 6
    assert set(baseline) == {"value", "std_error", "num_examples"}
    gain = found["log_likelihood"]["value"] - baseline["value"]
    loaded = load_run(trained)
    data = instantiate(loaded.config.data)
    rows = independent_features(loaded.model.likelihood, data.train, data.test).examples.value.numpy()
    differences = np.load(tmp_path / "rows.npz")["log_likelihood"] - rows
    error = differences.std(ddof=1) / math.sqrt(6)
    assert differences.mean() == pytest.approx(gain, abs=1e-9)
    where = "better" if gain >= 0 else "worse"
    words = f"the model is {abs(gain):.2f} ± {error:.2f} nats per example {where} than independent columns."
    assert words in " ".join(out.split())


def test_of_few_examples_two_standard_errors_are_no_lead():
    assert "chance" in worth(-10.0, -11.2, 0.55, 5, "test data")
    assert "chance" not in worth(-10.0, -11.2, 0.55, 100, "test data")


@pytest.mark.filterwarnings("default")
def test_a_kept_model_of_independent_columns_is_not_compared_with_itself(done, data_file, tmp_path):
    run, rate = tmp_path / "run", ("--training.optimizer.learning-rate", 1e-9)
    kept = ("--training.independent-start", "true", *rate)
    done("train", "--data", data_file, *TINY, *kept, "--run-dir", run)
    with pytest.warns(UserWarning, match="step 0"):
        assert load_run(run).step == 0
    assert load_run(run, "last").step == 6
    out, err = done("evaluate", run)
    assert "step 6" in err  # which is trained
    assert "the model is" not in out
    assert "model of independent columns itself" in out
    released = tmp_path / "released"
    _, err = done("release", run, "--license", "mit", "--out", released)
    assert err.count("step 0") == 1
    with pytest.warns(UserWarning, match="step 0"):
        load_run(released)


@pytest.mark.parametrize("verb", ["evaluate", "log-partition", "score"])
def test_json_is_one_object_and_nothing_else(done, trained, verb):
    more = {"score": ("--threshold-from", "valid", "--num-samples", "1")}
    more["evaluate"] = ("--num-examples", "1", "--num-samples", "1")
    out, err = done(verb, trained, "--json", "--quiet", *more.get(verb, ()))
    found = json.loads(out, parse_constant=pytest.fail)
    assert "Computing" not in err
    if verb == "evaluate":
        assert found["log_likelihood"] == evaluation(trained)["log_likelihood"]
        assert found["log_likelihood"]["std_error"] is found["elbo"]["elbo_std_error"] is None
        again, _ = done(verb, trained, *more[verb])
        assert re.search(r"log-likelihood +-[\d.]+ ± unknown", again)
        assert "nan" not in again
    elif verb == "log-partition":
        assert found["estimates"] == read_json(trained / "log_partition.json")["estimates"]
    else:
        assert found["log_likelihood"]["num_examples"] == 6
        assert set(found["share_in_lowest"]) == {"0.01", "0.05"}


def test_parts_of_an_earlier_training_in_a_folder_do_not_count(cli, done, trained, monkeypatch, tmp_path):
    """An evaluation is interrupted, the folder gets other weights at the same step, and it is evaluated again."""

    def interrupt(*args, **more):
        raise KeyboardInterrupt

    words = ("evaluate", trained, "--num-samples", "10", "--num-examples", "5")
    with monkeypatch.context() as patch:  # when all parts are kept
        patch.setattr(import_module("discrete_vae.inference.evaluate_run"), "evaluate_elbo", interrupt)
        assert cli(*words)[0] == 130
    saved = RunDirectory.open(trained).checkpoints().load("best")
    forge(saved.folder, {name: value / 2 for name, value in saved.tensors.items() if "weight" in name})
    done(*words)
    done(*words, "--out", tmp_path / "anew.json")  # which keeps and takes up nothing
    found, anew = evaluation(trained), read_json(tmp_path / "anew.json")
    for name in ("log_likelihood", "log_likelihood_limit"):
        assert found[name] == pytest.approx(anew[name], rel=1e-12)
    assert found["log_partition"]["best"]["value"] == anew["log_partition"]["best"]["value"]


def test_independent_columns_are_fitted_to_what_the_run_sees(done, data_file, tmp_path):
    run = tmp_path / "run"
    few = ("--training.num-examples", 20, "--training.batch-size", 10)
    done("train", "--data", data_file, *TINY, *few, "--run-dir", run)
    done("evaluate", run)
    config = load_run(run).config
    whole = load_data(config)
    part, found = training_subset(whole, config.training), read_json(run / "evaluation.json")
    likelihood = load_run(run).model.likelihood
    expected, other = (
        independent_features(likelihood, each.train, whole.test).value for each in (part, whole)
    )
    assert found["independent_features"]["value"] == pytest.approx(expected, abs=1e-6)
    assert abs(expected - other) > 1e-3
