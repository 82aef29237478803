"""The verbs that take examples through a model: from a file to a file, as the functions say; what is refused."""

import re

import numpy as np
import pytest
import torch

from discrete_vae import load_run
from discrete_vae.inference.encode import encode_rows
from discrete_vae.inference.rows import rows_of_run
from discrete_vae.inference.score import p_values
from discrete_vae.runs.run_directory import RunDirectory
from tests.cli.conftest import TINY, columns_of

pytestmark = pytest.mark.filterwarnings(
    "ignore:the last doubling", "ignore:bridge sampling", "ignore:.*have fewer than 10"
)
FAST = ["--num-samples", "40", "--num-rounds", "2"]


def test_codes_of_a_file_are_those_of_the_function(done, images_run, tmp_path):
    words, picture = ["encode", images_run, "--data", images_run.parent / "x.npz"], tmp_path / "codes.png"
    out, _ = done(*words, "--out", tmp_path / "codes.npz")
    assert "60 examples" in out
    assert "5 units" in out
    images = np.load(images_run.parent / "x.npz")
    codes = encode_rows(load_run(images_run).model, torch.from_numpy(images["x"].reshape(60, -1)).float())
    with np.load(tmp_path / "codes.npz") as found:
        assert set(found) == {"index", "label", "bits", "packed", "probabilities", "zeta", "continuous"}
        np.testing.assert_array_equal(found["label"], images["y"])
        for name, values in codes.arrays().items():
            np.testing.assert_array_equal(found[name], values)
    done(*words, "--out", tmp_path / "bits.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "bits.npy"), codes.bits)
    done(*words, "--out", tmp_path / "p.csv", "--what", "probabilities", "--picture", picture)
    table = columns_of(tmp_path / "p.csv")
    assert table["label"] == [str(label) for label in images["y"]]
    read = [table[f"probability_{unit}"] for unit in range(5)]
    np.testing.assert_array_equal(np.array(read, np.float32).T, codes.probabilities)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_without_a_file_the_test_part_is_encoded(done, trained, tmp_path):
    draws = []
    for seed in (1, 1, 2):
        out, _ = done("encode", trained, "--out", tmp_path / "codes.npz", "--draw", "--seed", seed)
        assert "part 'test': 6 examples" in out
        with np.load(tmp_path / "codes.npz") as found:
            draws.append(found["zeta"])
            assert "continuous" not in found
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()


def test_scores_are_those_that_evaluate_averages(done, trained, tmp_path):
    done("evaluate", trained, "--num-samples", "20", "--per-example", tmp_path / "e.npz")
    out, _ = done("score", trained, "--num-samples", "20", "--out", tmp_path / "s.npz")
    assert "kept in evaluation.json" in out
    found, wanted = (np.load(tmp_path / f"{name}.npz")["log_likelihood"] for name in "se")
    np.testing.assert_array_equal(found, wanted)


def test_p_values_come_from_the_reference(done, trained, data_file, tmp_path):
    strange, found, reference = (tmp_path / name for name in ("strange.npy", "p.npz", "r.npz"))
    np.save(strange, np.random.default_rng(1).integers(0, 2, (40, 12)))
    words = ["score", trained, "--elbo", "--num-samples", "20", "--data"]
    more = ["--threshold-from", data_file, "--picture", tmp_path / "scores.png"]
    assert "Area under the ROC curve" in done(*words, strange, *more, "--out", found)[0]
    done(*words, data_file, "--out", reference)
    found = np.load(found)
    assert set(found) == {"index", "elbo", "std_error", "p_value"}
    other_noise = p_values(found["elbo"], np.load(reference)["elbo"])
    assert np.abs(found["p_value"] - other_noise).max() < 0.25
    assert found["p_value"].min() >= 1 / 61
    out, _ = done("score", trained, "--elbo", "--threshold-from", "valid")  # 6 examples: no p-value below 1/7
    assert "would give about 0.0 % and 0.0 %" in " ".join(out.split())


def test_reconstructions_of_images(done, images_run, tmp_path):
    words = ["--out", tmp_path / "x.npy", "--picture", tmp_path / "x.png", "--num-draws", "3"]
    assert "% of the values are wrong" in done("reconstruct", images_run, *words)[0]
    assert np.load(tmp_path / "x.npy").shape == (6, 1, 4, 3)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    done("reconstruct", images_run, "--statistic", "sample", "--out", tmp_path / "s.npz")
    assert set(np.unique(np.load(tmp_path / "s.npz")["x"])) <= {0.0, 1.0}


def test_noise_is_shown_on_the_test_part(done, images_run, tmp_path):
    words = ["--noise", "0.2", "--out", tmp_path / "x.npz", "--picture", tmp_path / "x.png"]
    out, _ = done("denoise", images_run, *words)
    assert out.index("Before: ") < out.index("After: ")
    found = np.load(tmp_path / "x.npz")
    assert found["x"].shape == found["noisy"].shape == (6, 1, 4, 3)
    np.save(tmp_path / "noisy.npy", found["noisy"])
    words = ["--data", tmp_path / "noisy.npy", "--noise", "0.2", "--out", tmp_path / "y.npy"]
    out, _ = done("denoise", images_run, *words)
    assert "Before" not in out
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), found["x"])


