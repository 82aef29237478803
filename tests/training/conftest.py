"""The tiny run without anything special, trained once for all tests of a process."""

import pytest


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory):
    """The run, which no test may change, and what training returned."""
    from tests.training.tiny import start_run, train_quietly  # here: who hands out the tests computes nothing

    run = start_run(tmp_path_factory.mktemp("unbroken") / "run")
    return run, train_quietly(run)
