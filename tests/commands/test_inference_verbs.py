"""encode, score, reconstruct, denoise, interpolate: from a file to a file, as the functions say; refused input."""

import csv
import json
import shutil

import numpy as np
import pytest
import torch

from discrete_vae import load_run
from discrete_vae.cli import main
from discrete_vae.inference.encode import encode_rows
from discrete_vae.inference.score import p_values
from tests.commands.conftest import TINY

pytestmark = pytest.mark.filterwarnings("ignore:the last doubling", "ignore:bridge sampling")


@pytest.fixture(scope="module")
def images_run(tmp_path_factory):
    """A run of 60 images of 4 x 3 pixels with labels, with Gaussian layers."""
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    kind = random.integers(0, 2, 60)
    images = random.random((60, 4, 3)) < random.random((2, 4, 3))[kind]
    np.savez(folder / "x.npz", x=images, y=kind)
    layers = [
        "--model.hierarchy",
        "gaussian",
        "--model.hierarchy.num-layers",
        "2",
        "--model.hierarchy.num-units",
        "2",
    ]
    layers += ["--model.hierarchy.posterior-hidden", "5", "--model.hierarchy.prior-hidden", "5"]
    run = folder / "run"
    assert main(["train", "--data", str(folder / "x.npz"), "--run-dir", str(run), *TINY, *layers]) == 0
    return run


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_codes_of_a_file_are_those_of_the_function(cli, images_run, tmp_path):
    file = images_run.parent / "x.npz"
    status, out, _ = cli("encode", images_run, "--data", file, "--out", tmp_path / "codes.npz")
    assert status == 0
    assert "60 examples" in out
    assert "5 units" in out
    images = np.load(file)
    codes = encode_rows(load_run(images_run).model, torch.from_numpy(images["x"].reshape(60, -1)).float())
    with np.load(tmp_path / "codes.npz") as found:
        assert set(found) == {"index", "label", "bits", "packed", "probabilities", "zeta", "continuous"}
        np.testing.assert_array_equal(found["label"], images["y"])
        for name, values in codes.arrays().items():
            np.testing.assert_array_equal(found[name], values)
    assert cli("encode", images_run, "--data", file, "--out", tmp_path / "bits.npy")[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "bits.npy"), codes.bits)
    words = ["--what", "probabilities", "--picture", tmp_path / "codes.png"]
    assert cli("encode", images_run, "--data", file, "--out", tmp_path / "p.csv", *words)[0] == 0
    table = read_csv(tmp_path / "p.csv")
    assert [row["label"] for row in table] == [str(label) for label in images["y"]]
    read = np.array([[float(row[f"probability_{unit}"]) for unit in range(5)] for row in table], np.float32)
    np.testing.assert_array_equal(read, codes.probabilities)
    assert (tmp_path / "codes.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_file_the_test_part_is_encoded(cli, trained, tmp_path):
    draws = []
    for seed in (1, 1, 2):
        words = ["--out", tmp_path / "codes.npz", "--draw", "--seed", seed]
        status, out, _ = cli("encode", trained, *words)
        assert status == 0
        assert "part 'test': 6 examples" in out
        with np.load(tmp_path / "codes.npz") as found:
            draws.append(found["zeta"])
            assert "continuous" not in found
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()


def test_scores_do_not_depend_on_the_other_rows(cli, trained, data_file, tmp_path):
    words = ["--data", data_file, "--num-samples", "20"]
    assert cli("score", trained, *words, "--out", tmp_path / "all.npz")[0] == 0
    status, out, _ = cli("score", trained, *words, "--num-examples", "7", "--out", tmp_path / "some.csv")
    assert status == 0
    assert "exact" in out
    assert "nats per example" in out
    whole, some = np.load(tmp_path / "all.npz"), read_csv(tmp_path / "some.csv")
    assert len(some) == 7
    for row in some:
        for name in ("log_likelihood", "std_error", "ess"):
            assert float(row[name]) == whole[name][int(row["index"])]


def test_scores_are_those_that_evaluate_averages(cli, trained, tmp_path):
    words = ["--num-samples", "20"]
    assert cli("evaluate", trained, *words, "--per-example", tmp_path / "e.npz")[0] == 0
    status, out, _ = cli("score", trained, *words, "--out", tmp_path / "s.npz")
    assert status == 0
    assert "kept in evaluation.json" in out
    np.testing.assert_array_equal(
        np.load(tmp_path / "s.npz")["log_likelihood"], np.load(tmp_path / "e.npz")["log_likelihood"]
    )


def test_p_values_come_from_the_reference(cli, trained, data_file, tmp_path):
    strange = tmp_path / "strange.npy"
    np.save(strange, np.random.default_rng(1).integers(0, 2, (40, 12)))
    words = ["--data", strange, "--elbo", "--num-samples", "20", "--picture", tmp_path / "scores.png"]
    status, out, _ = cli("score", trained, *words, "--threshold-from", data_file, "--out", tmp_path / "p.npz")
    assert status == 0
    assert "area under the ROC curve" in out
    found = np.load(tmp_path / "p.npz")
    assert set(found) == {"index", "elbo", "std_error", "p_value"}
    reference = ["--data", data_file, "--elbo", "--num-samples", "20", "--out", tmp_path / "r.npz"]
    assert cli("score", trained, *reference)[0] == 0
    other_noise = p_values(found["elbo"], np.load(tmp_path / "r.npz")["elbo"])
    assert np.abs(found["p_value"] - other_noise).max() < 0.25
    assert found["p_value"].min() >= 1 / 61
    assert cli("score", trained, "--elbo", "--threshold-from", "valid")[0] == 0


def test_a_damaged_estimate_of_log_z_is_refused(cli, trained):
    (trained / "log_partition.json").write_text('{"step": 6, "estimates": [{"value": "x"}]}')
    status, _, err = cli("score", trained, "--elbo", "--checkpoint", "6")
    assert status == 2
    assert "log_partition.json, field 'estimates.0" in err


def test_a_table_comes_back_with_its_columns(cli, tmp_path):
    random = np.random.default_rng(0)
    table = tmp_path / "mine.csv"
    rows = [[*row, "cat"] for row in random.integers(0, 2, (60, 4)).tolist()]
    table.write_text(
        "\n".join(",".join(map(str, row)) for row in [["a", "b", "c", "d", "kind"], *rows]) + "\n"
    )
    run = tmp_path / "run"
    status, _, err = cli("train", "--data", table, "--run-dir", run, *TINY, "--data.label-column", "kind")
    assert status == 0, err
    shuffled = tmp_path / "new.csv"
    shuffled.write_text("d,a,c,b\n0,1,0,1\n1,1,1,0\n")
    assert cli("reconstruct", run, "--data", shuffled, "--code", "--out", tmp_path / "back.csv")[0] == 0
    assert list(read_csv(tmp_path / "back.csv")[0]) == ["a", "b", "c", "d"]
    in_order = tmp_path / "order.csv"
    in_order.write_text("a,b,c,d,kind\n1,1,0,0,cat\n1,0,1,1,dog\n")
    assert cli("reconstruct", run, "--data", in_order, "--code", "--out", tmp_path / "same.csv")[0] == 0
    assert (tmp_path / "same.csv").read_text() == (tmp_path / "back.csv").read_text()
    status, _, err = cli("encode", run, "--data", tmp_path / "back.csv", "--out", tmp_path / "again.csv")
    assert status == 0, err  # probabilities of bits, which training takes too
    (tmp_path / "lacks.csv").write_text("a,b,c\n1,1,0\n")
    status, _, err = cli("encode", run, "--data", tmp_path / "lacks.csv", "--out", tmp_path / "x.csv")
    assert status == 2
    assert "must have the 4 columns that the run was trained on; received none of the name 'd'." in err


def test_reconstructions_of_images(cli, images_run, tmp_path):
    words = ["--out", tmp_path / "x.npy", "--picture", tmp_path / "x.png", "--num-draws", "3"]
    status, out, _ = cli("reconstruct", images_run, *words)
    assert status == 0
    assert "% of the values are wrong" in out
    assert np.load(tmp_path / "x.npy").shape == (6, 1, 4, 3)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert cli("reconstruct", images_run, "--statistic", "sample", "--out", tmp_path / "s.npz")[0] == 0
    assert set(np.unique(np.load(tmp_path / "s.npz")["x"])) <= {0.0, 1.0}


def test_noise_is_shown_on_the_test_part(cli, images_run, tmp_path):
    words = ["--noise", "0.2", "--out", tmp_path / "x.npz", "--picture", tmp_path / "x.png"]
    status, out, _ = cli("denoise", images_run, *words)
    assert status == 0
    assert out.index("Before: ") < out.index("After: ")
    found = np.load(tmp_path / "x.npz")
    assert found["x"].shape == found["noisy"].shape == (6, 1, 4, 3)
    np.save(tmp_path / "noisy.npy", found["noisy"])
    words = ["--data", tmp_path / "noisy.npy", "--noise", "0.2", "--out", tmp_path / "y.npy"]
    status, out, _ = cli("denoise", images_run, *words)
    assert status == 0
    assert "Before" not in out
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), found["x"])