def test_paths_between_examples(done, images_run, tmp_path):
    words = ["--num-pairs", "2", "--out", tmp_path / "x.csv", "--picture", tmp_path / "x.png"]
    out, _ = done("interpolate", images_run, *words)
    assert out.count("differ") == 2
    table = columns_of(tmp_path / "x.csv")
    assert list(table)[:5] == ["from", "to", "step", "flipped", "energy"]
    assert table["flipped"][0] == "-1"
    words = ["--from", "1", "--to", "4", "--path", "straight", "--num-steps", "5", "--out"]
    done("interpolate", images_run, *words, tmp_path / "s.npz")
    found = np.load(tmp_path / "s.npz")
    assert found["x"].shape == (5, 1, 4, 3)
    assert found["continuous"].shape == (5, 2, 2)
    assert set(found["from"]) == {1}


def test_a_feature_of_the_name_of_another_column_leaves_both(done, tmp_path):
    random, file = np.random.default_rng(0), tmp_path / "own.csv"
    lines = (f"{random.integers(0, 2)},{random.integers(0, 2)}" for _ in range(60))
    file.write_text("\n".join(["energy,label", *lines]) + "\n")
    done("train", "--data", file, *TINY, "--run-dir", tmp_path / "run")
    done("interpolate", tmp_path / "run", "--num-pairs", "1", "--out", tmp_path / "x.csv")
    names = ["from", "to", "step", "flipped", "energy_", "energy", "label"]
    assert list(columns_of(tmp_path / "x.csv")) == names
    (tmp_path / "y.csv").write_text("\n".join(["y", *(["a", '"b, c"'][row % 2] for row in range(60))]) + "\n")
    words = ["--labels", tmp_path / "y.csv", "--label", "b, c", "-n", "2", "--out", tmp_path / "new.csv"]
    done("generate", tmp_path / "run", *words)
    assert {*columns_of(tmp_path / "new.csv")["label_"]} == {"b, c"}


def test_one_example_has_no_spread(done, trained, tmp_path):
    np.save(tmp_path / "one.npy", np.eye(12)[:1])
    words = [trained, "--data", tmp_path / "one.npy"]
    reference = ["--num-samples", "1", "--threshold-from", tmp_path / "one.npy"]
    for verb, *more in (["score", *reference], ["score", "--elbo", *reference], ["reconstruct"]):
        out, _ = done(verb, *words, *more)
        assert "nan" not in out


# impute


def test_arrays(done, trained, data_file, tmp_path):
    x = np.load(data_file)[:8].astype(np.float32)
    gaps = np.random.default_rng(0).random(x.shape) < 0.2
    np.save(tmp_path / "gaps.npy", np.where(gaps, np.nan, x))
    words = ["--data", tmp_path / "gaps.npy", "--out", tmp_path / "o.npz", *FAST, "--draws", 2]
    picture, errors = tmp_path / "p.png", tmp_path / "e.npy"
    out, _ = done("impute", trained, *words, "--picture", picture, "--std-errors", errors)
    found = np.load(tmp_path / "o.npz")
    assert f"{gaps.sum()} gaps in {gaps.any(1).sum()} examples" in out
    assert (found["gaps"] == gaps).all()
    assert (found["filled"][~gaps] == x[~gaps]).all()
    assert ((found["filled"] >= 0) & (found["filled"] <= 1)).all()
    assert found["draws"].shape == (8, 2, 12)
    assert set(np.unique(found["draws"])) <= {0, 1}
    assert (np.load(errors) == found["std_error"]).all()
    assert picture.stat().st_size > 1000
    done("impute", trained, "--data", tmp_path / "gaps.npy", "--out", tmp_path / "m.npy", *FAST, "--mode")
    assert set(np.unique(np.load(tmp_path / "m.npy"))) <= {0, 1}


