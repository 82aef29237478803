"""Runs of other kinds have a page too: real values with gaps, other priors and samplers, a run that logged nothing."""

import shutil

import numpy as np
import pytest

from tests.report.conftest import page_of, trained


@pytest.fixture(scope="module")
def gaps(tmp_path_factory):
    """Real values on very different scales, a fifth of them missing, one feature constant."""
    random = np.random.default_rng(0)
    values = random.normal(size=(100, 5)) * [1, 10, 100, 1e-3, 0] + [0, 5, -100, 0, 3]
    values[random.random((100, 5)) < 0.2] = np.nan
    path = tmp_path_factory.mktemp("gaps") / "gaps.npy"
    np.save(path, values)
    return path


def test_real_values_with_gaps(gaps, tmp_path):
    run = trained(tmp_path, "--data", gaps, "--model.likelihood", "gaussian")
    page = page_of(run)
    assert "in standard deviations of the feature" in page.said
    assert "feature 4" in page.said
    assert "nan" not in [word.strip("(),.").lower() for word in page.said.split()]


def test_a_prior_in_one_piece_and_another_sampler(gaps, tmp_path):
    words = ["--model.likelihood", "gaussian", "--training.sampler", "parallel-tempering"]
    page = page_of(trained(tmp_path, "--data", gaps, *words))
    assert "Modes of the prior" in page.said
    assert "chains led to" in page.said


def test_a_run_that_logged_nothing_has_no_course(table, tmp_path):
    run = shutil.copytree(table, tmp_path / "run")
    (run / "metrics.jsonl").unlink()
    (run / "environment.json").unlink()
    page = page_of(run)
    assert page.sections[:2] == ["headline", "samples"]
    assert "environment" not in page.sections
    assert "Training time" not in page.said


def test_one_test_example_will_do(tmp_path):
    random = np.random.default_rng(0)
    bits = {
        name: random.integers(0, 2, (count, 4)) for name, count in (("train", 30), ("valid", 3), ("test", 1))
    }
    np.savez(tmp_path / "few.npz", **{name: values.astype(float) for name, values in bits.items()})
    page = page_of(trained(tmp_path, "--data", tmp_path / "few.npz"))
    assert "Reconstructions" in page.said
