"""An annealer as the negative phase against block Gibbs: validation ELBO with exact log Z, temperature, time.

python benchmarks/annealers.py --epochs 40 --seeds 3 --runs runs/annealers

Simulated annealing stands in for a device: one whose schedule ends at inverse temperature 2 is a device that is twice
as cold as energies in nats. Finished runs are kept: call it again with the same words. Prints a table for
docs/annealers.md; test examples are never read.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path

import numpy as np
from results import table

from discrete_vae import exact_log_partition, load_dataset, load_experiment, load_run, train
from discrete_vae.config import ExperimentConfig
from discrete_vae.config.overrides import apply_overrides
from discrete_vae.evaluation.evaluate import evaluate_elbo
from discrete_vae.runs.run_directory import RunDirectory


def annealer(end: float, *, corrected: bool, sweeps: int = 0) -> dict[str, str]:
    """Settings of a run with simulated annealing that ends at an inverse temperature."""
    return {
        "training.sampler": "dimod",
        "training.sampler.parameters": f'{{"beta_range": [0.1, {end}]}}',
        "training.sampler.correct-temperature": str(corrected).lower(),
        "training.sampler.num-gibbs-sweeps": str(sweeps),
    }


VARIANTS = {
    "block Gibbs": {},
    "annealer to 1, corrected": annealer(1.0, corrected=True),
    "annealer to 1, as it is": annealer(1.0, corrected=False),
    "annealer to 2, corrected": annealer(2.0, corrected=True),
    "annealer to 2, as it is": annealer(2.0, corrected=False),
    "annealer to 4, corrected": annealer(4.0, corrected=True),
    "annealer to 4, as it is": annealer(4.0, corrected=False),
}
HEAD = ("negative phase", "validation ELBO", "more than block Gibbs", "inverse temperature of the samples")
HEAD += ("ms per step",)


def variant_config(variant: str, seed: int, args: Namespace) -> ExperimentConfig:
    """The experiment, with the schedules of its 200 epochs made shorter."""
    settings = {
        "training.sampler.num-chains": str(args.chains),
        "training.num-epochs": str(args.epochs),
        "training.beta-bound.slope": repr(0.03 * 200 / args.epochs),
        "training.warm-up.epochs": repr(args.epochs / 20),
        "training.warm-up.prior-epochs": repr(args.epochs * 3 / 20),
        "seed": str(seed),
    } | VARIANTS[variant]
    overrides = [(name, [value]) for name, value in settings.items()]
    return apply_overrides(load_experiment("digits", "short"), overrides)


def run(folder: Path, config: ExperimentConfig) -> tuple[float, float, float]:
    """Validation ELBO with exact log Z, mean inverse temperature of the samples, median ms of a step."""
    dataset = load_dataset("digits")
    train(config, dataset, folder)
    loaded = load_run(folder, "last")
    log_partition = exact_log_partition(loaded.model.prior).value
    elbo = evaluate_elbo(loaded.model, dataset.valid, log_partition=log_partition, num_samples=10).elbo
    lines = [line for line in RunDirectory.open(folder).metrics().read() if line.get("examples_per_second")]
    temperature = np.mean([line.get("sampled_at_inverse_temperature", math.nan) for line in lines])
    return elbo, float(temperature), float(np.median([1e5 / line["examples_per_second"] for line in lines]))


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--chains", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=Path("runs/annealers"))
    args = parser.parse_args()
    found: dict[str, list[tuple[float, float, float]]] = {variant: [] for variant in VARIANTS}
    for seed in range(args.seeds):
        for index, variant in enumerate(VARIANTS):
            found[variant].append(run(args.runs / f"{index}-{seed}", variant_config(variant, seed, args)))
            print(seed, variant, *found[variant][-1], flush=True)
    plain = np.array(found["block Gibbs"])[:, 0]
    rows = []
    for variant, outcomes in found.items():
        elbos, temperatures, times = np.array(outcomes).T
        more = elbos - plain
        error = np.std(more, ddof=1) / math.sqrt(len(more)) if len(more) > 1 else math.nan
        compared = "" if variant == "block Gibbs" else f"{more.mean():+.2f} ± {error:.2f}"
        measured = "" if np.isnan(temperatures).any() else f"{temperatures.mean():.2f}"
        rows.append([variant, f"{elbos.mean():.2f}", compared, measured, f"{np.median(times):.1f}"])
    print(table(HEAD, rows))


if __name__ == "__main__":
    main()
