"""The table of verbs, how a verb and its options are declared, and what mistakes in the command line say."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from discrete_vae.errors import InvalidInputError
from discrete_vae.system import check_device, computing_on, user_path

if TYPE_CHECKING:
    import torch

    from discrete_vae.evaluation.evaluate import IndependentFeatures


VERBS = {
    "list": ("train:run_list", "experiments, data sets, components, trained models and figures"),
    "validate": ("train:run_validate", "everything but training: shapes, parameter counts, memory"),
    "train": ("train:run_train", "train an experiment, or a model of your own data"),
    "refit": ("runs:run_refit", "fit the posterior of a trained model anew, as a run of its own"),
    "release": ("runs:run_release", "a trained run made small enough to pass on, in half the bytes"),
    "evaluate": ("runs:run_evaluate", "log-likelihood, ELBO and log Z on test data, with standard errors"),
    "log-partition": (
        "runs:run_log_partition",
        "log Z of a trained prior by bridge sampling, repeated, with the health of the chains",
    ),
    "sample": ("runs:run_sample", "pictures: samples along the chains, reconstructions, course of training"),
    "encode": ("apply:run_encode", "codes of examples: bits, probabilities, continuous layers"),
    "score": ("apply:run_score", "log-likelihood or ELBO of each example, and p-values: an anomaly score"),
    "predict": ("apply:run_predict", "class of each example, p(class | example), by a model with classes"),
    "reconstruct": ("apply:run_reconstruct", "examples as the model gives them back"),
    "denoise": ("apply:run_denoise", "examples freed of noise"),
    "interpolate": ("apply:run_interpolate", "a path of codes between examples, a bit at a time"),
    "impute": ("apply:run_impute", "gaps in examples filled by what the model makes of the rest"),
    "generate": ("apply:run_generate", "new examples: of the prior, with units or fields set, or of classes"),
    "neighbors": ("apply:run_neighbors", "examples whose codes are nearest, by Hamming distance"),
    "figure": ("runs:run_figure", "one figure by name, with a table of its numbers"),
    "cite": ("runs:run_cite", "BibTeX of the papers behind a run or an experiment"),
    "report": ("runs:run_report", "one page about a run, in a file of its own that any browser opens"),
}
"""For each verb the place of its function, and a line of help."""


class _Command(click.Command):
    """A command whose mistakes in the command line are reported as `InvalidInputError`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)  # click takes them out of the list
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _friendly_error(error, ctx, words) from None


class Verb(_Command):
    """One verb."""

    def __init__(
        self,
        *args: Any,
        takes_settings: bool = False,  # of an experiment, which come as `overrides`
        divides: bool = False,  # its work among the processes of torchrun; else the first does it alone
        typed: Mapping[str, str] | None = None,  # what the user types, by arguments of the library
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self.takes_settings = takes_settings
        self.divides = divides
        self.typed = {"run_dir": "RUN"} | dict(typed or {})
        self.allow_extra_args = True  # refused below, with the word

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        overrides: list[tuple[str, list[str]]] = []
        if self.takes_settings and any("." in word.partition("=")[0] for word in args if word[:2] == "--"):
            from discrete_vae.config.overrides import split_overrides  # here, since it loads the configs

            args, overrides = split_overrides(args)
        valued = {name for option in self.params if _takes_value(option) for name in option.opts}
        for word, following in pairwise([*args, ""]):
            name, equals, value = word.partition("=")
            if name in valued and (value == "--" if equals else following.startswith("--")):
                raise _no_value(name, repr(value or following), ctx)
        super().parse_args(ctx, args)
        if ctx.args:
            rule, repair = "takes no more arguments", f"See {ctx.command_path} --help."
            raise InvalidInputError(ctx.command_path, rule, repr(ctx.args[0]), repair)
        if self.takes_settings:
            ctx.params["overrides"] = overrides
        return ctx.args

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; among the processes of torchrun with the others, or in the first one alone."""
        try:
            if os.environ.get("WORLD_SIZE", "1") == "1":
                return super().invoke(ctx)
            from discrete_vae.distributed import launched, process_group  # here, since it imports torch

            if self.divides:
                with process_group():
                    return super().invoke(ctx)
            rank, number = launched()
            if rank > 0:
                return 0
            if number > 1:
                alone = f"{ctx.command_path} is for one process: the first of {number} does it."
                print(alone, file=sys.stderr)
            return super().invoke(ctx)
        except InvalidInputError as error:
            if not error.is_said:
                self._name_options(error, ctx.params.get("overrides", []))
            raise

    def _name_options(self, error: InvalidInputError, overrides: Sequence[tuple[str, Any]]) -> None:
        """Put what the user typed in place of arguments of the library: an option, a setting, or a word."""
        typed = dict(self.typed)
        for parameter in self.params:
            is_option = isinstance(parameter, click.Option)
            typed[str(parameter.name)] = parameter.opts[-1] if is_option else str(parameter.name).upper()
        argument = error.argument
        given = {path for path, _ in overrides if f".{path}".replace("-", "_").endswith(f".{argument}")}
        error.argument = f"--{given.pop()}" if len(given) == 1 else typed.get(argument, argument)
        # in a sentence, what has an underscore is a name
        words = re.compile("|".join(rf"\b{each}\b" for each in typed if "_" in each) or "$^")
        error.rule = words.sub(lambda found: typed[found[0]], error.rule)
        error.repair = words.sub(lambda found: typed[found[0]], error.repair)


class Verbs(_Command, click.Group):
    """All verbs; the file of one is loaded when it runs, so that help comes at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        if cmd_name not in VERBS:
            raise not_one_of("VERB", list(VERBS), cmd_name)
        module, _, function = VERBS[cmd_name][0].partition(":")
        return getattr(importlib.import_module(f"discrete_vae.cli.{module}"), function)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])


