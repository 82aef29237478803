"""One self-contained page about a run: `make_report` gives its HTML, `dvae report` writes it.

A section is a file: a function that takes a `discrete_vae.report.results.ReportSource`, computes or reads numbers and
makes a `discrete_vae.report.page.Section` of them, or None where the run has nothing to show. `sections` lists them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from discrete_vae.report.make import make_report

__all__ = ["make_report"]


def __getattr__(name: str) -> object:
    if name != "make_report":
        raise AttributeError(f"module 'discrete_vae.report' has no attribute {name!r}")
    from discrete_vae.report.make import make_report

    return make_report
