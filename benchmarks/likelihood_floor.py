"""What a log-likelihood by importance sampling cannot do without: its matrix products.

What reads x alone counts once per image, however many samples it has; all else once per sample. Networks' products
are timed in the precision asked for, those of energies in float32. The rows of a product are as many at a time as
are fastest, of one image or of several.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch
from interleaving import interleaved
from products import Product, linear_layers, watched
from torch import nn

from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.mlp import MLP
from discrete_vae.nets.modes import eval_mode

ROWS = (500, 1000, 2000, 5000, 10_000)


def _of_network(network: MLP | nn.Linear, inputs: tuple[torch.Tensor, ...]) -> Iterator[Product]:
    """Inputs without the axis of samples are multiplied apart."""
    most = max(value.dim() for value in inputs)
    for axes in sorted({value.dim() for value in inputs}):
        together = [value for value in inputs if value.dim() == axes]
        rows, given = math.prod(together[0].shape[:-1]), sum(value.shape[-1] for value in together)
        layers = linear_layers(network)
        for layer in layers if axes == most else layers[:1]:
            yield Product((rows, given, layer.out_features), right_transposed=True)
            given = layer.out_features


@torch.no_grad()
def products_of(model: DiscreteVAE, num_samples: int) -> list[Product]:
    """The products for so many samples of one image, of fully connected networks over a bipartite prior."""
    prior = model.prior
    if not isinstance(prior, RBM):
        raise SystemExit(f"The floor is known for bipartite priors, not for {type(prior).__name__}.")
    features = torch.zeros(1, model.posterior.num_features)

    def draw() -> None:
        sample = still.posterior.rsample(features, num_samples=num_samples)
        below = still.hierarchy.rsample(features, sample.zeta)
        still.decoder(below.decoder_input.flatten(0, 1))

    with eval_mode(model) as still:
        found = watched(still, _of_network, draw)
    return [*found, Product((num_samples, prior.num_left, prior.num_right), energy=True)]


def products_of_images(
    model: DiscreteVAE, num_samples: int, precision: str
) -> tuple[Callable[[], object], int]:
    """All products of so many images, the second of the two, as are worth it.

    They are done with so many rows at a time, of one image or of several, as are fastest.
    """
    num_images = max(1, ROWS[-1] // num_samples)
    total = num_samples * num_images
    candidates = {
        rows: _calls(products_of(model, rows), num_samples, num_images, rows, precision)
        for rows in sorted({*ROWS, num_samples})
        if total % rows == 0 and (num_samples % rows == 0 or rows % num_samples == 0) and rows <= ROWS[-1]
    }
    times = interleaved({str(rows): call for rows, call in candidates.items()}, seconds=1)
    return candidates[int(min(times, key=lambda rows: min(times[rows])))], num_images


def _calls(
    products: Iterable[Product], num_samples: int, num_images: int, rows: int, precision: str
) -> Callable[[], object]:
    together = max(1, rows // num_samples)  # images of which x alone is read at a time
    once = [
        replace(product, shape=(together, *product.shape[1:])).call(precision)
        for product in products
        if product.shape[0] < rows
    ]
    often = [product.call(precision) for product in products if product.shape[0] >= rows]

    def run() -> None:
        for _ in range(num_images // together):
            for call in once:
                call()
        for _ in range(num_samples * num_images // rows):
            for call in often:
                call()

    return run
