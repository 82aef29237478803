"""Samplers of the negative phase compared by short training runs: validation ELBO, error of the logged log Z, time.

python benchmarks/samplers.py digits mnist-static-rbm128 --epochs 60 4 --seeds 0 1

All runs of an experiment have the same seed, data and number of steps. The value of log Z that the log would show of
the last model, the sampler's own or a short annealing's, is compared with bridge sampling. Times are of whole runs, one
after another, on a machine that may do other things too.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path

from discrete_vae import bennett_log_partition, load_dataset, load_experiment, load_run, train
from discrete_vae.config import ExperimentConfig
from discrete_vae.experiments.overrides import apply_overrides
from discrete_vae.log_partition.estimate import quick_log_partition
from discrete_vae.samplers.protocol import TellsLogPartition

SAMPLERS = ("block-gibbs", "parallel-tempering", "trajectory-tempering")
_HEADER = "| sampler | seed | validation ELBO, nats | logged log Z, nats | by bridge sampling | seconds |"


def row(config: ExperimentConfig, folder: Path) -> str:
    """Train, and compare what the log says of log Z with bridge sampling."""
    name = config.data.kind
    start = time.monotonic()
    result = train(config, load_dataset(name), folder)
    seconds = time.monotonic() - start
    run = load_run(folder, "last")
    if isinstance(run.chains, TellsLogPartition):
        logged = run.chains.log_partition()
    else:
        logged = quick_log_partition(run.model.prior, num_chains=200, num_temperatures=300, max_enumerated=0)
    bridge = bennett_log_partition(run.model.prior, std_error=0.01, start=run.chains.z, max_sweeps=20_000)
    return (
        f"| {config.training.sampler.kind} | {config.seed} | {result.best_elbo:.2f} | "
        f"{logged.value:.3f} +- {logged.std_error:.3f} | {bridge.value:.3f} +- {bridge.std_error:.3f} | {seconds:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="+")
    parser.add_argument("--epochs", type=int, nargs="+", required=True, help="of each experiment")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=SAMPLERS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name, epochs in zip(arguments.experiments, arguments.epochs, strict=True):
        print(f"\n{name}, short, {epochs} epochs\n\n{_HEADER}\n{'| --- ' * 6}|", flush=True)
        for seed in arguments.seeds:
            for sampler in arguments.samplers:
                words = [("training.sampler", [sampler]), ("training.num-epochs", [str(epochs)])]
                words = words if sampler != "block-gibbs" else words[1:]
                config = apply_overrides(load_experiment(name, "short"), [*words, ("seed", [str(seed)])])
                with tempfile.TemporaryDirectory() as folder:
                    print(row(config, Path(folder) / "run"), flush=True)


if __name__ == "__main__":
    main()
