"""The benchmark of annealers: what its variants ask for."""

import argparse
from pathlib import Path

import pytest

from discrete_vae.config import BlockGibbsConfig, DimodSamplerConfig

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks_on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


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
