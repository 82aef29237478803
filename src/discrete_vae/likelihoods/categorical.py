"""The categorical likelihood of features that are one of several codes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import Categorical

from discrete_vae.checks import check_positive_int
from discrete_vae.domains import Domain, categories
from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.base import Likelihood


class CategoricalLikelihood(Likelihood):
    """p(x | l) = prod_i softmax(l_i)_(x_i): one of K codes 0, ..., K - 1 per feature, K logits per feature.

    x holds the codes as floats. Logits and the encoder's one-hot input have K blocks of the event's first axis:
    the logit of code k of feature (c, ...) stands at (k * event[0] + c, ...).

    Args:
        event_shape: Shape of one example.
        num_categories: K, at least 2, the same for every feature.

    Attributes:
        num_categories: K.
        frequencies: Relative frequency of each code in the training data, (K, *event), each count raised by one
            half; the encoder reads it for unobserved entries. 1 / K before `initialize_`.

    Raises:
        InvalidInputError: If a size is not a positive integer, or num_categories is below 2.

    Examples:
        >>> likelihood = CategoricalLikelihood((2,), num_categories=3)
        >>> likelihood.parameter_shape, likelihood.input_shape
        ((6,), (6,))
        >>> likelihood.network_input(torch.tensor([[0.0, 2.0]]))
        tensor([[1., 0., 0., 0., 0., 1.]])
    """

    frequencies: Tensor

    def __init__(self, event_shape: Sequence[int], num_categories: int) -> None:
        super().__init__(event_shape, check_positive_int("num_categories", num_categories))
        if num_categories < 2:
            repair = "A feature with one value carries nothing: drop it."
            raise InvalidInputError("num_categories", "must be at least 2", num_categories, repair)
        self.num_categories = num_categories
        shape = (num_categories, *self.event_shape)
        self.register_buffer("frequencies", torch.full(shape, 1 / num_categories))

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(K * event[0], *event[1:]): the codes one-hot."""
        return self.parameter_shape

    def domain(self, *, exact: bool = False) -> Domain:
        """The codes 0, ..., K - 1."""
        return categories(self.num_categories)

    @torch.no_grad()
    def initialize_(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """Keep the frequencies of the codes; return their logarithms as logits, (*parameter_shape)."""
        self.check(x, observed)
        seen = ~x.isnan() if observed is None else observed
        codes = range(self.num_categories)
        counts = torch.stack([((x == code) & seen).sum(0, dtype=torch.float64) for code in codes]) + 0.5
        self.frequencies.copy_(counts / counts.sum(0))
        return self.frequencies.log().flatten(0, 1)

    def network_input(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """One-hot codes, (batch, *input_shape); unobserved entries read as the training frequencies."""
        axis = -len(self.event_shape) - 1
        x = x.unsqueeze(axis)
        codes = torch.arange(self.num_categories, dtype=x.dtype, device=x.device)
        hot = (x == codes.reshape(-1, *[1] * len(self.event_shape))).to(x.dtype)
        if observed is not None:
            hot = torch.where(observed.unsqueeze(axis), hot, self.frequencies.to(x.dtype))
        return hot.flatten(axis, axis + 1)

    def distribution(self, parameters: Tensor) -> Categorical:
        """Categorical(logits), batch shape (..., *event); it draws and takes int64 codes."""
        logits = self.unfold(parameters).movedim(self._axis, -1)
        return Categorical(logits=logits, validate_args=False)

    def feature_log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Log-softmax of the logits at the given codes, (..., *event); -inf where x is no code, NaN where it is NaN."""
        log_probs = self.unfold(parameters).log_softmax(self._axis)
        shape = list(log_probs.shape)
        shape[self._axis] = 1
        is_code = self.domain().contains(x)
        codes = x.masked_fill(~is_code, 0).long().unsqueeze(self._axis).expand(shape)
        found = log_probs.gather(self._axis, codes).squeeze(self._axis)
        return torch.where(is_code, found, torch.where(x.isnan(), torch.nan, -torch.inf))

    def probabilities(self, parameters: Tensor) -> Tensor:
        """Probability of each code, (..., K, *event)."""
        return self.unfold(parameters).softmax(self._axis)

    def mean(self, parameters: Tensor) -> Tensor:
        """The expected code, (..., *event): meaningful for ordered codes; `mode` is for the others."""
        probabilities = self.probabilities(parameters).movedim(self._axis, -1)
        codes = torch.arange(self.num_categories, dtype=probabilities.dtype, device=probabilities.device)
        return (probabilities * codes).sum(-1)

    def mode(self, parameters: Tensor) -> Tensor:
        """The most probable code, (..., *event)."""
        logits = self._drawable(self.unfold(parameters))
        return logits.argmax(self._axis).to(logits.dtype)

    @torch.no_grad()
    def sample(self, parameters: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw codes, (..., *event).

        The first of K exponential clocks rings, each at the rate of its code's probability: accurate for rare codes,
        where Gumbel noise from float32 uniforms is not, and without the wait that torch.multinomial brings.
        """
        logits = self._drawable(self.unfold(parameters))
        clocks = torch.empty_like(logits).exponential_(generator=generator)
        return (logits - clocks.log()).argmax(self._axis).to(logits.dtype)

    @property
    def _axis(self) -> int:
        """The axis of the codes in unfolded parameters."""
        return -len(self.event_shape) - 1
