"""What holds for all tests: which examples are collected, and how threads and the garbage collector work."""

import gc
import os
from importlib.util import find_spec

# Read where torch is imported, here and in processes that tests start: a thread that waits leaves its core to others.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Examples of modules that need what is not installed everywhere are not collected where it is missing.
collect_ignore = [] if find_spec("triton") else ["src/discrete_vae/kernels/gibbs_triton.py"]

# What is imported and collected stays for good: the garbage collector need not look through it again and again.
gc.disable()


def pytest_collection_finish(session):
    """Look from now on at what is new alone, and less often: most tests leave hardly any garbage."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


def pytest_unconfigure(config):
    """Let what was kept for good go, so that libraries that count what they leave behind find nothing at the exit."""
    gc.unfreeze()
    gc.collect()