def test_a_mask_and_chains(done, trained, data_file, tmp_path):
    mask = np.zeros((60, 12), bool)
    mask[:, 6:] = True
    np.save(tmp_path / "mask.npy", mask)
    words = ["--data", data_file, "--mask", tmp_path / "mask.npy", "--num-examples", 3, "--method", "chains"]
    done("impute", trained, *words, *FAST, "--num-steps", 4, "--out", tmp_path / "o.npz")
    found = np.load(tmp_path / "o.npz")
    assert (found["gaps"] == mask[:3]).all()
    assert (found["filled"][:, :6] == np.load(data_file)[found["index"], :6]).all()
    assert len(np.unique(found["filled"][:, 6:])) > 2


def test_a_table_comes_back_as_it_was_and_draws_are_tables_of_values(done, table_run, tmp_path):
    words = ["impute", table_run / "run", "--data", table_run / "gaps.csv", *FAST, "--out"]
    done(*words, tmp_path / "filled.csv")
    head, first, blank, second, last = (tmp_path / "filled.csv").read_bytes().split(b"\r\n")
    assert (head, blank, last) == (b"d,kind,a,c,b", b"", b"")
    d, kind, a, c, b = first.split(b",")
    assert (d, kind, c) == (b"1", b"x", b"3.0")
    assert min(float(a), float(b)) > 0
    d, kind, a, c, b = second.split(b",")
    assert (kind, a, b) == (b"y", b'"2"', b" 4")
    assert min(float(c), float(d)) > 0
    done(*words, tmp_path / "d.csv", "--draws", 2)
    for number in (1, 2):
        d, _, _, c, _ = (tmp_path / f"d-{number}.csv").read_text().split("\n")[3].split(",")
        assert (d + c).isdigit()
    assert not (tmp_path / "d.csv").exists()


