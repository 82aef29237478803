"""Several processes that talk to each other, as torchrun starts them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def plain_processes(command, number=2):
    """What torchrun does, without its own process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(number)}
    return [([sys.executable, *command], address | {"RANK": str(rank)}) for rank in range(number)]


def torchrun(command, number=2):
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={number}", "--standalone"]
    return [([*launcher, *command], {})]


def start(launch, command, number=2):
    """Start them; this repository's source and tests are what they import."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    quiet = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            words, env=os.environ | quiet | address, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for words, address in launch(command, number)
    ]
