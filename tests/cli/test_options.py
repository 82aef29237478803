"""Verbs and their options: how they are declared, what is refused, and what a mistyped word may have meant."""

import shlex
import sys

import click
import pytest
import torch

from discrete_vae.cli import dvae
from discrete_vae.cli.options import SECTIONS, VERBS, choose_device, examples
from discrete_vae.config.overrides import suggest_setting
from discrete_vae.data import files
from tests.cli.conftest import TINY
from tests.refusals import refused_argument


def command(verb):
    return dvae.get_command(click.Context(dvae), verb)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_helps_that_fit_examples_that_can_be_typed_and_a_device_if_it_computes(done, verb):
    out, err = done(verb, "--help")
    assert err == ""
    assert out.startswith(f"Usage: dvae {verb}")
    assert max(map(len, out.splitlines())) <= 80
    options = [option for option in command(verb).params if isinstance(option, click.Option)]
    assert all(option.help for option in options)
    devices = [option.default for option in options if "--device" in option.opts]
    assert devices == ([] if verb in ("list", "cite") else ["auto"])
    assert len(examples(verb)) == 2
    for program, name, *words in map(shlex.split, examples(verb)):
        assert (program, name) == ("dvae", verb)
        command(verb).make_context(verb, words)


def test_a_verbs_own_options_come_before_those_that_verbs_share(done):
    out, _ = done("score", "--help")
    places = [out.index(f"\n{title}:\n") for title in ("Options", *SECTIONS, "Examples")]
    assert places == sorted(places)
    assert places[0] < out.index("  --elbo") < places[1] < out.index("  --checkpoint") < places[2]


def test_an_error_of_click_that_nobody_foresaw_is_in_the_houses_form(refused, monkeypatch):
    def fail(*_):
        raise click.UsageError("odd")

    monkeypatch.setattr(click.Argument, "handle_parse_result", fail)
    wanted = "error: dvae sample must be used as its help says; received odd. See dvae sample --help.\n"
    assert refused("sample", "RUN") == wanted


@pytest.mark.parametrize(
    "words", ["validate", "train --run-dir run", "train --settings", "validate --settings"]
)
def test_a_file_is_read_once(done, tmp_path, monkeypatch, data_file, words):
    read, paths = files.read_npy, []
    monkeypatch.setattr(files, "read_npy", lambda path: paths.append(path) or read(path))
    monkeypatch.chdir(tmp_path)
    done(*words.split(), "--data", data_file, *TINY, "--data.split-seed", "5", "--device", "cpu")
    assert paths == [data_file]


def test_validate_works_where_the_system_does_not_count_memory(done, monkeypatch, data_file):
    monkeypatch.setitem(sys.modules, "resource", None)  # as on Windows
    out, _ = done("validate", "--data", data_file, *TINY)
    assert "MiB of data" in out
    assert "peak" not in out


# Where a command computes.


@pytest.mark.parametrize(
    ("count", "text", "local_rank", "expected"),
    [
        (0, "auto", "3", "cpu"),
        (2, "auto", None, "cuda:0"),
        (2, "cuda", "1", "cuda:1"),
        (2, "cuda:1", "0", "cuda:1"),
        (2, "cpu", "1", "cpu"),
        (1, "cuda:1", None, "--device"),
        (2, "auto", "2", "--device"),
        (2, "cuda", "first", "LOCAL_RANK"),
    ],
)
def test_the_device_of_each_word(monkeypatch, count, text, local_rank, expected):
    """On a machine with so many CUDA devices, as torch tells of them; the one that is chosen becomes current."""
    current = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    if expected in ("--device", "LOCAL_RANK"):
        assert refused_argument(choose_device, text) == expected
        return
    device = choose_device(text)
    assert device == torch.device(expected)
    assert current == ([] if device.type == "cpu" else [device.index])


# Suggestions.


SUGGESTED = """
epoch: training.num-epochs
steps: training.num-epochs
batch_size: training.batch-size
lr: training.optimizer.learning-rate
training.lr: training.optimizer.learning-rate
layers: model.hierarchy.num-layers
hiden: model.decoder.hidden model.posterior.hidden
beta: model.smoothing.beta
chains: training.sampler.num-chains
units: model.hierarchy.num-units model.prior.num-units
smoothing: model.smoothing
examples: evaluation.num-examples training.num-examples
train.num-epochs: training.num-epochs
model.prior.num-lefts: model.prior.num-left
qqq.zzz:
"""


def test_the_likeliest_setting_is_named():
    for word, *settings in (line.replace(":", "").split() for line in SUGGESTED.strip().splitlines()):
        found = [each.rstrip("?") for each in suggest_setting(word).split() if "." in each[2:-1]]
        assert found == [f"--{name}" for name in settings], word


@pytest.mark.parametrize(
    ("words", "repair"),
    [
        ("trian digits", "Did you mean train?"),
        ("train digits --size smok", "Did you mean smoke?"),
        ("--versio", "Did you mean --version?"),
        ("evaluate RUN --num-sample 3", "Did you mean --num-samples?"),
        ("train digits --epochs 3", "Did you mean --training.num-epochs?"),
        ("train digits --sed 3", "Did you mean --seed?"),
        ("train digit", "Did you mean digits?"),
        ("evaluate digits", "Did you mean runs/digits-smoke?"),
        ("evaluate runs/digits-smok", "Did you mean runs/digits-smoke?"),
        ("sample mnist-static", "Did you mean --pretrained mnist-static?"),
        ("log-partition nothing-like-it", "Check the path"),
        ("train digits --run-dir runs/digits-smoke", "dvae train --resume --run-dir runs/digits-smoke."),
        ("train --resume", "--run-dir DIR"),
        ("train --resume --run-dir .", "config.json"),
        ("evaluate --run-dir runs/digits-smoke", "Name the run without an option: dvae evaluate RUN."),
        ("evaluate runs/digits-smoke --data x.npy", "It is one of dvae train, validate, generate, encode,"),
        ("train digits --model.smoothing spikeslab", "Did you mean spike-slab?"),
        ("train digits --size smoke --resume --run-dir digits", "Did you mean runs/digits-smoke?"),
    ],
)
def test_words_that_were_meant_for_something_else(refused, tmp_path, monkeypatch, words, repair):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "digits-smoke").mkdir(parents=True)
    (tmp_path / "runs" / "digits-smoke" / "config.json").touch()
    assert repair in refused(*words.split())
