"""dvae log-partition: figures on the terminal, a file, a histogram, refused input."""

import json

import pytest

from discrete_vae import exact_log_partition
from discrete_vae.cli import main
from discrete_vae.training.load import load_run
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
    assert trained.figure_path("log-partition.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads((trained.path / "log_partition.json").read_text())
    exact = exact_log_partition(load_run(trained).model.prior).value
    assert result["exact"] == pytest.approx(exact)
    assert len({found["value"] for found in result["estimates"]}) == 3
    for found in result["estimates"]:
        assert abs(found["value"] - exact) < 5 * found["std_error"]
        assert found["converged"]
    assert result["chains"]["num_sweeps"] == 200


def test_one_repeat_draws_nothing(trained, tmp_path, capsys):
    out = tmp_path / "histogram.svg"
    assert main(["log-partition", str(trained.path), *QUICK, "--out", str(out)]) == 0
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--repeats", "0"], "--repeats"),
        (["--std-error", "-1"], "std_error must be a finite number above 0"),
        (["--out", "histogram.txt"], "must end in one of .png"),
        (["--checkpoint", "newest"], "must be best, last or a step"),
    ],
)
def test_wrong_input_is_refused(trained, options, message, capsys):
    assert main(["log-partition", str(trained.path), *options]) == 2
    assert message in capsys.readouterr().err
