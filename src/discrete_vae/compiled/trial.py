"""What is said where a compiled loop does not work and a slower way steps in."""

from __future__ import annotations

import warnings

from discrete_vae.errors import KernelWarning


def warn_of_failure(
    what: str, error: Exception, instead: str, *, where: str = "", package: str = "numba"
) -> None:
    """Warn that something compiled does not work here.

    A compiler's interface is not a stable one in all that is used of it, so a release of it may break a loop.

    Args:
        what: What does not work.
        error: What was raised.
        instead: What is used in its place.
        where: Under which circumstances it does not work.
        package: The compiler.

    Warns:
        KernelWarning: Always.
    """
    message = str(error).strip()
    reason = f"{type(error).__name__}: {message.splitlines()[0] if message else 'no message'}"
    warnings.warn(
        f"{what} does not work{where} with this {package} ({reason}); {instead}. "
        f"Install a version of {package} that is known to work.",
        KernelWarning,
        stacklevel=3,
    )
