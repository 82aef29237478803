"""The command line: verbs, their options, and errors on one line."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from typing import TextIO

from discrete_vae._version import __version__
from discrete_vae.errors import DiscreteVAEError, InvalidInputError

_VERBS = {
    "list": ("listing:run_list", "experiments, data sets and components"),
    "validate": ("validate:run_validate", "everything but training: shapes, parameter counts, memory"),
    "train": ("train:run_train", "train an experiment, or a model of your own data"),
    "evaluate": (
        "evaluate:run_evaluate",
        "log-likelihood, ELBO and log Z on test data, with standard errors",
    ),
    "log-partition": (
        "log_partition:run_log_partition",
        "log Z of a trained prior by bridge sampling, repeated, with the health of the chains",
    ),
    "sample": (
        "sample:run_sample",
        "pictures: samples along the chains, reconstructions, course of training",
    ),
}
_TAKES_OVERRIDES = {"train", "validate"}


def build_parser() -> argparse.ArgumentParser:
    """The parser of all verbs."""
    parser = argparse.ArgumentParser(
        prog="dvae",
        description="Train and evaluate variational autoencoders with a Boltzmann-machine prior.",
        epilog="Try: dvae train digits, then dvae evaluate on the run directory it names.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dvae {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    made = {
        name: verbs.add_parser(name, help=text, description=text, allow_abbrev=False)
        for name, (_, text) in _VERBS.items()
    }
    for name in ("train", "validate"):
        made[name].epilog = (
            "Every setting of the experiment can be overridden: --model.smoothing spike-slab swaps a component, "
            "--training.num-epochs 50 sets a value. Add --settings to list them all."
        )
        made[name].add_argument(
            "experiment", nargs="?", metavar="EXPERIMENT", help="a name that dvae list shows"
        )
        made[name].add_argument("--data", metavar="FILE", help="train on your own .npy or .npz array instead")
        made[name].add_argument("--size", choices=("smoke", "short", "paper"), help="default: short")
        made[name].add_argument("--seed", type=int, help="seed of the weights and of all noise")
        made[name].add_argument("--settings", action="store_true", help="list every setting and exit")
    made["train"].add_argument("--run-dir", metavar="DIR", help="default: runs/EXPERIMENT-SIZE")
    made["train"].add_argument(
        "--resume", action="store_true", help="go on from the last checkpoint in --run-dir"
    )
    for name in ("evaluate", "log-partition", "sample"):
        made[name].add_argument("run", metavar="RUN", help="a run directory")
        made[name].add_argument(
            "--checkpoint", default="best", metavar="best|last|STEP", help="default: best"
        )
        made[name].add_argument("--seed", type=int, help="seed of the noise")
    made["evaluate"].add_argument(
        "--num-samples", type=int, metavar="K", help="importance samples an example"
    )
    made["evaluate"].add_argument("--num-examples", type=int, metavar="N", help="test examples; default: all")
    _add_log_partition_options(made["log-partition"])
    _add_sample_options(made["sample"])
    for name in ("train", "validate", "evaluate", "sample"):
        made[name].add_argument(
            "--data-dir",
            metavar="DIR",
            help="folder of the data sets; default: DISCRETE_VAE_DATA, else the cache",
        )
    return parser


def _add_log_partition_options(parser: argparse.ArgumentParser) -> None:
    """What belongs to log-partition alone."""
    parser.add_argument(
        "--repeats", type=int, default=1, metavar="R", help="independent estimates; default: 1"
    )
    parser.add_argument(
        "--std-error",
        type=float,
        metavar="S",
        help="standard error to go for, nats; default: the run's config",
    )
    parser.add_argument(
        "--health-sweeps",
        type=int,
        default=500,
        metavar="N",
        help="sweeps of the training chains to look at; default: 500",
    )
    parser.add_argument(
        "--out", metavar="FILE", help="the histogram, .png, .pdf or .svg; default: in RUN/figures"
    )


def _add_sample_options(parser: argparse.ArgumentParser) -> None:
    """What belongs to sample alone."""
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="write the samples alone to this .png, .pdf or .svg; default: RUN/figures",
    )
    parser.add_argument(
        "--start",
        default="training",
        metavar="training|fresh|FILE.npy",
        help="where the chains start: where training left them (default), at random, or at states (chain, unit)",
    )
    parser.add_argument(
        "--burn-in",
        type=int,
        metavar="N",
        help="sweeps before the top row; default: 10,000 when fresh, else 0",
    )
    parser.add_argument("--num-rows", type=int, default=20, metavar="N", help="default: 20")
    parser.add_argument(
        "--num-sweeps", type=int, default=100, metavar="N", help="from row to row; default: 100"
    )
    parser.add_argument("--num-chains", type=int, metavar="N", help="side by side; default: 5")
    parser.add_argument("--num-draws", type=int, default=5, metavar="N", help="images a state; default: 5")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Its words without the program's name; None means the process's own.

    Returns:
        The exit status: 0, 1 where training stopped on a loss that is not finite, 2 for wrong input, 130 after an
        interrupt.
    """
    parser = build_parser()
    try:
        arguments, overrides = parser.parse_known_args(argv)
        if overrides and arguments.verb not in _TAKES_OVERRIDES:
            parser.error(f"unrecognized arguments: {' '.join(overrides)}")
        if getattr(arguments, "settings", False):
            overrides = [*overrides, "--help"]
    except SystemExit as stop:  # argparse has printed what is wrong
        return int(stop.code or 0)
    module, _, function = _VERBS[arguments.verb][0].partition(":")
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            run = getattr(importlib.import_module(f"discrete_vae.commands.{module}"), function)
            return run(arguments, overrides)
        except InvalidInputError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except DiscreteVAEError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        except SystemExit as stop:  # from the parser of the settings
            return int(stop.code or 0)
        except KeyboardInterrupt:
            print("Interrupted.", file=sys.stderr)
            return 130


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
    """What the installed command calls.

    Threads that wait for each other soon go to sleep, unless the user's environment says otherwise: beside another
    busy process, OpenMP's own long spinning makes a small model's step ten times slower.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    sys.exit(main())
