"""What a user sees of a fault of dvae itself: one line, and a file to report it with."""

from __future__ import annotations

import os
import platform
import tempfile
import traceback
from collections.abc import Sequence

from discrete_vae._version import __version__

_LONGEST = 300


def report_crash(words: Sequence[str], error: Exception) -> str:
    """Write what is known about an unexpected error to a file for temporary files.

    Args:
        words: The command line.
        error: The error, with its traceback.

    Returns:
        One sentence that says what happened and names the file.
    """
    short = " ".join(f"{type(error).__name__}: {error}".split())
    short = short if len(short) <= _LONGEST else f"{short[:_LONGEST]}..."
    lines = [
        f"dvae {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"command line: {list(words)!r}",
        "",
        *traceback.format_exception(error),
    ]
    try:
        descriptor, path = tempfile.mkstemp(prefix="dvae-error-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write("\n".join(lines))
    except OSError:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"this line ({last.filename}, line {last.lineno})"
    else:
        where = f"the file {path}"
    verb = words[0] if words else ""
    return (
        f"dvae {verb} must not end like this; received {short}. This is a fault of dvae, not yours: please report it "
        f"with {where}. What was saved before is intact."
    )
