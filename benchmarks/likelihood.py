"""Cost of the log-likelihood by importance sampling, against that of its matrix products alone.

With an EXPERIMENT it measures that one and prints what it found, as one line of JSON with --json; settings can be
changed as in `dvae train`. Times are milliseconds per image. Without one it measures the usual experiments, each case
in processes of its own that take turns, and writes a section of RESULTS.md.
"""

from __future__ import annotations

import os
import statistics
import sys
from argparse import Namespace
from typing import Any

import torch
from interleaving import interleaved
from likelihood_floor import products_of_images
from options import ask, experiment_parser, show
from products import DTYPES
from results import describe_machine, table, write_section

from discrete_vae.config import ExperimentConfig
from discrete_vae.config.overrides import apply_overrides, split_overrides
from discrete_vae.evaluation.evaluate import evaluate_log_likelihood
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.modes import precision_of_products
from discrete_vae.presets import load_experiment
from discrete_vae.system import yielding_threads

CASES = [  # experiment, samples per image, images per call
    ("mnist-static", 10_000, 8),
    ("mnist-static", 1000, 50),
    ("mnist-static", 100, 400),
    ("mnist-static-rbm128", 10_000, 8),
]
NOTE = (
    "New models and random images; neither matters to the time. Products are those of the networks and of the energy, "
    "each timed alone in the precision of the row (the energy's in float32), as many rows at a time as are fastest; "
    "what reads x alone counts once per image. Times are milliseconds per image, which for 1,000 images are seconds."
)


def measure(
    config: ExperimentConfig, precision: str, *, num_samples: int, num_images: int, seconds: float
) -> dict[str, Any]:
    """Milliseconds per image of one experiment's log-likelihood and of its products, best and median."""
    torch.manual_seed(0)
    x = torch.bernoulli(torch.full((num_images, config.model.num_values), 0.2))
    model = DiscreteVAE.from_config(config.model)
    products, images_of_products = products_of_images(model, num_samples, precision)

    def likelihood() -> None:
        evaluate_log_likelihood(
            model, x, log_partition=0.0, num_samples=num_samples, max_memory=config.evaluation.max_memory
        )

    with precision_of_products(model, DTYPES[precision]):
        times = interleaved({"likelihood": likelihood, "products": products}, seconds=seconds)
    found: dict[str, Any] = {"experiment": config.name, "size": config.size, "precision": precision}
    found |= {"num_samples": num_samples, "num_images": num_images, "threads": torch.get_num_threads()}
    for suffix, summary in {"": min, "_median": statistics.median}.items():
        found[f"likelihood_ms{suffix}"] = round(1e3 * summary(times["likelihood"]) / num_images, 4)
        found[f"products_ms{suffix}"] = round(1e3 * summary(times["products"]) / images_of_products, 4)
        found[f"ratio{suffix}"] = round(found[f"likelihood_ms{suffix}"] / found[f"products_ms{suffix}"], 3)
    found["rounds"] = len(times["products"])
    return found


def likelihood_table(found: dict[tuple[str, int, str], list[dict[str, Any]]]) -> str:
    """The table of the page, of what `measure` returned in each process, by experiment, samples and precision."""
    rows = []
    for (experiment, num_samples, precision), each in found.items():
        names = ("likelihood", "products")
        best = {name: min(one[f"{name}_ms"] for one in each) for name in names}
        median = {name: statistics.median(one[f"{name}_ms_median"] for one in each) for name in names}
        rows.append(
            [
                f"{experiment}, {num_samples:,} samples, {precision}",
                *(f"{times[name]:.1f}" for name in names for times in (best, median)),
                *(f"{times['likelihood'] / times['products']:.2f}" for times in (best, median)),
            ]
        )
    head = ["ms per image, size short", "log-likelihood, best", "(median)", "products alone, best"]
    return table([*head, "(median)", "ratio of the best", "(of the medians)"], rows)


def write_page(options: Namespace) -> None:
    found: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for _ in range(options.rounds):
        for experiment, num_samples, num_images in CASES:
            for precision in DTYPES:
                words = ["--precision", precision, "--num-samples", str(num_samples)]
                words += ["--num-images", str(num_images)]
                measured = ask(__file__, experiment, *words, options=options)
                found.setdefault((experiment, num_samples, precision), []).append(measured)
    shown = likelihood_table(found)
    text = "\n\n".join([describe_machine(options.threads or os.cpu_count() or 1), NOTE, shown])
    write_section(options.page, "Log-likelihood", text)
    print(f"{shown}\n\nWritten to {options.page}")


def main() -> None:
    words, overrides = split_overrides(sys.argv[1:])
    parser = experiment_parser(__doc__, rounds="processes per row of the page", threads="torch's number")
    parser.add_argument("--num-samples", type=int, default=10_000, help="importance samples per image")
    parser.add_argument(
        "--num-images", type=int, default=8, help="images per call; the weights are folded once for all"
    )
    options = parser.parse_args(words)
    if options.experiment is None:
        write_page(options)
        return
    config = apply_overrides(load_experiment(options.experiment, options.size), overrides)
    with yielding_threads():
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        counts = {"num_samples": options.num_samples, "num_images": options.num_images}
        found = measure(config, options.precision, seconds=options.seconds, **counts)
    show(found, options)


if __name__ == "__main__":
    main()
