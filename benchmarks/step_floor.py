"""What a training step cannot do without: its matrix products, and one pass over weights, moments and gradients.

The products are listed from the model: hooks see what each network is given, so the list does not depend on how a
network computes. Networks' products are timed in the precision asked for, those of energies in float32. The order of
their memory is that of a linear layer: x W^T forward, g^T x for the weight, g W for the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from products import Product, linear_layers, watched
from torch import nn

from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.nets.mlp import MLP
from discrete_vae.training.state import TrainingState


def _of_linear(rows: int, given: int, wanted: int, outputs: int) -> Iterator[Product]:
    """A linear layer's products: forward, for its weight, and for those of its inputs that want a gradient."""
    yield Product((rows, given, outputs), right_transposed=True)
    yield Product((outputs, rows, given), left_transposed=True)
    if wanted > 0:
        yield Product((rows, outputs, wanted))


def _of_network(network: MLP | nn.Linear, inputs: tuple[torch.Tensor, ...]) -> Iterator[Product]:
    rows = math.prod(inputs[-1].shape[:-1])
    given = sum(value.shape[-1] for value in inputs)
    wanted = sum(value.shape[-1] for value in inputs if value.requires_grad)
    for layer in linear_layers(network):
        yield from _of_linear(rows, given, wanted, layer.out_features)
        given = wanted = layer.out_features


def _of_energy(energy: RBM, rows: int, chains: int) -> Iterator[Product]:
    """The mean energy under the posterior, forward and backward; the negative phase and its gradient."""
    left, right = energy.num_left, energy.num_right
    yield Product((rows, left, right), energy=True)
    yield Product((rows, right, left), right_transposed=True, energy=True)
    yield Product((left, rows, right), left_transposed=True, energy=True)
    yield Product((chains, left, right), energy=True)
    yield Product((left, chains, right), left_transposed=True, energy=True)


def products_of(state: TrainingState, step: Callable[[], object]) -> list[Product]:
    """The products of a step of fully connected networks over a bipartite prior.

    ``step`` takes it while the networks are watched; steps of the state are not recorded from now on.
    """
    prior = state.model.prior
    if not isinstance(prior, RBM):
        raise SystemExit(f"The floor is known for bipartite priors, not for {type(prior).__name__}.")
    state.recorded.functions.reason = "its networks are watched"
    found = watched(state.model, _of_network, step)
    rows = found[0].shape[0]
    found.extend(_of_energy(prior, rows, state.chains.num_chains))
    return found


def optimizer_pass(num_weights: int) -> Callable[[], object]:
    """One pass of Adam over float32 weights, moments and gradients that each lie in one piece."""
    weights, gradients, mean, square = (torch.randn(num_weights).abs_() for _ in range(4))
    step = torch.zeros(())

    def run() -> None:
        torch._fused_adam_(
            [weights], [gradients], [mean], [square], [], [step + 1],
            lr=1e-6, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip

    return run
