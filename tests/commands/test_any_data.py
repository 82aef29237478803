"""dvae on data of any kind: from a file to a trained model, its evaluation and its pictures."""

import csv
import json

import numpy as np
import pytest
import torch

from discrete_vae.config import instantiate
from discrete_vae.own_data import own_experiment
from discrete_vae.runs.load import load_run
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training.loop import run_steps
from tests.commands.conftest import TINY

RANDOM = np.random.default_rng(0)
KIND = RANDOM.integers(0, 2, 60)[:, None]
WITH_GAPS = np.where(RANDOM.random((60, 12)) < 0.2, np.nan, 1.0)
FEATURES = np.arange(12)
DATA = {
    "gaussian": 10.0 * (2 * KIND - 1) * (FEATURES % 3) + RANDOM.normal(size=(60, 12)) + 100 * FEATURES,
    "negative-binomial": RANDOM.poisson(np.where(KIND, 20.0, 2.0) * np.ones(12)),
    "categorical": (RANDOM.integers(0, 2, (60, 12)) + 2 * KIND).astype(float),
    "bernoulli": (RANDOM.random((60, 12)) < 0.1) ^ (KIND == 1),
}


@pytest.fixture
def file(tmp_path):
    """Write data of a kind, with gaps or without."""

    def write(kind, *, gaps=False, shape=(60, 12)):
        values = DATA[kind] * (WITH_GAPS if gaps else 1)
        np.save(tmp_path / "mine.npy", values.reshape(shape))
        return tmp_path / "mine.npy"

    return write


@pytest.mark.parametrize(
    ("kind", "gaps", "shape"),
    [
        ("gaussian", True, (60, 12)),
        ("negative-binomial", False, (60, 12)),
        ("categorical", True, (60, 3, 4)),
        ("bernoulli", True, (60, 12)),
    ],
)
def test_every_verb(cli, done, tmp_path, file, kind, gaps, shape):
    run = tmp_path / "run"
    words = ("--data", file(kind, gaps=gaps, shape=shape), "--model.likelihood", kind, *TINY)
    out, err = done("train", *words, "--run-dir", run)
    assert "Independent columns: " in out
    assert (" are missing: " in err) == gaps
    config = json.loads((run / "config.json").read_text())["model"]
    assert config["missing"] == gaps
    assert config["likelihood"].get("num_categories", 4) == 4
    out, _ = done("evaluate", run)
    assert "independent columns" in out
    assert np.isfinite(json.loads((run / "evaluation.json").read_text())["log_likelihood"]["value"])
    done("sample", run, "--num-rows", "2", "--burn-in", "2", "--num-sweeps", "1")
    names = {path.name for path in (run / "figures").iterdir()}
    assert names == {"samples.png", "reconstructions.png", "training.png"}
    assert "can be trained" in cli("validate", *words)[1]


def test_one_gap_counts_whichever_part_it_falls_into(done, tmp_path):
    for part in ("train", "valid", "test"):
        parts = dict(
            zip(("train", "valid", "test"), np.split(DATA["gaussian"].copy(), [40, 50]), strict=True)
        )
        parts[part][3, 2] = np.nan
        np.savez(tmp_path / "x.npz", **parts)
        assert own_experiment(tmp_path / "x.npz", likelihood="gaussian").model.missing
    words = ("--data", tmp_path / "x.npz", "--model.likelihood", "gaussian", *TINY)
    _, err = done("train", *words, "--run-dir", tmp_path / "run")
    assert "1 of the 720 values" in " ".join(err.split())
    done("evaluate", tmp_path / "run")


def test_constant_columns_are_said_and_bring_nothing(done, tmp_path):
    noise = RANDOM.normal(size=(60, 3)).round(3)
    cells = np.hstack([noise, np.broadcast_to([7.25, 1e6], (60, 2))])
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,d,e", *(",".join(map(str, row)) for row in cells)]))
    words = ("--data", tmp_path / "t.csv", "--model.likelihood", "gaussian", *TINY)
    _, err = done("train", *words, "--run-dir", tmp_path / "run")
    assert "2 of 5 features have one value in all examples to train on (d, e)" in " ".join(err.split())
    model = load_run(RunDirectory.open(tmp_path / "run")).model
    x, m = torch.tensor(cells).float(), torch.randn(60, 5)
    first = model.likelihood.feature_log_prob(m, x)[:, :3].sum(1)
    torch.testing.assert_close(model.likelihood.log_prob(m, x), first)


