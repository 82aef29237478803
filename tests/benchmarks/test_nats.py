"""The comparison of measures: pairing of seeds and examples, resumable runs, validation examples alone."""

import functools
import math
import sys

import numpy as np
import pytest

from discrete_vae.errors import InvalidInputError


def outcome(values, index=(3, 4, 5), error=0.0):
    from nats_report import Outcome

    return Outcome(10, index, np.array(values), error, 0.0)


def test_a_gain_is_paired_by_seed_and_example():
    from nats_report import gain

    plain = {0: outcome([-1.0, -2.0, -30.0], error=0.3), 1: outcome([-2.0, -3.0, -31.0])}
    plain[2] = outcome([0.0] * 3)
    measured = {1: outcome([-1.0, -1.0, -30.0], error=0.4), 0: outcome([-0.5, -1.0, -30.0])}
    found = gain(measured, plain)
    differences = np.array([[0.5, 1.0, 0.0], [1.0, 2.0, 1.0]])
    assert found.value == pytest.approx(differences.mean())
    assert found.seed_error == pytest.approx(abs(0.5 - 4 / 3) / 2)
    assert found.example_error == pytest.approx(np.std([0.75, 1.5, 0.5], ddof=1) / math.sqrt(3))
    assert found.log_partition_error == pytest.approx(0.5 / 2)
    assert found.num_seeds == 2
    with pytest.raises(ValueError, match="other examples"):
        gain({0: outcome([0.0] * 3)}, {0: outcome([0.0] * 3, index=(3, 4, 6))})


def rows_of(page):
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


def test_runs_a_sharp_limit_and_a_refit_are_compared_and_found_again(tmp_path, monkeypatch, capsys):
    import nats

    words = ["digits", "--size", "smoke", "--steps", "12", "--seeds", "1"]
    words += ["--measures", "importance-5", "ramps", "refit", "--num-examples", "9", "--num-samples", "5"]
    words += ["--add", "constant", "--training.optimizer.rate constant"]
    words += ["--runs", str(tmp_path / "runs"), "--page", str(tmp_path / "page.md")]
    monkeypatch.setattr(nats, "RunRefit", functools.partial(nats.RunRefit, num_steps=3))
    nats.main(words)
    assert "importance-5 does not fit" in capsys.readouterr().out
    rows = rows_of(tmp_path / "page.md")
    plain, ramps, refit, _ = rows
    assert [row[0] for row in rows] == ["as it is", "ramps", "refit", "constant"]
    assert "- refit: `dvae refit RUN`" in (tmp_path / "page.md").read_text().splitlines()
    assert float(plain[2]) < 0
    assert ramps[2] == ""  # they have no limit
    assert (plain[7], refit[7]) == ("12", "15")
    before, after = (float(row[1].partition("\N{NO-BREAK SPACE}")[0]) for row in (plain, refit))
    assert float(refit[3]) == pytest.approx(after - before, abs=0.002)
    assert (tmp_path / "nats-digits-smoke-12-steps.svg").stat().st_size > 10_000
    for used in ("nats.RunRefit", "nats.validate", "discrete_vae.training.loop.training_step"):
        monkeypatch.setattr(used, None)  # all is there
    nats.main(words)
    assert rows_of(tmp_path / "page.md") == rows
    with pytest.raises(InvalidInputError, match=r"constant-0"):  # a run of other options
        nats.main([*words, "--add", "constant", "--training.num-sweeps 3"])


def test_runs_of_another_base_lie_apart(tmp_path, monkeypatch):
    import nats

    folders = []
    monkeypatch.setattr(nats, "train", lambda config, data, folder: folders.append(folder) or sys.exit())
    for base in ("", "--model.hierarchy gaussian", "--model.hierarchy gaussian --model.prior factorial"):
        with pytest.raises(SystemExit):
            nats.main(["digits", "--steps", "9", "--base", base, "--runs", str(tmp_path)])
    assert len({folder.parent for folder in folders}) == 3
    names = ["averaged-0", "averaged-0.9998-0", "averaged-0.9998-1"]
    assert len({nats.outcome_path(tmp_path / name) for name in names}) == 3
    base = nats.load_experiment("mnist-static-rbm128", size="smoke")
    assert all(nats.measured_config(base, options, 0) != base for options in nats.ESTIMATORS.values())
