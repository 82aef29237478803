"""The page about a run: what it says is what the run's files say, and it needs nothing but itself."""

import base64
import html
import io
import itertools
import json
import re
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from scipy.io import mmwrite
from scipy.sparse import coo_array

from discrete_vae.cli import main
from discrete_vae.config.overrides import apply_overrides, split_overrides
from discrete_vae.data.rows import load_file
from discrete_vae.data.splits import training_subset
from discrete_vae.figures import FigureRun
from discrete_vae.figures.run import samples_of_run
from discrete_vae.own_data import read_own_experiment
from discrete_vae.presets import load_experiment
from discrete_vae.report import SECTIONS, make_report
from discrete_vae.report.charts import Axis
from discrete_vae.report.latents import modes
from discrete_vae.report.results import train_command
from discrete_vae.report.source import ReportSource
from discrete_vae.runs import load_run
from discrete_vae.runs.io import shipped_folder
from discrete_vae.runs.run_directory import RunDirectory
from tests.refusals import refused_argument
from tests.report.conftest import STRANGE, Page, page_of, trained

ALL = shlex.split(
    "summary training-curves bound samples reconstructions traversals active-units modes chains log-partition "
    "reproduce config environment"
)


def read(run, name):
    return json.loads((run / name).read_text())


def test_a_run_with_everything_has_every_section_with_the_numbers_of_the_files(images, image_page):
    assert image_page.sections == ALL
    assert len(ALL) == len(SECTIONS)
    assert {f"#{key}" for key in ALL} <= {link["href"] for link in image_page.of("a")}
    levels = [int(tag[1]) for tag, _ in image_page.tags if re.fullmatch("h[1-6]", tag)]
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(below - above <= 1 for above, below in itertools.pairwise(levels))
    assert "with 10 labels" in image_page.said  # those of the data set
    evaluation, repeats = read(images, "evaluation.json"), read(images, "log_partition.json")
    elbo = evaluation["elbo"]
    wanted = [
        evaluation["log_likelihood"]["value"],
        evaluation["log_likelihood"]["std_error"],
        evaluation["log_partition"]["best"]["value"],
        evaluation["independent_features"]["value"],
        elbo["elbo"],
        -elbo["reconstruction"],
        elbo["kl_discrete"],
        elbo["kl_continuous"],
    ]
    seconds = [json.loads(line)["seconds"] for line in (images / "metrics.jsonl").read_text().splitlines()]
    assert {repr(value) for value in [*wanted, max(seconds)]} <= set(image_page.values)
    assert f"{np.mean([each['value'] for each in repeats['estimates']]):.4f}" in image_page.said


def test_the_example_on_the_site_is_todays_page(image_page):
    """Else run docs/example_report.py."""
    example = Page((Path(__file__).parents[2] / "docs/_static/example-report.html").read_text("utf-8"))
    assert example.sections == image_page.sections
    styles = [re.search("<style>.*?</style>", page.text, re.DOTALL)[0] for page in (example, image_page)]
    assert styles[0] == styles[1]


def test_its_command_lines_make_the_run_again(images, image_page, tmp_path):
    """As they are printed, but for the name of the folder, where the run is already."""
    again = tmp_path / "again"
    lines = re.search("<pre[^>]*><code>(.*?)</code>", image_page.text, re.DOTALL)[1]
    lines = html.unescape(lines).replace(str(images), str(again)).splitlines()
    commands, verbs = [*map(shlex.split, lines)], ("train", "evaluate", "log-partition", "report", "cite")
    assert [words[:2] for words in commands] == [["dvae", verb] for verb in verbs]
    for words in commands:
        assert main(words[1:]) == 0, words
    assert read(again, "config.json") == read(images, "config.json")
    for name, part in (("evaluation.json", "log_likelihood"), ("log_partition.json", "exact")):
        assert read(again, name)[part] == read(images, name)[part]
    counts = [len(read(run, "log_partition.json")["estimates"]) for run in (again, images)]
    assert counts[0] == counts[1]
    assert (again / "report.html").exists()


