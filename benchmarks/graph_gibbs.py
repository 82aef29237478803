"""Speed of block Gibbs sampling on graphs: the compiled kernel against plain torch, sparse and dense.

All contenders run in turn, round after round. Writes a section of RESULTS.md beside this file.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numba
import torch
from results import PAGE, describe_machine, table, write_section

from discrete_vae import GraphBoltzmann
from discrete_vae.kernels import gibbs
from discrete_vae.kernels.gibbs import fair_coins, run_sweeps

Contender = Callable[[int], object]  # runs so many sweeps of all chains
LARGEST_DENSE = 10_000  # units


def chimera(num_units: int) -> GraphBoltzmann:
    return with_weights(GraphBoltzmann(num_units, "chimera"), 0.5)


def random_graph(num_units: int, num_edges: int) -> GraphBoltzmann:
    pairs = torch.randint(num_units, (2 * num_edges, 2), generator=torch.Generator().manual_seed(0))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]].sort(1).values.unique(dim=0)
    order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(1))
    return with_weights(GraphBoltzmann(num_units, pairs[order[:num_edges]]), 0.2)


def with_weights(energy: GraphBoltzmann, scale: float) -> GraphBoltzmann:
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in energy.parameters():
            parameter.normal_(0, scale, generator=generator)
    return energy


@torch.no_grad()
def dense_torch(energy: GraphBoltzmann, start: torch.Tensor) -> Contender:
    """What one writes without a thought of sparseness: a matrix product and torch.bernoulli for each block."""
    weight = torch.zeros(energy.num_units, energy.num_units)
    weight[energy.edges[:, 0], energy.edges[:, 1]] = energy.weight
    weight += weight.T.clone()
    columns = [(block, weight[:, block].contiguous(), energy.bias[block].detach()) for block in energy.blocks]

    def run(num_sweeps: int) -> torch.Tensor:
        z = start.clone()
        for _ in range(num_sweeps):
            for block, of_block, bias in columns:
                z[:, block] = torch.bernoulli(torch.sigmoid(torch.addmm(bias, z, of_block)))
        return z

    return run


def contenders_for(energy: GraphBoltzmann, num_chains: int) -> dict[str, tuple[Contender, int]]:
    """Each contender with its sweeps a run."""
    start = fair_coins(num_chains, energy.num_units, key=1)

    def ours(num_sweeps: int) -> torch.Tensor:
        return run_sweeps(energy, start, num_sweeps, key=2, first_sweep=1)

    def reference(num_sweeps: int) -> torch.Tensor:
        return run_sweeps(energy, start, num_sweeps, key=2, first_sweep=1, kernel=gibbs.run_reference)

    found: dict[str, tuple[Contender, int]] = {"compiled": (ours, 20), "torch reference": (reference, 1)}
    if energy.num_units <= LARGEST_DENSE:
        found["torch, dense"] = (dense_torch(energy, start), 1)
    return found


def contest_table(label: str, energy: GraphBoltzmann, num_chains: int, *, rounds: int) -> str:
    contenders = contenders_for(energy, num_chains)
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    for run, _ in contenders.values():
        run(1)  # compiles
    for _ in range(rounds):
        for name, (run, num_sweeps) in contenders.items():
            begin = time.perf_counter()
            run(num_sweeps)
            seconds = time.perf_counter() - begin
            speeds[name].append(num_sweeps * num_chains * energy.num_units / seconds)
    best = {name: max(values) for name, values in speeds.items()}
    middle = {name: statistics.median(values) for name, values in speeds.items()}
    floor = "torch reference"
    rows = [
        [
            name,
            f"{best[name] / 1e9:.3g}",
            f"{middle[name] / 1e9:.3g}",
            f"{best[name] / best[floor]:.1f}",
            f"{middle[name] / middle[floor]:.1f}",
        ]
        for name in contenders
    ]
    title = f"{label}, {num_chains} chains, {len(energy.blocks)} blocks"
    return table([title, "10⁹ updates/s, best", "(median)", "times reference, best", "(median)"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="runs of each contender")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of each contender")
    parser.add_argument("--page", type=Path, default=PAGE, help="page to write")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    numba.set_num_threads(min(options.threads, numba.config.NUMBA_NUM_THREADS))
    parts = [describe_machine(options.threads)]
    for label, energy, num_chains in (
        ("Chimera, 2048 units", chimera(2048), 1000),
        ("Random, 10⁵ units, 10⁶ edges", random_graph(100_000, 1_000_000), 100),
    ):
        parts.append(contest_table(label, energy, num_chains, rounds=options.rounds))
        print(parts[-1], end="\n\n", flush=True)
    write_section(options.page, "Block Gibbs on graphs", "\n\n".join(parts))
    print(f"Written to {options.page}")


if __name__ == "__main__":
    main()
