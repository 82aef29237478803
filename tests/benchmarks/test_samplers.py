"""The comparison of samplers: runs that are found again, errors of log Z against the exact value, pairing by seed."""

import argparse
import math

import pytest

from discrete_vae.config import BlockGibbsConfig, DimodSamplerConfig


def outcome(elbo, *errors):
    from samplers import LoggedLogZ, Outcome

    return Outcome(elbo, 7, tuple(LoggedLogZ(10, error, 0.1, 0.5) for error in errors), 8.0, 2.0)


def test_rows_compare_seed_by_seed():
    from samplers import report

    found = {
        "block-gibbs": {0: outcome(-10.0, 0.1, -0.1), 1: outcome(-20.0, 0.1)},
        "trajectory-tempering": {1: outcome(-19.5, 0.3), 0: outcome(-9.9, 0.0)},
    }
    plain, led = (line.strip("| ").split(" | ") for line in report(found).splitlines()[2:])
    assert plain[2:4] == ["-15.000", ""]
    assert led[2:4] == ["-14.700", "+0.300 ± 0.200".replace(" ", "\N{NO-BREAK SPACE}")]
    assert led[4:6] == [f"{math.sqrt(0.045):.3f} (0.100)", "3.0"]
    one = {"block-gibbs": {0: outcome(-10.0, 0.0)}, "parallel-tempering": {0: outcome(-10.5, 0.0)}}
    assert "| -0.500 ± unknown |".replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}") in report(one)


def test_trajectory_tempering_has_as_many_chains_as_plain_chains():
    from samplers import sampler_config

    both = ("block-gibbs", "trajectory-tempering")
    plain, led = (sampler_config("digits", "short", sampler, 50, 3) for sampler in both)
    assert led.training.sampler.kind == "trajectory-tempering"
    assert led.training.sampler.num_chains == plain.training.sampler.num_chains
    assert (led.seed, led.training.num_epochs) == (3, 50)
    assert led.training.beta_bound.slope * 50 == pytest.approx(0.03 * 200)  # its end stays where it was


def test_runs_are_compared_and_found_again(tmp_path, monkeypatch, capsys):
    import samplers

    words = ["digits", "--size", "smoke", "--epochs", "1", "--seeds", "1"]
    words += ["--samplers", "block-gibbs", "trajectory-tempering"]
    words += ["--runs", str(tmp_path / "runs"), "--page", str(tmp_path / "page.md")]
    samplers.main(words)
    page = (tmp_path / "page.md").read_text()
    assert "## Samplers of the negative phase: digits, smoke, 1 epochs" in page
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")][2:]
    assert [row[0] for row in rows] == ["block-gibbs", "trajectory-tempering"]
    # nats, of a machine that is near its start
    assert all(float(row[4].partition(" (")[0]) < 0.05 for row in rows)
    monkeypatch.setattr(samplers, "train", None)  # all is there
    monkeypatch.setattr(samplers, "measure", None)
    samplers.main(words)
    again = (tmp_path / "page.md").read_text()
    assert again.partition("| sampler")[2] == page.partition("| sampler")[2]


def test_variants_differ_in_the_sampler_alone():
    from annealers import VARIANTS, variant_config

    args = argparse.Namespace(epochs=40, chains=200)
    plain = variant_config("block Gibbs", 3, args)
    assert plain.training.sampler == BlockGibbsConfig(num_chains=200)
    for variant in VARIANTS:
        config = variant_config(variant, 3, args)
        sampler = config.training.sampler
        assert sampler.num_chains == 200
        if isinstance(sampler, DimodSamplerConfig):
            assert sampler.correct_temperature == variant.endswith("corrected")
            assert f"to {sampler.parameters['beta_range'][1]:g}" in variant
        training = config.training.model_copy(update={"sampler": plain.training.sampler})
        assert config.model_copy(update={"training": training}) == plain
