"""dvae on data of any kind: from a file to a trained model, its evaluation and its pictures."""

import csv
import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from discrete_vae import load_run
from discrete_vae.cli import main
from discrete_vae.data.rows import rows_of_part
from discrete_vae.data.sequences import read_fasta
from discrete_vae.figures.style import FigureRun
from discrete_vae.own_data import own_experiment
from discrete_vae.runs.io import read_json
from discrete_vae.runs.run_directory import RunDirectory
from tests.cli.conftest import TINY, columns_of, final_files, forget_after, refusal

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


def test_examples_and_features_without_a_value_are_said(done, tmp_path):
    x = DATA["gaussian"].copy()
    x[:, 3], x[:40] = np.nan, np.nan  # of 60 rows 48 train
    np.save(tmp_path / "mine.npy", x)
    words = ("--data", tmp_path / "mine.npy", "--model.likelihood", "gaussian", *TINY)
    said = " ".join(done("train", *words, "--run-dir", tmp_path / "run")[1].split())
    assert "1 of 12 features has no value" in said
    assert re.search(r"\b(2[89]|3\d|40) of the examples to train on have no value", said)


@pytest.mark.parametrize(
    ("kind", "gaps", "shape"),
    [
        ("gaussian", True, (60, 12)),
        ("negative-binomial", False, (60, 12)),
        ("categorical", True, (60, 3, 4)),
        ("bernoulli", True, (60, 12)),
    ],
)
def test_every_verb_and_a_resumed_run_bit_for_bit(cli, done, tmp_path, kind, gaps, shape):
    run, file = tmp_path / "run", tmp_path / "mine.npy"
    np.save(file, (DATA[kind] * (WITH_GAPS if gaps else 1)).reshape(shape))
    words = ("--data", file, "--model.likelihood", kind, *TINY)
    out, err = done("train", *words, "--run-dir", run)
    assert "Independent columns: " in out
    assert (" are missing: " in err) == gaps
    config = read_json(run / "config.json")["model"]
    assert config["missing"] == gaps
    assert config["likelihood"].get("num_categories", 4) == 4
    right = final_files(run)
    forget_after(run, 2)
    done("train", "--resume", "--run-dir", run)
    assert final_files(run) == right
    out, _ = done("evaluate", run)
    assert "independent columns" in out
    assert np.isfinite(read_json(run / "evaluation.json")["log_likelihood"]["value"])
    done("sample", run, "--num-rows", "2", "--burn-in", "2", "--num-sweeps", "1")
    names = {path.name for path in (run / "figures").iterdir()}
    assert names == {"samples.png", "reconstructions.png", "training.png"}
    assert "can be trained" in cli("validate", *words)[1]


def test_one_gap_counts_whichever_part_it_falls_into(done, tmp_path):
    for place in range(3):
        parts = np.split(DATA["gaussian"].copy(), [40, 50])
        parts[place][3, 2] = np.nan
        np.savez(tmp_path / "x.npz", **dict(zip(("train", "valid", "test"), parts, strict=True)))
        assert own_experiment(tmp_path / "x.npz", likelihood="gaussian").model.missing
    words = ("--data", tmp_path / "x.npz", "--model.likelihood", "gaussian", *TINY)
    _, err = done("train", *words, "--run-dir", tmp_path / "run")
    assert "1 of the 720 values" in " ".join(err.split())
    done("evaluate", tmp_path / "run")


def test_constant_columns_are_said_and_bring_nothing(done, tmp_path):
    cells = np.hstack([RANDOM.normal(size=(60, 3)).round(3), np.broadcast_to([7.25, 1e6], (60, 2))])
    np.savetxt(tmp_path / "t.csv", cells, "%s", ",", header="a,b,c,d,e", comments="")
    words = ("--data", tmp_path / "t.csv", "--model.likelihood", "gaussian", *TINY)
    _, err = done("train", *words, "--run-dir", tmp_path / "run")
    assert "2 of 5 features have one value in all examples to train on (d, e)" in " ".join(err.split())
    likelihood = load_run(tmp_path / "run").model.likelihood
    x, m = torch.tensor(cells).float(), torch.randn(60, 5)
    first = likelihood.feature_log_prob(m, x)[:, :3].sum(1)
    torch.testing.assert_close(likelihood.log_prob(m, x), first)


