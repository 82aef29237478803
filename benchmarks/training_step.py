"""Cost of a training step: against its floor, and against plain PyTorch of the same model.

The floor is the step's own list of matrix products, timed alone in the precision asked for, and one streaming pass of
Adam over weights, moments and gradients. With an EXPERIMENT it measures that one and prints what it found, as one line
of JSON with --json; settings can be changed as in `dvae train`, --model.posterior.groups 8 for example. Without one it
measures the usual experiments, each contender in processes of its own that take turns, and writes a section of
RESULTS.md.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import torch
from contenders.plain_vae import PlainTraining
from growth import STEP_CASES, step_growth_table
from interleaving import interleaved
from options import ask, experiment_parser, show
from products import DTYPES
from results import describe_machine, table, write_section
from step_floor import optimizer_pass, products_of

from discrete_vae.config import ExperimentConfig
from discrete_vae.config.overrides import apply_overrides, split_overrides
from discrete_vae.presets import load_experiment
from discrete_vae.system import yielding_threads
from discrete_vae.training.loop import training_step
from discrete_vae.training.run import training_threads
from discrete_vae.training.state import TrainingState

EXPERIMENTS = ["digits", "mnist-static-rbm128", "mnist-static"]
CONTENDERS = {"discrete-vae": "ours", "plain PyTorch": "plain"}
NOTE = (
    "Batches of random images; the data do not matter to the time. Products and Adam are those of the step, each timed "
    "alone; the floor is their sum, the rest the step less its chains. Plain PyTorch is the same model written in the "
    "obvious way, its bfloat16 autocast. Memory is the peak of the whole process, torch itself included."
)


def measure(
    config: ExperimentConfig, precision: str, *, contender: str = "ours", seconds: float
) -> dict[str, Any]:
    """Milliseconds of one experiment's step and its parts, best and median."""
    torch.manual_seed(0)
    x = torch.bernoulli(torch.full((config.training.batch_size, config.model.num_values), 0.2))
    if contender == "plain":
        training = PlainTraining(config, precision)
        own: dict[str, Callable[[], object]] = {"step": lambda: training.step(x)}
        own["chains"] = training.run_chains
        floor, count = {}, {"num_weights": sum(p.numel() for p in training.model.parameters())}
    else:
        config = apply_overrides(config, [("training.precision", [precision])])
        state = TrainingState.initial(config, x)
        halfway = config.training.num_epochs / 2

        def step() -> None:
            training_step(state, config, x, halfway, 0.5)
            state.step += 1

        own = {"step": step, "chains": lambda: state.chains.step(config.training.num_sweeps)}
        num_weights = sum(parameter.numel() for parameter in state.model.parameters())
        other = TrainingState.initial(config, x)
        found_products = products_of(other, lambda: training_step(other, config, x, halfway, 0.5))
        del other
        products = [product.call(precision) for product in found_products]
        floor = {"products": lambda: [call() for call in products], "optimizer": optimizer_pass(num_weights)}
        count = {"num_weights": num_weights, "num_products": len(products)}
    times = interleaved(own | floor, seconds=seconds)
    found: dict[str, Any] = {"experiment": config.name, "size": config.size, "precision": precision}
    found |= {"threads": torch.get_num_threads(), **count}
    for suffix, summary in {"": min, "_median": statistics.median}.items():
        found |= {f"{name}_ms{suffix}": round(1e3 * summary(values), 4) for name, values in times.items()}
        if floor:
            floor_ms = found[f"products_ms{suffix}"] + found[f"optimizer_ms{suffix}"]
            found[f"floor_ms{suffix}"] = round(floor_ms, 4)
    found["rounds"] = len(times["step"])
    found["peak_memory_mib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return found


def merged(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The best of the best times of several processes, and the median of their medians."""
    whole = dict(rounds[0])
    for name in whole:
        values = [each[name] for each in rounds]
        if name.endswith("_median"):
            whole[name] = statistics.median(values)
        elif name.endswith("_ms"):
            whole[name] = min(values)
    if "floor_ms" in whole:
        whole["floor_ms"] = whole["products_ms"] + whole["optimizer_ms"]
    return whole


def step_table(experiment: str, options: Namespace) -> str:
    """A table of one experiment: both contenders in both precisions."""
    cases = [(name, precision) for name in CONTENDERS for precision in DTYPES]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {case: [] for case in cases}
    for _ in range(options.rounds):
        for name, precision in cases:
            words = ["--precision", precision, "--contender", CONTENDERS[name]]
            found[name, precision].append(ask(__file__, experiment, *words, options=options))
    rows = []
    for name, precision in cases:
        times = merged(found[name, precision])
        floor = merged(found["discrete-vae", precision])
        rest = times["step_ms"] - times["chains_ms"]
        names = ("products_ms", "optimizer_ms")
        parts = [f"{times[name]:.2f}" if name in times else "" for name in names]
        rows.append(
            [
                f"{name}, {precision}",
                f"{times['step_ms']:.2f}",
                f"{times['step_ms_median']:.2f}",
                f"{times['chains_ms']:.2f}",
                *parts,
                f"{rest / floor['floor_ms']:.2f}",
                f"{times['step_ms'] / floor['floor_ms']:.2f}",
                str(times["peak_memory_mib"]),
            ]
        )
    weights = found["discrete-vae", "float32"][0]["num_weights"]
    head = [f"{experiment}, size short, {weights / 1e6:.2f} M weights", "ms per step, best", "(median)"]
    head += ["of it chains", "products alone", "Adam alone", "rest / floor", "step / floor"]
    return table([*head, "peak memory, MiB"], rows)


def write_page(options: Namespace) -> None:
    parts = [describe_machine(options.threads or os.cpu_count() or 1), NOTE]
    for experiment in EXPERIMENTS:
        parts.append(step_table(experiment, options))
        print(parts[-1], end="\n\n", flush=True)
    for what, cases in STEP_CASES.items():
        measured: dict[int, list[dict[str, Any]]] = {value: [] for value in cases}
        for value, words in cases.items():
            for precision in DTYPES:
                found = ask(__file__, "mnist-static", "--precision", precision, *words, options=options)
                measured[value].append(found)
        parts.append(step_growth_table(f"mnist-static, size short: {what}", measured))
        print(parts[-1], end="\n\n", flush=True)
    write_section(options.page, "Training step", "\n\n".join(parts))
    print(f"Written to {options.page}")


def main() -> None:
    words, overrides = split_overrides(sys.argv[1:])
    parser = experiment_parser(
        __doc__, rounds="processes of each contender on the page", threads="as many as dvae train would take"
    )
    parser.add_argument(
        "--contender", choices=CONTENDERS.values(), default="ours", help="ours or plain PyTorch"
    )
    options = parser.parse_args(words)
    if options.experiment is None:
        write_page(options)
        return
    config = apply_overrides(load_experiment(options.experiment, options.size), overrides)
    with yielding_threads(), training_threads(config, {}):
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        found = measure(config, options.precision, contender=options.contender, seconds=options.seconds)
    show(found, options)


if __name__ == "__main__":
    main()
