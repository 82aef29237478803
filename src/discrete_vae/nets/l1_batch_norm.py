"""Batch normalization by the mean absolute deviation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from discrete_vae.bounds import bounded, project_
from discrete_vae.checks import check_number, check_positive_int
from discrete_vae.compiled.choice import are_plain, fuses, is_ordinary
from discrete_vae.errors import InvalidInputError
from discrete_vae.nets.kernels.choice import works
from discrete_vae.nets.kernels.form import SCALE_BOUNDS, Form, norm_form


class L1BatchNorm(nn.Module):
    """y = x - mean(x); output y / (mean|y| + eps) * s + o, for each feature over all leading axes.

    In training the statistics are the batch's and running averages are kept; in evaluation the running averages
    are used, so that an example's log-likelihood does not depend on the rest of its batch.

    Source: Rolfe 2017, appendix laplacian-batch-normalization. The paper is silent on evaluation, eps, the
    momentum and the starting values; eps is 1e-3 because at 1e-8 a constant column gets gradients of 3e8.

    Args:
        num_features: Length of the last axis.
        bounded: Whether 2 <= s <= 3 and -s <= o <= s always, as the paper has it for the logits of the discrete
            units (see `discrete_vae.bounds.bounded`); s then starts at 2, otherwise at 1. o starts at 0.
        eps: Added to the mean absolute deviation, above 0.
        momentum: Weight of the new batch in the running averages, above 0 and at most 1.

    Attributes:
        scale: s, (feature,).
        offset: o, (feature,).
        running_mean: (feature,).
        running_deviation: Running mean|y|, (feature,).

    Raises:
        InvalidInputError: If num_features is not a positive integer, eps not above 0, or momentum not in (0, 1].

    Examples:
        >>> norm = L1BatchNorm(1)
        >>> norm(torch.tensor([[0.0], [2.0]])).flatten()
        tensor([-0.9990, 0.9990], grad_fn=...)
    """

    running_mean: Tensor
    running_deviation: Tensor

    def __init__(
        self, num_features: int, *, bounded: bool = False, eps: float = 1e-3, momentum: float = 0.1
    ) -> None:
        super().__init__()
        self.num_features = check_positive_int("num_features", num_features)
        self.bounded = bounded
        self.eps = check_number("eps", eps, above=0, repair="The default is 1e-3.")
        self.momentum = check_number("momentum", momentum, above=0, at_most=1, repair="The default is 0.1.")
        self.scale = nn.Parameter(torch.full((num_features,), 2.0 if bounded else 1.0))
        self.offset = nn.Parameter(torch.zeros(num_features))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_deviation", torch.ones(num_features))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize.

        Args:
            x: (..., feature); in training at least two rows.

        Returns:
            (..., feature), in the wider of x's dtype and the parameters'.

        Raises:
            InvalidInputError: If x has fewer than two rows in training.
        """
        x = x.to(torch.promote_types(x.dtype, self.scale.dtype))  # autocast rounds what networks make
        if self.training:
            self.check_rows(x.numel() // self.num_features)
            if self._fuses(x):
                from discrete_vae.nets.fused_norm import fused_norm

                return fused_norm(self, x)
        scale, offset = self.used_parameters()
        if not self.training:
            return (x - self.running_mean) * (scale / (self.running_deviation + self.eps)) + offset
        axes = tuple(range(x.dim() - 1))
        mean = x.mean(axes)
        centered = x - mean
        deviation = centered.abs().mean(axes)
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_deviation.lerp_(deviation.to(self.running_deviation.dtype), self.momentum)
        return centered * (scale / (deviation + self.eps)) + offset

    def used_parameters(self) -> tuple[Tensor, Tensor]:
        """Scale and offset inside their bounds, each (feature,)."""
        if not self.bounded:
            return self.scale, self.offset
        scale = bounded(self.scale, *SCALE_BOUNDS)
        limit = scale.detach()
        return scale, bounded(self.offset, -limit, limit)

    def form(self, *, rectify: bool) -> Form:
        """What the compiled pass must know of this norm, with or without a rectifier behind it."""
        return norm_form(self.eps, self.momentum, SCALE_BOUNDS if self.bounded else None, rectify)

    def check_rows(self, num_rows: int) -> None:
        """Check that a batch has a deviation.

        Raises:
            InvalidInputError: If it has fewer than two rows.
        """
        if num_rows < 2:
            repair = "Give larger batches, or call eval() to use the running statistics."
            raise InvalidInputError(
                "x", "must have at least two rows in training", f"{num_rows} rows", repair
            )

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Parameters and running averages."""
        own, kept = self._parameters, self._buffers  # a tenth of the time of the attributes
        return own["scale"], own["offset"], kept["running_mean"], kept["running_deviation"]  # pyright: ignore[reportReturnType]

    def _fuses(self, x: Tensor) -> bool:
        """Whether the compiled pass can be used for x."""
        return x.dtype == torch.float32 and is_ordinary() and are_plain((x, *self.tensors())) and works()

    def extra_repr(self) -> str:
        """The size, and whether there are bounds."""
        return f"{self.num_features}, bounded={self.bounded}"

    @torch.no_grad()
    def project_(self) -> None:
        """Bring the parameters s, then o, back inside the paper's bounds; does nothing where there are none."""
        if not self.bounded:
            return
        if fuses(self.scale, self.offset):
            from discrete_vae.nets.kernels import projection

            if projection.works():
                projection.project_norm_(self.scale, self.offset)
                return
        project_(self.scale, *SCALE_BOUNDS)
        project_(self.offset, -self.scale, self.scale)
