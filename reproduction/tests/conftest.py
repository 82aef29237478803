"""The command, run in this process."""

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
