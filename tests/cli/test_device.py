"""Where a command computes: what --device takes, among several processes too, and that it is said and kept."""

import os
import subprocess
import sys

import pytest
import torch

from discrete_vae.cli.options import choose_device
from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.io import read_json, write_json
from tests.cli.conftest import forget_after


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
        (0, "auto", "3", "cpu"),
        (2, "auto", None, "cuda:0"),
        (2, "cuda", "1", "cuda:1"),
        (2, "cuda:1", "0", "cuda:1"),
        (2, "cpu", "1", "cpu"),
        (1, "cuda:1", None, "--device must"),
        (2, "auto", "2", "--device must"),
        (2, "cuda", "first", "LOCAL_RANK must"),
    ],
)
def test_the_device_of_each_word(machine, monkeypatch, count, text, local_rank, expected):
    current = machine(count)
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    if expected.endswith("must"):
        with pytest.raises(InvalidInputError, match=f"^{expected}"):
            choose_device(text)
        return
    device = choose_device(text)
    assert device == torch.device(expected)
    assert current == ([] if device.type == "cpu" else [device.index])


@pytest.mark.filterwarnings("always:the run began with")
@pytest.mark.parametrize(
    ("part", "name", "before"),
    [
        ("platform", "processor", "Abacus"),
        ("platform", "instruction_settings", {"MKL_CBWR": "COMPATIBLE"}),
        ("packages", "torch", "0.1"),
        ("device", "type", "cuda"),
    ],
)
def test_a_run_that_goes_on_where_sums_round_differently_says_so(cli, done, trained, part, name, before):
    file = trained / "environment.json"
    environment = read_json(file)
    present = environment[part][name]
    environment[part][name] = before
    write_json(file, environment)
    assert cli("train", "--resume", "--run-dir", trained)[2].count("warning") == 0  # nothing is left to do
    forget_after(trained, 4)
    _, err = done("train", "--resume", "--run-dir", trained)
    if name == "type":
        assert "The run began on cuda and continues on cpu: equal up to rounding, not bit for bit." in err
    else:
        (line,) = [line for line in err.splitlines() if line.startswith("warning: ")]
        assert repr(before) in line
        assert repr(present) in line


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="there is one capability")
def test_the_capability_of_the_process_is_what_counts(trained):
    code = "import json, sys; from discrete_vae.runs.run_directory import other_rounding; "
    code += f"print(other_rounding({read_json(trained / 'environment.json')!r}))"
    environment = os.environ | {"ATEN_CPU_CAPABILITY": "default"}
    words = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert "'DEFAULT'" in words
    assert repr(torch.backends.cpu.get_cpu_capability()) in words
