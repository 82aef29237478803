"""Verbs by several processes, one of which is killed, interrupted or ended; then the verb is begun again."""

import signal

from tests.campaigns.engine import Campaign, Finding, Outcome
from tests.campaigns.forked import call, call_together
from tests.campaigns.tiny_runs import (
    VERBS,
    WRITTEN_BY_READERS,
    difference,
    kill_at,
    make_run,
    results,
    snapshot,
    succeed,
    train_words,
    words_of,
)

# a command does not listen to SIGTERM yet, or not any more, while its process begins or ends
_STOPPED = {0, 1, 2, 130, 143, -signal.SIGKILL, -signal.SIGTERM}


def prepare(folder):
    """The runs that the cases start from, and a run by two processes."""
    stage, together = make_run(folder, lambda words: succeed(call(words, limit=120.0))), folder / "together"
    for ended in call_together(train_words(stage.data, together), 2):
        succeed(ended)
    return stage, together


@Campaign(
    "processes",
    "a verb by two processes, one of which is stopped by SIGKILL, SIGINT or SIGTERM, then begun again",
    bounded=4,
    long=160,
    prepare=prepare,
)
def processes(runs, chosen, number, folder):
    """Every fourth case stops training; the others go through the verbs."""
    stage, together = runs
    verb = "train" if number % 4 == 3 else list(VERBS)[number * 3 // 4 % len(VERBS)]
    history = []
    before = snapshot(stage.run, without=WRITTEN_BY_READERS)
    for attempt in ("stopped", "again", "more"):
        place = folder / ("run" if verb == "train" else attempt)
        words = _words(verb, stage, place)
        moment = _moment(place if verb == "train" else folder, chosen) if attempt == "stopped" else {}
        ended = call_together(words, 2, **moment)
        history += ended
        statuses = {each.status for each in ended}
        if not statuses <= (_STOPPED if moment else {0}) or "Traceback" in "".join(map(str, ended)):
            return Finding(Outcome.CRASHED, _shown(history))
        if statuses == {0}:
            break
    if snapshot(stage.run, without=WRITTEN_BY_READERS) != before:
        return Finding(Outcome.LOST, _shown(history))
    if verb == "train":
        differs = difference(place, together)
    else:
        alone = folder / "alone"
        history.append(call(_words(verb, stage, alone)))
        same = results(ended[0].out, place) == results(history[-1].out, alone)
        differs = None if same else "another result than that of one process"
    if differs is not None:
        return Finding(Outcome.WRONG, f"{_shown(history)}{differs}")
    return Finding(Outcome.EQUAL, struck=len(history) > 3)


def _words(verb, stage, place):
    if verb == "train":
        return train_words(stage.data, place)
    place.mkdir()
    return words_of(verb, stage, place)


def _moment(place, chosen):
    """Which process is sent which signal, before an operation on a file of a place or at a time."""
    rank, kind = chosen.choice([0, 0, 0, 1]), chosen.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
    if chosen.random() < 0.5:
        return {"first": (rank, kill_at(place, chosen.randint(1, 8), kind))}
    return {"stop": (rank, chosen.uniform(0.01, 0.3), kind)}


def _shown(history):
    return "\n".join(map(str, history))
