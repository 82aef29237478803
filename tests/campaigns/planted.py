"""A campaign of planted faults, each of which must be counted as what it is."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from tests.campaigns.engine import Finding, Outcome, campaign
from tests.campaigns.forked import call, refusal_fault
from tests.campaigns.tiny_runs import Stage, difference, prepare

EXPECTED = [Outcome.CRASHED] * 5 + [Outcome.REFUSED, Outcome.WRONG, Outcome.EQUAL]


def _break_the_parser() -> None:
    from discrete_vae.cli import options

    options.VERBS["list"] = ("listing:no_such_function", "")


@campaign("planted", "planted faults", bounded=8, long=8, prepare=prepare, limit=3.0)
def case(stage: Stage, chosen: random.Random, number: int, folder: Path) -> Finding:
    """A crash, a hang and an exception of the case; a crash, a wrong and a right refusal of a command; two runs."""
    if number == 0:
        os.abort()
    if number == 1:
        time.sleep(60)
    if number == 2:
        raise RuntimeError("planted")
    if number in (3, 4, 5):
        planted = {3: os.abort, 4: _break_the_parser, 5: None}[number]
        ended = call(["list"] if number == 4 else ["train", "--bogus"], first=planted)
        wrong = refusal_fault(ended)
        return Finding(Outcome.REFUSED) if wrong is None else Finding(Outcome.CRASHED, wrong)
    run = stage.other if number == 6 else stage.unbroken
    return Finding(Outcome.EQUAL if difference(run, stage.unbroken) is None else Outcome.WRONG)
