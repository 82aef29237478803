"""Default folders are named after what was set."""

import re

import pytest

from discrete_vae.errors import InvalidInputError
from discrete_vae.presets import _short_names, run_name


@pytest.mark.parametrize(
    ("seed", "words", "name"),
    [
        (None, [], "digits-short"),
        (3, [], "digits-short-seed-3"),
        (None, [("training.num-epochs", ["3"])], "digits-short-num-epochs-3"),
        (None, [("model.decoder.hidden", ["20", "30"])], "digits-short-decoder-hidden-20-30"),
        (None, [("training.optimizer.learning-rate", ["1e-4"])], "digits-short-learning-rate-1e-4"),
        (None, [("training.num-epochs", ["3"]), ("training.num-epochs", ["4"])], "digits-short-num-epochs-4"),
    ],
)
def test_names(seed, words, name):
    assert run_name("digits-short", seed, words) == name


def test_the_order_does_not_matter():
    words = [("training.num-epochs", ["3"]), ("model.smoothing", ["spike-slab"])]
    assert run_name("a", 1, words) == run_name("a", 1, words[::-1])


def test_names_are_short_safe_and_differ():
    values = [
        "[[0,1],[2]]",
        "[[0],[1,2]]",
        "[[0 1] [2]]",
        "../../etc",
        "a/b",
        "-3",
        "3",
        "é",
        " ".join("7" * 90),
    ]
    values.append(values[-1] + " 7")
    names = [run_name("digits-short", None, [("model.posterior.groups", [value])]) for value in values]
    assert len(set(names)) == len(values)
    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9.+-]+", name)
        assert ".." not in name
        assert len(name) <= 80


def test_settings_do_not_share_a_name():
    names = _short_names().values()
    assert len(set(names)) == len(names)


def test_an_unknown_setting_is_refused():
    with pytest.raises(
        InvalidInputError, match=r"--training.num-epohs .* Did you mean --training.num-epochs\?"
    ):
        run_name("digits-short", None, [("training.num-epohs", ["3"])])
