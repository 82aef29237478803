"""dvae evaluate end to end: what it prints, what it writes, and that the numbers cohere."""

import json
import math
import re
import shutil
from importlib import import_module

import pytest
import torch

from discrete_vae.cli.summaries import below_baseline
from discrete_vae.config import instantiate
from discrete_vae.evaluation.evaluate import IndependentFeatures
from discrete_vae.inference.evaluate_run import evaluate_run
from discrete_vae.load import load_run
from discrete_vae.log_partition.exact import exact_log_partition
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
    assert main(["train", "digits", "--size", "smoke", "--run-dir", str(run)]) == 0
    return run


@pytest.mark.filterwarnings("ignore:the last doubling of the importance samples")
def test_digits_smoke(cli, smoke):
    status, out, err = cli(
        "evaluate", smoke, "--num-samples", "1000", "--num-examples", "60", "--device", "cpu"
    )
    assert status == 0
    assert err.startswith(f"{computing_on(torch.device('cpu'))}\n")
    found = evaluation(smoke)
    likelihood, elbo, prior = found["log_likelihood"], found["elbo"], found["log_partition"]["best"]
    assert out.splitlines()[0] == f"{smoke}, checkpoint of step {found['step']}, digits: 60 test examples"
    assert f"log-likelihood {likelihood['value']:17.3f} +- {likelihood['std_error']:.3f}" in out
    assert f"ELBO {elbo['elbo']:27.3f} +- {elbo['elbo_std_error']:.3f}" in out
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
    assert re.search(r"log Z +[\d.]+ \+- 0 \(exact\) +enumeration", out)


@pytest.mark.filterwarnings("ignore:the last doubling of the importance samples")
def test_more_samples_raise_the_log_likelihood(cli, smoke):
    values = []
    for num_samples in (1, 10, 300):
        assert cli("evaluate", smoke, "--num-samples", num_samples, "--num-examples", "40")[0] == 0
        best = evaluation(smoke)["step"]
        values.append(kept(smoke)[best, num_samples, 40, 0]["log_likelihood"]["value"])
    assert values == sorted(values)
    assert values[2] - values[0] > 1.0


def test_every_option_reaches_the_evaluation(cli, trained):
    assert (
        cli("evaluate", trained, "--num-samples", 7, "--num-examples", 3, "--seed", 5, "--checkpoint", 4)[0]
        == 0
    )
    found = evaluation(trained)
    assert (found["step"], found["config"]["seed"]) == (4, 5)
    assert (found["log_likelihood"]["num_samples"], found["log_likelihood"]["num_examples"]) == (7, 3)
    assert cli("evaluate", trained)[0] == 0
    found = evaluation(trained)
    best = json.loads((trained / "best.json").read_text())["step"]
    assert (found["step"], found["log_likelihood"]["num_examples"]) == (best, 6)
    status, out, _ = cli("evaluate", trained, "--checkpoint", "last")
    assert status == 0
    assert f"{trained / 'evaluation.json'} keeps a more complete one" in out
    assert evaluation(trained)["step"] == best
    assert set(kept(trained)) == {(4, 7, 3, 5), (best, 20, None, 0), (6, 20, None, 0)}


def test_the_verb_gives_what_the_function_does(cli, trained):
    loaded = load_run(trained)
    found = evaluate_run(loaded, instantiate(loaded.config.data))
    assert cli("evaluate", trained)[0] == 0
    kept_values = evaluation(trained)
    assert found.fields["log_likelihood"] == kept_values["log_likelihood"]
    assert found.fields["elbo"] == kept_values["elbo"]


def test_the_same_seed_gives_the_same_figures(cli, trained):
    found = []
    for seed in (1, 1, 2):
        cli("evaluate", trained, "--seed", seed)
        found.append(evaluation(trained)["log_likelihood"]["value"])
    assert found[0] == found[1] != found[2]


def test_one_example_and_one_sample_have_no_standard_error(cli, trained):
    status, out, _ = cli("evaluate", trained, "--num-samples", 1, "--num-examples", 1)
    assert status == 0
    assert re.search(r"log-likelihood +-[\d.]+ \+- unknown", out)
    found = evaluation(trained)
    assert found["log_likelihood"]["std_error"] is None
    assert found["elbo"]["elbo_std_error"] is None


def test_a_large_prior_is_bridged_and_annealed_both_ways(cli, tmp_path, data_file):
    from tests.commands.conftest import TINY

    words = [*TINY, "--model.prior.num-left", "26", "--model.prior.num-right", "26"]
    words += ["--evaluation.num-annealed-chains", "20", "--evaluation.num-temperatures", "50"]
    words += ["--evaluation.num-chain-sweeps", "10", "--evaluation.log-partition-std-error", "0.05"]
    assert cli("train", "--data", data_file, "--run-dir", tmp_path / "run", *words)[0] == 0
    status, out, _ = cli("evaluate", tmp_path / "run", "--num-samples", "500")
    assert status == 0
    assert re.search(r"log Z +[\d.]+ \+- 0\.\d+ +bridge sampling", out)
    for direction in ("forward", "reverse"):
        assert re.search(rf"check +[\d.]+ \+- 0\.\d+ +annealed {direction}", out)
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