@pytest.fixture
def table(tmp_path):
    """A table with names, labels, gaps, and one column of long tails; returns its file and its lines."""
    random = np.random.default_rng(3)
    x = 5 * (random.integers(0, 2, (60, 1)) - 0.5) + random.normal(size=(60, 3))
    x[:, 1] = np.exp(2 * x[:, 1])
    cells = np.where(random.random(x.shape) < 0.2, "", x.round(3).astype(str))
    lines = ["name,a,long,b,kind", *(f"row {number},{','.join(row)},cat" for number, row in enumerate(cells))]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "t.csv", lines


@pytest.mark.filterwarnings("ignore:.* fewer than 10 effective samples")
def test_a_table_with_names_and_long_tails_comes_back_filled(done, refused, tmp_path, table):
    file, lines = table
    words = ["train", "--data", file, "--model.likelihood", "gaussian", *TINY, "--run-dir", tmp_path / "run"]
    assert "column 'name', must hold numbers" in refused(*words)
    words += ["--data.label-column", "kind", "--data.ignored-columns", "name"]
    _, err = done(*words)
    assert "1 of 3 features have long tails (long) and are read on a scale of asinh" in err
    config = json.loads((tmp_path / "run/config.json").read_text())["model"]
    assert config["likelihood"]["shorten_tails"]
    assert config["hierarchy"]["num_layers"] == 1
    done("encode", tmp_path / "run", "--data", file, "--out", tmp_path / "codes.npz")
    with np.load(tmp_path / "codes.npz") as codes:
        assert codes["label"].tolist() == ["cat"] * 60
    more = ["--num-samples", "20", "--num-rounds", "2"]
    done("impute", tmp_path / "run", "--data", file, "--out", tmp_path / "filled.csv", *more)
    filled = (tmp_path / "filled.csv").read_text().splitlines()
    assert (filled[0], len(filled)) == (lines[0], len(lines))
    for line, before in zip(filled[1:], lines[1:], strict=True):
        for cell, old in zip(line.split(","), before.split(","), strict=True):
            assert cell == old or (old == "" and np.isfinite(float(cell)))
    file.write_text(
        "\n".join(["long,b,a", *(f"{row + 1},,1" for row in range(3))])
    )  # without what is no feature
    done("encode", tmp_path / "run", "--data", file, "--out", tmp_path / "new.npz")


def test_a_training_with_gaps_goes_on_bit_for_bit(file, tmp_path):
    path = file("gaussian", gaps=True)
    config = own_experiment(path, likelihood="gaussian", size="smoke")
    training = config.training.model_copy(update={"num_epochs": 6, "validate_every": 2})
    config = config.model_copy(update={"training": training})
    dataset = instantiate(config.data, data_dir=None)
    weights = []
    for name, stops in (("unbroken", [99]), ("broken", [3, 99])):
        run = RunDirectory.create(tmp_path / name)
        for stop in stops:
            asked = iter(range(100))
            result = run_steps(config, dataset, run, stop=lambda asked=asked, stop=stop: next(asked) >= stop)
        assert result.step == 6
        weights.append(run.checkpoints().load("last").tensors)
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


def test_gaps_are_imputed_better_than_by_column_means(done, tmp_path):
    """Real values with a fifth of them missing; what is missing is known here, and judged in units of its column."""
    random = np.random.default_rng(1)
    centers = random.normal(size=(4, 8)) * 3
    whole = (centers[random.integers(0, 4, 1000)] + random.normal(size=(1000, 8))) * np.logspace(
        -1, 2, 8
    ) + 50
    missing = random.random(whole.shape) < 0.2
    np.savez(
        tmp_path / "x.npz",
        **{"train": np.where(missing, np.nan, whole)[:800], "test": np.where(missing, np.nan, whole)[800:]},
    )
    words = ("--model.likelihood", "gaussian", "--size", "smoke", "--run-dir", tmp_path / "run")
    done("train", "--data", tmp_path / "x.npz", *words)
    model = load_run(RunDirectory.open(tmp_path / "run")).model
    gaps = torch.tensor(np.where(missing, np.nan, whole)[800:], dtype=torch.float32)
    imputed = torch.stack([model.reconstruct(gaps, seed=seed) for seed in range(20)]).mean(0).numpy()
    train = np.where(missing, np.nan, whole)[:800]
    means, deviations = np.nanmean(train, 0), np.nanstd(train, 0)

    def error(guess):
        return np.sqrt((((guess - whole[800:]) / deviations)[missing[800:]] ** 2).mean())

    assert error(imputed) < 0.8 * error(means)


# A table of different kinds of columns.


def read_columns(path):
    header, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines())
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))


