"""The command, run in this process."""

import pytest

from reproduction.__main__ import main


@pytest.fixture
def cli(capsys):
    """Run the command; returns its status, its output and what it wrote on standard error."""

    def run(*words):
        status = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return status, out, err

    return run
