import json
import subprocess
from importlib.metadata import version
from pathlib import Path

import torch

import discrete_vae
from discrete_vae.runs import run_directory
from discrete_vae.runs.run_directory import describe_environment


def test_it_holds_versions_seed_and_device():
    described = describe_environment(seed=11, device="cpu")
    assert described["discrete_vae"] == discrete_vae.__version__
    assert described["packages"]["torch"] == version("torch")
    assert described["seed"] == 11
    assert described["device"] == {"type": "cpu"}
    assert described["platform"]["torch_threads"] == torch.get_num_threads()
    assert described["platform"]["vector_instructions"] == torch.backends.cpu.get_cpu_capability()
    assert json.loads(json.dumps(described, allow_nan=False)) == described


def test_the_processor_has_a_name(monkeypatch):
    assert describe_environment(seed=0, device="cpu")["platform"]["processor"]

    def unreadable(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", unreadable)
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert run_directory._processor() == "x86_64"


def git(folder, *arguments):
    identity = ["-c", "user.name=n", "-c", "user.email=e"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_is_that_of_the_checkout_that_tracks_the_package(tmp_path):
    file = tmp_path / Path(run_directory.__file__).name
    file.write_text("1")
    git(tmp_path, "init", "-q")
    assert (
        run_directory._commit(tmp_path) is None
    )  # not tracked: the package lies in somebody else's checkout
    git(tmp_path, "add", file.name)
    git(tmp_path, "commit", "-qm", "one")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert run_directory._commit(tmp_path) == {"hash": head, "modified": False}
    file.write_text("2")
    assert run_directory._commit(tmp_path) == {"hash": head, "modified": True}


def test_without_git_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert describe_environment(seed=0, device="cpu")["commit"] is None
