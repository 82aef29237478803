"""dvae figure: every figure of the registry, its table and picture, what is refused."""

import csv
import json
import subprocess
import sys

import pytest

from discrete_vae.figures.registry import FIGURES
from discrete_vae.runs.results import kept_log_partitions
from discrete_vae.runs.run_directory import RunDirectory


@pytest.fixture
def run(trained):
    """A run with estimates of log Z."""
    estimates = [{"value": value, "std_error": 0.1, "method": "m"} for value in (1.0, 1.1, 0.9)]
    config = {"std_error": 0.1, "seed": 0}
    kept_log_partitions(RunDirectory(trained)).add(
        {"step": 6, "config": config, "estimates": estimates, "exact": 1.05}
    )
    return trained


def rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.mark.parametrize("name", FIGURES)
def test_figures_of_a_run_go_into_its_folder(cli, run, name):
    status, out, err = cli("figure", name, run)
    assert status == 0, err
    picture, table = (run / "figures" / f"{name}{ending}" for ending in (".png", ".csv"))
    assert out == f"Table:   {table}\nPicture: {picture}\n"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert len(rows(table)) > 1


def test_the_table_goes_beside_the_named_picture(cli, run, tmp_path):
    out = tmp_path / "curves.svg"
    assert cli("figure", "training-curves", run, "--out", out)[0] == 0
    assert out.read_bytes().startswith(b"<?xml")
    found = rows(tmp_path / "curves.csv")
    assert {row["quantity"] for row in found} >= {"elbo", "validation_elbo"}
    assert not (run / "figures").exists()


def test_the_histogram_shows_what_was_kept(cli, run, tmp_path):
    assert cli("figure", "log-partition-histogram", run, "--out", tmp_path / "a.png")[0] == 0
    assert [float(row["value"]) for row in rows(tmp_path / "a.csv")] == [1.0, 1.1, 0.9]
    assert {row["exact"] for row in rows(tmp_path / "a.csv")} == {"1.05"}


def test_the_seed_decides(cli, run, tmp_path):
    found = []
    for seed in (1, 1, 2):
        assert cli("figure", "reconstructions", run, "--seed", seed, "--out", tmp_path / "a.png")[0] == 0
        found.append((tmp_path / "a.csv").read_text())
    assert found[0] == found[1] != found[2]


@pytest.mark.filterwarnings("ignore:.*is not the file that the run was trained with")
def test_a_changed_config_is_noted_in_the_picture(cli, run, tmp_path):
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"name": "renamed"}))
    assert cli("figure", "reconstructions", run)[0] == 2
    out = tmp_path / "a.svg"
    status, _, err = cli("figure", "reconstructions", run, "--out", out, "--accept-changed-config")
    assert status == 0, err
    assert "config.json" in out.read_text()


def test_without_a_name_it_lists_what_there_is(cli):
    status, out, err = cli("figure")
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines() if line[:2] == "  " and line[2] != " "] == list(
        FIGURES
    )
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("evolutio", "NAME must be one of training-curves, "),
        ("evolutio", "received 'evolutio'. Did you mean evolution?"),
        ("", "NAME must be one of "),
        (
            "evolution",
            "RUN must be given for the figure evolution; received nothing. For example: dvae figure",
        ),
        ("evolution RUN RUN2", "dvae figure takes no more arguments; received 'RUN2'."),
        ("evolution RUN", "RUN must be an existing folder; received RUN."),
    ],
)
def test_wrong_input(refused, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused("figure", *(words.split() or [""]))


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("a.jpg", "--out must end in one of .png, .pdf, .svg; received 'a.jpg'. Did you mean a.png?"),
        ("taken.png", "taken.csv must be writable; received a folder of that name."),
        ("taken.txt/a.png", "taken.txt/a.png must be writable; received taken.txt, which is"),
    ],
)
def test_a_place_that_cannot_be_written(refused, run, tmp_path, monkeypatch, place, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.csv").mkdir()
    (tmp_path / "taken.txt").touch()
    assert message in refused("figure", "training-curves", run, "--out", place)


def test_a_run_without_estimates_says_how_to_get_some(refused, trained):
    error = refused("figure", "log-partition-histogram", trained)
    assert "RUN must have estimates of log Z" in error
    assert f"Make some: dvae log-partition {trained} --repeats 20." in error


def test_damaged_estimates_are_named(refused, run):
    (run / "log_partition.json").write_text('{"step": 6, "estimates": [{"value": 1.0}], "exact": null}')
    error = refused("figure", "log-partition-histogram", run)
    assert "log_partition.json, field 'estimates.0.std_error', must be there" in error


def test_listing_the_figures_loads_no_torch():
    code = "import sys; from discrete_vae.cli import main; main(['figure']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_a_folder_without_a_name_is_refused_whether_the_figure_reads_it_or_not(refused, trained):
    message = refused("figure", "training-curves", trained, "--data-dir=")
    assert "--data-dir must be a path; received ''" in message
