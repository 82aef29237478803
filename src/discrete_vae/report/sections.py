"""The sections of the page, in its order."""

from __future__ import annotations

from collections.abc import Callable

from discrete_vae.report.bound import bound
from discrete_vae.report.chains import chains
from discrete_vae.report.course import course
from discrete_vae.report.flips import flips
from discrete_vae.report.headline import headline
from discrete_vae.report.log_partition import log_partition
from discrete_vae.report.modes import modes
from discrete_vae.report.reconstructions import reconstructions
from discrete_vae.report.reproduce import reproduce
from discrete_vae.report.samples import samples
from discrete_vae.report.section import Section
from discrete_vae.report.settings import config, environment
from discrete_vae.report.source import ReportSource
from discrete_vae.report.usage import usage

SECTIONS: tuple[Callable[[ReportSource], Section | None], ...] = (
    headline,
    course,
    bound,
    samples,
    reconstructions,
    flips,
    usage,
    modes,
    chains,
    log_partition,
    reproduce,
    config,
    environment,
)
"""What makes each section; the order is that of the page, and of the draws from the chains."""
