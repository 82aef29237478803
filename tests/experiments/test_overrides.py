"""Settings on the command line: what they mean, and how wrong ones are refused."""

import re
from typing import Annotated, Literal

import pytest
from pydantic import Field, create_model

from discrete_vae.config import SpikeSlabConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.overrides import (
    Setting,
    apply_overrides,
    read_value,
    settings,
    settings_of,
    slots,
    split_overrides,
)
from discrete_vae.presets import load_experiment

DIGITS = load_experiment("digits")


def changed(words):
    return apply_overrides(DIGITS, split_overrides(words.split())[1])


def test_values_are_set_and_the_rest_stays():
    config = changed(
        "--training.num-epochs 7 --training.optimizer.learning_rate=1e-4 --model.smoothing.trainable false"
    )
    assert (config.training.num_epochs, config.training.optimizer.learning_rate) == (7, 1e-4)
    assert config.model.smoothing.trainable is False
    back = apply_overrides(config, split_overrides(["--training.num-epochs", "300"])[1])
    assert back.training.warm_up == DIGITS.training.warm_up


@pytest.mark.parametrize(
    ("words", "hidden"),
    [("20 30", (20, 30)), ("20", (20,)), ("", ()), ("[20,30]", (20, 30))],
)
def test_lists(words, hidden):
    assert changed(f"--model.posterior.hidden {words}").model.posterior.hidden == hidden


def test_a_number_or_a_list_of_lists():
    assert changed("--model.posterior.groups 2").model.posterior.groups == 2
    assert changed("--model.posterior.groups [[0,2],[1]]").model.posterior.groups == ((0, 2), (1,))


def test_none():
    config = changed("--evaluation.num-examples 5")
    assert config.evaluation.num_examples == 5
    assert apply_overrides(config, [("evaluation.num-examples", ["none"])]).evaluation.num_examples is None


def test_a_component_is_swapped_whatever_the_order():
    assert changed("--model.smoothing spike-slab").model.smoothing == SpikeSlabConfig()
    config = changed("--model.prior.num-units 6 --model.prior factorial")
    assert (config.model.prior.kind, config.model.prior.num_units) == ("factorial", 6)
    assert config.model.posterior == DIGITS.model.posterior


def test_naming_the_present_component_keeps_its_values():
    assert changed("--model.prior rbm").model.prior == DIGITS.model.prior


def test_settings_may_stand_before_the_experiment():
    rest, found = split_overrides(
        ["train", "--training.num-epochs", "5", "digits", "--model.posterior.hidden", "4", "4"]
    )
    assert rest == ["train", "digits"]
    assert found == [("training.num-epochs", ["5"]), ("model.posterior.hidden", ["4", "4"])]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--training.num-epochs abc", "--training.num-epochs must be a whole number; received 'abc'."),
        ("--training.num-epochs 0", "--training.num-epochs must be greater than 0; received '0'."),
        ("--training.num-epochs 1.5", "must be a whole number; received '1.5'"),
        ("--training.num-epochs", "must be followed by a value; received nothing"),
        ("--training.optimizer.learning-rate inf", "must be a finite number"),
        ("--training.optimizer.learning-rate nan", "must be a finite number"),
        ("--training.optimizer.learning-rate -1", "must be greater than 0"),
        ("--model.smoothing.trainable maybe", "must be true or false; received 'maybe'"),
        ("--model.smoothing.beta 0", "must be at least 0.01; received '0'"),
        ("--model.posterior.hidden 4 x", "must be a whole number; received '4 x'"),
        ("--model.posterior.hidden [4,", "must be valid JSON; received '[4,'"),
        (
            "--training.num-epohs 3",
            "must be a setting of the experiment; received an unknown name. Did you mean --training.num-epochs",
        ),
        ("--trainin.qqq.zzz 3", "--settings"),
        (
            "--model.smoothing ramp-up",
            "--model.smoothing must be one of spike-exponential, spike-slab, ramps",
        ),
        ("--model.smoothing", "received nothing"),
        (
            "--model.prior.num-units 3",
            "--model.prior.num-units needs --model.prior factorial or graph; received rbm.",
        ),
    ],
)
def test_wrong_settings_are_named_with_their_rule(words, message):
    with pytest.raises(InvalidInputError) as caught:
        changed(words)
    assert message in str(caught.value)
    assert "pydantic" not in str(caught.value)


@pytest.mark.parametrize("experiment", ["digits", "mnist-static-rbm128"])
def test_every_setting_of_an_experiment_can_be_set_to_what_it_is(experiment):
    config = load_experiment(experiment)
    for entry in settings_of(config):
        if isinstance(entry, Setting):
            value = read_value(config, entry.path)
            words = [str(item) for item in value] if isinstance(value, tuple) else [str(value)]
            assert apply_overrides(config, [(entry.path, words)]) == config, entry.path
            assert entry.field.description


def test_every_component_can_be_swapped_in():
    for path, slot in slots().items():
        for name in slot.members:
            if name != "file":  # needs a path
                owner = [] if slot.owner is None else [(slot.owner[0], [slot.owner[1]])]
                assert read_value(apply_overrides(DIGITS, [(path, [name]), *owner]), path).kind == name


def test_components_of_one_slot_may_share_a_settings_name():
    owners = {entry.owner[1] for entry in settings()["data.num-valid"]}
    assert {"digits", "omniglot"} <= owners


@pytest.mark.parametrize(
    ("annotation", "many"),
    [
        (tuple[int, ...], True),
        (tuple[int, ...] | None, True),
        (Annotated[int, Field(gt=0)] | tuple[tuple[int, ...], ...], True),
        (Annotated[tuple[float, ...] | None, Field(description="x")], True),
        (Literal["tuple"], False),
        (int | None, False),
        (Annotated[float, Field(description="a tuple of one")], False),
    ],
)
def test_the_type_says_whether_a_setting_takes_several_values(annotation, many):
    field = create_model("Fields", value=(annotation, ...)).model_fields["value"]
    assert Setting("value", field, None).many is many


def test_every_help_text_stands_alone():
    """No text refers to one shown elsewhere: it names its subject, and is a sentence."""
    texts = {path: found[0].field.description for path, found in settings().items()}
    assert [path for path, text in texts.items() if not text or not text.endswith(".")] == []
    leaning = re.compile(r"^(Its|The same|Likewise|That|Those)\b|likewise|\bthat factor\b")
    assert [path for path, text in texts.items() if leaning.search(text)] == []
    shared = {text for text in texts.values() if sum(text == other for other in texts.values()) > 1}
    assert shared <= {"Widths of the hidden layers."}


@pytest.mark.parametrize(
    "changes",
    [
        [("model.hierarchy", ["none"])],
        [("training.num-epochs", ["1"])],
        [("training.gradient", ["reinforce"])],
    ],
)
def test_importance_samples_of_the_experiment_give_way(changes):
    base = load_experiment("mnist-dynamic", "cpu")
    with pytest.warns(UserWarning, match=r"without the experiment's 5 importance samples: .*must be"):
        changed = apply_overrides(base, changes)
    assert changed.training.num_importance_samples == 1
    asked = [*changes, ("training.num-importance-samples", ["5"])]
    with pytest.raises(InvalidInputError, match="must be"):
        apply_overrides(base, asked)


def test_another_fault_is_named_as_it_is():
    with pytest.raises(InvalidInputError, match="batch"):
        apply_overrides(load_experiment("mnist-static", "cpu"), [("training.batch-size", ["0"])])
