"""How far a machine is from the law that it stands for, from samples of both."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.samplers.bennett_ratio import bridge_term, weighted_ratio

_LEAST_OVERLAP = 0.01


@dataclass(frozen=True)
class Divergence:
    """How far a machine on the remaining units is from the law of these units.

    Attributes:
        kl: KL(p || p'), nats, p the original's law of the remaining units.
        std_error: Its standard error, where samples are independent.
        log_partition_shift: log Z' - log Z, nats.
    """

    kl: float
    std_error: float
    log_partition_shift: float


def estimate_divergence(ratio: Callable[[Tensor], Tensor], of_p: Tensor, of_other: Tensor) -> Divergence:
    """KL(p || p') = E_p[d] + log Z' - log Z, with d = log p - log p' up to its constant.

    The shift of log Z is Bennett's acceptance ratio of samples of both laws: from those of p alone, what p' puts where
    p has nothing would go unseen.

    Args:
        ratio: d of states, (sample, unit) -> (sample,) float64.
        of_p: Samples of p.
        of_other: Samples of p'.

    Warns:
        UserWarning: If the two laws hardly overlap, so that the estimate rests on few samples.
    """
    up, down = ratio(of_p), ratio(of_other)
    weights = torch.full_like(down, 1 / len(down))
    shift, *_ = weighted_ratio(up, down, weights, num_up=len(up), num_down=len(down))
    guess = torch.tensor(shift + math.log(len(up) / len(down)), dtype=up.dtype)
    here, there = bridge_term(up, down, guess)
    if min(float(here.mean()), float(there.mean())) < _LEAST_OVERLAP:
        warnings.warn(
            "the remapped prior hardly overlaps with the original, and the divergence rests on few samples: it is "
            f"about {float(up.mean()) + shift:.1f} nats. Look for a better place, or train anew on the solver's graph.",
            stacklevel=4,
        )
    first = (up - up.mean()) + here / here.mean() - 1  # what each sample adds to the deviation
    second = there / there.mean() - 1
    variance = first.square().mean() / len(up) + second.square().mean() / len(down)
    return Divergence(float(up.mean()) + shift, math.sqrt(float(variance)), shift)
