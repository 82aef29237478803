"""The network behind one Gaussian layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from discrete_vae.checks import check_number, check_positive_int
from discrete_vae.hierarchy.gaussian import Gaussian
from discrete_vae.nets.mlp import MLP, ConcatLinear

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
        log_std_bound: b, above 0; None leaves the linear output as it is.

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
    ) -> None:
        super().__init__()
        check_positive_int("num_units", num_units)
        if log_std_bound is not None:
            check_number(
                "log_std_bound", log_std_bound, above=0, repair="The default is 5; None is no bound."
            )
        self.log_std_bound = log_std_bound
        self.network = MLP(input_sizes, hidden, 2 * num_units)
        output = self.network.layers[-1]
        assert isinstance(output, ConcatLinear)  # without a norm behind it the last layer is linear
        with torch.no_grad():
            output.weight.mul_(_HEAD_SCALE)
            output.bias.zero_()

    def forward(self, *inputs: Tensor) -> Gaussian:
        """Apply the network.

        Args:
            inputs: One tensor an input, (..., size); leading axes broadcast.

        Returns:
            The layer's Gaussian, (..., unit).

        Raises:
            InvalidInputError: If the number of inputs or a last axis is wrong.
        """
        # under autocast the output is rounded, but latents and KL terms keep the parameters' precision
        mean, log_std = self.network(*inputs).to(self._dtype()).chunk(2, dim=-1)
        if self.log_std_bound is not None:
            log_std = self.log_std_bound * torch.tanh(log_std / self.log_std_bound)
        return Gaussian(mean, log_std)

    def _dtype(self) -> torch.dtype:
        return next(self.network.parameters()).dtype