def test_paths_between_examples(cli, images_run, tmp_path):
    words = ["--num-pairs", "2", "--out", tmp_path / "x.csv", "--picture", tmp_path / "x.png"]
    status, out, _ = cli("interpolate", images_run, *words)
    assert status == 0
    assert out.count("differ") == 2
    table = read_csv(tmp_path / "x.csv")
    assert list(table[0])[:5] == ["from", "to", "step", "flipped", "energy"]
    assert table[0]["flipped"] == "-1"
    words = [
        "--from",
        "1",
        "--to",
        "4",
        "--path",
        "straight",
        "--num-steps",
        "5",
        "--out",
        tmp_path / "s.npz",
    ]
    assert cli("interpolate", images_run, *words)[0] == 0
    found = np.load(tmp_path / "s.npz")
    assert found["x"].shape == (5, 1, 4, 3)
    assert found["continuous"].shape == (5, 2, 2)
    assert set(found["from"]) == {1}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("encode", "--out must be given"),
        ("encode --out x.txt", "--out must end in one of .npz, .npy, .csv, .parquet; received 'x.txt'"),
        ("encode --out wide.npy --data wide.npy", "--out must be another file"),
        ("encode --out x.npz --data wide.npy", "must have examples of 12 values, as the run's have, (12,)"),
        ("encode --out x.npz --data twos.npy", "must hold values in [0, 1], which the run's bernoulli"),
        ("encode --out x.npz --data none.npy", "none.npy must exist"),
        (
            "encode --out x.npz --data gaps.npy",
            "must have no missing values, since the run has learned of none",
        ),
        ("encode --out x.npz --what continuous", "--what must be an array of this run, which has no layers"),
        ("encode --out x.npz --what code", "--what must be one of bits, probabilities"),
        ("encode --out x.npz --part all", "--part must be one of train, valid, test"),
        ("encode --out x.npz --label-column kind", "--label-column needs --data"),
        ("encode --out .", "--out must end in one of"),
        ("encode --out x.npz --picture .", "--picture must end in one of .png, .pdf, .svg; received '.'"),
        ("encode --out wide.npy/x.npz", "must be writable"),
        ("score --num-samples 0", "--num-samples must be a whole number of at least 1"),
        ("score --num-examples 100", "--num-examples must be at most the 6 test examples"),
        ("score --threshold-from none.npy", "none.npy must exist"),
        ("reconstruct --statistic mode --num-draws 2", "--num-draws must be 1 for a mode"),
        ("denoise", "--data or --noise must be given"),
        ("denoise --noise 0.7", "--noise must be a finite number"),
        ("interpolate --from 1", "--from and --to must be given together"),
        ("interpolate --from 1 --to 99", "--to must be the number of one of the 6 examples"),
        ("interpolate --num-pairs 4", "--num-pairs must be at most 3 for 6 examples"),
        ("interpolate --picture x.png", "--picture needs a run of images"),
    ],
)
def test_wrong_input(refused, trained, tmp_path, monkeypatch, words, message):
    np.save(tmp_path / "wide.npy", np.zeros((2, 13)))
    np.save(tmp_path / "twos.npy", np.full((2, 12), 2))
    np.save(tmp_path / "gaps.npy", np.full((2, 12), np.nan))
    monkeypatch.chdir(tmp_path)
    verb, *rest = words.split()
    assert message in refused(verb, "trained", *rest)