def verb(name: str, more: str = "", **attributes: Any) -> Callable[[Callable[..., int | None]], Verb]:
    """Make a function a verb, whose help is its line in `VERBS` and more; it returns the exit status, None for 0."""
    text = VERBS[name][1]
    return click.command(name, cls=Verb, help=f"{text[:1].upper()}{text[1:]}. {more}", **attributes)


# Mistakes in the command line, in the form of the library's errors.


def not_one_of(argument: str, names: Sequence[str], received: str) -> InvalidInputError:
    """The error about a name that is none of those there are."""
    close = get_close_matches(received, names, n=1)
    repair = f"Did you mean {close[0]}?" if close else f"Give one such as {names[0]}."
    return InvalidInputError(argument, f"must be one of {', '.join(names)}", repr(received), repair)


def _takes_value(parameter: click.Parameter | None) -> bool:
    return isinstance(parameter, click.Option) and not parameter.is_flag


def _no_value(option: str, received: str, ctx: click.Context) -> InvalidInputError:
    repair = f"See {ctx.command_path} --help."
    return InvalidInputError(option, "must be followed by a value", received, repair)


def _friendly_error(error: click.UsageError, ctx: click.Context, words: Sequence[str]) -> InvalidInputError:
    see = f"See {ctx.command_path} --help."
    if isinstance(error, click.MissingParameter) and error.param is not None:
        is_option = isinstance(error.param, click.Option)
        name = error.param.opts[-1] if is_option else error.param.make_metavar(ctx)
        return InvalidInputError(name, "must be given", "nothing", see)
    if isinstance(error, click.NoSuchOption):
        return _no_such_option(error.option_name, ctx)
    if isinstance(error, click.BadOptionUsage):
        name = error.option_name
        option = next((each for each in ctx.command.params if name in each.opts), None)
        if option is None or _takes_value(option):
            return _no_value(name, "nothing", ctx)
        given = next(word.partition("=")[2] for word in words if word.startswith(f"{name}="))
        return InvalidInputError(name, "takes no value", repr(given), "Leave the value out.")
    return InvalidInputError(ctx.command_path, "must be used as its help says", error.format_message(), see)


def _no_such_option(word: str, ctx: click.Context) -> InvalidInputError:
    """An unknown option; for verbs with settings, a word that is no near miss may be part of a setting's name."""
    settings = isinstance(ctx.command, Verb) and ctx.command.takes_settings
    known = [name for option in ctx.command.get_params(ctx) for name in option.opts if name.startswith("-")]
    longer = [name for name in known if name.startswith(word) and len(word) > 3]
    close = longer or get_close_matches(word, known, n=1, cutoff=0.75 if settings else 0.6)
    repair = f"Did you mean {close[0]}?" if close else f"See {ctx.command_path} --help."
    if settings and not close:
        from discrete_vae.config.overrides import suggest_setting  # here, since it loads the configs

        repair = suggest_setting(word.removeprefix("--"))
    if word == "--run-dir" and any(each.name in ("run", "runs") for each in ctx.command.params):
        repair = f"Name the run without an option: {ctx.command_path} RUN."
    elif (others := _verbs_with(word, ctx)) and not (settings and repair.startswith("Did you mean")):
        repair = f"It is one of dvae {', '.join(others)}."
    return InvalidInputError(word, f"must be an option of {ctx.command_path}", "an unknown name", repair)


def _verbs_with(option: str, ctx: click.Context) -> list[str]:
    """The verbs that have an option, by its whole name."""
    if ctx.parent is None or not isinstance(group := ctx.parent.command, Verbs):
        return []
    commands = [group.get_command(ctx.parent, name) for name in VERBS]
    return [str(each.name) for each in commands if any(option in one.opts for one in each.params)]


# How options are declared and read, and those that several verbs share.


Reader = Callable[[str, str], Any]  # reads a word, given the option's name, and refuses what is wrong


