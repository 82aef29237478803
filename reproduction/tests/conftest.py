"""The command, run in this process, and a tiny run that is trained, evaluated and recorded."""

import warnings

import pytest


@pytest.fixture
def cli(capsys):
    """Run the command; returns its status, its output and what it wrote on standard error."""
    from reproduction.__main__ import main  # here: the process that hands out the tests computes nothing

    def run(*words):
        status = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return status, out, err

    return run


@pytest.fixture(scope="session")
def done_once(tmp_path_factory):
    """The folder of a complete sweep of one run, to be copied."""
    from reproduction.tests.made_up import completed

    folder = tmp_path_factory.mktemp("done")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the few importance samples
        completed(folder)
    return folder
