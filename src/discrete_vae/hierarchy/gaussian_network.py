"""The network behind one Gaussian layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from discrete_vae.checks import check_number, check_positive_int
from discrete_vae.hierarchy.gaussian import Gaussian
from discrete_vae.nets.mlp import MLP
from discrete_vae.nets.network import NetworkFactory

_HEAD_SCALE = 0.01  # of torch's start: prior and posterior begin near the standard normal, their KL near 0


class GaussianNetwork(nn.Module):
    """Hidden layers of linear -> L1 batch norm -> ReLU, then a linear layer for mean and log standard deviation.

    Source: Rolfe 2017, section results. Deviation: the paper states no bound on the log standard deviation s; here it
    is b tanh(s / b), near s for small s, so that a KL, which holds exp(2 s_q - 2 s_p), stays finite. The paper does not
    say where weights start; the output's do at a hundredth of torch's, so that layers start near the standard normal.

    Args:
        input_sizes: Length of the last axis of each input.
        hidden: Widths of the hidden layers; empty makes the network linear.
        num_units: Units of the layer.
        log_std_bound: b, above 0; None leaves the network's output as it is.
        network: Makes the network, in place of the MLP that hidden describes; its output should start near 0.

    Raises:
        InvalidInputError: If an argument breaks its rule.
    """

    def __init__(
        self,
        input_sizes: Sequence[int],
        hidden: Sequence[int],
        num_units: int,
        *,
        log_std_bound: float | None,
        network: NetworkFactory | None = None,
    ) -> None:
        super().__init__()
        check_positive_int("num_units", num_units)
        if log_std_bound is not None:
            check_number(
                "log_std_bound", log_std_bound, above=0, repair="The default is 5; None is no bound."
            )
        self.log_std_bound = log_std_bound
        if network is None:
            self.network: nn.Module = MLP(input_sizes, 2 * num_units, hidden)
            self.network.initialize_output_(0.0, _HEAD_SCALE)
        else:
            self.network = network(input_sizes, 2 * num_units)

    def forward(self, *inputs: Tensor) -> Gaussian:
        """Apply the network.

        Args:
            inputs: One tensor per input, (..., size); leading axes broadcast.

        Returns:
            The layer's Gaussian, (..., unit), in the parameters' precision, also under autocast.
        """
        # under autocast the output is rounded, but latents and KL terms keep the parameters' precision
        output = self.network(*inputs)
        mean, log_std = output.to(self._dtype(output.dtype)).chunk(2, dim=-1)
        if self.log_std_bound is not None:
            log_std = self.log_std_bound * torch.tanh(log_std / self.log_std_bound)
        return Gaussian(mean, log_std)

    def _dtype(self, computed: torch.dtype) -> torch.dtype:
        """The wider of what the network computed in and its parameters."""
        own = next(self.network.parameters(), None)
        return computed if own is None else torch.promote_types(computed, own.dtype)
