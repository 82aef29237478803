"""The entry point: help, usage errors, exit statuses; a few through the installed command."""

import errno
import subprocess
import sys
import warnings

import pytest

from discrete_vae import cli
from discrete_vae.errors import InvalidInputError, NonFiniteLossError

VERBS = ("list", "validate", "train", "evaluate")


def installed(*words, **keywords):
    """The command as a process of its own, from another folder than the repository."""
    return subprocess.run(
        [sys.executable, "-m", "discrete_vae", *words],
        capture_output=True,
        text=True,
        check=False,
        **keywords,
    )


@pytest.mark.parametrize("words", [["--help"], ["--version"], *([verb, "--help"] for verb in VERBS)])
def test_help_exits_0(words, capsys):
    assert cli.main(words) == 0
    assert capsys.readouterr().out.startswith(("usage: dvae", "dvae "))


def test_help_names_every_verb_and_how_to_start(capsys):
    cli.main(["--help"])
    out = capsys.readouterr().out
    assert all(f"    {verb} " in out for verb in VERBS)
    assert "dvae train digits" in out


def test_no_words_show_the_help_and_exit_2(capsys):
    assert cli.main([]) == 2
    assert "verbs:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    ["['--help']", "['train', '--help']", "['list']", "['train', 'digits', '--settings']", "['frob']"],
)
def test_torch_is_imported_only_when_a_verb_needs_it(words):
    code = f"import sys; from discrete_vae.cli import main; main({words}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("frobnicate", "VERB must be one of list, validate, "),
        ("trian digits", "received 'trian'. Did you mean train?"),
        ("evaluate", "RUN must be given; received nothing. See dvae evaluate --help."),
        ("evaluate RUN --num-samples", "--num-samples must be followed by a value; received nothing."),
        ("evaluate RUN --num-samples 0", "--num-samples must be a whole number of at least 1; received '0'."),
        (
            "evaluate RUN --num-examples 1e3",
            "--num-examples must be a whole number of at least 1; received '1e3'.",
        ),
        ("evaluate RUN --seed -1", "--seed must be a whole number of at least 0; received '-1'."),
        (
            "evaluate RUN --num-sample 3",
            "must be an option of dvae evaluate; received an unknown name. Did you mean --num-samples?",
        ),
        ("evaluate RUN other", "dvae evaluate takes no further word; received 'other'."),
        ("evaluate RUN --model.smoothing ramps", "--model.smoothing must be an option of dvae evaluate;"),
        ("train digits --size huge", "--size must be one of smoke, short, paper; received 'huge'."),
        ("train digits --size smok", "Did you mean smoke?"),
        ("train digits --num-epochs 3", "Did you mean --training.num-epochs?"),
        ("train digits --qqq 3", "Add --settings to list them all."),
        ("train digits --resume=yes", "--resume takes no value; received 'yes'."),
    ],
)
def test_usage_errors_are_one_line_in_the_houses_form(words, message, capsys):
    assert cli.main(words.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (InvalidInputError("x", "must be y", "z", "Do it."), 2, "error: x must be y; received z. Do it."),
        (NonFiniteLossError(9, "kl_discrete", float("nan"), 7), 1, "error: kl_discrete is nan at step 9"),
        (
            OSError(errno.ENOSPC, "No space left on device", "runs/a"),
            2,
            "runs/a must be usable; received No space",
        ),
        (KeyboardInterrupt(), 130, "Interrupted."),
    ],
)
def test_exit_statuses(monkeypatch, capsys, error, status, message):
    from discrete_vae.commands import listing

    def fail(arguments, overrides):
        raise error

    monkeypatch.setattr(listing, "run_list", fail)
    assert cli.main(["list"]) == status
    assert message in capsys.readouterr().err


def test_warnings_are_one_line(monkeypatch, capsys):
    from discrete_vae.commands import listing

    def warn(arguments, overrides):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("the chains may not know all modes.", UserWarning, stacklevel=1)
        return 0

    monkeypatch.setattr(listing, "run_list", warn)
    assert cli.main(["list"]) == 0
    assert capsys.readouterr().err == "warning: the chains may not know all modes.\n"


def test_the_command_runs_as_a_process(tmp_path):
    done = installed("list", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mnist-static-rbm128" in done.stdout


def test_a_wrong_word_ends_the_process_with_2_and_no_traceback(tmp_path):
    done = installed("validate", "dogits", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: experiment must be one of digits")
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_stops_early_is_no_error():
    process = subprocess.Popen(
        [sys.executable, "-m", "discrete_vae", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() in {0, 141}


def test_the_script_of_the_package_is_the_entry_point():
    from importlib.metadata import entry_points

    found = [entry for entry in entry_points(group="console_scripts") if entry.name == "dvae"]
    if not found:
        pytest.skip("the package runs from its source, without its metadata")
    assert found[0].value == "discrete_vae.cli:entry_point"
