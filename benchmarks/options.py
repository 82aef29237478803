"""What the benchmarks that measure one experiment at a time are told, ask of other processes and print."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from products import DTYPES
from results import PAGE


def experiment_parser(description: str | None, *, rounds: str, threads: str) -> ArgumentParser:
    """The arguments that all of them have, with what --rounds counts and what is taken without --threads."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("experiment", nargs="?", metavar="EXPERIMENT", help="a name that dvae list shows")
    parser.add_argument("--size", default="short", help="smoke, short (default), cpu or paper")
    parser.add_argument(
        "--precision", choices=DTYPES, default="float32", help="precision of the networks' products"
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--seconds", type=float, default=6, help="seconds of rounds per process")
    parser.add_argument("--rounds", type=int, default=3, help=rounds)
    parser.add_argument("--threads", type=int, help=f"threads; {threads} if not given")
    parser.add_argument("--page", type=Path, default=PAGE, help="page to write")
    return parser


def ask(script: str, experiment: str, *words: str, options: Namespace) -> dict[str, Any]:
    """What a benchmark finds of one experiment in a process of its own."""
    command = [sys.executable, script, experiment, "--json", "--seconds", str(options.seconds), *words]
    command += [] if options.threads is None else ["--threads", str(options.threads)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def show(found: dict[str, Any], options: Namespace) -> None:
    """Print what was found, as --json asks for it."""
    lines = (f"{name:20} {value}" for name, value in found.items())
    print(json.dumps(found) if options.json else "\n".join(lines))
