"""One self-contained page about a run: `make_report` gives its HTML, `dvae report` writes it.

A section is a function that takes a `ReportSource`, computes or reads numbers and makes a `Section` of them, or None
where the run has nothing to show; ``sections.html.j2`` has a macro for each, with the words around the numbers.
"""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jinja2 import Environment, PackageLoader, StrictUndefined

from discrete_vae import __version__
from discrete_vae.checks import check_positive_int
from discrete_vae.errors import printable
from discrete_vae.report import latents, results
from discrete_vae.report.source import ReportSource, Section, error_digits, percent, plus_minus, shown
from discrete_vae.runs.load import LoadedRun, load_run
from discrete_vae.runs.run_directory import RunDirectory

__all__ = ["make_report"]

SECTIONS: tuple[Callable[[ReportSource], Section | None], ...] = (
    *(results.summary, results.training_curves, results.bound),
    *(latents.samples, latents.reconstructions, latents.traversals, latents.active_units, latents.modes),
    latents.chains,
    *(results.log_partition, results.reproduce, results.config, results.environment),
)
"""The functions that make the sections; the order is that of the page, and of the draws from the chains."""


def make_report(
    run: str | Path | RunDirectory,
    *,
    checkpoint: int | Literal["best", "last"] = "best",
    labels: np.ndarray | str | Path | None = None,
    num_examples: int = 2000,
    seed: int = 0,
    data_dir: str | None = None,
    device: torch.device | str = "cpu",
    load: Callable[[], LoadedRun] | None = None,
    report: Callable[[str, int, int], None] | None = None,
) -> str:
    """Look at a run and write a page about it; nothing of the run changes.

    What the run keeps is read: the log, the evaluation and the repeats of log Z of this checkpoint. The rest is
    computed: samples, reconstructions, what units do, how much they are used, the modes of the prior, the health of the
    chains. What a run does not have, it has no section for.

    Args:
        run: The run, or its folder; ``~`` is the home directory.
        checkpoint: A step, or which one.
        labels: A label per training example, or per row of a file that was cut into parts, as an array or as a .npy or
            .csv file; None takes those of the data set, if it has some.
        num_examples: Training examples whose codes are looked at, and test examples, at most.
        seed: Seed of all noise; the same seed gives the same page.
        data_dir: Folder of the data sets; None means ``DISCRETE_VAE_DATA`` or the user's cache.
        device: Where to compute.
        load: What gives the model instead of `load_run`.
        report: Called before each section with its name, its number from 1, and how many there are.

    Returns:
        An HTML document that needs nothing but itself: no network, no script.
    """
    check_positive_int("num_examples", num_examples)
    directory = run if isinstance(run, RunDirectory) else RunDirectory.open(run)
    loading = load or (lambda: load_run(directory, checkpoint, device=device))
    source = ReportSource(
        directory, loading, data_dir=data_dir, labels=labels, num_examples=num_examples, seed=seed
    )
    _ = source.labels  # what is wrong with them is found before the work
    sections: list[Section] = []
    for number, make in enumerate(SECTIONS, start=1):
        if report is not None:
            report(make.__name__.replace("_", " "), number, len(SECTIONS))
        section = make(source)
        if section is not None:
            sections.append(section)
    return _TEMPLATES.get_template("page.html.j2").render(
        source=source,
        sections=sections,
        style=files("discrete_vae.report").joinpath("style.css").read_text(encoding="utf-8"),
        version=__version__,
    )


_KEPT = "\n\t\N{NO-BREAK SPACE}"  # of the characters that a page could not show


def _finalize(value: object) -> object:
    """Escape control characters of all that is shown; HTML is escaped by the template itself."""
    return value if hasattr(value, "__html__") else printable(str(value), keep=_KEPT)


_TEMPLATES = Environment(
    loader=PackageLoader("discrete_vae.report", ""),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
    finalize=_finalize,
)
_TEMPLATES.filters |= {each.__name__: each for each in (shown, percent, error_digits, plus_minus)}
