"""Cost of a training step: against its floor, and with other ways of running the chains.

The floor is the step's own list of matrix products, each timed on matrices of its shapes, and one pass of fused Adam.
All contenders run in turn, round after round, on random images. Writes a section of RESULTS.md beside this file.
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
from results import describe_machine, table, write_section

from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.config import ExperimentConfig
from discrete_vae.experiments import load_experiment
from discrete_vae.samplers.kernels import torch_reference
from discrete_vae.samplers.kernels.philox import fair_coins
from discrete_vae.samplers.kernels.sweeps import run_sweeps
from discrete_vae.training.loop import training_step
from discrete_vae.training.state import TrainingState

EXPERIMENTS = ["digits", "mnist-static-rbm128", "mnist-static"]
_PRODUCTS = {"aten::mm", "aten::addmm", "aten::bmm"}


class Chains:
    """Chains of a state's prior that are run in one of several ways."""

    def __init__(
        self, state: TrainingState, run: Callable[[RBM, torch.Tensor, int, int], torch.Tensor]
    ) -> None:
        self.energy, self.num_chains = state.model.prior, state.chains.num_chains
        self._run, self._sweep = run, 0
        self._z = fair_coins(self.num_chains, self.energy.num_units, key=1)

    def step(self, num_sweeps: int) -> torch.Tensor:
        assert isinstance(self.energy, RBM)
        self._z = self._run(self.energy, self._z, num_sweeps, self._sweep + 1)
        self._sweep += num_sweeps
        return self._z


@torch.no_grad()
def eager(energy: RBM, z: torch.Tensor, num_sweeps: int, first_sweep: int) -> torch.Tensor:
    """The fastest plain form: a product, a logistic, a uniform number and a comparison for each side."""
    left, right = z[:, : energy.num_left], z[:, energy.num_left :]
    bias_left, bias_right = energy.bias.split([energy.num_left, energy.num_right])
    noise = [torch.empty_like(left), torch.empty_like(right)]
    for _ in range(num_sweeps):
        logits = torch.addmm(bias_left, right, energy.weight.T)
        left = (noise[0].uniform_() < logits.sigmoid_()).float()
        logits = torch.addmm(bias_right, left, energy.weight)
        right = (noise[1].uniform_() < logits.sigmoid_()).float()
    return torch.cat([left, right], 1)


def reference(energy: RBM, z: torch.Tensor, num_sweeps: int, first_sweep: int) -> torch.Tensor:
    return run_sweeps(energy, z, num_sweeps, key=2, first_sweep=first_sweep, kernel=torch_reference.run)


def compiled(energy: RBM, z: torch.Tensor, num_sweeps: int, first_sweep: int) -> torch.Tensor:
    return run_sweeps(energy, z, num_sweeps, key=2, first_sweep=first_sweep)


WAYS = {"compiled kernel": compiled, "torch, plain": eager, "torch reference": reference}


def products_of(step: Callable[[], object]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Matrices of the shapes that a step multiplies, in its order."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
    ) as profiler:
        step()
    pairs = []
    for event in profiler.events():
        if event.name in _PRODUCTS:
            shapes = [shape for shape in event.input_shapes if len(shape) >= 2][-2:]
            pairs.append((torch.randn(*shapes[0]), torch.randn(*shapes[1])))
    return pairs


def seconds_of(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def step_table(config: ExperimentConfig, *, seconds: float) -> str:
    """A table of one experiment: each way of running the chains, and the floor."""
    torch.manual_seed(0)
    x = torch.bernoulli(torch.full((config.training.batch_size, config.model.num_values), 0.2))
    state = TrainingState.initial(config, x)
    ways = {name: Chains(state, run) for name, run in WAYS.items()}
    sweeps = config.training.num_sweeps
    halfway = config.training.num_epochs / 2

    def step() -> None:
        training_step(state, config, x, halfway, 0.5)
        state.step += 1

    def step_with(chains: Chains) -> Callable[[], None]:
        def run() -> None:
            state.chains = chains  # pyright: ignore[reportAttributeAccessIssue]
            step()

        return run

    for chains in ways.values():
        step_with(chains)()
    state.chains = ways["compiled kernel"]  # pyright: ignore[reportAttributeAccessIssue]
    pairs = products_of(step)

    def floor() -> None:
        for left, right in pairs:
            left @ right
        state.optimizer.step()

    calls: dict[str, Callable[[], object]] = {"floor": floor}
    for name, chains in ways.items():
        calls[name] = step_with(chains)
        calls[f"chains: {name}"] = lambda chains=chains: chains.step(sweeps)
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(times["floor"]) < 5:
        for name, call in calls.items():
            times[name].append(seconds_of(call))

    def best(name: str) -> float:
        return 1e3 * min(times[name])

    def middle(name: str) -> float:
        return 1e3 * statistics.median(times[name])

    rows = []
    for name in ways:
        own = middle(name) - middle(f"chains: {name}")
        rows.append(
            [
                name,
                f"{best(name):.1f}",
                f"{middle(name):.1f}",
                f"{middle(f'chains: {name}'):.1f}",
                f"{own / middle('floor'):.2f}",
                f"{middle(name) / middle('compiled kernel'):.2f}",
            ]
        )
    rows.append(
        [
            f"floor: {len(pairs)} products and Adam",
            f"{best('floor'):.1f}",
            f"{middle('floor'):.1f}",
            "—",
            "1.00",
            "—",
        ]
    )
    title = f"{config.name}, size {config.size}"
    return table([title, "ms per step, best", "median", "of it chains", "rest / floor", "times ours"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15, help="seconds of rounds for each table")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of each contender")
    parser.add_argument(
        "--page", type=Path, default=Path(__file__).with_name("RESULTS.md"), help="page to write"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    numba.set_num_threads(min(options.threads, numba.config.NUMBA_NUM_THREADS))
    parts = [
        describe_machine(options.threads),
        "Batches of random images; the data do not matter to the time.",
    ]
    for name in EXPERIMENTS:
        parts.append(step_table(load_experiment(name, "short"), seconds=options.seconds))
        print(parts[-1], end="\n\n", flush=True)
    write_section(options.page, "Training step", "\n\n".join(parts))
    print(f"Written to {options.page}")


if __name__ == "__main__":
    main()
