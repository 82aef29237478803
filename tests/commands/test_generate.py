"""dvae generate."""

import numpy as np
import pytest

from discrete_vae import load_run
from discrete_vae.inference.rows import rows_of_run
from discrete_vae.runs.run_directory import RunDirectory


@pytest.fixture
def labels(tmp_path):
    """Labels of the 48 training examples of the fixture's run."""
    np.save(tmp_path / "labels.npy", np.arange(48) % 2)
    return tmp_path / "labels.npy"


def test_examples(cli, trained, tmp_path):
    out = tmp_path / "new.npz"
    words = [
        "-n",
        7,
        "--num-sweeps",
        5,
        "--clamp",
        "0=1,3=0",
        "--bias",
        "1=2.5",
        "--picture",
        tmp_path / "p.png",
    ]
    status, said, err = cli("generate", trained, *words, "--out", out)
    assert status == 0, err
    assert "7 new examples" in said
    found = np.load(out)
    assert found["x"].shape == (7, 12)
    assert set(np.unique(found["x"])) <= {0, 1}
    assert (found["z"][:, 0] == 1).all()
    assert (found["z"][:, 3] == 0).all()
    assert (tmp_path / "p.png").stat().st_size > 1000
    again = tmp_path / "again.csv"
    assert cli("generate", trained, *words[:-2], "--statistic", "mean", "--out", again)[0] == 0
    assert again.read_text().startswith("x_0,x_1,")
    assert len(again.read_text().splitlines()) == 8


def test_a_field_of_all_units(cli, trained, tmp_path):
    np.save(tmp_path / "field.npy", np.array([60.0, -60, 0, 0, 0]))
    words = ["-n", 5, "--num-sweeps", 20, "--bias", tmp_path / "field.npy", "--out", tmp_path / "o.npz"]
    assert cli("generate", trained, *words)[0] == 0
    z = np.load(tmp_path / "o.npz")["z"]
    assert (z[:, 0] == 1).all()
    assert (z[:, 1] == 0).all()


def test_classes(cli, trained, labels, tmp_path):
    words = ["-n", 3, "--num-sweeps", 2, "--labels", labels, "--out", tmp_path / "o.npz"]
    status, said, err = cli("generate", trained, *words, "--label", "all", "--picture", tmp_path / "p.png")
    assert status == 0, err
    assert "6 new examples" in said
    assert "% of labeled examples held out" in said
    assert np.load(tmp_path / "o.npz")["labels"].tolist() == [0, 0, 0, 1, 1, 1]
    assert cli("generate", trained, *words[:-2], "--label", "1", "--out", tmp_path / "o.csv")[0] == 0
    assert (tmp_path / "o.csv").read_text().splitlines()[1].startswith("1,")


def test_labels_as_text(cli, trained, data_file, tmp_path):
    (tmp_path / "kinds.csv").write_text("\n".join(["kind", *(["cat", "dog", "dog"] * 20)]))
    words = [
        "--data",
        data_file,
        "--labels",
        tmp_path / "kinds.csv",
        "--label",
        "dog",
        "-n",
        2,
        "--num-sweeps",
        2,
    ]
    assert cli("generate", trained, *words, "--out", tmp_path / "o.npz")[0] == 0
    assert np.load(tmp_path / "o.npz")["labels"].tolist() == ["dog", "dog"]


def test_what_cannot_be_done_is_refused(refused, trained, labels, tmp_path):
    np.save(tmp_path / "field.npy", np.zeros(4))
    np.save(tmp_path / "few.npy", np.zeros(3, int))
    words = ["generate", trained, "-n", 3, "--out", tmp_path / "o.npz"]
    assert "-n must be given" in refused("generate", trained, "--out", tmp_path / "o.npz")
    assert "--out or --picture must be given" in refused("generate", trained, "-n", 3)
    for wrong in ("1", "1=2", "a=1", "1=1,1=0", "0=1,,"):
        assert "--clamp must be pairs UNIT=BIT" in refused(*words, "--clamp", wrong)
    assert "--clamp must name units from 0 to 4" in refused(*words, "--clamp", "5=1")
    assert "--clamp must leave" in refused(*words, "--clamp", "0=1,1=1,2=1,3=0,4=0")
    assert "--bias must name units" in refused(*words, "--bias", "7=0.5")
    assert "--bias must be pairs" in refused(*words, "--bias", "1=x")
    assert "--bias must hold a finite number for each of the 5 units" in refused(
        *words, "--bias", tmp_path / "field.npy"
    )
    assert "--labels needs --label" in refused(*words, "--labels", labels)
    assert "--label needs a label per example" in refused(*words, "--label", "1")
    assert "--labels must be as many as the 48 training examples" in refused(
        *words, "--label", "1", "--labels", tmp_path / "few.npy"
    )
    assert "--label must be among the labels, 0, 1" in refused(*words, "--label", "7", "--labels", labels)


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


def test_more_or_fewer_labels_than_examples_are_refused(refused, trained, data_file, tmp_path):
    np.save(tmp_path / "many.npy", np.arange(61) % 2)
    words = ["generate", trained, "-n", 3, "--out", tmp_path / "o.npz", "--label", "1"]
    error = refused(*words, "--labels", tmp_path / "many.npy")
    assert (
        f"--labels must be as many as the 48 training examples or the 60 rows of {data_file}; received 61"
        in error
    )
    error = refused(*words, "--labels", tmp_path / "many.npy", "--data", data_file)
    assert f"--labels must be as many as the 60 examples of {data_file}; received 61." in error


@pytest.mark.parametrize("option", ["--data", "--part", "--num-examples", "--label-column", "--labels"])
def test_examples_that_nothing_reads_are_refused(refused, trained, option):
    value = {"--part": "valid", "--num-examples": 5}.get(option, "flags.npy")
    assert f"{option} needs --label" in refused("generate", trained, "-n", 3, "--out", "o.npz", option, value)


def test_fields_may_be_any_numbers(cli, trained, tmp_path):
    words = ["-n", 3, "--num-sweeps", 20, "--bias", "0=6e1,1=-.6E+2", "--out", tmp_path / "o.npz"]
    assert cli("generate", trained, *words)[0] == 0
    z = np.load(tmp_path / "o.npz")["z"]
    assert (z[:, 0] == 1).all()
    assert (z[:, 1] == 0).all()