@pytest.mark.filterwarnings("ignore:.* fewer than 10 effective samples")
def test_a_table_with_names_gaps_and_long_tails_comes_back_filled(done, refused, tmp_path):
    random = np.random.default_rng(3)
    x = 5 * (random.integers(0, 2, (60, 1)) - 0.5) + random.normal(size=(60, 3))
    x[:, 1] = np.exp(2 * x[:, 1])
    cells = np.where(random.random(x.shape) < 0.2, "", x.round(3).astype(str))
    lines = ["name,a,long,b,kind", *(f"row {number},{','.join(row)},cat" for number, row in enumerate(cells))]
    file, run = tmp_path / "t.csv", tmp_path / "run"
    file.write_text("\n".join(lines) + "\n")
    words = ["train", "--data", file, "--model.likelihood", "gaussian", *TINY, "--run-dir", run]
    assert "column 'name', must hold numbers" in refused(*words)
    _, err = done(*words, "--data.label-column", "kind", "--data.ignored-columns", "name")
    assert "1 of 3 features have long tails (long) and are read on a scale of asinh" in err
    config = read_json(run / "config.json")["model"]
    assert (config["likelihood"]["shorten_tails"], config["hierarchy"]["num_layers"]) == (True, 1)
    done("encode", run, "--data", file, "--out", tmp_path / "codes.npz")
    with np.load(tmp_path / "codes.npz") as codes:
        assert codes["label"].tolist() == ["cat"] * 60
    more = ["--num-samples", "20", "--num-rounds", "2"]
    done("impute", run, "--data", file, "--out", tmp_path / "filled.csv", *more)
    filled = (tmp_path / "filled.csv").read_text().splitlines()
    assert (filled[0], len(filled)) == (lines[0], len(lines))
    for line, before in zip(filled[1:], lines[1:], strict=True):
        for cell, old in zip(line.split(","), before.split(","), strict=True):
            assert cell == old or (old == "" and np.isfinite(float(cell)))
    file.write_text("long,b,a\n1,,1\n2,,1\n3,,1\n")  # without what is no feature
    done("encode", run, "--data", file, "--out", tmp_path / "new.npz")


def test_gaps_are_imputed_better_than_by_column_means(done, tmp_path):
    """What is missing is known here, and judged in units of its column."""
    random = np.random.default_rng(1)
    kind = random.integers(0, 4, 1000)
    means = 3 * random.normal(size=(4, 8))[kind]
    whole = (means + random.normal(size=(1000, 8))) * np.logspace(-1, 2, 8) + 50
    missing = random.random(whole.shape) < 0.2
    train, test = np.split(np.where(missing, np.nan, whole), [800])
    np.savez(tmp_path / "x.npz", train=train, test=test)
    words = ("--model.likelihood", "gaussian", "--size", "smoke", "--run-dir", tmp_path / "run")
    done("train", "--data", tmp_path / "x.npz", *words)
    model, gaps = load_run(tmp_path / "run").model, torch.tensor(test, dtype=torch.float32)
    imputed = torch.stack([model.reconstruct(gaps, seed=seed) for seed in range(20)]).mean(0).numpy()

    def error(guess):
        return np.sqrt((((guess - whole[800:]) / np.nanstd(train, 0))[missing[800:]] ** 2).mean())

    assert error(imputed) < 0.8 * error(np.nanmean(train, 0))


# A table of different kinds of columns.


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


