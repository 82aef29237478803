"""Several processes that talk to each other, as torchrun starts them.

`python -m tests.processes -m MODULE FOLDER` imports a module once and forks two that call its `main`.
"""

import importlib
import os
import socket
import subprocess
import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def forked(command):
    """What torchrun does, with one import for both processes; prints their exit statuses."""
    return [([sys.executable, "-m", "tests.processes", *command], {})]


def torchrun(command):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    return [([*launcher, *command], {})]


def start(launch, command):
    """Start them; this repository's source and tests are what they import."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    quiet = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            words, env=os.environ | quiet | address, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for words, address in launch(command)
    ]


def main(module, folder):
    work = importlib.import_module(module).main
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    children = []
    for rank in range(2):
        children.append(os.fork())
        if children[-1] == 0:
            os.environ["RANK"] = str(rank)
            try:
                work(Path(folder))
            except BaseException:
                traceback.print_exc()
            os._exit(1)  # the work ends its process itself
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(*statuses)
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[2:]))
