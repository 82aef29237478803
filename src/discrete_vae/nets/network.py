"""What the posterior and the Gaussian layers ask of the networks inside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from torch import nn

NetworkFactory: TypeAlias = Callable[[Sequence[int], int], nn.Module]
"""Makes a network from the lengths of its inputs' last axes and the length of its output's.

The network is called with one tensor per input, (..., size), whose leading axes are equal or broadcast against each
other: what depends on x alone is (batch, feature), what is sampled is (batch, size) in training and
(sample, batch, size) in importance sampling. It returns (..., output) with the broadcast leading axes. The first input
is always the encoder's features; those after it are earlier latents, in order.

`discrete_vae.nets.mlp.MLP` with its hidden layers fixed is one: ``functools.partial(MLP, hidden=(200, 200))``.
"""
