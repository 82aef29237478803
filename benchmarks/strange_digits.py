"""Do scores of a run of MNIST tell its test digits from digits that lie on their side, and from Omniglot?

    python benchmarks/strange_digits.py RUN [--num-elbo 2000] [--num-likelihood 500]

RUN is a run of mnist-static or mnist-dynamic; Omniglot is read from the data folder. Familiar and strange digits are
different ones, so that both kinds are independent. Prints a table: the mean score and the area under the ROC curve
with its standard error (DeLong et al. 1988), for the ELBO with 10 draws and the log-likelihood with 100.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from discrete_vae import load_dataset, load_run
from discrete_vae.config import instantiate
from discrete_vae.data.splits import subset_indices
from discrete_vae.inference.evaluate_run import log_partition_of_run
from discrete_vae.inference.score import Scores, elbo_rows, roc_area, score_rows
from discrete_vae.runs.run_directory import RunDirectory


def kinds_of(digits: Tensor, characters: Tensor, count: int) -> dict[str, Tensor]:
    """Equally many of each kind, (example, feature)."""
    chosen = digits[subset_indices(len(digits), 2 * count)]
    familiar, others = chosen[::2], chosen[1::2]
    turned = torch.rot90(others.reshape(-1, 28, 28), dims=(1, 2)).reshape(count, -1)
    omniglot = characters[subset_indices(len(characters), count)]
    return {"digits": familiar, "digits turned by 90 degrees": turned, "Omniglot": omniglot}


def print_lines(kinds: dict[str, Tensor], score: Callable[[Tensor], Scores]) -> None:
    """A line per kind: its mean score, and how well the score tells it from the first."""
    familiar = None
    for name, x in kinds.items():
        found = score(x)
        mean = f"{found.mean:.1f} ± {found.mean_std_error:.1f}"
        if familiar is None:
            familiar, area = found, "—"
        else:
            roc = roc_area(familiar.value, found.value)
            area = f"{roc.value:.4f} ± {roc.std_error:.4f}"
        kind = "ELBO" if found.is_bound else "log-likelihood"
        print(f"| {kind}, {found.num_samples} draws | {name} | {len(x)} | {mean} | {area} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--num-elbo", type=int, default=2000)
    parser.add_argument("--num-likelihood", type=int, default=500)
    options = parser.parse_args()
    run = RunDirectory.open(options.run)
    loaded = load_run(run)
    log_z = log_partition_of_run(run, loaded)
    digits, characters = instantiate(loaded.config.data).test, load_dataset("omniglot").test
    print("| Score | Examples | Number | Mean (nats) | Area under the ROC curve |")
    print("| --- | --- | --- | --- | --- |")
    for count, score in ((options.num_elbo, elbo_rows), (options.num_likelihood, score_rows)):
        kinds = kinds_of(digits, characters, count)
        print_lines(kinds, partial(score, loaded.model, log_partition=log_z.value))


if __name__ == "__main__":
    main()
