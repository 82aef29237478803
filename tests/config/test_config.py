"""Configs: frozen, strict, one union a kind of component, errors in the house's form, no torch."""

import json
import math
from typing import Annotated, get_origin

import numpy as np
import pytest

from discrete_vae import config
from discrete_vae.config import base
from tests.refusals import refused, refused_argument

PUBLIC = [getattr(config, name) for name in config.__all__ if name != "DataConfig"]  # a file needs a path
UNIONS = [union for union in PUBLIC if get_origin(union) is Annotated]


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


def test_a_config_survives_json():
    prior = config.GraphBoltzmannConfig(num_units=3, edges=((0, 1), (1, 2)))
    posterior = config.HierarchicalPosteriorConfig(groups=((0, 2), (1,)), hidden=())
    parts = {"prior": prior, "posterior": posterior, "smoothing": config.SpikeSlabConfig()}
    made = config.ModelConfig(num_features=9, **parts)
    assert config.ModelConfig.from_json(made.model_dump_json()) == made


def test_configs_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        config.RBMConfig().num_left = 3


@pytest.mark.parametrize(
    ("kind", "fields", "argument"),
    [
        ("RBMConfig", {"num_left": -1}, "num_left"),
        ("RBMConfig", {"left": 1}, "left"),
        ("RBMConfig", {"self": 1}, "self"),
        ("FileDataConfig", {}, "path"),
        ("ModelConfig", {}, "num_features"),
        ("ModelConfig", {"num_features": 1, "prior": {"kind": "ising"}}, "prior.kind"),
        ("ModelConfig", {"num_features": 1, "prior": {}}, "prior.kind"),
        ("ModelConfig", {"num_features": 1, "prior": {"kind": "rbm", "num_right": 0}}, "prior.rbm.num_right"),
        ("ModelConfig", {"num_features": 1, "num_classes": 2, "class_names": ("a", "b", "b")}, "class_names"),
        ("ModelConfig", {"num_features": 1, "num_classes": 2, "class_names": ("a", "")}, "class_names"),
        ("ModelConfig", {"num_features": 1, "num_classes": 3, "class_names": ("a", "b")}, "num_classes"),
        ("OrdinalColumnConfig", {"values": ("1", "2", "many"), "holds": "numbers"}, "holds"),
        ("BinaryColumnConfig", {"values": ("no", "yes"), "holds": "booleans"}, "holds"),
        ("SpikeGaussianConfig", {"max_ratio": 11}, "max_ratio"),
        ("StepRateConfig", {"at": (0.9, 0.1)}, "at"),
        ("TrainingConfig", {"optimizer": {"eps": math.nan}}, "optimizer.eps"),
    ],
)
def test_errors_name_the_field(kind, fields, argument):
    error = refused(getattr(config, kind), **fields)
    assert error.argument == f"{kind}.{argument}"
    assert "pydantic" not in str(error)


def test_errors_of_files_name_the_file_and_say_how_many_follow():
    for text in ("{", "[]", "[" * 100_000, f'{{"seed": {"9" * 5000}}}'):
        assert refused_argument(config.ModelConfig.from_json, text) == "ModelConfig"
        assert refused_argument(config.ModelConfig.from_json, text, source="config.json") == "config.json"
    argument = refused_argument(config.RBMConfig.from_json, '{"num_left": 0}', source="config.json")
    assert argument == "config.json: RBMConfig.num_left"
    assert "1 more problems follow" in str(refused(config.ModelConfig, num_features=0, x=1))


def test_files_of_earlier_versions_are_read(monkeypatch):
    class Sizes(config.Record):
        width: int
        depth: int = 3

    monkeypatch.setitem(base.RETIRED, "Sizes", ("height",))
    monkeypatch.setitem(base.ADDED, "Sizes", {"depth": lambda fields: fields["width"]})
    assert Sizes.from_json('{"width": 5, "height": 1}') == Sizes(width=5, depth=5)
    assert refused_argument(Sizes, width=5, height=1) == "Sizes.height"


def test_the_mask_of_a_file_without_it_is_that_of_its_time():
    assert config.ModelConfig.from_json('{"num_features": 3, "missing": true}').mask == "observed"
    assert config.ModelConfig.from_json('{"num_features": 3}').mask == "gaps"
    assert config.ModelConfig(num_features=3, missing=True).mask == "gaps"


def test_a_retired_field_is_passed_over_in_a_file_and_refused_elsewhere():
    model = config.ModelConfig(num_features=64, prior=config.RBMConfig(num_left=2, num_right=2))
    fields = {"name": "old", "data": {"kind": "digits"}, "model": model.model_dump(mode="json")}
    for value in (False, True):
        text = json.dumps(fields | {"training": {"compile": value}})
        assert config.ExperimentConfig.from_json(text).training == config.TrainingConfig()
        assert refused_argument(config.TrainingConfig, compile=value) == "TrainingConfig.compile"


def test_labels_are_classes_with_and_without_zeros_before_them():
    """A file whose labels are all whole numbers has them as such; one with a gap or a word has them as written."""
    model = config.ModelConfig(num_features=3, num_classes=3, class_names=("01", "2", "x"))
    for labels, numbers in ((np.array(["01", "02", ""]), [0, 1, -1]), (np.array([1, 2, 2]), [0, 1, 1])):
        assert model.label_numbers(labels, 3).tolist() == numbers
    assert refused_argument(model.label_numbers, np.array(["01", "3", "x"]), 3) == "labels"