def test_a_table_of_words_and_numbers_comes_back_in_its_own_words(done, refused, tmp_path):
    run, file, turned = tmp_path / "run", tmp_path / "mixed.csv", tmp_path / "turned.csv"
    file.write_text("\n".join(mixed_lines()), encoding="utf-8")
    _, err = done("train", "--data", file, *SAID, *TINY, "--run-dir", run)
    assert "1 ordinal" in err
    assert "'name' is left out" in err
    out, _ = done("validate", "--data", file, *SAID, *TINY)
    assert "pain: ordinal" in out
    assert "visits: count" in out
    done("evaluate", run)
    done("generate", run, "-n", "30", "--out", tmp_path / "new.csv")
    made = columns_of(tmp_path / "new.csv", ";")
    assert [*made] == ["sex", "age", "town", "visits", "pain", "weight", "where"]
    for name, words in (("sex", "fm"), ("town", {"Köln", "Brno", "a;b"}), ("pain", {"low", "mid", "high"})):
        assert set(made[name]) <= set(words)
    assert set(made["where"]) == {"here"}
    assert all(float(age).is_integer() and "." not in age for age in made["age"] + made["visits"])
    # files with the columns in another order, with the left out one and without
    lines = [line.split(";") for line in mixed_lines(6) if '"' not in line]
    scores = []
    for order in ((3, 2, 1, 7, 6, 5, 4, 0), (1, 2, 3, 4, 5, 6, 7)):
        turned.write_text("\n".join(";".join(line[place] for place in order) for line in lines))
        done("score", run, "--data", turned, "--out", tmp_path / "scores.csv")
        scores.append(columns_of(tmp_path / "scores.csv"))
    assert scores[0] == scores[1]
    done("score", run, "--data", turned, "--features", "--out", tmp_path / "features.csv")
    of_features = columns_of(tmp_path / "features.csv")
    assert all(float(cell) == 0 for cell in of_features["given_others_where"])  # it has one value
    assert len(of_features["given_others_town"]) == len(lines) - 1
    turned.write_text("\n".join(";".join(line[1:-1]) for line in lines))
    assert "'where'" in refused("encode", run, "--data", turned, "--out", tmp_path / "x.npz")
    lines[2][1] = "x"
    turned.write_text("\n".join(";".join(line) for line in lines))
    error = refused("encode", run, "--data", turned, "--out", tmp_path / "x.npz")
    assert "'sex'" in error
    assert "'x' in line 3" in error
    turned.write_text(turned.read_text() + "ö", encoding="cp1252")
    error = refused("encode", run, "--data", turned, "--out", tmp_path / "x.npz")
    assert "in utf-8" in error
    assert "--data." not in error  # settings that the verb would refuse
    file.write_text(file.read_text().replace("Brno", "Aachen"))  # is refused, and not coded otherwise
    assert "'Aachen'" in refused("evaluate", run)


def test_what_is_said_of_columns_is_checked(refused, tmp_path):
    file, table = tmp_path / "mixed.csv", tmp_path / "kinds.toml"
    file.write_text("\n".join(mixed_lines()), encoding="utf-8")
    table.write_text('kinds = "real"\nsex = "real"\n')
    assert "'kinds'" in refused("train", "--data", file, "--data.kinds", table, *TINY)  # no such column
    table.write_text('sex = "real"\n')
    said = ("no=real", "--data.kinds"), ("age", "--data.kinds"), ("age=odd", "'age'"), ("sex=real", "'sex'")
    for kinds, argument in (*said, (table, "'sex'"), (tmp_path / "none.toml", "none.toml")):
        assert argument in refused("train", "--data", file, "--data.kinds", kinds, *TINY)
    words = ("train", "--data", file, "--model.likelihood", "gaussian", *TINY)
    assert "'name'" in refused(*words)
    assert "--data.kinds" in refused(*words, "--data.kinds", "age=real")


