"""Running averages of all weights and running statistics along a run."""

from __future__ import annotations

import copy

import torch

from discrete_vae.model import DiscreteVAE

RAW_PREFIX = "raw/"
"""In front of the names of the weights that train, in a checkpoint whose model is their average."""


class AveragedWeights:
    """The exponential average of a model's states after each step, with the start-up's share taken out.

    a_t = (1 - d) / (1 - d^t) sum_s d^(t - s) w_s, which weighs all states from the first on and nothing else:
    a_1 = w_1, and while t is well below 1 / (1 - d) it is their plain mean. Parameters and running statistics are
    averaged alike, in their own precision; what is no floating-point number is copied. Bounds of parameters hold for
    averages too, as they are convex.

    Source: Polyak & Juditsky 1992 (averages); Kingma & Ba 2015, section 3 (the correction).

    Args:
        model: The model that trains; it is copied, its random start is no part of the average.
        decay: d, from 0 to below 1.

    Attributes:
        model: The average, in evaluation mode, without gradients.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> averages = AveragedWeights(model, decay=0.5)
        >>> for step, value in enumerate((3.0, 6.0), start=1):
        ...     _ = model.prior.bias.data.fill_(value)
        ...     averages.update(model, step)
        >>> averages.model.prior.bias[0]  # (3 / 2 + 6) / (1 / 2 + 1)
        tensor(5.)
    """

    def __init__(self, model: DiscreteVAE, decay: float) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self._decay = decay

    @torch.no_grad()
    def update(self, model: DiscreteVAE, step: int) -> None:
        """Take in the state after a step.

        Args:
            model: The model that trains.
            step: Steps done, this one included; the first is 1.
        """
        now, weight = model.state_dict(), (1 - self._decay) / (1 - self._decay**step)
        for name, average in self.model.state_dict().items():
            if average.is_floating_point():
                average.lerp_(now[name], weight)
            else:
                average.copy_(now[name])
