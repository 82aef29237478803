"""dvae log-partition: figures on the terminal, a file, a histogram, refused input."""

import json

import pytest

from discrete_vae import exact_log_partition
from discrete_vae.cli import main
from discrete_vae.load import load_run
from tests.training.tiny import start_run, train_quietly

QUICK = ["--std-error", "0.05", "--health-sweeps", "200"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run = start_run(tmp_path_factory.mktemp("log-partition") / "run")
    train_quietly(run)
    return run


def test_repeats_with_a_histogram(trained, capsys):
    assert main(["log-partition", str(trained.path), "--repeats", "3", *QUICK]) == 0
    printed = capsys.readouterr().out
    assert "3/3  log Z = " in printed
    assert "exchange rates" in printed
    assert "R-hat" in printed
    assert (trained.figures_path / "log-partition.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads((trained.path / "log_partition.json").read_text())
    exact = exact_log_partition(load_run(trained).model.prior).value
    assert result["exact"] == pytest.approx(exact)
    assert len({found["value"] for found in result["estimates"]}) == 3
    for found in result["estimates"]:
        assert abs(found["value"] - exact) < 5 * found["std_error"]
        assert found["converged"]
    assert result["chains"]["num_sweeps"] == 200


def test_one_repeat_is_drawn_where_it_is_asked_for(trained, tmp_path, capsys):
    out = tmp_path / "dot.svg"
    assert main(["log-partition", str(trained.path), *QUICK, "--out", str(out)]) == 0
    assert b"repeat" in out.read_bytes()
    lines = [line for line in capsys.readouterr().out.splitlines() if str(tmp_path.parent) not in line]
    assert lines
    assert max(map(len, lines)) <= 80


def test_earlier_estimates_are_kept(trained, capsys):
    for words in (["--repeats", "2"], ["--repeats", "1"], ["--repeats", "1", "--seed", "4"]):
        assert main(["log-partition", str(trained.path), *QUICK, *words]) == 0
    names = sorted(path.name for path in (trained.path / "log_partitions").iterdir())
    for settings in (
        "repeats-2-std-error-0.05-seed-0",
        "repeats-1-std-error-0.05-seed-0",
        "repeats-1-std-error-0.05-seed-4",
    ):
        assert any(settings in name for name in names)
    assert len(json.loads((trained.path / "log_partition.json").read_text())["estimates"]) >= 2


def test_json_elsewhere_leaves_the_run_alone(trained, tmp_path, capsys):
    from tests.commands.conftest import snapshot

    before = snapshot(trained.path)
    assert main(["log-partition", str(trained.path), *QUICK, "--out", str(tmp_path / "z.json")]) == 0
    assert snapshot(trained.path) == before
    assert len(json.loads((tmp_path / "z.json").read_text())["estimates"]) == 1


def test_what_cannot_be_written_is_found_first(trained, tmp_path, capsys):
    assert (
        main(["log-partition", str(trained.path), *QUICK, "--out", str(trained.config_path / "z.json")]) == 2
    )
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "which is no folder" in printed.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--repeats", "0"], "--repeats"),
        (["--std-error", "0"], "--std-error must be a finite number of at least 1e-06"),
        (["--std-error", "-1"], "--std-error must be a finite number of at least 1e-06"),
        (["--out", "histogram.txt"], "must end in one of .png"),
        (["--checkpoint", "newest"], "must be best, last or a step"),
    ],
)
def test_wrong_input_is_refused(trained, options, message, capsys):
    assert main(["log-partition", str(trained.path), *options]) == 2
    assert message in capsys.readouterr().err
