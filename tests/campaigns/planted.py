"""A campaign of planted faults, each of which must be counted as what it is."""

import os
import time

from tests.campaigns.engine import Campaign, Finding, Outcome, refusal
from tests.campaigns.forked import call
from tests.campaigns.tiny_runs import difference, prepare

EXPECTED = [Outcome.CRASHED] * 5 + [Outcome.REFUSED, Outcome.WRONG, Outcome.EQUAL]


def _break_the_parser():
    from discrete_vae.cli import options

    options.VERBS["list"] = ("listing:no_such_function", "")


@Campaign("planted", "planted faults", bounded=8, long=8, prepare=prepare, limit=3.0)
def case(stage, chosen, number, folder):
    """A crash, a hang and an exception of the case; a crash, a wrong and a right refusal of a command; two runs."""
    if number == 0:
        os.abort()
    if number == 1:
        time.sleep(60)
    if number == 2:
        raise RuntimeError("planted")
    if number in (3, 4, 5):
        planted = {3: os.abort, 4: _break_the_parser, 5: None}[number]
        return refusal(call(["list"] if number == 4 else ["train", "--bogus"], first=planted))
    run = stage.other if number == 6 else stage.unbroken
    return Finding(Outcome.EQUAL if difference(run, stage.unbroken) is None else Outcome.WRONG)