def mixed_lines(rows=80):
    random = np.random.default_rng(3)
    lines = ["name;sex;age;town;visits;pain;weight;where"]
    for row in range(rows):
        kind = random.integers(0, 2)
        cells = [
            f"n{row}",
            "fm"[int(random.random() < 0.2 + 0.6 * kind)],
            str(random.integers(20, 40) + 30 * kind),
            ["Köln", "Brno", "a;b"][random.integers(0, 3)],
            str(random.poisson(1 + 20 * kind)),
            ["low", "mid", "high"][random.integers(0, 2) + kind],
            f"{random.normal(60, 5):.1f}".replace(".", ","),
            "here",
        ]
        for place in range(1, 7):
            cells[place] = "?" if random.random() < 0.1 else cells[place]
        lines.append(";".join(f'"{cell}"' if ";" in cell else cell for cell in cells))
    return lines


SAID = ["--data.missing-values", "?", "--data.decimal", ",", "--data.kinds", "pain=ordinal:low<mid<high"]


@pytest.fixture
def mixed(done, tmp_path):
    """A run on a table of all kinds of columns, and the table."""
    file = tmp_path / "mixed.csv"
    file.write_text("\n".join(mixed_lines()), encoding="utf-8")
    _, err = done("train", "--data", file, *SAID, *TINY, "--run-dir", tmp_path / "run")
    return file, err


def test_a_table_of_words_and_numbers_comes_back_in_its_own_words(done, refused, mixed, tmp_path):
    file, err = mixed
    assert "1 ordinal" in err
    assert "'name' is left out" in err
    out, _ = done("validate", "--data", file, *SAID, *TINY)
    assert "pain: ordinal" in out
    assert "visits: count" in out
    done("evaluate", tmp_path / "run")
    done("generate", tmp_path / "run", "-n", "30", "--out", tmp_path / "new.csv")
    made = read_columns(tmp_path / "new.csv")
    assert [*made] == ["sex", "age", "town", "visits", "pain", "weight", "where"]
    for name, words in (("sex", "fm"), ("town", {"Köln", "Brno", "a;b"}), ("pain", {"low", "mid", "high"})):
        assert set(made[name]) <= set(words)
    assert set(made["where"]) == {"here"}
    assert all(float(age).is_integer() and "." not in age for age in made["age"] + made["visits"])
    # files with the columns in another order, with the left out one and without
    lines = [line.split(";") for line in mixed_lines(6) if '"' not in line]
    turned = tmp_path / "turned.csv"
    for order in ((3, 2, 1, 7, 6, 5, 4, 0), (1, 2, 3, 4, 5, 6, 7)):
        turned.write_text("\n".join(";".join(line[place] for place in order) for line in lines))
        done("score", tmp_path / "run", "--data", turned, "--out", tmp_path / f"scores-{len(order)}.csv")
    scores = [read_columns(tmp_path / f"scores-{count}.csv") for count in (8, 7)]
    assert scores[0] == scores[1]
    done("score", tmp_path / "run", "--data", turned, "--features", "--out", tmp_path / "features.csv")
    of_features = read_columns(tmp_path / "features.csv")
    assert all(float(cell) == 0 for cell in of_features["given_others_where"])  # it has one value
    assert len(of_features["given_others_town"]) == len(lines) - 1
    turned.write_text("\n".join(";".join(line[1:-1]) for line in lines))
    assert "'where'" in refused("encode", tmp_path / "run", "--data", turned, "--out", tmp_path / "x.npz")
    lines[2][1] = "x"
    turned.write_text("\n".join(";".join(line) for line in lines))
    error = refused("encode", tmp_path / "run", "--data", turned, "--out", tmp_path / "x.npz")
    assert "'sex'" in error
    assert "'x' in line 3" in error


def test_the_file_of_a_run_that_has_new_words_is_refused_and_not_coded_otherwise(refused, mixed, tmp_path):
    file, _ = mixed
    file.write_text(file.read_text().replace("Brno", "Aachen"))
    assert "'Aachen'" in refused("evaluate", tmp_path / "run")


def test_what_is_said_of_columns_is_checked(refused, tmp_path):
    file = tmp_path / "mixed.csv"
    file.write_text("\n".join(mixed_lines()), encoding="utf-8")
    table = tmp_path / "kinds.toml"
    table.write_text('sex = "real"\n')
    for words, argument in (
        (["--data.kinds", "no=real"], "--data.kinds"),
        (["--data.kinds", "age=odd"], "'age'"),
        (["--data.kinds", "age"], "--data.kinds"),
        (["--data.kinds", "sex=real"], "'sex'"),
        (["--data.kinds", table], "'sex'"),
        (["--data.kinds", tmp_path / "none.toml"], "none.toml"),
        (["--data.kinds", "age=real", "--model.likelihood", "gaussian"], "--data.kinds"),
        (["--model.likelihood", "gaussian"], "'name'"),
    ):
        assert argument in refused("train", "--data", file, *words, *TINY, "--run-dir", tmp_path / "run")


