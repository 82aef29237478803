"""Halves of Omniglot characters that a run fills, against column means and nearest neighbors.

    python benchmarks/imputation.py RUN [--half lower|right] [--num-examples 100] [--num-samples 2000] [--picture FILE]

RUN is a run of omniglot, mnist-static or mnist-dynamic. The hidden half of each test image is judged given the other
one, in nats and in pixels:

- nats, jointly: log of the mean over weighted draws of p(hidden | latents): the log-probability that this imputation,
  a mixture of its draws, gives to all hidden pixels together;
- nats, pixel by pixel: sum of log Bernoulli(x_i; mean_i), all that means alone can give, which is what the others have;
  means are kept between 0.001 and 0.999 for all alike;
- pixels: share that is wrong when means are rounded, and squared error of the means.

Besides, log p(x) - log p(x_observed), each by as many importance samples from its own posterior: both are lower bounds
in expectation, so their difference may err to either side; it is not what an imputation achieves.

Column means are those of the training part. Neighbors are the k training images that differ in the fewest observed
pixels, with k chosen on validation images among 1, 5, 10, 20, 50, 100 by the nats; their mean is smoothed by one
pseudo-image with the column means. Errors are standard errors over images.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from discrete_vae import load_run
from discrete_vae.config import instantiate
from discrete_vae.data.splits import subset_indices
from discrete_vae.figures.style import VERMILION, GridText, draw_image_grid, save_figure
from discrete_vae.inference.encode import nearest_codes
from discrete_vae.inference.impute import GappedRow, ImputationSettings, Proposals, prior_draws
from discrete_vae.model import DiscreteVAE
from discrete_vae.objectives.importance import ImportanceSampler, truncated, weighted_mean
from discrete_vae.rng import key_to_seed

KS = (1, 5, 10, 20, 50, 100)
SHOWN = 12


def with_error(values: Tensor, digits: int = 2) -> str:
    """A mean with its standard error."""
    error = float(values.std()) / math.sqrt(len(values))
    return f"{float(values.mean()):.{digits}f} ± {error:.{digits}f}"


def scores(means: Tensor, x: Tensor, hidden: Tensor) -> dict[str, Tensor]:
    """Pixel by pixel, of each image; means and x (example, feature), hidden (feature,)."""
    kept, of_x = means[:, hidden].double().clamp(0.001, 0.999), x[:, hidden].double()
    return {
        "nats": (of_x * kept.log() + (1 - of_x) * (1 - kept).log()).sum(1),
        "wrong": ((kept > 0.5) != (of_x > 0.5)).double().mean(1),
        "squared": (kept - of_x).square().mean(1),
    }


def neighbors_means(train: Tensor, x: Tensor, seen: Tensor, k: int) -> Tensor:
    """Mean of the k nearest training images, smoothed by one image of column means."""
    packed = [np.packbits(part[:, seen].numpy() > 0.5, axis=1) for part in (x, train)]
    nearest = torch.from_numpy(nearest_codes(*packed, k).indices)
    return (train[nearest].sum(1) + train.mean(0)) / (k + 1)


@dataclass(frozen=True)
class ByModel:
    """What a model makes of one image: means (pixel,) and log p(hidden | observed) by weight, and what they rest on."""

    means: dict[str, Tensor]
    joint: dict[str, float]
    log_seen: float
    ess: float


def by_model(
    model: DiscreteVAE, importance_sampler: ImportanceSampler, row: GappedRow, num_samples: int, chunk: int
) -> ByModel:
    """Fill one image."""
    settings = ImputationSettings(num_samples=num_samples)
    proposals = Proposals(model, importance_sampler, row, prior_draws(model, 0), settings, chunk)
    whole, parameters, means = proposals.draw()
    size = (len(parameters), *row.x.shape[1:])
    hidden = model.likelihood.log_prob(parameters, row.x.expand(size), ~row.observed.expand(size))
    of_hidden = hidden.double()
    found, joint, ess = {}, {}, 0.0
    for name, log_weights in (("the model", whole), ("the model, truncated", truncated(whole))):
        mean, _, effective = weighted_mean(log_weights, means)
        found[name] = mean.flatten().float()
        joint[name] = float(torch.logsumexp(log_weights + of_hidden, 0) - torch.logsumexp(log_weights, 0))
        ess = ess or effective
    return ByModel(found, joint, float(torch.logsumexp(whole, 0)), ess)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--half", choices=("lower", "right"), default="lower")
    parser.add_argument("--num-examples", type=int, default=100)
    parser.add_argument("--num-samples", type=int, default=2000)
    parser.add_argument("--picture")
    options = parser.parse_args()
    loaded = load_run(options.run)
    model, dataset = loaded.model.float(), instantiate(loaded.config.data)
    hidden = torch.zeros(28, 28, dtype=torch.bool)
    hidden[(slice(14, None),) if options.half == "lower" else (slice(None), slice(14, None))] = True
    hidden = hidden.flatten()
    x = dataset.test[subset_indices(len(dataset.test), options.num_examples)]
    generator = torch.Generator().manual_seed(0)
    train = torch.bernoulli(dataset.train, generator=generator) if dataset.dynamic else dataset.train
    valid = dataset.valid[:300]
    tried = {k: scores(neighbors_means(train, valid, ~hidden, k), valid, hidden) for k in KS}
    best = max(KS, key=lambda k: float(tried[k]["nats"].mean()))
    neighbors = f"{best} nearest neighbors"
    found = {"column means": train.mean(0).expand(len(x), -1)}
    found[neighbors] = neighbors_means(train, x, ~hidden, best)
    filled: list[ByModel] = []
    whole = torch.empty(len(x), dtype=torch.float64)
    with torch.no_grad(), model.importance_sampler(0.0) as importance_sampler:
        for number in range(len(x)):
            one = x[number].reshape(1, *model.event_shape)
            row = GappedRow(one, ~hidden.reshape(one.shape), key_to_seed(0, number))
            filled.append(by_model(model, importance_sampler, row, options.num_samples, 500))
            batch = model.check_batch(one, exact=True, keys=[key_to_seed(1, number)])
            weights = importance_sampler.log_weights(batch, options.num_samples, 500)
            whole[number] = torch.logsumexp(weights[:, 0], 0) - math.log(len(weights))
            if number % 10 == 9:
                print(f"{number + 1} images", flush=True)
    joint = {name: torch.tensor([one.joint[name] for one in filled]).double() for name in filled[0].joint}
    found |= {name: torch.stack([one.means[name] for one in filled]) for name in joint}
    ess = torch.tensor([one.ess for one in filled])
    print(
        f"\n{Path(options.run).name}, step {loaded.step}, {options.half} half hidden, {len(x)} test images, "
        f"{options.num_samples} draws, effective samples: median {float(ess.median()):.1f}\n"
    )
    print("| imputed by | nats, jointly | nats, pixel by pixel | wrong pixels, % | squared error |")
    print("| --- | --- | --- | --- | --- |")
    for name, means in found.items():
        of = scores(means, x, hidden)
        together = with_error(joint[name]) if name in joint else "as pixel by pixel"
        cells = [with_error(of["nats"]), with_error(100 * of["wrong"]), with_error(of["squared"], 4)]
        print(f"| {name} | {together} | {' | '.join(cells)} |")
    log_seen = torch.tensor([one.log_seen for one in filled]).double()
    print(f"\nlog p(x) - log p(x_observed): {with_error(whole - log_seen)} nats")
    of_neighbors = scores(found[neighbors], x, hidden)
    for name, nats in joint.items():
        better = of_neighbors["squared"] - scores(found[name], x, hidden)["squared"]
        print(
            f"{name} against {neighbors}: {with_error(nats - of_neighbors['nats'])} nats more jointly, "
            f"squared error less by {with_error(better, 4)}"
        )
    if options.picture:
        gapped = x[:SHOWN].masked_fill(hidden, torch.nan)
        kept = {"observed": gapped, "truth": x[:SHOWN]} | {n: m[:SHOWN] for n, m in reversed(found.items())}
        text = GridText(
            caption="Above the line, what is seen; below it, the gap, the truth, and what each method fills in.",
            row_labels=[name.removeprefix("the ") for name in kept],
        )
        shown = [torch.where(hidden, part, x[:SHOWN]) for name, part in kept.items() if name != "observed"]
        figure = draw_image_grid(torch.stack([gapped, *shown])[:, :, None].clamp(0, 1), (28, 28), text=text)
        if options.half == "lower":
            axes = figure.axes[0]
            for middle in axes.get_yticks():
                axes.axhline(middle, color=VERMILION, linewidth=0.8)
        print(save_figure(figure, options.picture))


if __name__ == "__main__":
    main()
