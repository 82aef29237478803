"""Speed of block Gibbs sampling on a GPU: the kernel in one launch against plain torch; says so where there is no GPU.

Writes a section of RESULTS.md beside this file.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import torch
from contest import HERE, Case
from results import describe_machine, table, write_section
from worker import machine

from discrete_vae import RBM
from discrete_vae.kernels import gibbs
from discrete_vae.kernels.gibbs import fair_coins, kernel_for, run_sweeps

CASES = [
    Case(num_left, num_left, num_chains=num_chains)
    for num_left in (64, 100, 128, 256)
    for num_chains in (100, 2000, 100_000)
]
EXPECTED = """A run is 100 sweeps in one call. Bound by the count of operations: an H100 starts 3.6·10¹¹ exponentials
per second (132 processors, 16 in each cycle of 1.7 GHz), and a spin needs one. Compiled for it, the kernel's loop has
656 instructions per warp and sweep for 16 chains of 64 + 64 units, 41 per spin and thread, and issues them for 7·10¹¹
spins per second at best. Expected with 2000 chains or more of 64 + 64 units is 10¹¹, a quarter of the bound. With 100
chains seven processors of 132 have work, and a call of 100 sweeps should take some 0.1 ms. From 129 units a side on,
plain torch draws with twelve launches per sweep: at 5 µs each, 100 sweeps are 6 ms.

Found on an H200: with 100,000 chains half of what it issues at best. Below, a sweep takes 6 to 7 µs however few chains
there are, as a processor has one program of four warps, which waits for its own products; that is 2.4 and 7 times the
time expected. A launch took 20 µs from that machine, four times what was expected."""
ROUNDS = 20


def milliseconds(kernel, rbm: RBM, z: torch.Tensor, num_sweeps: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run_sweeps(rbm, z, num_sweeps, key=5, first_sweep=1, kernel=kernel)
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


@torch.no_grad()
def measure(case: Case) -> list[str]:
    """A row of the table: the kernel that is chosen and plain torch in turn."""
    weight, bias = (torch.from_numpy(part) for part in machine(case.num_left, case.num_right))
    rbm = RBM(*weight.shape)
    rbm.weight.copy_(weight)
    rbm.bias.copy_(bias)
    rbm.cuda()
    z = fair_coins(case.num_chains, rbm.num_units, key=1, device="cuda")
    chosen = kernel_for(rbm)
    times: dict[str, list[float]] = {"chosen": [], "torch": []}
    for round_ in range(ROUNDS + 1):  # the first compiles
        for name, kernel in (("chosen", chosen), ("torch", gibbs.run_on_device)):
            spent = milliseconds(kernel, rbm, z, case.num_sweeps)
            if round_:
                times[name].append(spent)
    updates = case.num_sweeps * case.num_chains * rbm.num_units
    kernel = "plain torch" if chosen is gibbs.run_on_device else "one launch"
    row = [case.label, str(case.num_chains), kernel]
    row += [f"{1e3 * updates / take(times['chosen']) / 1e9:.2f}" for take in (min, statistics.median)]
    row += [f"{take(times['torch']) / take(times['chosen']):.1f}" for take in (min, statistics.median)]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=HERE, help="where to write the page")
    folder = parser.parse_args().folder
    if torch.cuda.is_available():
        head = ["units", "chains", "kernel", "10⁹ updates/s, best", "median"]
        head += ["times plain torch, best", "median"]
        name = f"{torch.cuda.get_device_name()}; {describe_machine(torch.get_num_threads())}"
        text = "\n\n".join([name, EXPECTED, table(head, map(measure, CASES))])
    else:
        text = f"{EXPECTED}\n\nNot measured: there was no CUDA device, and the kernel has not been run on one yet."
    write_section(folder / "RESULTS.md", "Block Gibbs on a GPU", text)
    print(text)


if __name__ == "__main__":
    main()
