"""Kill -9 of the command as a user runs it; the campaign of kills covers every moment, in forked processes."""

import os
import random
import subprocess
import sys
import time

import pytest

from tests.campaigns.tiny_runs import difference, train_words


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_ten_kills_of_the_command_at_random_times(data_file, tmp_path):
    """Threads included; each kill comes up to a second after training began."""
    choose, run, unbroken, hits = random.Random(1), tmp_path / "run", tmp_path / "unbroken", 0
    dvae = [sys.executable, "-m", "discrete_vae"]
    subprocess.run([*dvae, *train_words(data_file, unbroken)], capture_output=True, check=True)
    for _ in range(10):
        process = subprocess.Popen(
            [*dvae, *train_words(data_file, run)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        process.stderr.readline()  # its first line: training begins
        time.sleep(choose.uniform(0.0, 1.0))
        process.kill()
        process.stderr.close()
        hits += process.wait() == -9
    assert hits >= 3
    done = subprocess.run([*dvae, *train_words(data_file, run)], capture_output=True, check=False)
    assert done.returncode == 0
    assert difference(run, unbroken) is None
