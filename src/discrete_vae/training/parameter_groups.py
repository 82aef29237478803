"""Which parameters take which step size and which decay."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from discrete_vae.config import OptimizerConfig
from discrete_vae.model import DiscreteVAE

_FACTOR, _DECAY = "rate_factor", "decoupled_decay"  # names that torch's optimizers leave alone


def parameter_groups(
    model: DiscreteVAE, settings: OptimizerConfig, *others: nn.Module
) -> list[dict[str, Any]]:
    """The parameters as an optimizer takes them: networks first, then those that the settings set apart.

    Only matrices and the like decay, those of p(h | zeta) and of the decoder, not scales, offsets and biases. Settings
    that change nothing make one group.

    Args:
        model: The model.
        settings: Factor of the machine's step size, decay of the Gaussian layers' prior networks and of the decoder.
        others: What else is trained as networks are, baselines of the gradient for example.

    Returns:
        Groups; `set_rates` and `decay_weights` read what is in them beside the parameters.
    """
    machine: list[nn.Parameter] = []
    if settings.prior_learning_rate_factor != 1.0:
        machine = list(model.prior.parameters())
    layers = _matrices(getattr(model.hierarchy, "prior", None), settings.layers_weight_decay)
    decoder = _matrices(model.decoder, settings.decoder_weight_decay)
    apart = {id(parameter) for parameter in (*machine, *layers, *decoder)}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in apart]
    rest += [parameter for other in others for parameter in other.parameters()]
    groups = [
        {"params": rest, _FACTOR: 1.0, _DECAY: 0.0},
        {"params": machine, _FACTOR: settings.prior_learning_rate_factor, _DECAY: 0.0},
        {"params": layers, _FACTOR: 1.0, _DECAY: settings.layers_weight_decay},
        {"params": decoder, _FACTOR: 1.0, _DECAY: settings.decoder_weight_decay},
    ]
    return [group for group in groups if group["params"]]


def _matrices(part: object, decay: float) -> list[nn.Parameter]:
    """What decays of a part; nothing without decay."""
    if decay == 0.0 or not isinstance(part, nn.Module):
        return []
    return [parameter for parameter in part.parameters() if parameter.dim() >= 2]


def set_rates(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give each group its step size.

    Args:
        optimizer: Made with `parameter_groups`.
        rate: Step size of the networks.
    """
    for group in optimizer.param_groups:
        group["lr"] = rate * group[_FACTOR]


def decay_weights(optimizer: torch.optim.Optimizer) -> None:
    """Shrink the weights of groups that decay by 1 - step size * decay; call it before a step of the optimizer.

    It never enters Adam's moments. Frozen weights stay as they are.

    Source: Loshchilov & Hutter 2019, algorithm 2.

    Args:
        optimizer: Made with `parameter_groups`.
    """
    for group in optimizer.param_groups:
        if group[_DECAY] > 0:
            with torch.no_grad():
                for parameter in group["params"]:
                    if parameter.requires_grad:
                        parameter.mul_(1 - group["lr"] * group[_DECAY])
