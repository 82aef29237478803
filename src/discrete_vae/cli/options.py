"""The table of verbs, how a verb and its options are declared, and the errors for a mistyped command line."""

from __future__ import annotations

import io
import json
import math
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from difflib import get_close_matches
from functools import reduce
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

import click
from click.shell_completion import CompletionItem

from discrete_vae.errors import InvalidInputError, not_one_of
from discrete_vae.records import with_error
from discrete_vae.system import check_device, user_path

if TYPE_CHECKING:
    import torch


Outcome: TypeAlias = int | Mapping[str, Any] | None  # of a verb: an exit status, or its result

VERBS = {
    "train": ("train:run_train", "train a model on your own data, or a built-in experiment"),
    "validate": ("train:run_validate", "check an experiment without training it: shapes, memory, time"),
    "refit": ("runs:run_refit", "fit the encoder of a trained model again, as a new run"),
    "evaluate": ("runs:run_evaluate", "log-likelihood of the test data, against independent columns"),
    "log-partition": ("runs:run_log_partition", "estimate log Z of the prior, and check its Markov chains"),
    "report": ("runs:run_report", "write one HTML page about a run"),
    "figure": ("runs:run_figure", "draw one figure of a run, with a table of its numbers"),
    "sample": ("runs:run_sample", "draw pictures: samples, reconstructions, course of training"),
    "generate": ("generate:run_generate", "write new examples, also of a class or with some units fixed"),
    "encode": ("apply:run_encode", "write the binary codes of examples"),
    "neighbors": ("apply:run_neighbors", "find the examples with the most similar codes"),
    "score": ("apply:run_score", "score each example by its log-likelihood, to find anomalies"),
    "predict": ("apply:run_predict", "predict the class of each example"),
    "impute": ("generate:run_impute", "fill in missing values"),
    "reconstruct": ("generate:run_reconstruct", "encode and decode examples"),
    "denoise": ("generate:run_denoise", "remove noise from binary examples"),
    "interpolate": ("generate:run_interpolate", "walk from the code of one example to that of another"),
    "release": ("runs:run_release", "copy a trained run without what only training needs"),
    "cite": ("runs:run_cite", "print BibTeX of the library and of the papers behind a run"),
    "list": ("train:run_list", "experiments, data sets, components, trained models, figures"),
}
"""For each verb the place of its function, and a line of help."""

GROUPS = {
    "Train": ("train", "validate", "refit"),
    "Judge": ("evaluate", "log-partition", "report", "figure"),
    "Use": (
        *("sample", "generate", "encode", "neighbors", "score", "predict"),
        *("impute", "reconstruct", "denoise", "interpolate"),
    ),
    "Share": ("release", "cite"),
    "List": ("list",),
}
"""The verbs by what they are for, as `dvae --help` shows them."""

EXAMPLES = """
dvae train digits --size smoke | dvae train --data table.csv --model.likelihood gaussian --run-dir runs/mine
dvae validate digits | dvae validate --data table.csv --model.likelihood gaussian
dvae refit runs/digits-smoke | dvae refit runs/digits-smoke --num-steps 5000 --out runs/refitted
dvae evaluate runs/digits-smoke | dvae evaluate --pretrained digits --json --out digits.json
dvae log-partition runs/digits-smoke | dvae log-partition runs/digits-smoke --repeats 20 --json
dvae report runs/digits-smoke | dvae report --pretrained digits --out digits.html
dvae figure | dvae figure training-curves runs/digits-smoke
dvae sample runs/digits-smoke | dvae sample --pretrained mnist-static --out samples.png
dvae generate runs/digits-smoke -n 100 --out new.npz | dvae generate runs/digits-smoke -n 10 --picture new.png
dvae encode runs/digits-smoke --out codes.npz | dvae encode runs/mine --data new.csv --out codes.csv
dvae neighbors runs/digits-smoke -k 5 --out nearest.csv | dvae neighbors runs/mine --data new.csv --out nearest.csv
dvae score runs/digits-smoke --threshold-from valid --out scores.csv | dvae score runs/mine --data new.csv --json
dvae predict runs/mine --out predicted.csv | dvae predict runs/mine --data new.csv --out predicted.csv
dvae impute runs/mine --data gaps.csv --out filled.csv | dvae impute runs/mine --data gaps.csv --draws 5 --out f.csv
dvae reconstruct runs/digits-smoke --picture pairs.png | dvae reconstruct runs/mine --data new.csv --out again.csv
dvae denoise runs/digits-smoke --noise 0.1 --picture clean.png | dvae denoise runs/mine --data noisy.npy --out clean.npy
dvae interpolate runs/digits-smoke --picture paths.png | dvae interpolate runs/mine --from 3 --to 8 --out path.csv
dvae release runs/digits-smoke --license mit --out released | dvae release runs/mine --license cc-by-4.0 --out shared
dvae cite | dvae cite runs/digits-smoke
dvae list | dvae list experiments
"""
"""Two command lines of each verb, for its help; a line per verb."""