def option(declared: str, meaning: str, read: Reader | None = None, **attributes: Any) -> Any:
    """An option of a verb, with further keywords of `click.option`.

    It is declared by its name and what its value is called, "--repeats R"; without the latter it is a flag. A value
    called "mean|mode" is one of these words. A default that the meaning does not name is added to the help.
    """
    name, _, value = declared.partition(" ")
    kind: dict[str, Any] = {"metavar": value} if value else {"is_flag": True}
    if read is None and re.fullmatch(r"[a-z0-9]+(\|[a-z0-9]+)+", value):
        read = one_of(*value.split("|"))
    if read is not None:
        kind["callback"] = lambda _, parameter, word: None if word is None else read(parameter.opts[0], word)
    if attributes.get("default") and "default" not in meaning:
        meaning += f"; default: {attributes['default']}"
    return click.option(name, help=meaning, **kind, **attributes)


def together(*decorators: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Several options as one decorator, in the order of the help."""
    return lambda function: reduce(lambda made, each: each(made), reversed(decorators), function)


def whole_number(at_least: int = 1, at_most: int = 10**18) -> Reader:
    """A reader of integers."""

    def read(name: str, word: str) -> int:
        number = int(word) if re.fullmatch(r"[+-]?[0-9]{1,30}", word) else None
        if number is not None and at_least <= number <= at_most:
            return number
        bound = f"at most {at_most}" if number is not None and number > at_most else f"at least {at_least}"
        rule, repair = f"must be a whole number of {bound}", f"Give one such as {at_least}."
        raise InvalidInputError(name, rule, repr(word)[:80], repair)

    return read


def number(name: str, word: str) -> float:
    """Read a number with a fraction."""
    try:
        return float(word)
    except ValueError:
        raise InvalidInputError(name, "must be a number", repr(word)[:80], "Give 0.01, say.") from None


def one_of(*words: str) -> Reader:
    """A reader of one of some words."""

    def read(name: str, word: str) -> str:
        if word not in words:
            raise not_one_of(name, words, word)
        return word

    return read


def _path(name: str, word: str) -> str:
    """Read a path; whether there is such a file or folder is asked where it is used."""
    user_path(name, word)
    return word


seed = whole_number(at_least=0, at_most=2**64 - 1)
device_option = option(
    "--device auto|cpu|cuda|cuda:N",
    "where to compute; default: auto, CUDA where there is some",
    default="auto",
)
data_dir_option = option(
    "--data-dir DIR", "folder of the data sets; default: DISCRETE_VAE_DATA, else the user's cache", _path
)
accept_changed_config_option = option(
    "--accept-changed-config", "use the run's config.json though it has changed since training"
)


def choose_device(text: str) -> torch.device:
    """The device that a user asks for; it becomes the process's current one.

    A CUDA device without a number is that of the process among those of torchrun (``LOCAL_RANK``), else the first.
    """
    import torch

    device = check_device(text, argument="--device")
    if device.type != "cuda":
        return device
    if device.index is None:
        rank, count = os.environ.get("LOCAL_RANK", "0"), torch.cuda.device_count()
        if not re.fullmatch(r"\d{1,4}", rank):
            rule, repair = "must be a process's number", "Let torchrun set it."
            raise InvalidInputError("LOCAL_RANK", rule, repr(rank), repair)
        if int(rank) >= count:
            rule = f"must have a device of its own for each process, and torch sees {count}"
            repair = f"Start {count} process{'es' * (count > 1)} at most, or compute on cpu."
            raise InvalidInputError("--device", rule, f"process {rank}", repair)
        device = torch.device("cuda", int(rank))
    torch.cuda.set_device(device.index)  # where compiled kernels start
    return device


# What verbs print.


_NARROWEST = 60


def width() -> int:
    """Columns of the terminal, 80 where there is none, from 60."""
    return max(_NARROWEST, shutil.get_terminal_size((80, 24)).columns)


def wrapped(text: str, first: str = "", *, indent: int | None = None) -> str:
    """Text in lines, the first after some words, the others indented as far, or by `indent`; words stay whole."""
    further = " " * (len(first) if indent is None else indent)
    whole: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    lines = textwrap.wrap(text, width(), initial_indent=first, subsequent_indent=further, **whole)
    return "\n".join(lines) or first.rstrip()


def say_device(device: torch.device) -> None:
    """Say on standard error where the first process computes."""
    from discrete_vae.distributed import rank

    if rank() == 0:
        print(computing_on(device), file=sys.stderr)


def say_while_torch_loads(text: str) -> None:
    """Say on standard error what a command is about to do, in the first process, unless it can begin at once."""
    if "torch" not in sys.modules and os.environ.get("RANK", "0") == "0":
        print(text, file=sys.stderr, flush=True)


def below_baseline(name: str, value: float, baseline: IndependentFeatures) -> str:
    """A warning about a model that explains less than independent features; empty for a better one."""
    if value >= baseline.value:
        return ""
    return (
        f"Warning: the {name} is {baseline.value - value:.2f} nats below that of independent features: by this measure "
        "the model has learned less than each feature tells on its own. Train longer (--training.num-epochs), or try a "
        "smaller model or another step size (--training.optimizer.learning-rate)."
    )