def test_weights_and_a_condition_are_columns_of_the_table(done, refused, tmp_path):
    lines, run = mixed_lines(), tmp_path / "run"
    file, plain = tmp_path / "mixed.csv", tmp_path / "plain.csv"
    weighted = [f"{line};{place % 3}" for place, line in enumerate(lines[1:])]
    file.write_text("\n".join([f"{lines[0]};w", *weighted]), encoding="utf-8")
    roles = ["--data.weight-column", "w", "--data.condition", "town", "age"]
    done("train", "--data", file, *SAID, *roles, *TINY, "--run-dir", run)
    config = read_json(run / "config.json")["model"]
    columns = config["condition"], config["likelihood"]["columns"]
    named = [[column["name"] for column in each] for each in columns]
    assert named == [["town", "age"], ["sex", "visits", "pain", "weight", "where"]]
    assert "Means are weighted" in done("evaluate", run, "--num-samples", "20")[0]
    averaged = read_json(run / "evaluation.json")["log_likelihood"]
    scored = json.loads(done("score", run, "--num-samples", "20", "--json")[0])["log_likelihood"]
    for name in ("value", "std_error", "effective_examples"):
        assert scored[name] == pytest.approx(averaged[name], rel=1e-12)
    done("release", run, "--out", tmp_path / "small", "--license", "mit")
    assert "condition=c" in (tmp_path / "small/README.md").read_text(encoding="utf-8")
    # files need the condition and not the weights
    plain.write_text("\n".join(lines), encoding="utf-8")
    done("score", run, "--data", plain, "--out", tmp_path / "scores.csv")
    words = ["reconstruct", run, "--data", plain, "--out"]
    assert "Error" in done(*words, tmp_path / "own.csv")[0]
    assert "Error" not in done(*words, tmp_path / "brno.csv", "--condition", "town=Brno")[0]
    towns = [line.split(";")[lines[0].split(";").index("town")] for line in lines[1:]]
    own, other = (columns_of(tmp_path / name, ";")["weight"] for name in ("own.csv", "brno.csv"))
    assert own != other
    assert all(own[row] == other[row] for row, town in enumerate(towns) if town == "Brno")  # whatever its age
    done("generate", run, "-n", "5", "--condition", "town=Köln,age=50", "--out", tmp_path / "new.csv")
    assert "town" not in columns_of(tmp_path / "new.csv", ";")
    parts = ("--condition", "town=Köln", "--condition", "age=50", "--out", tmp_path / "parts.csv")
    done("generate", run, "-n", "5", *parts)
    assert (tmp_path / "parts.csv").read_bytes() == (tmp_path / "new.csv").read_bytes()
    refused("generate", run, "-n", "5", "--condition", "age=60", *parts)  # named twice
    done("generate", run, "-n", "5", *parts[:2], "--out", tmp_path / "some.csv")  # training lacked ages, too
    for word in ("town=Paris", "age=old", "no=1", "town"):
        refused("generate", run, "-n", "5", "--condition", word, "--out", tmp_path / "other.csv")
    loaded = load_run(run)
    source = FigureRun(RunDirectory(run), lambda: loaded)
    of_samples = source.condition_of_samples(1000)[:, 0]
    of_examples = source.dataset.conditions["train"][:, 0]
    weights = torch.from_numpy(source.dataset.weights["train"])
    assert rows_of_part(source.dataset, "train").subset(np.arange(5)).weights.tolist() == weights[:5].tolist()
    for code in (0, 1, 2):  # which towns the pictures of samples have is the population's
        share = float(((of_examples == code) * weights).sum() / weights.sum())
        assert float((of_samples == code).float().mean()) == pytest.approx(share, abs=0.03)
    plain.write_text("\n".join(";".join(line.split(";")[:3]) for line in lines), encoding="utf-8")
    error = refused("score", run, "--data", plain, "--out", tmp_path / "scores.csv")
    assert error.startswith(f"error: {plain} must have ")
    assert "'town'" in error
    assert "'where'" in refused("train", "--data", file, *SAID, "--data.condition", "where", *TINY)


