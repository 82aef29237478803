"""What the benchmarks that measure one experiment at a time are told on the command line."""

from __future__ import annotations

import argparse
from pathlib import Path

from products import DTYPES


def experiment_parser(description: str | None, *, rounds: str, threads: str) -> argparse.ArgumentParser:
    """The arguments that all of them have, with what --rounds counts and what is taken without --threads."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment", nargs="?", metavar="EXPERIMENT", help="a name that dvae list shows")
    parser.add_argument("--size", default="short", help="smoke, short (default), cpu or paper")
    parser.add_argument(
        "--precision", choices=DTYPES, default="float32", help="precision of the networks' products"
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--seconds", type=float, default=6, help="seconds of rounds per process")
    parser.add_argument("--rounds", type=int, default=3, help=rounds)
    parser.add_argument("--threads", type=int, help=f"threads; {threads} if not given")
    parser.add_argument(
        "--page", type=Path, default=Path(__file__).with_name("RESULTS.md"), help="page to write"
    )
    return parser
