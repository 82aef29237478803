"""The condition c of p(x | c): columns that the networks below z read, as features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from discrete_vae.checks import check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.base import check_values
from discrete_vae.likelihoods.table import TableLikelihood

if TYPE_CHECKING:
    from discrete_vae.config.model import ColumnConfig


class ConditionEmbedding(nn.Module):
    """e(c) = r(c) + m U: what networks read of the columns c of a condition, some of which may be missing.

    r(c) is what the encoder of a table reads of such columns: standardized real values, logarithms of counts, one-hot
    categories; of a missing one the mean over the training data. m is 1 for a missing column, else 0. U is learned and
    starts at 0: each column has a vector that stands for not knowing it.

    Args:
        columns: Kind and settings of each column.

    Attributes:
        missing: U, (column, feature).
        num_features: Length of the last axis of e(c).

    Examples:
        >>> from discrete_vae.config import CategoryColumnConfig
        >>> embedding = ConditionEmbedding([CategoryColumnConfig(name="batch", values=("A", "B"))])
        >>> embedding(torch.tensor([[0.0], [1.0], [torch.nan]]))
        tensor([[1.0000, 0.0000],
                [0.0000, 1.0000],
                [0.5000, 0.5000]], grad_fn=...)
    """

    exposure_of: Tensor
    filling: Tensor

    def __init__(self, columns: Sequence[ColumnConfig]) -> None:
        super().__init__()
        self.names = tuple(column.name for column in columns)
        self.table = TableLikelihood((len(columns),), columns)
        for module in self.table.modules():  # c has no law here, so parameters of laws are not trained
            for name, parameter in list(module.named_parameters(recurse=False)):
                delattr(module, name)
                module.register_buffer(name, parameter.detach())
        self._domains = tuple(column.domain for column in columns)
        (self.num_features,) = self.table.input_shape
        self.missing = nn.Parameter(torch.zeros(len(columns), self.num_features))
        place_of = {name: place for place, name in enumerate(self.names)}
        named = {place: getattr(column, "exposure_column", None) for place, column in enumerate(columns)}
        # a count without its exposure is not known either
        exposure_of = [place if name is None else place_of[name] for place, name in named.items()]
        self.register_buffer("exposure_of", torch.tensor(exposure_of), persistent=False)
        is_exposure = [name in named.values() for name in self.names]
        self.register_buffer("filling", torch.tensor(is_exposure, dtype=torch.float32), persistent=False)

    def check(self, condition: object, num_rows: int) -> Tensor:
        """Check a condition at the model's door; returns it with a row for each of the examples, (row, column).

        Args:
            condition: (row, column), or (1, column) for all rows; floating-point, codes and counts too. NaN is a
                missing value.
            num_rows: Examples.
        """
        c = check_tensor("condition", condition, ("row", len(self.names)))
        if len(c) not in (1, num_rows):
            rule = f"must have a row for each of the {num_rows} examples, or one for all"
            raise InvalidInputError("condition", rule, f"{len(c)} rows", "Give as many.")
        if c.device.type != self.missing.device.type:
            repair = f"Move it with condition.to({str(self.missing.device)!r})."
            raise InvalidInputError("condition", "must be on the model's device", c.device, repair)
        for name, values, domain in zip(self.names, c.unbind(1), self._domains, strict=True):
            check_values(values, None, domain, name=f"condition {name!r}")
        return c.to(torch.promote_types(self.missing.dtype, torch.float32)).expand(num_rows, -1)

    @property
    def unknown(self) -> Tensor:
        """A condition of which every column is missing, (1, column)."""
        return self.missing.new_full((1, len(self.names)), torch.nan)

    @torch.no_grad()
    def initialize_(self, condition: Tensor) -> None:
        """Take the statistics of r from the condition of the training data, (example, column)."""
        self.table.initialize_(condition, ~condition.isnan())

    def forward(self, condition: Tensor) -> Tensor:
        """e(c), (..., row, feature), of a checked condition, (..., row, column); looks at no value."""
        known = ~condition.isnan()
        observed = known & known.index_select(-1, self.exposure_of)
        filled = torch.where(known, condition, self.filling.to(condition.dtype))
        read = self.table.network_input(filled, observed)
        return read.to(self.missing.dtype) + (~observed).to(self.missing.dtype) @ self.missing

    def extra_repr(self) -> str:
        return ", ".join(self.names)