def test_a_run_needs_neither_its_file_of_kinds_nor_columns_that_it_left_out(done, refused, tmp_path):
    """Labels have gaps by the words that mean one, and new rows bring them under their name."""
    random, run, file = np.random.default_rng(0), tmp_path / "run", tmp_path / "t.csv"
    rows = [f"n{k},x,{random.normal():.2f},{'ab'[k % 2]},{('cat', 'dog', 'NA')[k % 3]}" for k in range(60)]
    file.write_text("\n".join(["id,note,size,site,kind", *rows]))
    kinds = tmp_path / "kinds.toml"
    kinds.write_text('size = "real"\nsite = "category"\n')
    roles = ["--data.ignored-columns", "note", "--data.condition", "site", "--data.label-column", "kind"]
    words = ["train", "--data", file, *roles, "--data.kinds", kinds, *TINY, "--run-dir", run]
    done(*words)
    assert read_json(run / "config.json")["data"]["ignored_columns"] == ["note", "id"]
    kinds.unlink()
    assert "nothing is left to do" in done(*words, "--resume")[0]
    done("evaluate", run)
    new = tmp_path / "new.csv"
    done("generate", run, "-n", "3", "--condition", "site=a", "--label", "all", "--out", new)
    assert columns_of(new)["kind"] == ["cat", "cat", "cat", "dog", "dog", "dog"]
    header, *lines = new.read_text().splitlines()
    new.write_text("\n".join([f"{header},site", *(f"{line},b" for line in lines)]))
    done("encode", run, "--data", new, "--out", tmp_path / "codes.csv")
    other = tmp_path / "other.csv"  # with labels of its own, beside those of the run
    other.write_text("\n".join([f"{header},site,place", *(f"{line},b,p{line[:1]}" for line in lines)]))
    words = ["--label-column", "place", "--out", tmp_path / "codes.csv"]
    done("neighbors", run, "--data", other, "--among", new, "-k", "2", *words)
    done("score", run, "--data", other, "--threshold-from", new, *words)
    assert columns_of(tmp_path / "codes.csv")["label"] == [f"p{line[:1]}" for line in lines]
    assert "'place'" in refused("encode", run, "--data", new, *words)


def test_counts_have_a_column_of_the_file_as_their_exposure(done, refused, tmp_path):
    """Rows that a model makes have the median exposure, which no picture shows, and rows given back have their own."""
    random, run = np.random.default_rng(0), tmp_path / "run"
    days = random.integers(1, 99, 81)
    rows = np.stack([days, random.poisson(2.0 * days), random.poisson(0.1 * days)], 1)
    names = np.array(["days", "visits", "falls"])

    def write(name, values, order=(0, 1, 2)):
        header = ",".join(names[list(order)])
        np.savetxt(tmp_path / name, values[:, order], "%s", ",", header=header, comments="")
        return tmp_path / name

    file = write("own.csv", rows)
    kinds = ["--data.kinds", "visits=count:exposure:days,falls=count:exposure:days"]
    assert "visits: count:exposure:days" in done("validate", "--data", file, *kinds, *TINY)[0]
    done("train", "--data", file, *kinds, *TINY, "--run-dir", run)
    turned = write("turned.csv", rows, (2, 0, 1))
    done("reconstruct", run, "--data", turned, "--out", tmp_path / "back.csv")
    assert [int(word) for word in columns_of(tmp_path / "back.csv")["days"]] == days.tolist()
    done("generate", run, "-n", "5", "--out", tmp_path / "new.csv")
    assert len(set(columns_of(tmp_path / "new.csv")["days"])) == 1
    done("figure", "columns", run)
    assert {*columns_of(run / "figures" / "columns.csv")["column"]} == {"visits", "falls"}
    done("report", run)  # days are given, so that those of generated rows tell nothing
    assert ">days<" not in (page := (run / "report.html").read_text(encoding="utf-8"))
    assert ">falls<" in page
    gaps = rows.astype(object)
    gaps[4, 1] = ""
    done("impute", run, "--data", write("gaps.csv", gaps), "--out", tmp_path / "filled.csv")
    gaps[6, 0] = ""
    without = write("without.csv", gaps)
    assert "column 'days'" in refused("score", run, "--out", tmp_path / "s.csv", "--data", without)
    assert "column 'days'" in refused("train", *kinds, *TINY, "--data", without)


@pytest.mark.parametrize("verb", ["train", "validate"])
def test_settings_of_a_table_of_mixed_columns_are_listed(done, tmp_path, verb):
    rows = (f"{'Ulm' if row % 3 else 'Kiel'},{row % 7 + 0.25 * (row % 3)}" for row in range(60))
    (tmp_path / "people.csv").write_text("\n".join(["town,age", *rows]))
    out, _ = done(verb, "--data", tmp_path / "people.csv", "--settings")
    assert "--model.likelihood " in out
    assert "--training.optimizer.learning-rate " in out


