"""The command line: from words to a verb, and from errors to one line and an exit status."""

from __future__ import annotations

import importlib
import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import TextIO

from discrete_vae.commands.parser import TAKES_SETTINGS, VERBS, build_parser
from discrete_vae.commands.usage import UsageError
from discrete_vae.errors import DiscreteVAEError, InvalidInputError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Its words without the program's name; None means the process's own.

    Returns:
        The exit status: 0; 1 where training stopped on a loss that is not finite; 2 for wrong input, a damaged file or
        a disk that refuses; 130 after an interrupt, 143 after SIGTERM in training.
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
    if words[0] in TAKES_SETTINGS and any(re.match(r"--[^=]*\.", word) for word in words):
        from discrete_vae.commands.overrides import split_overrides

        words, overrides = split_overrides(words)
    arguments = parser.parse_args(words)
    module, _, function = VERBS[arguments.verb][0].partition(":")
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
    """What the installed command calls.

    Threads that wait for each other soon go to sleep, unless the user's environment says otherwise: beside another
    busy process, OpenMP's own long spinning makes a small model's step ten times slower.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    sys.exit(main())
