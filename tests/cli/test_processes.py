"""Every verb by two and three processes, whose result is that of one; and processes that do not find each other."""

import importlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from discrete_vae import distributed
from discrete_vae.distributed import process_group
from discrete_vae.errors import InvalidInputError, PeerLostError
from tests.campaigns.engine import warm_up
from tests.campaigns.forked import call, call_together
from tests.campaigns.processes import make_run, results, words_of
from tests.campaigns.tiny_runs import succeed
from tests.processes import start

NOWHERE = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "127.0.0.1"}


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


TRIED = ("evaluate", "encode", "generate")
"""Verbs of the three ways to share work; the campaign `processes` goes through all of them."""


def carry_out(folder):
    """Carry out verbs by one, two and three forked processes and one that waits, and print how they ended."""
    warm_up()
    importlib.import_module("sklearn.linear_model")  # once
    stage = make_run(folder, lambda words: succeed(call(words)))
    found = {}
    for verb in TRIED:
        for number in (1, 2, 3):
            (place := folder / verb / str(number)).mkdir(parents=True)
            ended = call_together(words_of(verb, stage, place), number)
            found[f"{verb} {number}"] = [vars(each) for each in ended]
    for name in ("here", "elsewhere"):
        (folder / name).mkdir()
    (folder / "elsewhere" / "out").touch()  # of which the first process makes a folder
    os.chdir(folder / "here")
    found["places"] = []
    for words in (
        "evaluate {} --num-samples 10 --out out/e.json",
        "encode {} --out out/c.npz --picture out/c.png",
    ):
        ended = call_together(
            words.format(stage.run).split(), 2, first=(1, lambda: os.chdir(folder / "elsewhere"))
        )
        found["places"] += [vars(each) for each in ended]
    nowhere = NOWHERE | {"MASTER_PORT": free_port()}
    words = ["encode", "--pretrained", "digits", "--out", str(folder / "x.npz")]
    found["signals"] = [  # after it has said what it waits for; more than 5 seconds are none
        vars(call(words, first=lambda: os.environ.update(nowhere), stop=("127.0.0.1", kind), limit=5))
        for kind in (signal.SIGINT, signal.SIGTERM)
    ]
    print(json.dumps(found))


@pytest.fixture(scope="module")
def carried_out(tmp_path_factory):
    """The folder of all results, and how the processes ended; forked by one that has a single thread."""
    folder = tmp_path_factory.mktemp("processes")
    process = start("-m", __name__, folder)
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return folder, json.loads(out)


@pytest.mark.parametrize("verb", TRIED)
@pytest.mark.parametrize("number", [2, 3])
def test_processes_give_the_result_of_one(carried_out, verb, number):
    folder, ended = carried_out
    (alone,), together = ended[f"{verb} 1"], ended[f"{verb} {number}"]
    assert [each["status"] for each in (alone, *together)] == [0] * (number + 1), together
    assert {each["out"] for each in together[1:]} == {""}
    places = [folder / verb / name for name in ("1", str(number))]
    expected, found = results(alone["out"], places[0]), results(together[0]["out"], places[1])
    assert found.keys() == expected.keys()
    for name, content in expected.items():
        assert found[name] == content, name


def test_the_first_process_alone_looks_where_results_go(carried_out):
    folder, ended = carried_out
    assert [each["status"] for each in ended["places"]] == [0] * 4, ended["places"]
    assert sorted(path.name for path in (folder / "here" / "out").iterdir()) == ["c.npz", "c.png", "e.json"]


def test_a_mistake_in_the_command_line_is_said_once_on_each_machine(cli, monkeypatch):
    for local, is_said in (("0", True), ("1", False)):
        for name, value in {"WORLD_SIZE": "2", "RANK": local, "LOCAL_RANK": local}.items():
            monkeypatch.setenv(name, value)
        status, out, err = cli("encode", "--num-examples", "none")
        assert (status, out, err != "") == (2, "", is_said)


def test_an_environment_that_does_not_fit(refused, monkeypatch, tmp_path):
    two = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost"}
    for named, environment in (
        *(("WORLD_SIZE", {"WORLD_SIZE": size}) for size in ("", "two", "0")),
        ("RANK", {"WORLD_SIZE": "2"}),
        ("RANK", two | {"RANK": "2"}),
        ("MASTER_ADDR", {"WORLD_SIZE": "2", "RANK": "0"}),
        ("MASTER_PORT", two),
        ("MASTER_PORT", two | {"MASTER_PORT": "65536"}),
    ):
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            error = refused("encode", "--pretrained", "digits", "--out", tmp_path / "x.npz")
            assert error.startswith(f"error: {named} must")
            if "MASTER" not in named:
                assert refused("cite").startswith(f"error: {named} must")


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ({}, InvalidInputError, "MASTER_ADDR:MASTER_PORT"),
        (
            {"TORCHELASTIC_USE_AGENT_STORE": "True"},
            PeerLostError,
            "torchrun",
        ),  # which holds the meeting place
    ],
)
def test_the_wait_for_others_has_an_end(monkeypatch, more, error, message):
    monkeypatch.setattr(distributed, "MEETING", 30.0 if more else 1.5)
    for name, value in (NOWHERE | more | {"MASTER_PORT": free_port()}).items():
        monkeypatch.setenv(name, value)
    begin = time.monotonic()
    with pytest.raises(error, match=message), process_group():
        pass
    assert time.monotonic() - begin < 10


def test_signals_end_the_wait_for_others_at_once(carried_out):
    waited = carried_out[1]["signals"]
    assert [each["status"] for each in waited] == [130, 143], waited


if __name__ == "__main__":
    carry_out(Path(sys.argv[1]))