@pytest.fixture(scope="module")
def dosed(tmp_path_factory):
    """A run on words and numbers, given a dose, from a table with commas as decimals; gaps.csv lacks some cells."""
    folder, random = tmp_path_factory.mktemp("dosed"), np.random.default_rng(5)
    lines = []
    for row in range(60):
        k, town, dose = row % 3 // 2, ("north", "south", "west")[random.integers(3)], random.random()
        group = ["", "a", "b"][(1 + k) * (row % 2)]
        lines.append(f"{20 + 10 * k + 7 * row % 31};{'mf'[k]};{town};{dose:.1f};{group}")
    lines = ["age;sex;town;dose;group", *(line.replace(".", ",") for line in lines)]
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    (folder / "gaps.csv").write_text("age;sex;town;dose;group\n;m;north;0,5;\n33;;;0,1;a\n")
    said = "--data.condition dose --data.decimal , --data.label-column group --model.missing true"
    words = ["train", "--data", folder / "t.csv", *said.split(), "--run-dir", folder / "run", *TINY]
    assert main([str(word) for word in words]) == 0
    return folder


@pytest.mark.filterwarnings("ignore:.* fewer than 10 effective samples")
def test_words_and_whole_numbers_come_back_as_they_were(done, dosed, tmp_path):
    run, words = dosed / "run", {"sex": {"m", "f"}, "town": {"north", "south", "west"}}
    for verb in ("denoise", "interpolate", "reconstruct"):
        done(verb, run, "--data", dosed / "t.csv", "--out", tmp_path / f"{verb}.csv")
        found = columns_of(tmp_path / f"{verb}.csv", "," if verb == "interpolate" else ";")
        assert all(float(age).is_integer() for age in found["age"])
        assert all({*found[name]} <= allowed for name, allowed in words.items())
    done("impute", run, "--data", dosed / "gaps.csv", "--num-samples", "20", "--out", tmp_path / "filled.csv")
    filled = columns_of(tmp_path / "filled.csv", ";")
    assert filled["age"][0].isdigit()
    assert filled["sex"][1] in words["sex"]
    few = ("-n", 3, "--num-sweeps", 2, "--out", tmp_path / "new.csv")
    for dose in ("0.5", "0,5"):  # as Python writes it, or as the table does
        done("generate", run, *few, "--condition", f"dose={dose}")
    assert len((tmp_path / "new.csv").read_text().splitlines()) == 4
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert "--condition dose=VALUE" in done("generate", run, *few)[1]  # which training always had


def test_a_condition_of_few_numbers_is_said_to_be_read_as_ranks(done, refused, tmp_path):
    energy = 2.0 ** (8 + np.arange(160) % 8)
    file, run = tmp_path / "showers.npz", tmp_path / "run"
    np.savez(file, x=np.random.default_rng(0).normal(size=(160, 4)), condition=energy)
    words = ["--data", file, "--model.likelihood", "gaussian", *TINY]
    assert "c=ordinal" in done("validate", *words)[0]
    assert "c=real" in done("validate", *words, "--data.kinds", "c=real")[0]
    assert "c=ordinal" in "".join(done("train", *words, "--run-dir", run))
    between = ("generate", run, "-n", "3", "--condition", "c=100", "--out", tmp_path / "new.npy")
    assert "real" in refused(*between)


def test_rows_without_a_label_are_of_no_class(done, dosed, tmp_path):
    words = ["-n", "2", "--label", "all", "--num-sweeps", "2", "--condition", "dose=0.5", "--out"]
    out, _ = done("generate", dosed / "run", *words, tmp_path / "c.csv")
    assert "4 new examples" in out
    assert {*columns_of(tmp_path / "c.csv", ";")["group"]} == {"a", "b"}


def test_measurements_are_no_labels(cli, trained, data_file, tmp_path):
    np.savez(tmp_path / "halves.npz", x=np.load(data_file)[:8], y=np.arange(8) / 2)
    words = ["--data", tmp_path / "halves.npz", "--label", "all", "--out", tmp_path / "n.csv"]
    error = refusal(cli("generate", trained, "-n", 2, *words))
    assert "--label needs labels that are words or whole numbers" in error