def test_its_command_gives_settings_that_others_would_change(tmp_path):
    """The total of counts, which a file of cells is given by itself, intervals, which follow the epochs, few rows."""
    counts = np.random.default_rng(0).poisson(3.0, (60, 5))
    mmwrite(path := tmp_path / "cells.mtx", coo_array(counts))
    total, _ = read_own_experiment(path, size="smoke")
    without, data = read_own_experiment(path, [("model.likelihood.exposure", ["none"])], size="smoke")
    longer = total.training.model_copy(update={"num_epochs": 10 * total.training.num_epochs})
    seen = [("training.num-examples", ["30"]), ("training.batch-size", ["30"])]
    few, _ = read_own_experiment(path, seen, size="short")
    for config in (total, without, total.model_copy(update={"training": longer}), few):
        part = training_subset(data, config.training)
        words = train_command(SimpleNamespace(config=config, whole_dataset=data, dataset=part))
        given = split_overrides(words[words.index("--model.likelihood") :])[1]
        assert read_own_experiment(path, given, size=config.size)[0] == config


def test_its_command_names_the_importance_samples_that_a_part_rules_out():
    bits = {"model.hierarchy": "none", "training.num-importance-samples": 1}
    config = load_experiment("omniglot", "short", settings=bits)
    words = train_command(SimpleNamespace(config=config))  # a warning would fail here
    assert words[words.index("--training.num-importance-samples") + 1] == "1"
    given = split_overrides(words[words.index("short") + 1 :])[1]
    assert apply_overrides(load_experiment("omniglot", "short"), given) == config


@pytest.mark.parametrize("size", [1e-7, 4e-5, 1.0, 3e9, 1e30])
def test_labels_of_ticks_are_the_values_and_short(size):
    ticks = Axis(-size, 6 * size, "x").ticks(6)
    for value, text in ticks:
        number = float(text.replace(",", "").replace("\N{MINUS SIGN}", "-"))
        assert number == pytest.approx(value, rel=1e-6, abs=1e-9 * size)
        assert len(text) < 15


def test_the_page_needs_nothing_but_itself(image_page, table_page):
    for page in (image_page, table_page):
        assert page.of("script") == []
        assert all(image["src"].startswith("data:image/png;base64,") for image in page.of("img"))
        assert all(link["href"].startswith(("data:", "#")) for link in [*page.of("a"), *page.of("link")])
        assert not re.search(r"url\(|@import|https?://", page.text)
        assert len(page.text) < 5e6


