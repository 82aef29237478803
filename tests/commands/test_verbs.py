"""Verbs and their options: errors of every class, settings where they belong, work that is done once."""

import inspect
import sys

import click
import pytest
import torch

from discrete_vae import DiscreteVAE
from discrete_vae.cli import dvae
from discrete_vae.cli.options import VERBS, number, size, whole_number
from discrete_vae.data import rows
from discrete_vae.errors import InvalidInputError
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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "",
            f"VERB must be one of {', '.join(VERBS)}; received ''.",
        ),
        ("--frob", "--frob must be an option of dvae; received an unknown name. See dvae --help."),
        ("--versio", "--versio must be an option of dvae; received an unknown name. Did you mean --version?"),
        ("sample", "RUN must be given; received nothing. See dvae sample --help."),
        ("sample RUN -x", "-x must be an option of dvae sample; received an unknown name."),
        ("sample RUN --out", "--out must be followed by a value; received nothing."),
        ("sample RUN --out --seed 3", "--out must be followed by a value; received '--seed'."),
        ("sample RUN RUN2 RUN3", "dvae sample takes no more arguments; received 'RUN2'."),
        (
            "sample RUN --accept-changed-config=1",
            "--accept-changed-config takes no value; received '1'. Leave the",
        ),
        ("log-partition RUN --std-error x", "--std-error must be a number; received 'x'."),
        (
            "log-partition RUN --health-sweeps 3",
            "--health-sweeps must be a whole number of at least 20; received '3'.",
        ),
        (
            f"sample RUN --seed {2**64}",
            f"--seed must be a whole number of at most {2**64 - 1}; received '{2**64}'. Give one such as 0.",
        ),
        (
            "evaluate RUN --checkpoint best2",
            "--checkpoint must be best, last or a step; received 'best2'. Use best.",
        ),
        ("list --seed 3", "--seed must be an option of dvae list; received an unknown name."),
        ("list digits", "dvae list takes no more arguments; received 'digits'."),
        ("train digits omniglot", "dvae train takes no more arguments; received 'omniglot'."),
        (
            "train digits --training.num-epochs",
            "--training.num-epochs must be followed by a value; received nothing.",
        ),
        ("train digits --training.num-epochs 1 2", "dvae train takes no more arguments; received '2'."),
    ],
)
def test_errors_of_every_class(refused, words, message):
    assert message in refused(*(words.split() or [""]))


def test_an_error_of_click_that_nobody_foresaw_is_in_the_houses_form(refused, monkeypatch):
    def fail(*_):
        raise click.UsageError("odd")

    monkeypatch.setattr(click.Argument, "handle_parse_result", fail)
    error = refused("sample", "RUN")
    assert (
        error == "error: dvae sample must be used as its help says; received odd. See dvae sample --help.\n"
    )


@pytest.mark.parametrize(
    ("read", "word"),
    [(whole_number(), "1.0"), (whole_number(), ""), (number, ""), (size, "Short"), (size, "")],
)
def test_readers_name_the_option(read, word):
    with pytest.raises(InvalidInputError, match=r"^--it must be .*; received "):
        read("--it", word)


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


def test_sizes_follow_how_the_file_is_split(cli, data_file):
    words = ["--data.valid-fraction", "0.4", "--data.test-fraction", "0.4"]  # 12 of 60 are left for training
    status, out, _ = cli("validate", "--data", data_file, "--size", "smoke", *words, "--settings")
    assert status == 0
    assert ["--training.batch-size", "12"] in [line.split()[:2] for line in out.splitlines()]


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
