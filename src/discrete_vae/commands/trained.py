"""What the verbs for a trained run share: how it is named and loaded, and what is said of its config."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

import click

from discrete_vae.commands.options import SEED, accept_changed_config_option, device_option, together
from discrete_vae.errors import InvalidInputError

if TYPE_CHECKING:
    from discrete_vae.training.load import LoadedRun

EXPLAINED = "RUN is the folder of a run, as dvae train names it."
takes_run = together(
    click.argument("run"),
    click.option(
        "--checkpoint",
        default="best",
        metavar="best|last|STEP",
        help="which checkpoint; default: best, by validation ELBO",
    ),
    click.option("--seed", type=SEED, metavar="S", help="seed of the noise; default: 0"),
    device_option,
    accept_changed_config_option,
)


def parse_checkpoint(text: str) -> int | Literal["best", "last"]:
    """A checkpoint's name on the command line: best, last or a step.

    Raises:
        InvalidInputError: If it is none of them.
    """
    if text == "best" or text == "last":  # noqa: PLR1714, RUF100 (a set would hide the type)
        return text
    if not re.fullmatch(r"[0-9]{1,18}", text):
        received = repr(text)[:80]
        raise InvalidInputError("--checkpoint", "must be best, last or a step", received, "Use best.")
    return int(text)


def changed_config(loaded: LoadedRun) -> dict[str, Any]:
    """What a result says of a config.json that has changed since training; empty if it has not."""
    return {} if loaded.changed_config is None else {"changed_config": asdict(loaded.changed_config)}


def picture_note(loaded: LoadedRun) -> str | None:
    """The same for the metadata of a picture."""
    return None if loaded.changed_config is None else str(loaded.changed_config)