def test_a_parquet_table_comes_back_in_its_own_types(done, table_run, tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is in the extra 'tables'")
    pytest.importorskip("pyarrow.parquet", reason="pyarrow is in the extra 'tables'")
    whole = pandas.array([1, None, 3], dtype="Int16")
    columns = {"d": whole, "kind": ["x", None, "y"], "a": whole, "b": np.float32([1, 2, np.nan]), "c": whole}
    frame = pandas.DataFrame(columns, index=[5, 7, 9])
    frame.to_parquet(tmp_path / "gaps.parquet")
    words = ["impute", table_run / "run", "--data", tmp_path / "gaps.parquet", *FAST, "--out"]
    done(*words, tmp_path / "d.parquet", "--draws", 1)
    filled = pandas.read_parquet(tmp_path / "d-1.parquet")
    assert filled.dtypes.equals(frame.dtypes)
    assert filled.drop(columns="kind").notna().all(axis=None)
    assert filled.where(frame.notna(), frame).equals(frame)
    done(*words, tmp_path / "means.parquet")
    means = pandas.read_parquet(tmp_path / "means.parquet").a
    assert (means[5], means[9], means[7] % 1 > 0) == (1, 3, True)


# generate


def test_examples(done, trained, tmp_path):
    out, again, picture = tmp_path / "new.npz", tmp_path / "again.csv", tmp_path / "p.png"
    words = ["-n", 7, "--num-sweeps", "5", "--clamp", "0=1,3=0", "--bias", "1=2.5"]
    said, _ = done("generate", trained, *words, "--picture", picture, "--out", out)
    assert "7 new examples" in said
    found = np.load(out)
    assert found["x"].shape == (7, 12)
    assert set(np.unique(found["x"])) <= {0, 1}
    assert (found["z"][:, [0, 3]] == [1, 0]).all()
    assert picture.stat().st_size > 1000
    done("generate", trained, *words, "--statistic", "mean", "--out", again)
    assert again.read_text().startswith("x_0,x_1,")
    assert len(again.read_text().splitlines()) == 8
    np.save(tmp_path / "field.npy", np.array([60.0, -60, 0, 0, 0]))
    for bias in (tmp_path / "field.npy", "0=6e1,1=-.6E+2"):  # a field reaches its unit
        done("generate", trained, "-n", 5, "--num-sweeps", 20, "--bias", bias, "--out", out)
        assert (np.load(out)["z"][:, :2] == [1, 0]).all()


def test_classes(done, trained, data_file, tmp_path):
    np.save(tmp_path / "labels.npy", np.arange(48) % 2)  # of the training examples
    words = ["-n", 3, "--num-sweeps", 2, "--labels", tmp_path / "labels.npy", "--out", tmp_path / "o.npz"]
    said, _ = done("generate", trained, *words, "--label", "all", "--picture", tmp_path / "p.png")
    assert "6 new examples" in said
    assert "% of labeled examples held out" in said
    assert np.load(tmp_path / "o.npz")["labels"].tolist() == [0, 0, 0, 1, 1, 1]
    (tmp_path / "kinds.csv").write_text("\n".join(["kind", *(["cat", "dog", "dog"] * 20)]))
    words = ["--data", data_file, "--labels", tmp_path / "kinds.csv", "--label", "dog", "-n", 2]
    done("generate", trained, *words, "--num-sweeps", 2, "--out", tmp_path / "o.csv")
    assert (tmp_path / "o.csv").read_text().splitlines()[1].startswith("dog,")


def test_labels_are_those_of_the_rows_that_training_took(trained, data_file, tmp_path):
    """One label per row of the file: training has shuffled and cut it."""
    rows, run = np.load(data_file), RunDirectory.open(trained)
    loaded = load_run(run)
    np.save(tmp_path / "number.npy", np.arange(60))
    for part, size in (("train", 48), ("valid", 6), ("test", 6)):
        found = rows_of_run(run, loaded, part=part, labels=tmp_path / "number.npy", num_examples=5)
        assert (rows[found.labels] == found.x.numpy()).all()
        np.save(tmp_path / "of-part.npy", np.arange(size))
        found = rows_of_run(run, loaded, part=part, labels=tmp_path / "of-part.npy")
        assert found.labels.tolist() == list(range(size))
    found = rows_of_run(run, loaded, data_file, labels=tmp_path / "number.npy", num_examples=5)
    assert (found.labels == found.index).all()


# neighbors


def test_neighbors(cli, done, trained, data_file, tmp_path):
    x, some, among = np.load(data_file), tmp_path / "some.npz", tmp_path / "all.npz"
    np.savez(some, x=x[:5], y=np.arange(5) % 2)
    np.savez(among, x=x, y=np.arange(60) % 2)
    words = ["neighbors", trained, "--data", some, "--among", among, "-k", 4, "--out"]
    picture = tmp_path / "p.png"
    said, _ = done(*words, tmp_path / "o.npz", "--picture", picture)
    found = np.load(tmp_path / "o.npz")
    assert found["neighbors"].shape == found["distances"].shape == (5, 4)
    assert (found["distances"][:, 0] == 0).all()
    assert (np.diff(found["distances"], axis=1) >= 0).all()
    share = (found["neighbors"] % 2 == (np.arange(5) % 2)[:, None]).mean()
    said = re.search(r"^([\d.]+) % ± ([\d.]+) % of the neighbors have the label", said, re.MULTILINE)
    assert said[1] == f"{100 * share:.1f}"
    of_queries = (found["neighbors"] % 2 == (np.arange(5) % 2)[:, None]).mean(1)
    assert float(said[2]) == pytest.approx(100 * of_queries.std(ddof=1) / 5**0.5, abs=0.06)
    assert picture.stat().st_size > 1000
    done(*words, tmp_path / "o.csv", "--others")
    rows = np.genfromtxt(tmp_path / "o.csv", delimiter=",", names=True)
    assert rows.dtype.names[:3] == ("index", "label", "neighbor_1")
    assert (rows["neighbor_1"] != rows["index"]).all()
    status, _, err = cli("neighbors", trained, "-k", 2, "--others", "--out", tmp_path / "test.npz")
    assert (status, (tmp_path / "test.npz").exists()) == (2, False)
    assert "error: --others " in err