SECTIONS = {
    "Which model": ("--pretrained", "--checkpoint", "--accept-changed-config"),
    "Which data": ("--data", "--part", "--label-column", "--num-examples", "--data-dir"),
    "Other": ("--seed", "--device", "--json", "--quiet", "--help"),
}
"""Options that verbs share, by the section of a verb's help; a verb's own options come before, under Options."""


CONTEXT = {"help_option_names": ["-h", "--help"]}
"""Settings of click for every command, also one that is looked at without the whole."""


class _Command(click.Command):
    """A command whose mistakes in the command line are reported as `InvalidInputError`."""

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        """Read the command line; of the processes of torchrun on a machine the first one says what is wrong."""
        try:
            return super().make_context(*args, **more)
        except InvalidInputError as error:
            error.is_said = (
                os.environ.get("WORLD_SIZE", "1") != "1" and os.environ.get("LOCAL_RANK", "0") != "0"
            )
            raise

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
        super().__init__(*args, context_settings=CONTEXT, **attributes)
        if any(each.name == "device" for each in self.params):  # it computes, so it prints notes
            self.params += [click.Option(["-q", "--quiet"], is_flag=True, help=_QUIET)]
        self.takes_settings = takes_settings
        self.divides = divides
        self.typed = {"run_dir": "RUN"} | dict(typed or {})
        self.allow_extra_args = True  # refused below, with the word

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # for completion: anything may be missing yet
            return super().parse_args(ctx, args)
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

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verb's own options, then those of `SECTIONS`, then the examples."""
        written: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Options", *SECTIONS)}
        for parameter in self.get_params(ctx):
            title = next((each for each, names in SECTIONS.items() if parameter.opts[-1] in names), "Options")
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)):
                written[title].append(record)
        for title, records in written.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line}\n" for line in examples(str(self.name))))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; a result that it returns is printed if --json is given. Returns the exit status."""
        quiet, as_json = (ctx.params.pop(name, False) for name in ("quiet", "json"))
        with ExitStack() as silenced:
            if quiet:
                silenced.enter_context(redirect_stderr(_silence(sys.stderr)))
            if as_json:
                silenced.enter_context(redirect_stdout(_silence(sys.stdout)))
            found = self._invoke(ctx)
        if not isinstance(found, Mapping):
            return found
        if as_json:
            known = json.loads(json.dumps(found), parse_constant=lambda _: None)  # what is NaN is not known
            print(json.dumps(known, indent=2))
        return 0

    def _invoke(self, ctx: click.Context) -> Any:
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
            note(f"{ctx.command_path} is for one process: the first of {number} does it.")
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
        if "--data." in error.repair and not self.takes_settings and "Train" not in error.repair:
            error.repair = "Write the file as that of the run's training is written."


class Verbs(_Command, click.Group):
    """All verbs; the file of one is loaded when it runs, so that help comes at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            if ctx.resilient_parsing:
                return None
            raise not_one_of("VERB", VERBS, cmd_name)
        return resolve_name(f"discrete_vae.cli.{VERBS[cmd_name][0]}")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        longest = max(map(len, VERBS))
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{longest}}", VERBS[name][1]) for name in names])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The verbs that may be meant, or options; no verb's file is loaded."""
        meant = {name: text for name, (_, text) in VERBS.items() if name.startswith(incomplete)}
        found = [CompletionItem(name, help=text) for name, text in meant.items()]
        return found + click.Command.shell_complete(self, ctx, incomplete)


def _silence(loud: TextIO) -> TextIO:
    """A stream that is not shown; `loud` is the one that it stands for."""
    stream = io.StringIO()
    setattr(stream, "loud", loud)  # noqa: B010 (as the type has none)
    return stream


def loud_stream() -> TextIO:
    """Standard error as it is without --quiet, for what must be read."""
    return getattr(sys.stderr, "loud", sys.stderr)


def examples(verb: str) -> list[str]:
    """The command lines of `EXAMPLES` for a verb."""
    return next([*line.split(" | ")] for line in EXAMPLES.splitlines() if line.split()[1:2] == [verb])


def verb(name: str, more: str = "", **attributes: Any) -> Callable[[Callable[..., Outcome]], Verb]:
    """Make a function a verb, whose help is its line in `VERBS` and more.

    It returns the exit status, None for 0, or what `json_option` prints.
    """
    text = VERBS[name][1]
    return click.command(name, cls=Verb, help=f"{text[:1].upper()}{text[1:]}. {more}", **attributes)


# Mistakes in the command line, in the form of the library's errors.


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
    commands = filter(None, (group.get_command(ctx.parent, name) for name in VERBS))
    return [str(each.name) for each in commands if any(option in one.opts for one in each.params)]