@pytest.mark.parametrize(
    ("words", "argument"),
    [
        ("trained --checkpoint 3", "--checkpoint"),
        ("trained --checkpoint newest", "--checkpoint"),
        ("trained --checkpoint -1", "--checkpoint"),
        ("trained --num-examples 7", "--num-examples"),
        ("trained --precision half", "--precision"),
        ("trained --num-samples 0", "--num-samples"),
        ("trained --data-dir /no/such/folder", "--data-dir"),
        ("trained --out x.txt", "--out"),
        ("trained --per-example x.txt", "--per-example"),
        ("none", "RUN"),
        (".", "RUN"),
        ("trained/config.json", "RUN"),
        ("empty", "--checkpoint"),
    ],
)
def test_what_cannot_be_done_is_refused(refused, trained, tmp_path, monkeypatch, words, argument):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, "empty")
    shutil.rmtree("empty/checkpoints")
    assert refused("evaluate", *words.split()).startswith(f"error: {argument} ")


@pytest.mark.filterwarnings("always")
def test_data_that_have_changed_are_a_warning(cli, trained, tmp_path):
    import numpy as np

    config = json.loads((trained / "config.json").read_text())
    np.save(tmp_path / "other.npy", np.eye(60, 12))
    config["data"]["path"] = str(tmp_path / "other.npy")
    (trained / "config.json").write_text(json.dumps(config))
    status, _, err = cli("evaluate", trained, "--accept-changed-config")
    assert status == 0
    assert "warning: the data (other.npy) are not those that the run was trained on" in err


@pytest.mark.filterwarnings("always")
def test_data_that_are_gone_are_named(cli, trained, tmp_path):
    config = json.loads((trained / "config.json").read_text())
    config["data"]["path"] = str(tmp_path / "gone.npy")
    (trained / "config.json").write_text(json.dumps(config))
    status, _, err = cli("evaluate", trained, "--accept-changed-config")
    assert status == 2
    assert f"error: {tmp_path / 'gone.npy'} must exist" in err


def test_a_smaller_evaluation_hides_none_and_loses_none(cli, trained):
    best = json.loads((trained / "best.json").read_text())["step"]
    assert cli("evaluate", trained)[0] == 0
    whole = evaluation(trained)
    for words in (["--num-examples", 2], ["--num-samples", 5], ["--checkpoint", "4"]):
        _, out, _ = cli("evaluate", trained, *words)
        assert f"{trained / 'evaluation.json'} keeps a more complete one" in out
        assert evaluation(trained) == whole
    assert set(kept(trained)) == {(best, 20, None, 0), (best, 20, 2, 0), (best, 5, None, 0), (4, 20, None, 0)}
    names = sorted(path.name.rpartition("-")[0] for path in (trained / "evaluations").iterdir())
    assert f"step-{best}-samples-20-examples-all-seed-0" in names
    assert f"step-{best}-samples-20-examples-2-seed-0" in names


def test_a_new_best_checkpoint_is_not_hidden_by_the_old_ones_evaluation(cli, trained, monkeypatch):
    assert cli("evaluate", trained)[0] == 0
    before = evaluation(trained)
    newer = next(step for step in (6, 4) if step != before["step"])
    monkeypatch.setattr("discrete_vae.runs.checkpoints.CheckpointStore.best", lambda store: {"step": newer})
    assert cli("evaluate", trained, "--checkpoint", newer, "--num-examples", 2)[0] == 0
    assert evaluation(trained)["step"] == newer
    assert kept(trained)[before["step"], 20, None, 0] == before


@pytest.mark.filterwarnings("always")
def test_an_evaluation_with_a_changed_config_displaces_none(cli, trained):
    assert cli("evaluate", trained, "--num-examples", 2)[0] == 0
    before = evaluation(trained)
    config = json.loads((trained / "config.json").read_text())
    config["data"]["split_seed"] += 1
    (trained / "config.json").write_text(json.dumps(config))
    for words in (["--num-examples", 2], []):
        status, out, _ = cli("evaluate", trained, "--accept-changed-config", *words)
        assert status == 0
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


def test_out_leaves_the_run_alone(cli, trained, tmp_path):
    from tests.commands.conftest import snapshot

    before = snapshot(trained)
    status, out, _ = cli("evaluate", trained, "--out", tmp_path / "new" / "found.json")
    assert status == 0
    assert f"Written to {tmp_path / 'new' / 'found.json'}" in out
    assert snapshot(trained) == before
    found = json.loads((tmp_path / "new" / "found.json").read_text())
    assert f"{found['log_likelihood']['value']:.3f}" == f"{number(out, 'log-likelihood'):.3f}"


