"""The entry point: help, usage errors, exit statuses; a few through the installed command."""

import errno
import io
import os
import subprocess
import sys
import tempfile
import warnings
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from rich.console import Console

from discrete_vae import cli
from discrete_vae.cli import train
from discrete_vae.cli.options import GROUPS, VERBS
from discrete_vae.errors import InvalidInputError, NonFiniteLossError


def installed(*words, **settings):
    """The command as a process of its own."""
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "check": False} | settings
    return subprocess.run([sys.executable, "-m", "discrete_vae", *words], **settings)


def test_help_exits_0_and_names_every_verb_and_status(capsys):
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(VERBS)
    helps = [[], ["-h"], ["help"], ["--help"]]
    for words in (*helps, ["--version"], ["-V"], ["help", "list"], ["list", "--help"]):
        assert cli.main(words) == 0
        out = capsys.readouterr().out
        assert out.startswith(("Usage: dvae", "dvae "))
        if words in helps:
            assert all(f"\n  {verb} " in out for verb in VERBS)
            statuses = " ".join(out.split()).partition("Exit status:")[2]
            assert all(f" {status} " in statuses for status in ("0", "1", "2", "70", "130", "143"))
        assert ("Usage: dvae list" in out) == ("list" in words)


def test_a_shell_gets_its_script_of_completion(monkeypatch, capsys):
    for shell in ("bash", "zsh", "fish"):
        monkeypatch.setenv("_DVAE_COMPLETE", f"{shell}_source")
        assert cli.main([]) == 0
        assert f"_DVAE_COMPLETE={shell}_complete" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("dvae ", set(VERBS)),
        ("dvae tr", {"train"}),
        ("dvae frobnicate ", set()),  # is no error
        ("dvae train --si", {"--size"}),
        ("dvae train --size ", {"smoke", "short", "cpu", "paper"}),
        ("dvae train --data x.npy --model.likelihood gaussian --ru", {"--run-dir"}),
        ("dvae train dig", {"digits"}),
        ("dvae list m", {"models"}),
        ("dvae evaluate --pretrained dig", {"digits"}),
        ("dvae figure evo", {"evolution"}),
        ("dvae evaluate ru", {"ru"}),  # with its kind, a folder
        ("dvae score runs/a --out ", {""}),
    ],
)
def test_a_shell_is_told_what_may_follow(words, found, monkeypatch, capsys):
    monkeypatch.setenv("_DVAE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    assert cli.main([]) == 0
    told = {line.partition(",")[2] for line in capsys.readouterr().out.splitlines()}
    assert found <= told
    assert len(found) == len(told) or not found


UNNEEDED = """
import sys
import discrete_vae.checks, discrete_vae.config
from discrete_vae.cli import main

words = (["--help"], ["train", "--help"], ["list"], ["figure"], ["train", "digits", "--settings"], ["frob"])
for each in words:
    main(each)
assert "torch" not in sys.modules
import discrete_vae
discrete_vae.load_dataset("digits")
assert "sklearn" not in sys.modules
few = ["--num-examples", "2", "--num-samples", "2"]
assert main(["evaluate", "--pretrained", "digits", *few, "--out", "x.json"]) == 0
assert not any(name.startswith("discrete_vae.training") for name in sys.modules)
"""


def test_what_is_not_needed_is_not_imported(tmp_path):
    """No torch by configs and verbs without it, no scikit-learn by the digits, no training by evaluation."""
    done = subprocess.run([sys.executable, "-c", UNNEEDED], capture_output=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x.json").exists()


def test_training_says_what_it_does_before_torch_is_imported(tmp_path):
    """A process whose torch cannot be imported comes as far as the line."""
    (tmp_path / "torch.py").write_text("raise SystemExit(7)\n")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths}
    done = installed("train", "digits", "--size", "smoke", cwd=tmp_path, env=environment)
    said = "Training digits, size smoke; results go to runs/digits-smoke\n"
    assert (done.returncode, done.stderr) == (7, said)


NO_SPACE = (errno.ENOSPC, "No space left on device")
ERRORS = [
    (InvalidInputError("x", "must be y", "z", "Do it."), 2, "error: x must be y; received z. Do it."),
    (InvalidInputError("\x1b]0;x\x07", "must\nbe", "z", "Do."), 2, "error: \\x1b]0;x\\x07 must\\nbe;"),
    (NonFiniteLossError(9, "kl_discrete", float("nan"), 7), 1, "error: kl_discrete is nan at step 9"),
    (OSError(*NO_SPACE, "runs/a"), 2, "error: runs/a must be usable; received No"),
    (OSError(*NO_SPACE), 2, "error: Standard output, or the disk, must be usable"),
    (MemoryError(), 2, "error: This command must fit this machine's memory"),
    (RuntimeError("CUDA out of memory. Tried 2 GiB"), 2, "error: This command must fit this machine's"),
    (KeyboardInterrupt(), 130, "Interrupted."),
]


@pytest.mark.parametrize(("error", "status", "message"), ERRORS)
def test_exit_statuses(listing_does, capsys, error, status, message):
    listing_does(error)
    assert cli.main(["list"]) == status
    assert capsys.readouterr().err.startswith(message)


@pytest.mark.parametrize("optimize", ["0", "2"])  # 2 leaves docstrings out
def test_the_command_runs_as_a_process(tmp_path, optimize):
    environment = os.environ | {"PYTHONOPTIMIZE": optimize, "PYTHONDONTWRITEBYTECODE": "1"}
    done = installed("list", cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mnist-static-rbm128" in done.stdout


def test_the_script_of_the_package_is_the_entry_point():
    found = [entry.value for entry in entry_points(group="console_scripts") if entry.name == "dvae"]
    if not found:
        pytest.skip("the package runs from its source, without its metadata")
    assert found == ["discrete_vae.cli:entry_point"]


def test_a_reader_that_stops_early_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    done = installed("list", stdout=writing)
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode in {0, 141}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_behind_the_output_is_one_line():
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = installed("list", stdout=full, env=environment)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith("error: Standard output, or the disk, must be usable; received No space")


@pytest.fixture
def listing_does(monkeypatch):
    """Let `dvae list` do something else, or fail with an error."""

    def install(action):
        def fail(**_):
            raise action

        monkeypatch.setattr(train.run_list, "callback", fail if isinstance(action, BaseException) else action)

    return install


@pytest.mark.parametrize(
    "error",
    [
        TypeError("unhashable type: 'dict'\n  in two lines"),
        RecursionError("maximum recursion depth exceeded"),
        KeyError("x\x1b[2J"),
        RuntimeError("y" * 5000),
        UnicodeEncodeError("ascii", "\udcff", 0, 1, "ordinal not in range(128)"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_nobody_foresaw_is_a_line_and_a_report(listing_does, monkeypatch, tmp_path, capsys, error):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    listing_does(error)
    assert cli.main(["list"]) == 70
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines()), "\x1b" in err) == ("", 1, False)
    assert len(err) < 700
    assert err.startswith(f"error: dvae list must not end like this; received {type(error).__name__}: ")
    (file,) = tmp_path.iterdir()
    assert f"please report it with the file {file}." in err
    report = file.read_text()
    assert "Traceback (most recent call last):" in report
    assert "command line: ['list']" in report


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.filterwarnings("always")
def test_nothing_that_a_file_is_called_moves_the_terminal(listing_does, capsys, stream):
    def say(**_):
        print("a\x1b[2J\x9b1m\u202e\rb\tζ", file=getattr(sys, stream))
        warnings.warn("c\x07", stacklevel=1)
        Console(file=sys.stderr, force_terminal=True, color_system="standard").print("[red]bar", end="")

    listing_does(say)
    assert not cli.main(["list"])
    out, err = capsys.readouterr()
    assert "a\\x1b[2J\\x9b1m\\u202e\\rb\tζ\n" in (out if stream == "stdout" else err)
    assert "warning: c\\x07\n" in err
    assert err.endswith("\x1b[31mbar\x1b[0m")  # bars go on to move


def test_letters_that_the_output_lacks_are_escaped(listing_does, monkeypatch):
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", output)
    listing_does(lambda **_: print("\N{GREEK SMALL LETTER ZETA}, runs/\udcff") or 0)
    assert cli.main(["list"]) == 0
    assert output.buffer.getvalue() == b"\\u03b6, runs/\\udcff\n"
    assert output.errors == "strict"


@pytest.mark.parametrize("closed", [["stdout"], ["stderr"], ["stdout", "stderr"]])
def test_closed_streams_are_no_error(listing_does, monkeypatch, capsys, closed):
    for stream in closed:
        monkeypatch.setattr(sys, stream, None)
    assert cli.main(["list"]) == 0
    assert cli.main(["lst"]) == 2
    listing_does(OSError(errno.ENOSPC, "No space left on device"))
    assert cli.main(["list"]) == 2
    assert "error: " not in capsys.readouterr().out


def test_only_the_first_process_warns(listing_does, monkeypatch, capsys):
    def warn(**_):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("the chains may not know all modes.", UserWarning, stacklevel=1)
        return 0

    listing_does(warn)
    monkeypatch.setenv("WORLD_SIZE", "2")
    printed = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        assert cli.main(["list"]) == 0
        printed.append(capsys.readouterr().err)
    assert printed[0].endswith("warning: the chains may not know all modes.\n")
    assert printed[1] == ""
