"""Every verb with its options."""

from __future__ import annotations

import argparse

from discrete_vae._version import __version__
from discrete_vae.commands.usage import HouseParser, one_of, whole_number

VERBS = {
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
TAKES_SETTINGS = ("train", "validate")


def build_parser() -> argparse.ArgumentParser:
    """The parser of all verbs."""
    parser = HouseParser(
        prog="dvae",
        description="Variational autoencoders with a Boltzmann-machine prior: from data to a trained model, its "
        "log-likelihood and its samples.",
        epilog="To start: dvae train digits --size smoke (under a minute), then what its last line says. "
        "dvae VERB --help explains a verb. Exit status: 0; 1 if a loss is not finite; 2 for wrong input, a damaged "
        "file, a full disk or too little memory; 70 for a fault of dvae itself; 130 after an interrupt (Ctrl-C); 143 "
        "after a request to end (SIGTERM).",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dvae {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", title="verbs", prog="dvae")
    made = {
        name: verbs.add_parser(
            name, help=text, description=f"{text[:1].upper()}{text[1:]}.", allow_abbrev=False
        )
        for name, (_, text) in VERBS.items()
    }
    seed = whole_number(at_least=0, at_most=2**64 - 1)
    for name in TAKES_SETTINGS:
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
            help="your own array or table instead: a .npy, .npz, .csv or .parquet file; --model.likelihood says what "
            "its values are",
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
        "--run-dir",
        metavar="DIR",
        help="new folder for the results; default: runs/EXPERIMENT-SIZE-SETTINGS",
    )
    made["train"].add_argument(
        "--resume", action="store_true", help="go on from the last checkpoint of the run in --run-dir"
    )
    for name in ("evaluate", "log-partition", "sample"):
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
        help="importance samples per example; default: the experiment's",
    )
    made["evaluate"].add_argument(
        "--num-examples",
        type=whole_number(at_least=1),
        metavar="N",
        help="a fixed random choice of N test examples, the same for every seed; default: all",
    )
    made["evaluate"].add_argument(
        "--out",
        metavar="FILE.json",
        help="write the result there and leave the run as it is; default: RUN/evaluations, and the fullest result also "
        "to RUN/evaluation.json",
    )
    made["evaluate"].add_argument(
        "--per-example",
        metavar="FILE",
        help="write the log-likelihood of each example, with its standard error, to this .csv or .npz",
    )
    _add_log_partition_options(made["log-partition"])
    _add_sample_options(made["sample"])
    for name in ("train", "evaluate", "log-partition", "sample"):
        made[name].add_argument(
            "--accept-changed-config",
            action="store_true",
            help="use the run's config.json though it is not the one that the run was trained with",
        )
    for name in ("train", "evaluate"):
        made[name].add_argument(
            "--device", default="cpu", metavar="cpu|cuda|cuda:N", help="where to compute; default: cpu"
        )
    for name in ("train", "validate", "evaluate", "sample"):
        made[name].add_argument(
            "--data-dir",
            metavar="DIR",
            help="folder of the data sets; default: the variable DISCRETE_VAE_DATA, else the user's cache",
        )
    return parser


def _add_log_partition_options(parser: argparse.ArgumentParser) -> None:
    """What belongs to log-partition alone."""
    parser.add_argument(
        "--repeats",
        type=whole_number(at_least=1),
        default=1,
        metavar="R",
        help="independent estimates; default: 1",
    )
    parser.add_argument(
        "--std-error",
        type=float,
        metavar="S",
        help="standard error to go for, nats; default: the run's config",
    )
    parser.add_argument(
        "--health-sweeps",
        type=whole_number(at_least=20),
        default=500,
        metavar="N",
        help="sweeps of the training chains to look at; default: 500",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="the picture, .png, .pdf or .svg; default: in RUN/figures. With .json, the results instead, without a "
        "picture; the run stays as it is then",
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
        type=whole_number(at_least=0),
        metavar="N",
        help="sweeps before the top row; default: 10,000 when fresh, else 0",
    )
    count = whole_number(at_least=1)
    parser.add_argument("--num-rows", type=count, default=20, metavar="N", help="default: 20")
    parser.add_argument(
        "--num-sweeps", type=count, default=100, metavar="N", help="from row to row; default: 100"
    )
    parser.add_argument("--num-chains", type=count, metavar="N", help="side by side; default: 5")
    parser.add_argument("--num-draws", type=count, default=5, metavar="N", help="images a state; default: 5")
