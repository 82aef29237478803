"""dvae neighbors."""

import numpy as np
import pytest


def test_neighbors(cli, trained, data_file, tmp_path):
    x = np.load(data_file)
    np.savez(tmp_path / "some.npz", x=x[:5], y=np.arange(5) % 2)
    np.savez(tmp_path / "all.npz", x=x, y=np.arange(60) % 2)
    words = ["--data", tmp_path / "some.npz", "--among", tmp_path / "all.npz", "-k", 4]
    picture = tmp_path / "p.png"
    status, said, err = cli("neighbors", trained, *words, "--out", tmp_path / "o.npz", "--picture", picture)
    assert status == 0, err
    found = np.load(tmp_path / "o.npz")
    assert found["neighbors"].shape == found["distances"].shape == (5, 4)
    assert (found["distances"][:, 0] == 0).all()
    assert (np.diff(found["distances"], axis=1) >= 0).all()
    share = (found["neighbors"] % 2 == (np.arange(5) % 2)[:, None]).mean()
    assert f"{100 * share:.1f} % of the neighbors have the label" in said
    assert picture.stat().st_size > 1000
    assert cli("neighbors", trained, *words, "--others", "--out", tmp_path / "o.csv")[0] == 0
    rows = np.genfromtxt(tmp_path / "o.csv", delimiter=",", names=True)
    assert rows.dtype.names[:3] == ("index", "label", "neighbor_1")
    assert (rows["neighbor_1"] != rows["index"]).all()


def test_a_part_of_the_runs_data_is_searched(cli, trained, tmp_path):
    status, said, _ = cli("neighbors", trained, "-k", 2, "--out", tmp_path / "o.npy")
    assert status == 0
    assert "part 'train', 48 examples" in said
    assert np.load(tmp_path / "o.npy").shape == (6, 2)


def test_what_cannot_be_done_is_refused(refused, trained, data_file, tmp_path):
    words = ["neighbors", trained, "--out", tmp_path / "o.npz"]
    assert "-k must be at most 48" in refused(*words, "-k", 49)
    assert "-k must be a whole number" in refused(*words, "-k", 0)
    assert "o.npz" in refused(*words, "--among", tmp_path / "none.npy").replace("none.npy", "o.npz")
    assert "must be another file" in refused("neighbors", trained, "--among", data_file, "--out", data_file)


@pytest.mark.parametrize("labels", [np.eye(60, 3), np.array(["a"] * 60)], ids=["of several columns", "words"])
def test_labels_of_another_kind_are_not_compared(cli, trained, tmp_path, labels):
    x = np.random.default_rng(0).random((60, 12)) < 0.5
    np.savez(tmp_path / "own.npz", x=x[:7], y=np.arange(7))
    np.savez(tmp_path / "pool.npz", x=x, y=labels)
    words = ["--data", tmp_path / "own.npz", "--among", tmp_path / "pool.npz", "-k", 2]
    status, out, _ = cli("neighbors", trained, *words, "--out", tmp_path / "n.npz")
    assert status == 0
    assert "have the label" not in out
