"""One self-contained page about a run: `make_report` gives its HTML, `dvae report` writes it.

A section is a function that takes a `ReportSource`, computes or reads numbers and makes a `Section` of them, or None
where the run has nothing to show; ``sections.html.j2`` has a macro for each, with the words around the numbers.
"""

from discrete_vae.report.make import make_report

__all__ = ["make_report"]
