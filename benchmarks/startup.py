"""What the first call costs: with an empty cache of compiled code, and with a full one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from results import table

CODE = """
import json, time, torch
from discrete_vae import RBM
from discrete_vae.kernels.gibbs import run_sweeps

def first(**options):
    wall, cpu = time.perf_counter(), time.process_time()
    run_sweeps(RBM(5, 4), torch.zeros(4, 9), 1, key=1, first_sweep=1, **options)
    return time.perf_counter() - wall, time.process_time() - cpu

plain = first()
other = first(inverse_temperature=torch.ones(4), clamped=torch.ones(9).bool())
print(json.dumps([plain, other]))
"""


def startup_table() -> str:
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for name in ("empty cache", "full cache"):
            environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
            done = subprocess.run(
                [sys.executable, "-c", CODE], env=environment, stdout=subprocess.PIPE, text=True, check=True
            )
            (wall, cpu), (other, _) = json.loads(done.stdout)
            rows.append([name, f"{wall:.2f}", f"{cpu:.2f}", f"{other:.3f}"])
    return table(
        ["first call of a process", "seconds", "of processor time", "tempered and clamped after it"], rows
    )
