"""Configs: frozen, strict, one union a kind of component, errors in the house's form, no torch."""

import subprocess
import sys

import pytest

from discrete_vae import config
from discrete_vae.errors import InvalidInputError

UNIONS = (
    config.BaselineConfig,
    config.GradientConfig,
    config.HierarchyConfig,
    config.LikelihoodConfig,
    config.PosteriorConfig,
    config.PriorConfig,
    config.RateConfig,
    config.SamplerConfig,
    config.SharingConfig,
    config.SmoothingConfig,
)


@pytest.mark.parametrize("member", [member for union in UNIONS for member in config.members(union)])
def test_every_component_has_a_name_a_target_and_described_fields(member):
    made = member()
    assert made.kind == member.model_fields["kind"].default
    module, _, name = member.target.partition(":")
    assert module.startswith("discrete_vae.")
    assert name.isidentifier()
    described = {field: info.description for field, info in member.model_fields.items() if field != "kind"}
    assert all(described.values()), f"{member.__name__} has a field without description: {described}"


def test_a_model_config_survives_json():
    made = config.ModelConfig(
        num_features=9,
        prior=config.FactorialBernoulliConfig(num_units=8),
        smoothing=config.SpikeSlabConfig(),
        posterior=config.HierarchicalPosteriorConfig(groups=((0, 2, 4, 6), (1, 3, 5, 7)), hidden=()),
    )
    assert config.ModelConfig.from_json(made.model_dump_json()) == made


def test_a_graph_survives_json():
    made = config.GraphBoltzmannConfig(num_units=3, edges=((0, 1), (1, 2)))
    assert config.GraphBoltzmannConfig.from_json(made.model_dump_json()) == made


def test_configs_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        config.RBMConfig().num_left = 3


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: config.RBMConfig(num_left=-1), "RBMConfig.num_left must be greater than 0; received -1"),
        (
            lambda: config.RBMConfig(left=1),
            "RBMConfig.left is not a known field; received 1. RBMConfig has: num_left",
        ),
        (
            lambda: config.ModelConfig(),
            "ModelConfig.num_features or event_shape must be given; received neither",
        ),
        (
            lambda: config.ModelConfig(num_features=1, prior={"kind": "ising"}),
            "ModelConfig.prior.kind must be one of 'rbm', 'factorial', 'graph'; received ising",
        ),
        (
            lambda: config.ModelConfig(num_features=1, prior={"kind": "rbm", "num_right": 0}),
            "ModelConfig.prior.rbm.num_right must be greater than 0",
        ),
        (
            lambda: config.SpikeExponentialConfig(beta=0.0),
            "SpikeExponentialConfig.beta must be at least 0.01; received 0.0",
        ),
        (lambda: config.ModelConfig.from_json("{"), "ModelConfig must be valid JSON"),
        (lambda: config.ModelConfig.from_json("[]"), "ModelConfig must be a JSON object; received list"),
        (lambda: config.ModelConfig(num_features=0, x=1), "more problems follow"),
    ],
)
def test_errors_are_in_the_houses_form(build, message):
    with pytest.raises(InvalidInputError) as caught:
        build()
    assert message in str(caught.value)
    assert "pydantic" not in str(caught.value)


def test_neither_the_package_nor_the_configs_import_torch():
    code = (
        "import sys, discrete_vae, discrete_vae.config, discrete_vae.checks; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_names_load_on_first_use_and_unknown_ones_are_refused():
    import discrete_vae

    assert set(discrete_vae.__all__) <= set(dir(discrete_vae))
    for name in discrete_vae.__all__:
        assert getattr(discrete_vae, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        discrete_vae.Nonsense  # noqa: B018


@pytest.mark.parametrize("text", ["[" * 100_000, f'{{"seed": {"9" * 5000}}}'], ids=["brackets", "digits"])
def test_json_that_python_cannot_hold_is_refused(text):
    with pytest.raises(InvalidInputError, match=r"run/config\.json must be valid JSON; received "):
        config.ExperimentConfig.from_json(text, source="run/config.json")


@pytest.mark.parametrize("value", ["false", "true"])
def test_a_retired_field_is_passed_over_in_a_file_and_refused_elsewhere(value):
    text = (
        f'{{"name": "old", "data": {{"kind": "digits"}}, "training": {{"compile": {value}}}, "model": MODEL}}'
    )
    model = config.ModelConfig(num_features=64, prior=config.RBMConfig(num_left=2, num_right=2))
    found = config.ExperimentConfig.from_json(text.replace("MODEL", model.model_dump_json()))
    assert found.training == config.TrainingConfig()
    with pytest.raises(InvalidInputError, match="compile"):
        config.TrainingConfig(compile=value)