def test_pictures_say_what_they_show_and_can_be_decoded(image_page):
    assert len(image_page.of("img")) > 5
    for image in image_page.of("img"):
        assert len(image["alt"]) > 20
        pixels = imread(io.BytesIO(base64.b64decode(image["src"].partition(",")[2])), format="png")
        zoom = int(image["width"]) // pixels.shape[1]
        assert pixels.shape == (int(image["height"]) // zoom, int(image["width"]) // zoom, 4)
        assert pixels[..., 3].any()
    for chart in image_page.of("svg"):
        assert chart["role"] == "img"
        assert len(chart["aria-label"]) > 20


def test_a_table_that_was_never_evaluated(table_page):
    assert "log-partition" not in table_page.sections
    assert "Log-likelihood" not in table_page.said
    assert "Validation ELBO" in table_page.said
    assert "dvae evaluate" in table_page.said
    assert table_page.of("img") == []
    assert "gene_3" in table_page.said
    assert "Gaussian" not in table_page.said
    assert STRANGE not in table_page.text
    assert STRANGE in table_page.said
    # labels of the file's rows are cut as the file is
    assert "Agreement of modes with 3 labels of 96 training examples" in table_page.said
    assert "--labels" in table_page.said


@pytest.mark.parametrize("per_row", [True, False])
def test_labels_follow_the_examples_that_a_run_saw(tmp_path, table_file, per_row):
    few = ["--training.num-examples", "40", "--training.batch-size", "10"]
    run = trained(tmp_path, "--data", table_file, *few)
    bits = np.loadtxt(table_file, delimiter=",", skiprows=1)[:, 1].astype(int)  # which stand for labels
    if not per_row:
        bits = load_file(path=table_file, kinds="auto").train[:, 1].numpy().astype(int)
    source = ReportSource(RunDirectory(run), lambda: load_run(run), labels=bits)
    assert len(source.labels) == 40
    assert (source.labels == source.train[:, 1].numpy()).all()
    for shown in (source.indices, source.test_indices):  # the first of them are no beginning of the file
        assert (np.diff(shown) < 0).any()
        assert len({*shown.tolist()}) == len(shown)


def test_the_same_seed_gives_the_same_page(table, table_page, table_file):
    file = table_file.with_name("kinds.npy")
    assert make_report(table, labels=file) == table_page.text
    said = f" --labels {html.escape(shlex.quote(str(file)))}"
    assert make_report(table, labels=np.load(file)) == table_page.text.replace(said, "")
    assert make_report(table, seed=1) != table_page.text


def test_an_evaluation_of_another_checkpoint_is_left_out(images):
    steps = sorted(int(folder.name[5:]) for folder in (images / "checkpoints").iterdir())
    best = read(images, "best.json")["step"]
    other = next(step for step in steps if step != best)
    page = page_of(images, checkpoint=other)
    assert "Log-likelihood" not in page.said
    assert "log-partition" not in page.sections
    (note,) = (line for line in page.text.splitlines() if "There is no evaluation" in line)
    assert f"--checkpoint {other}</code>" in note


@pytest.mark.parametrize("name", ["evaluation.json", "log_partition.json", "metrics.jsonl"])
def test_damaged_files_are_named(images, name, tmp_path):
    run = shutil.copytree(images, tmp_path / "run")
    (run / name).write_text("{\n")
    assert name in refused_argument(make_report, run)


def test_real_values_with_gaps_another_sampler_and_one_test_example(tmp_path):
    """Real values on very different scales, a fifth of them missing, one feature constant."""
    random, file = np.random.default_rng(0), tmp_path / "gaps.npz"
    values = random.normal(size=(100, 5)) * [1, 10, 100, 1e-3, 0] + [0, 5, -100, 0, 3]
    values[random.random((100, 5)) < 0.2] = np.nan
    np.savez(file, train=values[:90], valid=values[90:99], test=values[99:])
    words = ["--model.likelihood", "gaussian", "--training.sampler", "parallel-tempering"]
    run = trained(tmp_path, "--data", file, *words)
    page = page_of(run)
    assert "in standard deviations of the feature" in page.said
    assert "feature 4" in page.said
    assert "nan" not in [word.strip("(),.").lower() for word in page.said.split()]
    assert "Modes of the prior" in page.said
    assert "chains led to" in page.said
    assert "Reconstructions" in page.said
    (command,) = re.findall("dvae (train .*)", page.text)
    again = tmp_path / "again"
    assert main([*shlex.split(html.unescape(command)), "--run-dir", str(again)]) == 0
    assert read(again, "config.json") == read(run, "config.json")


def test_what_reconstructions_explain_does_not_depend_on_units(tmp_path):
    values, said = np.random.default_rng(0).normal(size=(100, 3)), []
    values[:, 1] += 3 * values[:, 0]
    for unit in (1, 1024):
        folder = tmp_path / str(unit)
        folder.mkdir()
        np.save(folder / "values.npy", values * [1, 1, unit])
        page = page_of(trained(folder, "--data", folder / "values.npy", "--model.likelihood", "gaussian"))
        said.append(re.search("reconstructions explain [^ ]*", page.said)[0])
    assert said[0] == said[1]


def test_samples_have_the_exposures_of_the_data_and_reconstructions_no_credit_for_theirs(tmp_path):
    """Independent counts of totals that vary much: these alone make correlations and variance."""
    random = np.random.default_rng(0)
    rates = np.exp(random.normal(2.0, 0.8, (1500, 1))) * random.uniform(0.5, 1.5, 6)
    np.save(tmp_path / "counts.npy", random.poisson(rates).astype(np.float32))
    words = ["--model.likelihood", "negative-binomial", "--model.likelihood.exposure", "total"]
    run = trained(tmp_path, "--data", tmp_path / "counts.npy", *words)
    loaded = load_run(run)
    with torch.no_grad():  # the right model
        for parameter in loaded.model.decoder.parameters():
            parameter.zero_()
        loaded.model.likelihood.log_size.fill_(13.0)
    figures = FigureRun(RunDirectory.open(run), lambda: loaded)
    samples = samples_of_run(figures, num_rows=20, seed=0).flatten(0, 1)
    assert torch.corrcoef(samples.T)[~torch.eye(6, dtype=torch.bool)].min() > 0.5
    said = page_of(run, load=lambda: loaded).said.replace("\N{MINUS SIGN}", "-")
    share, *_ = re.findall(r"reconstructions explain (\S+) % of the variance", said)
    assert float(share) < 5


def test_probabilities_with_gaps_are_drawn_as_bits_with_gaps(tmp_path):
    values = np.random.default_rng(0).random((60, 4)) ** 3
    values[::5, 1] = np.nan
    np.save(tmp_path / "shares.npy", values)
    run = trained(tmp_path, "--data", tmp_path / "shares.npy")
    assert read(run, "config.json")["data"]["binarize"]
    assert "Reconstructions" in page_of(run).said
    assert main(["sample", str(run), "--out", str(tmp_path / "columns.png")]) == 0


def test_one_feature_that_samples_miss_and_units_without_effect_are_not_healthy(tmp_path):
    bits = (np.arange(60) % 10 == 0).astype(float)[:, None]
    np.savez(tmp_path / "one.npz", train=bits, valid=bits, test=np.ones((60, 1)))
    run = trained(tmp_path, "--data", tmp_path / "one.npz")
    loaded = load_run(run)
    for parameter in loaded.model.decoder.parameters():
        torch.nn.init.zeros_(parameter)
    said = page_of(run, load=lambda: loaded).said
    assert "of their spread over features" not in said
    assert "look: Samples along the chains" in said
    assert "0 of 5 units change the decoder's output" in said


def test_log_z_of_an_earlier_version_which_kept_no_config(images, tmp_path):
    run = shutil.copytree(images, tmp_path / "run")
    kept = read(run, "log_partition.json")
    for name in ("config", "sha256"):
        del kept[name]
    (run / "log_partition.json").write_text(json.dumps(kept))
    assert "--repeats 3" in page_of(run).said


def test_estimates_of_log_z_that_agree_away_from_the_exact_value_are_sick(images, tmp_path):
    run = shutil.copytree(images, tmp_path / "run")
    kept = read(run, "log_partition.json")
    assert "look: log Z" not in page_of(run).said
    for estimate in kept["estimates"]:
        estimate["value"] += 1
    del kept["sha256"]
    (run / "log_partition.json").write_text(json.dumps(kept))
    assert "look: log Z" in page_of(run).said


def test_a_run_that_logged_nothing_has_no_training_curves(table, tmp_path):
    run = shutil.copytree(table, tmp_path / "a \x1b[31m\u202e b")
    (run / "metrics.jsonl").unlink()
    (run / "environment.json").unlink()
    page = page_of(run)
    assert page.sections[:2] == ["summary", "samples"]
    assert "environment" not in page.sections
    assert "Training time" not in page.said
    assert "Agreement of modes" not in page.said  # without labels
    assert "\\x1b[31m\\u202e b" in page.text
    assert not {"\x1b", "\u202e"} & set(page.text)


def test_means_of_modes_count_examples_by_their_weights(tmp_path):
    random = np.random.default_rng(0)
    bits = (random.random((120, 3)) < 0.5).astype(int)
    bits[:, 2] = 1
    weights = np.where(bits[:, :1] == 1, 9.1, 1.3)
    cells = np.where(random.random((120, 3)) < 0.1, "", bits.astype(str))
    lines = map(",".join, np.hstack([cells, weights.astype(str)]).tolist())
    file = tmp_path / "weighted.csv"
    file.write_text("\n".join(["a,b,c,w", *lines]) + "\n")
    run = trained(tmp_path, "--data", file, "--data.weight-column", "w")
    source = ReportSource(RunDirectory(run), lambda: load_run(run))
    x, given = source.shown(source.train).double().numpy(), source.train_weights
    all_means = [np.average(own[seen], weights=given[seen]) for own in x.T for seen in [~np.isnan(own)]]
    of_names = dict(zip(source.feature_names, all_means, strict=True))
    features = [each for mode in modes(source).values["modes"] for each in mode["features"]]
    assert {name for name, *_ in features} == set(of_names)
    for name, _, mean, change in features:
        assert mean == pytest.approx(of_names[name], abs=1e-6)
        assert change == 0 or of_names[name] < 1
    assert of_names[source.feature_names[0]] > 0.8


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A run of a table of words, conditioned on two of its columns, and the table."""
    random = np.random.default_rng(0)
    kind, clinic = random.integers(0, 3, 120), random.integers(0, 2, 120)
    columns = [
        np.where(random.random(120) < 0.9, np.array(["cat", "dog", "newt"])[kind], ""),
        (3 * kind + 10 * clinic + random.normal(size=120)).round(2).astype(str),
        np.where(kind > 0, "yes", "no"),
        np.where(clinic > 0, "north", "south"),
        random.normal(size=120).round(2).astype(str),
    ]
    lines = map(",".join, zip(*columns, strict=True))
    file = tmp_path_factory.mktemp("words") / "pets.csv"
    file.write_text("\n".join(["pet,weight,fed,clinic,year", *lines]) + "\n")
    return trained(file.parent, "--data", file, "--data.condition", "clinic", "year"), file


def test_a_table_of_words_is_told_in_words_and_its_condition_by_name(words, table_page):
    run, file = words
    page = page_of(run)
    assert {"pet = cat", "pet = dog", "pet = newt", "fed = yes", "weight"} <= set(page.words)
    assert page.words.count("pet") == 1  # the heading of its bars; nowhere a mean of codes
    assert not {"clinic", "clinic = north"} & set(page.words)
    assert "clinic, year" in page.said
    assert "p(x | c)" not in table_page.said
    (command,) = re.findall("dvae (train .*)", page.text)
    assert "--data.condition clinic year" in command
    again = file.with_name("again")
    assert main([*shlex.split(html.unescape(command)), "--run-dir", str(again)]) == 0
    assert (again / "config.json").read_bytes() == (run / "config.json").read_bytes()


def test_every_verb_that_draws_takes_a_run_with_a_condition(words):
    run, file = words
    assert main(["sample", str(run), "--num-rows", "2", "--num-sweeps", "2"]) == 0
    for name in ("evolution", "feature-statistics", "reconstructions"):
        assert main(["figure", name, str(run)]) == 0
    out = file.with_name("filled.csv")
    assert main(["impute", str(run), "--data", str(file), "--out", str(out), "--num-samples", "100"]) == 0
    assert not any(line.startswith(",") for line in out.read_text().splitlines())


def test_commands_for_a_model_of_the_library_name_it():
    said = page_of(shipped_folder("digits")).said
    assert "--run-dir" not in said
    for words in ("evaluate --pretrained digits", "report --pretrained digits", "cite digits"):
        assert f"dvae {words}" in said
    assert re.search("dvae evaluate --pretrained digits (?:(?!dvae ).)*--out digits.json", said)