@pytest.mark.parametrize(
    "words",
    [
        "encode trained --data ~/x.npy --out ~/x.npy",
        "score trained --data other.npz --threshold-from x.npy --out x.npy",
        "neighbors trained --data other.npz --among ~/x.npy -k 2 --out x.npy",
        "impute trained --data other.npz --mask x.npy --out x.npy",
        "impute trained --data other.npz --mask x.npy --std-errors x.npy --out y.npy",
        "impute trained --data other.npz --mask x.npy --std-errors y-1.csv --draws 2 --out y.csv",
        "generate trained -n 1 --label all --labels x.npy --out x.npy",
        "encode own --out own.npz",
        "encode own --data x.npy --out own.npz",
        "score own --threshold-from valid --data x.npy --out own.npz",
        "evaluate own --per-example own.npz",
        "evaluate own --out own/config.json",
        "figure training-curves table --out table.png",
    ],
)
def test_no_result_replaces_what_is_read_or_trained_on(refused, trained, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    np.save("x.npy", np.eye(12)), np.savez("other.npz", x=np.eye(12))
    for name, ending in (("own", "npz"), ("table", "csv")):  # as runs whose data were this file
        shutil.copytree(trained, name)
        config = json.loads((trained / "config.json").read_text())
        config["data"]["path"] = str(tmp_path / f"{name}.{ending}")
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        (tmp_path / f"{name}.{ending}").write_text("what the run was trained on")
    assert "must be another file than those that are read" in refused(*words.split())


def test_arguments_are_called_by_their_options(refused, trained, data_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["encode", trained, "--out", "x.npz"]
    assert "--part must be left out" in refused(*words, "--data", data_file, "--part", "test")
    assert "--num-examples must be at most" in refused(*words, "--num-examples", "100")
    assert "RUN must be an existing folder" in refused("encode", "nowhere", "--out", "x.npz")
    assert "--picture must end in one of .png" in refused(*words, "--picture", "x.jpg")


def test_one_example_has_no_spread(cli, trained, tmp_path):
    np.save(tmp_path / "one.npy", np.eye(12)[:1])
    words = [trained, "--data", tmp_path / "one.npy"]
    reference = ["--num-samples", "1", "--threshold-from", tmp_path / "one.npy"]
    for verb, *more in (["score", *reference], ["score", "--elbo", *reference], ["reconstruct"]):
        status, out, _ = cli(verb, *words, *more)
        assert status == 0
        assert "nan" not in out


def test_signs_of_pandas_and_spreadsheets_are_read(cli, trained, tmp_path):
    """Truth values, gaps by their words, names with line ends and separators, a mark at the start."""
    names = ['"a; b"', '"two\nlines"', *(f"x{number}" for number in range(10))]
    rows = [["True", "FALSE", *"0101010101"], ["#N/A", "<NA>", *"1111100000"]]
    text = "\ufeff" + "\r\n".join(";".join(row) for row in [names, *rows]) + "\r\n"
    (tmp_path / "x.csv").write_bytes(text.encode())
    words = ["--data", tmp_path / "x.csv", "--out", tmp_path / "y.csv", "--num-samples", "20"]
    assert cli("impute", trained, *words)[0] == 0
    before, after = text.encode().split(b"#N/A;<NA>")
    filled = (tmp_path / "y.csv").read_bytes()
    assert filled.startswith(before)
    assert filled.endswith(after)
    assert all(0 < float(word) < 1 for word in filled[len(before) : -len(after)].split(b";"))
