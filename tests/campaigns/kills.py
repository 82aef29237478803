"""Commands are killed, interrupted or ended at any operation on a file and at any time; then they are given again."""

import ctypes
import shutil
import signal

from discrete_vae import DiscreteVAE
from discrete_vae.runs.io import remove_temporaries
from tests.campaigns.engine import Campaign, Finding, Outcome
from tests.campaigns.forked import call
from tests.campaigns.tiny_runs import (
    WRITTEN_BY_READERS,
    kill_at,
    make_run,
    prepare,
    read_again,
    reader_words,
    results,
    snapshot,
    succeed,
    trained_in_spite_of,
    words_of,
    written_by,
)

_MAX_OPERATIONS = 110  # of the run from its first to its last
_SECONDS = 0.3  # about what the run takes
_STOPPED = {signal.SIGKILL: (-9,), signal.SIGINT: (130,), signal.SIGTERM: (-15, 130, 143)}


@Campaign(
    "kills",
    "training, evaluation or sampling stopped by SIGKILL, SIGINT or SIGTERM, then begun again",
    bounded=4,
    long=320,
    prepare=prepare,
)
def kills(stage, chosen, number, folder):
    """Every fourth case stops a reader. The even ones go through all operations of a run, one after the other."""
    if number % 4 == 3:
        return _stop_reader(stage, chosen, folder)
    run = folder / "run"
    kind = chosen.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
    moments = [_moment(run, chosen, kind, _MAX_OPERATIONS, _SECONDS) for _ in range(chosen.randint(1, 4))]
    if number % 2 == 0:
        kind, moments = signal.SIGKILL, [{"first": kill_at(run, number // 2 % _MAX_OPERATIONS + 1)}]
    return trained_in_spite_of(stage, run, moments, lambda ended: ended.status not in _STOPPED[kind])


def _moment(place, chosen, kind, operations, seconds):
    """When to send a signal, as arguments of `call`: before an operation on a file of a place, or at a time."""
    if chosen.random() < 0.5:
        return {"first": kill_at(place, chosen.randint(1, operations), kind)}
    return {"stop": (chosen.uniform(0.01, seconds), kind)}


def _stop_reader(stage, chosen, folder):
    """A reader loses nothing, and the next one finds what it would have found."""
    verb = chosen.choice(["evaluate", "sample", "log-partition"])
    stage.found(verb, stage.best)  # an earlier result is there
    run = shutil.copytree(stage.unbroken, folder / "run")
    kind = chosen.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
    before = snapshot(run, without=WRITTEN_BY_READERS)
    stopped = call(reader_words(verb, run, folder), **_moment(folder, chosen, kind, 12, 0.15))
    if stopped.status not in (0, *_STOPPED[kind]):
        return Finding(Outcome.CRASHED, str(stopped))
    if snapshot(run, without=WRITTEN_BY_READERS) != before:
        return Finding(Outcome.LOST, str(stopped))
    return read_again(stage, verb, run, folder, stopped)


# A verb that writes where the user says is killed, and then given again.


# Operations on files of the place where the result goes, and about the seconds that the verb takes.
_WRITERS = {
    "encode": (5, 0.2),
    "impute": (10, 0.3),
    "figure": (10, 0.5),
    "refit": (42, 0.6),
    "release": (90, 0.5),
    "save_pretrained": (25, 0.1),
}


def _carry_out(verb, stage, out, **moment):
    if verb == "save_pretrained":
        return call([verb, str(stage.run), str(out / "model")], main=_save, **moment)
    return call(words_of(verb, stage, out), **moment)


def _save(words):
    DiscreteVAE.from_pretrained(words[1]).save_pretrained(words[2])
    return 0


def _writing(folder):
    """A run and its files, and what undisturbed verbs write, by verb."""
    stage, found = make_run(folder, lambda words: succeed(call(words, limit=120.0))), {}
    for verb in _WRITERS:
        out = folder / verb
        out.mkdir()
        succeed(_carry_out(verb, stage, out))
        found[verb] = results("", out)
    return stage, found


@Campaign(
    "killed-verbs",
    "refit, release, save_pretrained, encode, impute or a figure killed by SIGKILL, then given again",
    bounded=6,
    long=360,
    prepare=_writing,
)
def killed_verbs(writing, chosen, number, folder):
    """Kill a verb once to three times; where another result was before, it or the new one is there at any moment."""
    stage, found = writing
    verb = list(_WRITERS)[number % len(_WRITERS)]
    operations, seconds = _WRITERS[verb]
    before = _put_before(verb, stage, folder, chosen)
    history, struck = [], False
    for _ in range(chosen.randint(1, 3)):
        moment = {"stop": (chosen.uniform(0.005, seconds), signal.SIGKILL)}
        if chosen.random() < 0.7:
            moment = {"first": _first(kill_at(folder, chosen.randint(1, operations)), chosen.random() < 0.3)}
        history.append(_carry_out(verb, stage, folder, **moment))
        struck |= history[-1].status != 0
        if history[-1].status not in (0, -signal.SIGKILL):
            return Finding(Outcome.CRASHED, "\n".join(map(str, history)))
        if before is not None and not _is_whole(folder, before, found[verb]):
            return Finding(Outcome.LOST, f"{sorted(snapshot(folder))}\n{history[-1]}")
    history.append(_carry_out(verb, stage, folder))
    if history[-1].status != 0:
        return Finding(Outcome.CRASHED, "\n".join(map(str, history)))
    left = [str(path) for path in folder.rglob(".tmp-*")]
    if left or results("", folder) != found[verb]:
        return Finding(Outcome.WRONG, f"left: {left}\n" + "\n".join(map(str, history)))
    return Finding(Outcome.EQUAL, struck=struck)


def _no_library(*_):
    """Say what a system without the library says; others than dvae, torch for one, ask for libraries too."""
    raise OSError("no such library")


def _first(kill, no_exchange):
    """Plant the kill; at times on a system that cannot exchange the names of two folders."""

    def first():
        if no_exchange:
            ctypes.CDLL = _no_library
        kill()

    return first


def _put_before(verb, stage, folder, chosen):
    """Put an earlier result there, or an empty folder where no result may give way."""
    if chosen.random() < 0.3:
        return None
    if verb in ("refit", "release"):
        written_by(verb, folder).mkdir()
        return None
    if verb == "save_pretrained":
        model = DiscreteVAE.from_pretrained(stage.run)
        model.prior.bias.data.add_(1.0)
        model.save_pretrained(folder / "model")
    else:
        written_by(verb, folder).write_bytes(b"an earlier result")
    return results("", folder)


def _is_whole(folder, before, after):
    """Whether the earlier result is there or the new one, after what a load brings back."""
    remove_temporaries(folder, of_others=True)
    written = results("", folder)
    return any(all(written.get(name) == one[name] for name in before) for one in (before, after))
