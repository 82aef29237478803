"""Components of components on the command line."""

import pytest

from discrete_vae.errors import InvalidInputError
from discrete_vae.overrides import apply_overrides, slots, split_overrides
from discrete_vae.presets import load_experiment

HIERARCHY = ["--model.hierarchy", "gaussian", "--model.hierarchy.num-layers", "4"]


def test_a_component_inside_a_component_can_be_swapped():
    assert "model.hierarchy.sharing" in slots()
    arguments = [
        *HIERARCHY,
        "--model.hierarchy.sharing",
        "groups",
        "--model.hierarchy.sharing.num-groups",
        "4",
    ]
    hierarchy = apply_overrides(load_experiment("digits"), split_overrides(arguments)[1]).model.hierarchy
    assert hierarchy.num_layers == hierarchy.sharing.num_groups == 4


def test_it_must_belong_to_the_present_component():
    message = "--model.hierarchy.sharing needs --model.hierarchy gaussian; received none"
    with pytest.raises(InvalidInputError, match=message):
        apply_overrides(
            load_experiment("digits"), split_overrides(["--model.hierarchy.sharing", "complete"])[1]
        )
