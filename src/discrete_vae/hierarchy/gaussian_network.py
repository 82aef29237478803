"""The network behind one Gaussian layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from discrete_vae.checks import check_number, check_positive_int
from discrete_vae.compiled.choice import fuses
from discrete_vae.hierarchy.gaussian import Gaussian
from discrete_vae.nets.mlp import MLP
from discrete_vae.nets.network import NetworkFactory
from discrete_vae.numerics import differentiable_once

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
        InvalidInputError: If a size is not a positive integer or the bound not above 0.
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
        return self.gaussian(self.output(*inputs))

    def rsample(self, *inputs: Tensor, noise: Tensor) -> tuple[Gaussian, Tensor]:
        """Apply the network and draw h = mean + std * noise, which carries the gradient of both.

        Args:
            inputs: As in `forward`.
            noise: Standard normal, (..., unit).

        Returns:
            The layer's Gaussian and h, (..., unit).
        """
        output = self.output(*inputs)
        if torch.is_grad_enabled():
            mean, log_std, h = _Head.apply(output, noise, self.log_std_bound)
            return Gaussian(mean, log_std), h
        of_layer = self.gaussian(output)
        return of_layer, torch.exp(of_layer.log_std).mul_(noise.contiguous()).add_(of_layer.mean)

    def output(self, *inputs: Tensor) -> Tensor:
        """What the network makes of its inputs, (..., 2 unit), at least in the parameters' precision."""
        # under autocast the output is rounded, but latents and KL terms keep the parameters' precision
        output = self.network(*inputs)
        return output.to(self._dtype(output.dtype))

    def gaussian(self, output: Tensor) -> Gaussian:
        """The Gaussian that an output stands for; one call serves the outputs of many layers with the same bound."""
        if torch.is_grad_enabled():
            mean, log_std, _ = _Head.apply(output, None, self.log_std_bound)
            return Gaussian(mean, log_std)
        mean, raw = output.chunk(2, -1)
        bound = self.log_std_bound
        return Gaussian(mean, raw if bound is None else (raw / bound).tanh_().mul_(bound))

    def _dtype(self, computed: torch.dtype) -> torch.dtype:
        """The wider of what the network computed in and its parameters."""
        own = next(self.network.parameters(), None)
        return computed if own is None else torch.promote_types(computed, own.dtype)


def gaussian_networks(modules: nn.ModuleList) -> list[GaussianNetwork]:
    """The Gaussian networks of a list of modules."""
    return [module for module in modules if isinstance(module, GaussianNetwork)]


class _Head(torch.autograd.Function):
    """Mean m and log standard deviation s = b tanh(u / b) of an output [m, u], and a draw h = m + e^s noise.

    ds/du = 1 - tanh(u / b)^2, dh/ds = e^s noise. It can be differentiated once.
    """

    @staticmethod
    def forward(
        ctx: Any, output: Tensor, noise: Tensor | None, bound: float | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Mean, log standard deviation and, where there is noise, the draw."""
        ctx.set_materialize_grads(False)
        shape = (*output.shape[:-1], output.shape[-1] // 2)
        if fuses(output) and (noise is None or (noise.shape == shape and fuses(noise))):
            from discrete_vae.hierarchy.kernels import head

            if head.works():
                mean, log_std, h, slope, spread = head.head(output, noise, bound)
                ctx.save_for_backward(slope, spread)
                return mean, log_std, h
        # copies, since what a function returns must not be a view of what it was given
        mean, raw = (part.clone(memory_format=torch.contiguous_format) for part in output.chunk(2, -1))
        slope = spread = h = None
        if bound is None:
            log_std = raw
        else:
            bent = (raw / bound).tanh_()
            log_std, slope = bent * bound, bent.square_().neg_().add_(1)
        if noise is not None:
            spread = torch.exp(log_std).mul_(noise)
            h = mean + spread
        ctx.save_for_backward(slope, spread)
        return mean, log_std, h

    @staticmethod
    @differentiable_once
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor | None
    ) -> tuple[Tensor | None, None, None]:
        """See the class."""
        slope, spread = ctx.saved_tensors
        of_mean, of_log_std, of_h = gradients
        if of_mean is None and of_log_std is None and of_h is None:
            return None, None, None
        if fuses(*(value for value in (*gradients, slope, spread) if value is not None)):
            from discrete_vae.hierarchy.kernels import head

            if head.works():
                return head.head_backward(of_mean, of_log_std, of_h, slope, spread), None, None
        if of_h is not None:
            of_mean = of_h if of_mean is None else of_mean + of_h
            through_h = of_h * spread
            of_log_std = through_h if of_log_std is None else through_h.add_(of_log_std)
        if of_mean is None:
            assert of_log_std is not None
            of_mean = torch.zeros_like(of_log_std)
        of_log_std = torch.zeros_like(of_mean) if of_log_std is None else of_log_std
        return torch.cat([of_mean, of_log_std if slope is None else of_log_std * slope], -1), None, None
