"""What is cited follows what is in use."""

import re
from typing import get_args

import pytest

from discrete_vae import config, load_experiment
from discrete_vae.config.base import ComponentConfig
from discrete_vae.overrides import apply_overrides, slots
from discrete_vae.presets import cite, cited_keys, references


def components():
    return [member for slot in slots().values() for member in slot.members.values()]


def test_every_key_has_its_entry_and_every_entry_is_used():
    named = {key for member in components() for key in member.references}
    named |= {key for member in get_args(get_args(config.BaselineConfig)[0]) for key in member.references}
    assert named <= references().keys()
    of_settings = {"rolfe2017", "kingma2015", "polyak1992", "tucker2019", "burda2016", "bennett1976"}
    assert references().keys() == named | of_settings


@pytest.mark.parametrize("key", references())
def test_entries_are_whole(key):
    entry = references()[key]
    assert entry.count("{") == entry.count("}")
    assert entry.startswith("% ")
    for field in ("title", "author", "year"):
        assert re.search(rf"^  {field} +=", entry, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "more", "less"),
    [
        ([("model.smoothing", ["overlapping-power"])], {"vahdat2018b"}, set()),
        ([("model.prior", ["factorial"])], set(), {"bennett1976"}),
        ([("training.gradient", ["reinforce"])], {"williams1992"}, set()),
        (
            [("training.gradient", ["reinforce"]), ("training.gradient.baseline", ["learned"])],
            {"williams1992", "mnih2014"},
            set(),
        ),
        ([("training.averaging.decay", ["0.999"])], {"polyak1992"}, set()),
        ([("training.optimizer.rate", ["exponential"])], set(), {"loshchilov2017"}),
        ([("training.sampler", ["parallel-tempering"])], {"swendsen1986"}, {"tieleman2008"}),
    ],
)
def test_keys_follow_the_settings(words, more, less):
    plain = set(cited_keys(load_experiment("digits")))
    assert set(cited_keys(apply_overrides(load_experiment("digits"), words))) == (plain | more) - less


def test_without_a_config_it_is_the_model():
    assert re.findall(r"^@\w+\{([^,]+),", cite(), re.MULTILINE) == ["discrete-vae", "rolfe2017"]


def test_a_component_has_no_references_of_its_own_by_default():
    assert ComponentConfig.references == ()
