"""Verbs and their options: how they are declared, what is refused, and what a mistyped word may have meant."""

import inspect
import sys

import click
import pytest
import torch

from discrete_vae import DiscreteVAE
from discrete_vae.cli import dvae
from discrete_vae.cli.options import VERBS
from discrete_vae.data import rows
from discrete_vae.overrides import suggest_setting
from tests.commands.conftest import TINY


def command(verb):
    return dvae.get_command(click.Context(dvae), verb)


@pytest.mark.parametrize("verb", VERBS)
def test_only_verbs_that_take_settings_have_them(verb):
    assert command(verb).takes_settings == (verb in ("train", "validate"))
    names = inspect.signature(command(verb).callback).parameters
    assert "overrides" not in names


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_that_computes_takes_a_device(verb):
    options = {name: option for option in command(verb).params for name in option.opts}
    assert ("--device" in options) == (verb not in ("list", "cite"))
    if "--device" in options:
        assert options["--device"].default == "auto"


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_has_a_help_that_fits(cli, verb):
    status, out, err = cli(verb, "--help")
    assert (status, err) == (0, "")
    assert out.startswith(f"Usage: dvae {verb}")
    assert max(map(len, out.splitlines())) <= 80
    assert all(option.help for option in command(verb).params if isinstance(option, click.Option))


def test_an_error_of_click_that_nobody_foresaw_is_in_the_houses_form(refused, monkeypatch):
    def fail(*_):
        raise click.UsageError("odd")

    monkeypatch.setattr(click.Argument, "handle_parse_result", fail)
    error = refused("sample", "RUN")
    assert (
        error == "error: dvae sample must be used as its help says; received odd. See dvae sample --help.\n"
    )


@pytest.fixture
def times_read(monkeypatch):
    """How often a file of data is read."""
    read, paths = rows.load_file, []

    def count(path, **keywords):
        paths.append(path)
        return read(path=path, **keywords)

    monkeypatch.setattr(rows, "load_file", count)
    return paths


@pytest.mark.parametrize(
    "words",
    [("validate",), ("train", "--run-dir", "run"), ("train", "--settings"), ("validate", "--settings")],
)
def test_a_file_is_read_once(cli, times_read, tmp_path, monkeypatch, data_file, words):
    monkeypatch.chdir(tmp_path)
    status, _, err = cli(*words, "--data", data_file, *TINY, "--data.split-seed", "5", "--device", "cpu")
    assert status == 0, err
    assert times_read == [data_file]


def test_weights_are_made_once_before_the_first_step(cli, tmp_path, data_file, monkeypatch):
    build, made = DiscreteVAE.from_config.__func__, []

    def count(cls, *arguments, **keywords):
        model = build(cls, *arguments, **keywords)
        made.append(next(model.parameters()).device.type)
        return model

    monkeypatch.setattr(DiscreteVAE, "from_config", classmethod(count))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    status, _, err = cli(
        "train", "--data", data_file, *TINY, "--run-dir", tmp_path / "run", "--device", "cpu"
    )
    assert status == 0, err
    assert [where for where in made if where != "meta"] == ["cpu"]


def test_validate_works_where_the_system_does_not_count_memory(cli, monkeypatch, data_file):
    monkeypatch.setitem(sys.modules, "resource", None)  # as on Windows
    status, out, err = cli("validate", "--data", data_file, *TINY)
    assert status == 0, err
    assert "MiB of data" in out
    assert "peak" not in out


# Suggestions.


@pytest.mark.parametrize(
    ("word", "settings"),
    [
        ("epochs", ["training.num-epochs"]),
        ("epoch", ["training.num-epochs"]),
        ("n-epochs", ["training.num-epochs"]),
        ("steps", ["training.num-epochs"]),
        ("batch", ["training.batch-size"]),
        ("batch_size", ["training.batch-size"]),
        ("lr", ["training.optimizer.learning-rate"]),
        ("learning-rate", ["training.optimizer.learning-rate"]),
        ("training.lr", ["training.optimizer.learning-rate"]),
        ("layers", ["model.hierarchy.num-layers"]),
        ("hidden", ["model.decoder.hidden", "model.posterior.hidden"]),
        ("hiden", ["model.decoder.hidden", "model.posterior.hidden"]),
        ("beta", ["model.smoothing.beta"]),
        ("chains", ["training.sampler.num-chains"]),
        ("sweeps", ["training.num-sweeps"]),
        ("units", ["model.hierarchy.num-units", "model.prior.num-units"]),
        ("groups", ["model.posterior.groups"]),
        ("smoothing", ["model.smoothing"]),
        ("prior", ["model.prior"]),
        ("decoder", ["model.decoder"]),
        ("samples", ["evaluation.num-samples"]),
        ("examples", ["evaluation.num-examples", "training.num-examples"]),
        ("train.num-epochs", ["training.num-epochs"]),
        ("model.prior.num-lefts", ["model.prior.num-left"]),
    ],
)
def test_the_likeliest_setting_is_named(word, settings):
    named = " or ".join(f"--{name}" for name in settings)
    assert suggest_setting(word) == f"Did you mean {named}? --settings lists them all."


@pytest.mark.parametrize(
    ("words", "repair"),
    [
        ("trian digits", "Did you mean train?"),
        ("train digits --size smok", "Did you mean smoke?"),
        ("--versio", "Did you mean --version?"),
        ("evaluate RUN --num-sample 3", "Did you mean --num-samples?"),
        ("train digits --qqq 3", "Add --settings to list them all."),
        ("train digits --epochs 3", "Did you mean --training.num-epochs?"),
        ("train digits --batch 3", "Did you mean --training.batch-size?"),
        ("train digits --sed 3", "Did you mean --seed?"),
        ("train digits --run x", "Did you mean --run-dir?"),
        ("train digit", "Did you mean digits?"),
        ("train mnist", "Did you mean mnist-"),
        ("train mine.npy", "Did you mean --data mine.npy?"),
        ("validate mine.npy", "Did you mean --data mine.npy?"),
        ("evaluate digits", "Did you mean runs/digits-smoke?"),
        ("evaluate runs/digits-smok", "Did you mean runs/digits-smoke?"),
        ("sample digits-smok", "Did you mean runs/digits-smoke?"),
        ("log-partition nothing-like-it", "Check the path"),
        ("evaluate --run-dir runs/digits-smoke", "Name the run without an option: dvae evaluate RUN."),
        ("evaluate runs/digits-smoke --data x.npy", "It is one of dvae validate, train, encode, score,"),
        ("validate digits --resume", "It is one of dvae train."),
        ("train digits --model.smoothing spikeslab", "Did you mean spike-slab?"),
        ("train digits --size smoke --resume --run-dir digits", "Did you mean runs/digits-smoke?"),
    ],
)
def test_words_that_were_meant_for_something_else(refused, tmp_path, monkeypatch, words, repair):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.npy").touch()
    (tmp_path / "runs" / "digits-smoke").mkdir(parents=True)
    (tmp_path / "runs" / "digits-smoke" / "config.json").touch()
    assert repair in refused(*words.split())
