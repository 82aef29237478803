"""dvae evaluate end to end: what it prints, what it writes, and that the numbers cohere."""

import io
import json
import math
import re
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module

import numpy as np
import pytest
import torch

from discrete_vae.config import instantiate
from discrete_vae.evaluation.evaluate import independent_features
from discrete_vae.inference.evaluate_run import evaluate_run
from discrete_vae.log_partition.exact import exact_log_partition
from discrete_vae.runs.load import load_run
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.system import computing_on
from tests.commands.test_forged_checkpoint import forge


def evaluation(run):
    return json.loads((run / "evaluation.json").read_text())


def kept(run):
    """The evaluations by checkpoint, samples, examples and seed."""
    found = [json.loads(path.read_text()) for path in (run / "evaluations").glob("*.json")]
    return {
        (f["step"], f["config"]["num_samples"], f["config"]["num_examples"], f["config"]["seed"]): f
        for f in found
    }


def new_files(before, after):
    """The new files of the folder of evaluations, which is new as well."""
    new = sorted(after.keys() - before.keys())
    return [path for path in new if path.parent.name == "evaluations" or path.name == "evaluations"]


def number(out, name):
    return float(re.search(rf"^ *{name} +(-?[\d.]+)", out, re.MULTILINE)[1])


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """The digits run that the help recommends as a first one, and what evaluating it prints."""
    from discrete_vae.cli import main

    run = tmp_path_factory.mktemp("digits") / "run"
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        assert main(["train", "digits", "--size", "smoke", "--run-dir", str(run)]) == 0
    assert "nats per example better than independent columns" in " ".join(out.getvalue().split())
    assert "warning" not in (out.getvalue() + err.getvalue()).lower()
    return run


@pytest.mark.filterwarnings("ignore:the last doubling of the importance samples")
def test_digits_smoke(done, smoke):
    out, err = done("evaluate", smoke, "--num-samples", "1000", "--num-examples", "60", "--device", "cpu")
    assert err.startswith(f"{computing_on(torch.device('cpu'))}\n")
    found = evaluation(smoke)
    likelihood, elbo, prior = found["log_likelihood"], found["elbo"], found["log_partition"]["best"]
    first = f"{smoke}, checkpoint of step {found['step']}, digits: 60 test examples"
    assert " ".join(out.split()).startswith(first)
    assert f"log-likelihood {likelihood['value']:15.3f} ± {likelihood['std_error']:.3f}" in out
    assert f"ELBO {elbo['elbo']:25.3f} ± {elbo['elbo_std_error']:.3f}" in out
    assert "KL continuous" not in out  # of a model without continuous layers
    assert f"Written to {smoke / 'evaluation.json'}" in out.splitlines()
    assert out.splitlines()[-1] == f"Next: dvae sample {smoke}"
    # within 5 standard errors of the Monte-Carlo noise, the bound lies below
    assert likelihood["value"] > elbo["elbo"] - 5 * likelihood["monte_carlo_std_error"]
    split = elbo["reconstruction"] - elbo["kl_discrete"] - elbo["kl_continuous"]
    assert elbo["elbo"] == pytest.approx(split, abs=1e-6)
    assert min(elbo["kl_discrete"], -elbo["reconstruction"]) > 0
    assert elbo["kl_continuous"] == 0
    assert -64 * math.log(2) < elbo["elbo"] < likelihood["value"] < -15
    # sides of 16 units: log Z is exact, and equals enumeration of the checkpoint's prior
    assert (prior["method"], prior["std_error"]) == ("enumeration", 0)
    exact = exact_log_partition(load_run(RunDirectory.open(smoke)).model.prior).value
    assert prior["value"] == pytest.approx(exact, abs=1e-9)
    assert re.search(r"log Z +[\d.]+ \(exact\) +enumeration", out)


def test_every_option_reaches_the_evaluation(done, trained):
    done("evaluate", trained, "--num-samples", 7, "--num-examples", 3, "--seed", 5, "--checkpoint", 4)
    found = evaluation(trained)
    assert (found["step"], found["config"]["seed"]) == (4, 5)
    assert (found["log_likelihood"]["num_samples"], found["log_likelihood"]["num_examples"]) == (7, 3)
    done("evaluate", trained)
    found = evaluation(trained)
    best = json.loads((trained / "best.json").read_text())["step"]
    assert (found["step"], found["log_likelihood"]["num_examples"]) == (best, 6)
    out, _ = done("evaluate", trained, "--checkpoint", "last")
    assert f"{trained / 'evaluation.json'} keeps a more complete one" in out
    assert evaluation(trained)["step"] == best
    assert set(kept(trained)) == {(4, 7, 3, 5), (best, 20, None, 0), (6, 20, None, 0)}