@pytest.mark.filterwarnings("ignore:.* fewer than 10 effective samples")
def test_what_a_run_writes_it_reads_from_any_folder(done, tmp_path, monkeypatch):
    """Decimals with a comma, values of many digits, words that a spreadsheet computes, kinds in a file, names in ä."""
    random = np.random.default_rng(0)
    lines = ["key;größe;third;tag;name"]
    for row in range(60):
        numbers = f"{random.normal():.3f};{random.integers(1, 3) / 3}".replace(".", ",")
        words = f"{['12.05', '13.05', '14.05'][row % 3]};{['-x', 'größer'][random.integers(2)]}"
        lines.append(f"{row}k;{numbers};{words}")
    gaps = [lines[0], lines[1], "g;;;;", "h;0,5;;12.05;", "i;;;;-x"]
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="latin-1")
    (tmp_path / "gaps.csv").write_text("\n".join(gaps), encoding="latin-1")
    (tmp_path / "kinds.toml").write_text('key = "ignore"\nthird = "category"\ntag = "category"\n')
    np.save(tmp_path / "labels.npy", np.arange(60) % 2)
    monkeypatch.chdir(tmp_path)
    said = "--data.kinds kinds.toml --data.decimal , --data.encoding latin-1 --model.missing true"
    done("train", "--data", "t.csv", *said.split(), *TINY, "--run-dir", "run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    done("impute", "../run", "--data", "../gaps.csv", "--num-samples", "20", "--out", "filled.csv")
    done("generate", "../run", "-n", "5", "--num-sweeps", "2", "--out", "new.csv")
    for file in ("filled.csv", "new.csv"):
        done("score", "../run", "--data", file, "--out", "scores.csv")
    _, *filled = csv.reader(Path("filled.csv").read_text("latin-1").splitlines(), delimiter=";")
    assert {row[2] for row in filled} <= {"0,3333333333333333", "0,6666666666666666"}
    assert {row[3] for row in filled} <= {"12.05", "13.05", "14.05"}
    assert {row[4] for row in filled} <= {"-x", "größer"}
    few = "-n 2 --num-sweeps 2 --label all --labels ../labels.npy --out classes.csv"
    done("generate", "../run", *few.split())


def test_new_sequences_are_written_as_sequences(cli, done, tmp_path):
    random = np.random.default_rng(0)
    family = np.array(list("-ACGTN"))[random.integers(0, 6, (60, 9))]
    text = "".join(f">{number}\n{''.join(row)}\n" for number, row in enumerate(family))
    (tmp_path / "family.fasta").write_text(text)
    words = ("--data", tmp_path / "family.fasta", "--data.alphabet", "dna", *TINY)
    done("train", *words, "--run-dir", tmp_path / "run")
    for ending in ("fasta", "npy"):
        done("generate", tmp_path / "run", "-n", "7", "--out", tmp_path / f"new.{ending}")
        done("reconstruct", tmp_path / "run", "--out", tmp_path / f"again.{ending}")
        gaps = ("--data", tmp_path / "family.fasta", "--out", tmp_path / f"filled.{ending}")
        done("impute", tmp_path / "run", *gaps)
    for name, count in (("new", 7), ("again", 6), ("filled", 60)):
        codes = read_fasta(tmp_path / f"{name}.fasta", "dna")
        np.testing.assert_array_equal(codes, np.load(tmp_path / f"{name}.npy"))
        assert codes.shape == (count, 9)
    observed = family != "N"
    lines = (tmp_path / "filled.fasta").read_text().split("\n")[1::2]
    filled = np.array([list(line) for line in lines])
    np.testing.assert_array_equal(filled[observed], family[observed])
    assert (tmp_path / "new.fasta").read_text().startswith(">1\n")
    # of a run of other examples there is no alphabet
    np.save(tmp_path / "bits.npy", DATA["bernoulli"])
    done("train", "--data", tmp_path / "bits.npy", *TINY, "--run-dir", tmp_path / "bits")
    assert "--out" in refusal(cli("generate", tmp_path / "bits", "-n", "2", "--out", tmp_path / "new.fa"))
