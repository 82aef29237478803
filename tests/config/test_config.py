"""Configs: frozen, strict, one union a kind of component, errors in the house's form, no torch."""

import math
import subprocess
import sys

import pytest

from discrete_vae import config
from discrete_vae.config import base
from discrete_vae.errors import InvalidInputError

UNIONS = (
    config.ColumnConfig,
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
    made = member() if member.is_choice else member(columns=(config.BinaryColumnConfig(),))
    assert getattr(config, member.__name__) is member
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
    ("build", "argument"),
    [
        (lambda: config.RBMConfig(num_left=-1), "RBMConfig.num_left"),
        (lambda: config.RBMConfig(left=1), "RBMConfig.left"),
        (lambda: config.FileDataConfig(), "FileDataConfig.path"),
        (lambda: config.ModelConfig(), "ModelConfig.num_features"),
        (lambda: config.ModelConfig(num_features=1, prior={"kind": "ising"}), "ModelConfig.prior.kind"),
        (lambda: config.ModelConfig(num_features=1, prior={}), "ModelConfig.prior.kind"),
        (
            lambda: config.ModelConfig(num_features=1, prior={"kind": "rbm", "num_right": 0}),
            "ModelConfig.prior.rbm.num_right",
        ),
        (lambda: config.StepRateConfig(at=(0.9, 0.1)), "StepRateConfig.at"),
        (lambda: config.TrainingConfig(optimizer={"eps": math.nan}), "TrainingConfig.optimizer.eps"),
        (
            lambda: config.TrainingConfig(gradient={"kind": "reinforce"}, num_importance_samples=2),
            "TrainingConfig.num_importance_samples",
        ),
        (lambda: config.ModelConfig.from_json("{"), "ModelConfig"),
        (lambda: config.ModelConfig.from_json("[]"), "ModelConfig"),
        (lambda: config.ModelConfig.from_json("[" * 100_000, source="run/config.json"), "run/config.json"),
        (
            lambda: config.ModelConfig.from_json(f'{{"seed": {"9" * 5000}}}', source="run/config.json"),
            "run/config.json",
        ),
        (
            lambda: config.RBMConfig.from_json('{"num_left": 0}', source="run/config.json"),
            "run/config.json: RBMConfig.num_left",
        ),
    ],
)
def test_errors_name_the_field(build, argument):
    with pytest.raises(InvalidInputError) as caught:
        build()
    assert caught.value.argument == argument
    assert "pydantic" not in str(caught.value)


def test_the_first_of_several_errors_says_how_many_follow():
    with pytest.raises(InvalidInputError, match="1 more problems follow"):
        config.ModelConfig(num_features=0, x=1)


def test_files_of_earlier_versions_are_read(monkeypatch):
    class Sizes(config.Record):
        width: int
        depth: int = 3

    monkeypatch.setitem(base.RENAMED, "Sizes", {"breadth": "width"})
    monkeypatch.setitem(base.RETIRED, "Sizes", ("height",))
    monkeypatch.setitem(base.ADDED, "Sizes", {"depth": lambda fields: fields["width"]})
    assert Sizes.from_json('{"breadth": 5, "height": 1}') == Sizes(width=5, depth=5)
    with pytest.raises(InvalidInputError, match="Sizes"):
        Sizes(width=5, height=1)
    with pytest.raises(InvalidInputError, match="Sizes"):
        Sizes(breadth=5)


def test_the_mask_of_a_file_without_it_is_that_of_its_time():
    assert config.ModelConfig.from_json('{"num_features": 3, "missing": true}').mask == "observed"
    assert config.ModelConfig.from_json('{"num_features": 3}').mask == "gaps"
    assert config.ModelConfig(num_features=3, missing=True).mask == "gaps"


def test_neither_the_package_nor_the_configs_import_torch():
    code = (
        "import sys, discrete_vae, discrete_vae.config, discrete_vae.checks; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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