def test_the_verb_gives_what_the_function_does(done, trained):
    loaded = load_run(trained)
    found = evaluate_run(loaded, instantiate(loaded.config.data))
    done("evaluate", trained)
    kept_values = evaluation(trained)
    assert found.fields["log_likelihood"] == kept_values["log_likelihood"]
    assert found.fields["elbo"] == kept_values["elbo"]


def test_one_example_and_one_sample_have_no_standard_error(done, trained):
    out, _ = done("evaluate", trained, "--num-samples", 1, "--num-examples", 1)
    assert re.search(r"log-likelihood +-[\d.]+ ± unknown", out)
    found = evaluation(trained)
    assert found["log_likelihood"]["std_error"] is None
    assert found["elbo"]["elbo_std_error"] is None


def test_a_large_prior_is_bridged_and_annealed_both_ways(done, tmp_path, data_file):
    from tests.commands.conftest import TINY

    words = [*TINY, "--model.prior.num-left", "26", "--model.prior.num-right", "26"]
    words += ["--evaluation.num-annealed-chains", "20", "--evaluation.num-temperatures", "50"]
    words += ["--evaluation.num-chain-sweeps", "10", "--evaluation.log-partition-std-error", "0.05"]
    done("train", "--data", data_file, "--run-dir", tmp_path / "run", *words)
    out, _ = done("evaluate", tmp_path / "run", "--num-samples", "500")
    assert re.search(r"log Z +[\d.]+ ± 0\.\d+ +bridge sampling", out)
    for direction in ("forward", "reverse"):
        assert re.search(rf"check +[\d.]+ ± 0\.\d+ +annealed {direction}", out)
    found = evaluation(tmp_path / "run")["log_partition"]
    assert found["gap"] == pytest.approx(found["reverse"]["value"] - found["forward"]["value"])


def test_evaluating_leaves_all_but_its_own_file_alone(cli, trained):
    from tests.commands.conftest import snapshot

    before = snapshot(trained)
    threads = torch.get_num_threads()
    cli("evaluate", trained)
    after = snapshot(trained)
    assert after.pop(trained / "evaluation.json") in [after.pop(path) for path in new_files(before, after)]
    assert after == before
    assert torch.get_num_threads() == threads


@pytest.mark.filterwarnings("always")
def test_data_that_have_changed_are_a_warning(done, trained, tmp_path):
    import numpy as np

    config = json.loads((trained / "config.json").read_text())
    np.save(tmp_path / "other.npy", np.eye(60, 12))
    config["data"]["path"] = str(tmp_path / "other.npy")
    (trained / "config.json").write_text(json.dumps(config))
    _, err = done("evaluate", trained, "--accept-changed-config")
    assert "warning: the data (other.npy) are not those that the run was trained on" in err


@pytest.mark.filterwarnings("always")
def test_an_evaluation_with_a_changed_config_displaces_none(done, trained):
    done("evaluate", trained, "--num-examples", 2)
    before = evaluation(trained)
    config = json.loads((trained / "config.json").read_text())
    config["data"]["split_seed"] += 1
    (trained / "config.json").write_text(json.dumps(config))
    for words in (["--num-examples", 2], []):
        out, _ = done("evaluate", trained, "--accept-changed-config", *words)
        assert f"{trained / 'evaluation.json'} keeps a more complete one" in out
    assert evaluation(trained) == before
    assert len(list((trained / "evaluations").iterdir())) == 3


def test_the_table_stands_where_nothing_can_be_written_any_more(cli, trained, monkeypatch):
    def full(path, fields):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("discrete_vae.runs.results.write_json", full)
    per_example = trained.parent / "rows.csv"
    status, out, err = cli("evaluate", trained, "--per-example", per_example)
    assert status == 2
    assert number(out, "log-likelihood") < 0
    assert re.search(
        r"error: \S*evaluations/step-\S*\.json must be writable; received No space left on device\.", err
    )
    assert len(per_example.read_text().splitlines()) == 7  # the other file is written all the same