@pytest.mark.parametrize("ending", [".csv", ".npz"])
def test_each_example_has_its_row(cli, trained, tmp_path, ending):
    import csv
    from statistics import fmean

    import numpy as np

    path = tmp_path / f"rows{ending}"
    assert cli("evaluate", trained, "--num-examples", 4, "--per-example", path)[0] == 0
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
def test_the_precision_is_an_option_and_kept(cli, trained, asked):
    assert cli("evaluate", trained, "--precision", asked)[0] == 0
    found = evaluation(trained)
    assert found["config"]["precision"] == (
        "float32" if asked == "auto" else asked
    )  # so small a model gains nothing
    assert cli("evaluate", trained)[0] == 0
    files = [json.loads(path.read_text()) for path in (trained / "evaluations").glob("*.json")]
    values = {f["config"]["precision"]: f["log_likelihood"]["value"] for f in files}
    assert (len(values) == 2) == (asked == "bfloat16")
    assert len(set(values.values())) == len(values)
    assert max(values.values()) - min(values.values()) < 0.1


def test_seeds_differ_in_their_noise_alone(cli, trained, tmp_path):
    """Where the seed chose the examples, two seeds showed the spread of the data."""
    index, baseline = [], []
    for seed in (0, 1, 2, 3):
        path = tmp_path / f"{seed}.csv"
        cli("evaluate", trained, "--num-examples", 2, "--seed", seed, "--per-example", path)
        index.append([line.split(",")[0] for line in path.read_text().splitlines()])
        best = evaluation(trained)["step"]
        baseline.append(kept(trained)[best, 20, 2, seed]["independent_features"]["value"])
    assert index == [index[0]] * 4
    assert baseline == [baseline[0]] * 4


@pytest.mark.parametrize(("value", "is_below"), [(-27.1, True), (-26.9, False)])
def test_only_a_model_below_the_baseline_is_told(value, is_below):
    assert bool(below_baseline("ELBO", value, IndependentFeatures(-27.0, 0.2, 250))) == is_below


def test_a_model_below_the_means_of_the_features_is_told(cli, trained):
    _, out, _ = cli("evaluate", trained)
    found = evaluation(trained)
    baseline = found["independent_features"]
    assert number(out, "independent features") == pytest.approx(baseline["value"], abs=5e-4)
    assert baseline["num_examples"] == 6
    below = found["log_likelihood"]["value"] < baseline["value"]
    assert ("nats below that of independent features" in " ".join(out.split())) == below


@pytest.mark.filterwarnings("ignore:the last doubling of the importance samples")
def test_the_table_fits_80_columns(cli, smoke, monkeypatch):
    monkeypatch.chdir(smoke)
    _, out, _ = cli("evaluate", ".", "--num-samples", 2, "--num-examples", 2)
    lines = [line for line in out.splitlines() if not line.startswith("Written to")]
    assert max(map(len, lines)) <= 80


def test_one_that_was_stopped_goes_on_where_it_was(cli, trained, monkeypatch):
    """What was done is taken up, the result is the one of an unbroken evaluation, and nothing of it stays behind."""
    evaluating = import_module("discrete_vae.inference.evaluate_run")
    monkeypatch.setattr(evaluating, "_KEPT_EXAMPLES", 2)
    words = ("evaluate", trained, "--num-samples", "10", "--num-examples", "5")
    assert cli(*words)[0] == 0
    unbroken = evaluation(trained)
    for path in (trained / "evaluations").iterdir():
        path.unlink()
    (trained / "evaluation.json").unlink()

    original, calls = evaluating.evaluate_log_likelihood, []

    def until_the_third(*args, **more):
        calls.append(more["indices"])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*args, **more)

    monkeypatch.setattr(evaluating, "evaluate_log_likelihood", until_the_third)
    assert cli(*words)[0] == 130
    (kept,) = (trained / "evaluation-parts").iterdir()
    assert len(list(kept.iterdir())) == 3  # log Z and two parts
    assert cli(*words)[0] == 0
    assert calls[2] == calls[3], "the part that was interrupted is done again, those before it are not"
    assert evaluation(trained)["log_likelihood"] == unbroken["log_likelihood"]
    assert evaluation(trained)["log_partition"] == unbroken["log_partition"]
    assert not (trained / "evaluation-parts").exists()


def test_parts_of_an_earlier_training_in_the_same_folder_do_not_count(cli, trained, monkeypatch, tmp_path):
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
    assert cli(*words)[0] == 0
    assert cli(*words, "--out", tmp_path / "anew.json")[0] == 0  # which keeps and takes up nothing
    anew = json.loads((tmp_path / "anew.json").read_text())
    for name in ("log_likelihood", "log_likelihood_limit"):
        assert evaluation(trained)[name] == pytest.approx(anew[name], rel=1e-12)
    assert evaluation(trained)["log_partition"]["best"]["value"] == anew["log_partition"]["best"]["value"]
