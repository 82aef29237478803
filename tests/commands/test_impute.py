"""dvae impute."""

import numpy as np
import pytest

from discrete_vae.cli import main
from tests.commands.conftest import TINY

FAST = ["--num-samples", "40", "--num-rounds", "2"]
pytestmark = pytest.mark.filterwarnings("ignore:.*have fewer than 10")


@pytest.fixture
def gapped(data_file, tmp_path):
    x = np.load(data_file)[:8].astype(np.float32)
    x[np.random.default_rng(0).random(x.shape) < 0.2] = np.nan
    np.save(tmp_path / "gaps.npy", x)
    return x


def test_arrays(cli, trained, gapped, tmp_path):
    words = ["--data", tmp_path / "gaps.npy", "--out", tmp_path / "o.npz", *FAST, "--draws", 2]
    picture, errors = tmp_path / "p.png", tmp_path / "e.npy"
    status, out, err = cli("impute", trained, *words, "--picture", picture, "--std-errors", errors)
    assert status == 0, err
    found = np.load(tmp_path / "o.npz")
    gaps = np.isnan(gapped)
    assert f"{gaps.sum()} gaps in {gaps.any(1).sum()} examples" in out
    assert (found["gaps"] == gaps).all()
    assert (found["filled"][~gaps] == gapped[~gaps]).all()
    assert ((found["filled"] >= 0) & (found["filled"] <= 1)).all()
    assert found["draws"].shape == (8, 2, 12)
    assert set(np.unique(found["draws"])) <= {0, 1}
    assert (np.load(errors) == found["std_error"]).all()
    assert picture.stat().st_size > 1000
    assert (
        cli("impute", trained, "--data", tmp_path / "gaps.npy", "--out", tmp_path / "m.npy", *FAST, "--mode")[
            0
        ]
        == 0
    )
    assert set(np.unique(np.load(tmp_path / "m.npy"))) <= {0, 1}


def test_a_mask_and_chains(cli, trained, data_file, tmp_path):
    mask = np.zeros((60, 12), bool)
    mask[:, 6:] = True
    np.save(tmp_path / "mask.npy", mask)
    words = ["--data", data_file, "--mask", tmp_path / "mask.npy", "--num-examples", 3, "--method", "chains"]
    assert cli("impute", trained, *words, *FAST, "--num-steps", 4, "--out", tmp_path / "o.npz")[0] == 0
    found = np.load(tmp_path / "o.npz")
    assert (found["gaps"] == mask[:3]).all()
    assert (found["filled"][:, :6] == np.load(data_file)[found["index"], :6]).all()
    assert len(np.unique(found["filled"][:, 6:])) > 2


@pytest.fixture(scope="module")
def table_run(tmp_path_factory):
    """A run on a table of counts that had no gaps, and the table with some."""
    folder = tmp_path_factory.mktemp("table")
    counts = np.random.default_rng(0).poisson(5, (60, 4))
    lines = [f'{i % 3},"{a}",{b},{c} ,{d}' for i, (a, b, c, d) in enumerate(counts)]
    (folder / "whole.csv").write_text("\n".join(['kind,a,"b",c,d', *lines]))
    words = ["--model.likelihood", "negative-binomial", "--data.label-column", "kind", *TINY]
    assert main(["train", "--data", str(folder / "whole.csv"), "--run-dir", str(folder / "run"), *words]) == 0
    (folder / "gaps.csv").write_bytes(b'd,kind,a,c,b\r\n1,x,"NA",3.0,\r\n\r\n,y,"2",, 4\r\n')
    return folder


def test_a_table_comes_back_as_it_was(cli, table_run, tmp_path):
    out = tmp_path / "filled.csv"
    status, _, err = cli("impute", table_run / "run", "--data", table_run / "gaps.csv", "--out", out, *FAST)
    assert status == 0, err
    head, first, blank, second, last = out.read_bytes().split(b"\r\n")
    assert (head, blank, last) == (b"d,kind,a,c,b", b"", b"")
    d, kind, a, c, b = first.split(b",")
    assert (d, kind, c) == (b"1", b"x", b"3.0")
    assert float(a) > 0
    assert float(b) > 0
    d, kind, a, c, b = second.split(b",")
    assert (kind, a, b) == (b"y", b'"2"', b" 4")
    assert float(c) > 0
    assert float(d) > 0


def test_draws_are_tables_of_values(cli, table_run, tmp_path):
    words = ["--data", table_run / "gaps.csv", "--out", tmp_path / "d.csv", *FAST, "--draws", 2]
    assert cli("impute", table_run / "run", *words)[0] == 0
    for number in (1, 2):
        cells = (tmp_path / f"d-{number}.csv").read_text().split("\n")[3].split(",")
        assert cells[0].isdigit()
        assert cells[3].isdigit()
    assert not (tmp_path / "d.csv").exists()


def test_what_cannot_be_done_is_refused(refused, trained, gapped, data_file, table_run, tmp_path):
    np.save(tmp_path / "short.npy", np.zeros((2, 12), bool))
    np.save(tmp_path / "long.npy", np.zeros((61, 12), bool))
    np.save(tmp_path / "number.npy", np.array(True))
    out, gaps = ["--out", tmp_path / "o.npz"], ["--data", tmp_path / "gaps.npy"]
    assert "--data must hold gaps" in refused("impute", trained, "--data", data_file, *out)
    assert "--out must end in" in refused("impute", trained, *gaps, "--out", "o.txt")
    assert "--out must be given" in refused("impute", trained, *gaps)
    assert "--mask must have the data's shape" in refused(
        "impute", trained, *gaps, *out, "--mask", tmp_path / "short.npy"
    )
    for name in ("long.npy", "number.npy"):
        assert "--mask must have the data's shape, 8 examples" in refused(
            "impute", trained, *gaps, *out, "--mask", tmp_path / name
        )
    for values in (np.full((60, 12), 2), np.zeros((60, 12), "V3"), np.full((60, 12), "1")):
        np.save(tmp_path / "odd.npy", values)
        assert "--mask must hold true and false" in refused(
            "impute", trained, "--data", data_file, *out, "--mask", tmp_path / "odd.npy"
        )
    assert "--method must be one of" in refused("impute", trained, *gaps, *out, "--method", "gibbs")
    assert (
        "--num-rounds must be at most --num-samples, 3; received 10. Give more samples, or fewer rounds."
        in refused("impute", trained, *gaps, *out, "--num-samples", 3)
    )
    table = ["impute", table_run / "run", "--data", table_run / "gaps.csv"]
    assert "--mode must be left out" in refused(*table, *out, "--mode")
    assert "--num-examples must be left out" in refused(
        *table, "--out", tmp_path / "x.csv", "--num-examples", 1
    )
    assert "must be another file" in refused(*table, "--out", table_run / "gaps.csv")
