"""The benchmarks' machinery on a tiny case: contenders agree, one that cannot run is named, the page keeps its rest."""

import sys
from pathlib import Path

import numpy as np
import pytest

from discrete_vae import RBM
from discrete_vae.testing import all_states
from tests.benchmarks.conftest import BENCHMARKS
from tests.boltzmann.graphs import with_parameters


@pytest.mark.slow  # each contender starts a process and imports its libraries
def test_contenders_sample_the_same_machine():
    import block_gibbs
    from contest import Case, compete

    case, python = Case(6, 5, num_chains=4000, num_sweeps=8), Path(sys.executable)
    names = ["discrete_vae", "torch_uniform", "torch_bernoulli", "sklearn"]
    results = compete([(name, python) for name in names], case, seconds=0, num_threads=1)
    for result in results.values():
        assert result.failure is None
        assert result.num_sweeps == 8
        assert result.best >= result.median > 0
        # alpha 1e-6 for 11 units: 5.1 standard errors
        assert block_gibbs.deviation(result, results["discrete_vae"], case.num_chains) < 5.1
    assert len(block_gibbs.contest_table(case, results).splitlines()) == 6


def test_a_contender_that_cannot_run_is_named_and_one_of_another_law_is_seen():
    import block_gibbs
    from contest import Case, Result, compete

    contenders = [("rbms", BENCHMARKS / "no-venv/bin/python"), ("no_such_file", Path(sys.executable))]
    results = compete(contenders, Case(6, 5), seconds=0, num_threads=1)
    assert results["rbms"].failure == "no no-venv"
    assert "no_such_file" in results["no_such_file"].failure
    right, wrong = (
        Result(name, "1.0", updates=1_000_000, seconds=[seconds] * 3, mean=[0.5, mean])
        for name, seconds, mean in (("discrete_vae", 0.01, 0.3), ("torch_uniform", 0.1, 0.4))
    )
    table = block_gibbs.contest_table(Case(6, 5), {"discrete_vae": right, "torch_uniform": wrong, **results})
    lines = table.splitlines()
    assert "| 10.00 (10.00) |" in lines[2]
    assert "rbms: could not run (no no-venv)" in lines[4]
    assert block_gibbs.deviation(wrong, right, 4000) > 5.1


def test_spins_have_the_law_of_the_machine():
    from spins import to_spins
    from worker import machine

    weight, bias = machine(3, 2)
    rbm = with_parameters(RBM(3, 2), weight=weight, bias=bias)
    coupling, field = to_spins(weight, bias)
    states = all_states(5)
    spins = (2 * states - 1).numpy()
    log_weights = spins @ field + np.einsum("si,ij,sj->s", spins[:, :3], coupling, spins[:, 3:])
    difference = log_weights + rbm.energy(states.float()).detach().numpy()
    np.testing.assert_allclose(difference, difference[0], atol=1e-5)


def test_section_is_replaced_and_the_rest_of_the_page_kept(tmp_path):
    from results import write_section

    page = tmp_path / "RESULTS.md"
    write_section(page, "One", "first")
    write_section(page, "Two", "second \\1")
    write_section(page, "One", "third")
    text = page.read_text()
    assert text.startswith("# Benchmarks")
    assert text.split("## ")[1:] == ["One\n\nthird\n\n", "Two\n\nsecond \\1\n"]