# How options are declared and read, and those that several verbs share.


Reader = Callable[[str, str], Any]  # reads a word, given the option's name, and refuses what is wrong


def option(
    declared: str,
    meaning: str,
    read: Reader | None = None,
    names: Callable[[], Iterable[str]] = tuple,
    **attributes: Any,
) -> Any:
    """An option of a verb, with further keywords of `click.option`.

    It is declared by its name and what its value is called, "--repeats R"; without the latter it is a flag. A value
    called "mean|mode" is one of these words; `names` gives words for the shell's completion. One called "UNIT=BIT,..."
    is a list, which may come in several options. A default that the meaning does not name is added to the help.
    """
    name, _, value = declared.partition(" ")
    kind: dict[str, Any] = {"metavar": value} if value else {"is_flag": True}
    if read is None and re.fullmatch(r"[a-z0-9]+(\|[a-z0-9]+)+", value):
        read = one_of(*value.split("|"))
    if read is not None:
        kind["callback"] = lambda _, parameter, word: None if word is None else read(parameter.opts[0], word)
    elif ",..." in value:
        kind |= {"multiple": True, "callback": lambda _, __, words: ",".join(words) if words else None}
    kind["shell_complete"] = completion(value, names)
    if attributes.get("default") and "default" not in meaning:
        meaning += f"; default: {attributes['default']}"
    return click.option(name, help=meaning, **kind, **attributes)


def completion(value: str, names: Callable[[], Iterable[str]] = tuple) -> Callable[..., list[CompletionItem]]:
    """Completion of a value that help calls "mean|mode" or FILE or DIR; `names` gives further words."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        words = [word for word in value.split("|") if re.fullmatch(r"[a-z0-9-]+", word)]
        found = [CompletionItem(each) for each in (*words, *names()) if each.startswith(incomplete)]
        kinds = [kind for kind in ("file", "dir") if kind.upper() in value]
        return found + [CompletionItem(incomplete, type=kind) for kind in kinds]

    return complete


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


seed = whole_number(at_least=0, at_most=2**64 - 1)
device_option = option(
    "--device auto|cpu|cuda|cuda:N", "where to compute; default: auto, a GPU if there is one", default="auto"
)
data_dir_option = option(
    "--data-dir DIR",
    "folder of the data sets, or of your file if it has moved; default: the variable DISCRETE_VAE_DATA, else your "
    "cache folder",
    user_path,
)


def further_data_dir(folder: Path | None) -> str:
    """The option of `data_dir_option` for the next command, where it was given to this one."""
    return "" if folder is None else f" --data-dir {shlex.quote(str(folder))}"


accept_changed_config_option = option(
    "--accept-changed-config", "use the run although its config.json was changed after training"
)
json_option = option("--json", "print one JSON object instead of text")
_QUIET = "print results, warnings and errors only"


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


def print_rows(rows: Mapping[str, str]) -> None:
    """Print names with what they mean, in two columns."""
    longest = max(map(len, rows), default=0)
    for name, text in rows.items():
        print(wrapped(text, f"  {name:{longest}}  "))


def note(text: str, stream: TextIO | None = None) -> None:
    """Print on standard error: lines that fit a terminal, elsewhere one line."""
    to = stream or sys.stderr
    with suppress(OSError):  # there may be no place left for it
        print(wrapped(text) if to.isatty() else text, file=to)


def say_while_torch_loads(text: str) -> None:
    """Say on standard error what a command is about to do, in the first process, unless it can begin at once."""
    if "torch" not in sys.modules and os.environ.get("RANK", "0") == "0":
        note(text)


def weighted_means(num_examples: int, effective: float) -> str:
    """A sentence about means over weighted examples."""
    return f"Means are weighted: {num_examples} examples count as {effective:.1f}."


def worth(value: float, baseline: float, std_error: float, num_examples: float, data: str) -> str:
    """A sentence about what a model is worth: how many nats per example it is above independent columns.

    The error is of so many examples, effective ones where they are weighted: of few it is uncertain itself, as
    Student's t says.
    """
    from scipy.special import stdtrit  # here, since it takes a while

    gain = value - baseline
    than = f"{'better' if gain >= 0 else 'worse'} than independent columns"
    said = f"On {data} the model is {with_error(abs(gain), std_error, 2)} nats per example {than}."
    if math.isnan(std_error):
        said += " The standard error of this difference is unknown."
    if num_examples > 1 and abs(gain) <= stdtrit(num_examples - 1, 0.975) * std_error:
        said += " So small a difference may be chance."
    if gain < 0:
        said += " Train longer (--training.num-epochs), or try a smaller model or another step size "
        said += "(--training.optimizer.learning-rate)."
    return said