def test_weights_and_a_condition_are_columns_of_the_table(done, refused, tmp_path):
    lines = mixed_lines()
    file = tmp_path / "mixed.csv"
    weighted = [f"{line};{place % 3}" for place, line in enumerate(lines[1:])]
    file.write_text("\n".join([f"{lines[0]};w", *weighted]), encoding="utf-8")
    roles = ["--data.weight-column", "w", "--data.condition", "town", "age"]
    run = tmp_path / "run"
    done("train", "--data", file, *SAID, *roles, *TINY, "--run-dir", run)
    config = json.loads((run / "config.json").read_text())
    assert [column["name"] for column in config["model"]["condition"]] == ["town", "age"]
    assert [column["name"] for column in config["model"]["likelihood"]["columns"]] == [
        "sex",
        "visits",
        "pain",
        "weight",
        "where",
    ]
    out, _ = done("evaluate", run)
    assert "Means are weighted" in out
    # files need the condition and not the weights
    plain = tmp_path / "plain.csv"
    plain.write_text("\n".join(lines), encoding="utf-8")
    done("score", run, "--data", plain, "--out", tmp_path / "scores.csv")
    done("reconstruct", run, "--data", plain, "--condition", "town=Brno", "--out", tmp_path / "brno.csv")
    done("generate", run, "-n", "5", "--condition", "town=Köln,age=50", "--out", tmp_path / "new.csv")
    assert "town" not in read_columns(tmp_path / "new.csv")
    for word in ("town=Paris", "age=old", "no=1", "town"):
        refused("generate", run, "-n", "5", "--condition", word, "--out", tmp_path / "other.csv")
    plain.write_text("\n".join(";".join(line.split(";")[:3]) for line in lines), encoding="utf-8")
    assert "'town'" in refused("score", run, "--data", plain, "--out", tmp_path / "scores.csv")
    error = refused(
        "train", "--data", file, *SAID, "--data.condition", "where", *TINY, "--run-dir", tmp_path / "x"
    )
    assert "'where'" in error


def test_counts_have_a_column_of_the_file_as_their_exposure(done, refused, tmp_path):
    """Rows that a model makes have the median exposure, rows that it gives back their own."""
    random, run = np.random.default_rng(0), tmp_path / "run"
    days = random.integers(1, 99, 81)
    rows = np.stack([days, random.poisson(2.0 * days), random.poisson(0.1 * days)], 1)

    def write(name, columns, values):
        np.savetxt(tmp_path / name, values, "%s", ",", header=",".join(columns), comments="")
        return tmp_path / name

    file = write("own.csv", ["days", "visits", "falls"], rows)
    kinds = ["--data.kinds", "visits=count:exposure:days,falls=count:exposure:days"]
    out, _ = done("validate", "--data", file, *kinds, *TINY)
    assert "visits: count:exposure:days" in out
    done("train", "--data", file, *kinds, *TINY, "--run-dir", run)
    turned = write("turned.csv", ["falls", "days", "visits"], rows[:, [2, 0, 1]])
    done("reconstruct", run, "--data", turned, "--out", tmp_path / "back.csv")
    assert [int(word) for word in read_columns(tmp_path / "back.csv")["days"]] == days.tolist()
    done("generate", run, "-n", "5", "--out", tmp_path / "new.csv")
    assert len(set(read_columns(tmp_path / "new.csv")["days"])) == 1
    gaps = rows.astype(object)
    gaps[4, 1] = ""
    done(
        "impute",
        run,
        "--data",
        write("gaps.csv", ["days", "visits", "falls"], gaps),
        "--out",
        tmp_path / "f.csv",
    )
    gaps[6, 0] = ""
    without = write("without.csv", ["days", "visits", "falls"], gaps)
    for words in (
        ["score", run, "--out", tmp_path / "s.csv"],
        ["train", *kinds, *TINY, "--run-dir", tmp_path / "x"],
    ):
        assert "column 'days'" in refused(*words, "--data", without)


def test_a_condition_that_a_file_cannot_have_is_refused(refused, file, tmp_path):
    words = ("--data", file("bernoulli"), "--data.condition", "town", *TINY, "--run-dir", tmp_path / "run")
    assert "--data.condition" in refused("train", *words)