@pytest.mark.parametrize("options", [[], ["--out", "DIR/x.json"], ["--per-example", "DIR/x.csv"]])
def test_what_cannot_be_written_is_found_before_the_work(refused, trained, monkeypatch, options):
    def work(*_, **__):
        raise AssertionError("evaluated before the check")

    monkeypatch.setattr(import_module("discrete_vae.inference.evaluate_run"), "evaluate_model", work)
    (trained / "evaluations").write_text("in the way")
    options = [word.replace("DIR", str(trained / "evaluations")) for word in options]
    assert "which is no folder" in refused("evaluate", trained, *options)


def test_out_leaves_the_run_alone(done, trained, tmp_path):
    from tests.commands.conftest import snapshot

    before = snapshot(trained)
    out, _ = done("evaluate", trained, "--out", tmp_path / "new" / "found.json")
    assert f"Written to {tmp_path / 'new' / 'found.json'}" in out
    assert snapshot(trained) == before
    found = json.loads((tmp_path / "new" / "found.json").read_text())
    assert f"{found['log_likelihood']['value']:.3f}" == f"{number(out, 'log-likelihood'):.3f}"


@pytest.mark.parametrize("ending", [".csv", ".npz"])
def test_each_example_has_its_row(done, trained, tmp_path, ending):
    import csv
    from statistics import fmean

    import numpy as np

    path = tmp_path / f"rows{ending}"
    done("evaluate", trained, "--num-examples", 4, "--per-example", path)
    if ending == ".csv":
        with path.open() as file:
            rows = list(csv.DictReader(file))
        columns = {name: [float(row[name]) for row in rows] for name in rows[0]}
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


@pytest.mark.parametrize("asked", ["float32", "bfloat16", "auto"])
def test_the_precision_is_an_option_and_kept(done, trained, asked):
    done("evaluate", trained, "--precision", asked)
    found = evaluation(trained)
    assert found["config"]["precision"] == (
        "float32" if asked == "auto" else asked
    )  # so small a model gains nothing
    done("evaluate", trained)
    files = [json.loads(path.read_text()) for path in (trained / "evaluations").glob("*.json")]
    values = {f["config"]["precision"]: f["log_likelihood"]["value"] for f in files}
    assert (len(values) == 2) == (asked == "bfloat16")
    assert len(set(values.values())) == len(values)
    assert max(values.values()) - min(values.values()) < 0.1


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


@pytest.mark.parametrize("verb", ["evaluate", "log-partition", "score"])
def test_json_is_one_object_and_nothing_else(cli, trained, tmp_path, verb):
    more = {"score": ("--threshold-from", "valid", "--num-samples", "1"), "evaluate": ("--num-examples", "1")}
    status, out, err = cli(verb, trained, "--json", "--quiet", *more.get(verb, ()))
    found = json.loads(out, parse_constant=pytest.fail)
    assert status == 0
    assert "Computing" not in err
    if verb == "evaluate":
        assert found["log_likelihood"] == evaluation(trained)["log_likelihood"]
        assert found["log_likelihood"]["std_error"] is None
    elif verb == "log-partition":
        kept = json.loads((trained / "log_partition.json").read_text())
        assert found["estimates"] == kept["estimates"]
    else:
        assert found["log_likelihood"]["num_examples"] == 6
        assert set(found["share_in_lowest"]) == {"0.01", "0.05"}


def test_parts_of_an_earlier_training_in_the_same_folder_do_not_count(
    cli, done, trained, monkeypatch, tmp_path
):
    """An evaluation is interrupted, the folder gets other weights at the same step, and it is evaluated again."""
    evaluating = import_module("discrete_vae.inference.evaluate_run")

    def interrupt(*args, **more):
        raise KeyboardInterrupt

    words = ("evaluate", trained, "--num-samples", "10", "--num-examples", "5")
    with monkeypatch.context() as patch:
        patch.setattr(evaluating, "evaluate_elbo", interrupt)  # when all parts are kept
        assert cli(*words)[0] == 130
    checkpoints = RunDirectory.open(trained).checkpoints()
    saved = checkpoints.load("best")
    forge(saved.folder, {name: value / 2 for name, value in saved.tensors.items() if "weight" in name})
    done(*words)
    done(*words, "--out", tmp_path / "anew.json")  # which keeps and takes up nothing
    anew = json.loads((tmp_path / "anew.json").read_text())
    for name in ("log_likelihood", "log_likelihood_limit"):
        assert evaluation(trained)[name] == pytest.approx(anew[name], rel=1e-12)
    assert evaluation(trained)["log_partition"]["best"]["value"] == anew["log_partition"]["best"]["value"]
