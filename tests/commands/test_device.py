"""Where a command computes: what --device takes, among several processes too, and that it is said and kept."""

import json
import os
import subprocess
import sys

import pytest
import torch

from discrete_vae.cli.options import choose_device
from discrete_vae.errors import InvalidInputError
from discrete_vae.system import computing_on
from tests.commands.test_train import forget_after


@pytest.fixture
def machine(monkeypatch):
    """A machine with so many CUDA devices, as torch tells of them; returns which became current."""

    def make(count):
        current = []
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "set_device", current.append)
        monkeypatch.delenv("LOCAL_RANK", raising=False)
        return current

    return make


@pytest.mark.parametrize(
    ("count", "text", "local_rank", "expected"),
    [
        (0, "auto", None, "cpu"),
        (0, "auto", "3", "cpu"),
        (2, "auto", None, "cuda:0"),
        (2, "auto", "1", "cuda:1"),
        (2, "cuda", None, "cuda:0"),
        (2, "cuda", "1", "cuda:1"),
        (2, "cuda:1", "0", "cuda:1"),
        (2, "cpu", "1", "cpu"),
    ],
)
def test_the_device_of_each_word(machine, monkeypatch, count, text, local_rank, expected):
    current = machine(count)
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    device = choose_device(text)
    assert device == torch.device(expected)
    assert current == ([] if device.type == "cpu" else [device.index])


@pytest.mark.parametrize(
    ("count", "text", "local_rank", "argument"),
    [
        (0, "cuda", None, "--device"),
        (1, "cuda:1", None, "--device"),
        (2, "auto", "2", "--device"),
        (1, "cuda", "1", "--device"),
        (2, "cuda", "first", "LOCAL_RANK"),
        (2, "gpu", None, "--device"),
        (2, "cuda:-1", None, "--device"),
        (2, "", None, "--device"),
    ],
)
def test_what_is_not_there_is_refused(machine, monkeypatch, count, text, local_rank, argument):
    machine(count)
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    with pytest.raises(InvalidInputError) as caught:
        choose_device(text)
    assert caught.value.argument == argument


@pytest.mark.filterwarnings("ignore")
def test_a_verb_for_a_run_says_where_it_computes(cli, machine, trained):
    machine(0)
    status, _, err = cli("sample", trained, "--num-rows", "2")
    assert (status, err.splitlines()[0]) == (0, computing_on(torch.device("cpu")))


def test_a_run_that_goes_on_elsewhere_says_so(done, trained):
    file = trained / "environment.json"
    environment = json.loads(file.read_text())
    assert environment["device"] == {"type": "cpu"}
    file.write_text(json.dumps(environment | {"device": {"type": "cuda", "name": "X"}}))
    forget_after(trained, 4)
    _, err = done("train", "--resume", "--run-dir", trained)
    assert "The run began on cuda and continues on cpu: equal up to rounding, not bit for bit." in err


@pytest.mark.filterwarnings("always:the run began with")
@pytest.mark.parametrize(
    ("part", "name", "before"),
    [
        ("platform", "processor", "Abacus"),
        ("platform", "instruction_settings", {"MKL_CBWR": "COMPATIBLE"}),
        ("packages", "torch", "0.1"),
    ],
)
def test_a_run_that_goes_on_where_sums_round_differently_says_so(cli, done, trained, part, name, before):
    file = trained / "environment.json"
    environment = json.loads(file.read_text())
    present = environment[part][name]
    environment[part][name] = before
    file.write_text(json.dumps(environment))
    assert cli("train", "--resume", "--run-dir", trained)[2].count("warning") == 0  # nothing is left to do
    forget_after(trained, 4)
    _, err = done("train", "--resume", "--run-dir", trained)
    (line,) = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert repr(before) in line
    assert repr(present) in line


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="there is one capability")
def test_the_capability_of_the_process_is_what_counts(trained):
    code = "import json, sys; from discrete_vae.runs.run_directory import other_rounding; "
    code += "print(other_rounding(json.load(sys.stdin)))"
    with (trained / "environment.json").open() as file:
        words = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"ATEN_CPU_CAPABILITY": "default"},
            stdin=file, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    assert "'DEFAULT'" in words
    assert repr(torch.backends.cpu.get_cpu_capability()) in words
