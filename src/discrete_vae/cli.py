"""The command line: verbs, their options, and errors on one line."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import TextIO

from discrete_vae._version import __version__
from discrete_vae.commands.usage import HouseParser, UsageError, one_of, whole_number
from discrete_vae.errors import DiscreteVAEError, InvalidInputError

_VERBS = {
    "list": ("listing:run_list", "experiments, data sets and components"),
    "validate": ("validate:run_validate", "everything but training: shapes, parameter counts, memory"),
    "train": ("train:run_train", "train an experiment, or a model of your own data"),
    "evaluate": (
        "evaluate:run_evaluate",
        "log-likelihood, ELBO and log Z on test data, with standard errors",
    ),
}
_TAKES_OVERRIDES = {"train", "validate"}


def build_parser() -> argparse.ArgumentParser:
    """The parser of all verbs."""
    parser = HouseParser(
        prog="dvae",
        description="Variational autoencoders with a Boltzmann-machine prior: from data to a trained model, its "
        "log-likelihood and its samples.",
        epilog="To start: dvae train digits --size smoke (under a minute), then what its last line says. "
        "dvae VERB --help explains a verb. Exit status: 0; 1 if a loss is not finite; 2 for wrong input; "
        "130 after an interrupt.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dvae {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", title="verbs", prog="dvae")
    made = {
        name: verbs.add_parser(
            name, help=text, description=f"{text[:1].upper()}{text[1:]}.", allow_abbrev=False
        )
        for name, (_, text) in _VERBS.items()
    }
    seed = whole_number(at_least=0)
    for name in ("train", "validate"):
        made[name].takes_settings = True
        made[name].usage = f"dvae {name} EXPERIMENT | --data FILE  [options] [settings]"
        made[name].epilog = (
            "Settings: every value of the experiment has an option with its dotted name. --training.num-epochs 50 sets "
            "a value, --model.smoothing spike-slab swaps a component and leaves the rest as it is, "
            "--model.posterior.hidden 200 200 gives a list. --settings shows them all."
        )
        made[name].add_argument(
            "experiment", nargs="?", metavar="EXPERIMENT", help="a name that dvae list shows"
        )
        made[name].add_argument(
            "--data",
            metavar="FILE",
            help="your own array instead, (example, feature), binary or in [0, 1]: a .npy file, or a .npz file with "
            "one array or with train, valid and test",
        )
        made[name].add_argument(
            "--size",
            type=one_of("smoke", "short", "paper"),
            metavar="smoke|short|paper",
            help="smoke: under a minute; short (default): minutes to an hour on two cores; paper: as published",
        )
        made[name].add_argument(
            "--seed", type=seed, metavar="S", help="seed of the initial weights and of all noise; default: 0"
        )
        made[name].add_argument(
            "--settings", action="store_true", help="show every setting with its value, and exit"
        )
    made["train"].add_argument(
        "--run-dir", metavar="DIR", help="new folder for the results; default: runs/EXPERIMENT-SIZE"
    )
    made["train"].add_argument(
        "--resume", action="store_true", help="go on from the last checkpoint of the run in --run-dir"
    )
    for name in ("evaluate",):
        made[name].add_argument("run", metavar="RUN", help="the folder of a run, as dvae train names it")
        made[name].add_argument(
            "--checkpoint",
            default="best",
            metavar="best|last|STEP",
            help="which checkpoint; default: best, by validation ELBO",
        )
        made[name].add_argument("--seed", type=seed, metavar="S", help="seed of the noise; default: 0")
    made["evaluate"].add_argument(
        "--num-samples",
        type=whole_number(at_least=1),
        metavar="K",
        help="importance samples an example; default: the experiment's",
    )
    made["evaluate"].add_argument(
        "--num-examples",
        type=whole_number(at_least=1),
        metavar="N",
        help="a fixed random choice of N test examples; default: all",
    )
    for name in ("train", "evaluate"):
        made[name].add_argument(
            "--device", default="cpu", metavar="cpu|cuda|cuda:N", help="where to compute; default: cpu"
        )
    for name in ("train", "validate", "evaluate"):
        made[name].add_argument(
            "--data-dir",
            metavar="DIR",
            help="folder of the data sets; default: the variable DISCRETE_VAE_DATA, else the user's cache",
        )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Its words without the program's name; None means the process's own.

    Returns:
        The exit status: 0; 1 where training stopped on a loss that is not finite; 2 for wrong input, a damaged file or
        a disk that refuses; 130 after an interrupt.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            return _run(words)
        except (InvalidInputError, UsageError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except DiscreteVAEError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        except BrokenPipeError:  # the reader, head say, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except OSError as error:
            place = error.filename or "The disk"
            repair = "Free space or check permissions; what was saved before is intact."
            print(
                f"error: {place} must be usable; received {error.strerror or error}. {repair}",
                file=sys.stderr,
            )
            return 2
        except SystemExit as stop:  # argparse has printed help or the version
            return int(stop.code or 0)
        except KeyboardInterrupt:
            print("Interrupted.", file=sys.stderr)
            return 130


def _run(words: list[str]) -> int:
    parser = build_parser()
    if not words:
        parser.print_help(sys.stderr)
        return 2
    overrides: list[tuple[str, list[str]]] = []
    if words[0] in _TAKES_OVERRIDES and any(re.match(r"--[^=]*\.", word) for word in words):
        from discrete_vae.commands.overrides import split_overrides

        words, overrides = split_overrides(words)
    arguments = parser.parse_args(words)
    module, _, function = _VERBS[arguments.verb][0].partition(":")
    run = getattr(importlib.import_module(f"discrete_vae.commands.{module}"), function)
    return run(arguments, overrides)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print(f"warning: {message}", file=sys.stderr)


def entry_point() -> None:
    """What the installed command calls."""
    sys.exit(main())
