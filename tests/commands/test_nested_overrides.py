"""Components of components on the command line."""

import pytest

from discrete_vae.commands.overrides import apply_overrides, split_overrides
from discrete_vae.commands.settings import slots
from discrete_vae.errors import InvalidInputError
from discrete_vae.experiments import load_experiment


def changed(words):
    return apply_overrides(load_experiment("digits"), split_overrides(words.split())[1])


def test_a_component_inside_a_component_can_be_swapped():
    assert "model.hierarchy.sharing" in slots()
    words = "--model.hierarchy.sharing groups --model.hierarchy.sharing.num-groups 4"
    hierarchy = changed(f"{words} --model.hierarchy gaussian --model.hierarchy.num-layers 4").model.hierarchy
    assert hierarchy.num_layers == hierarchy.sharing.num_groups == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--model.hierarchy.sharing complete",
            "--model.hierarchy.sharing needs --model.hierarchy gaussian; received none.",
        ),
        (
            "--model.hierarchy gaussian --model.hierarchy.sharing.num-groups 2",
            "--model.hierarchy.sharing.num-groups needs --model.hierarchy.sharing groups; received none.",
        ),
    ],
)
def test_it_must_belong_to_the_present_component(words, message):
    with pytest.raises(InvalidInputError) as caught:
        changed(words)
    assert message in str(caught.value)
