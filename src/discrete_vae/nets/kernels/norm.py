"""The L1 batch norm and a rectifier behind it in one compiled pass, forward and backward.

Everything here is a plain function of tensors on the CPU whose types, shapes and strides the caller answers for:
activations (row, feature), contiguous, float32 or bfloat16; statistics and parameters (feature,), contiguous, float32.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from discrete_vae.compiled.recording import recordable
from discrete_vae.compiled.threads import threads_for
from discrete_vae.nets.kernels import norm_compiled
from discrete_vae.nets.kernels.form import ONE, ZERO, Form

SMALLEST_SHARED = 30_000
"""Activations from which a pass is divided among threads, where it takes longer than to wake a second one."""


def normalize(
    x: Tensor,
    out: Tensor,
    parameters: tuple[Tensor, Tensor],
    running: tuple[Tensor, Tensor],
    form: Form,
) -> Tensor:
    """Normalize by the batch and move the running averages.

    Args:
        x: Activations.
        out: Receives the output; may be x.
        parameters: Scale and offset, before their bounds.
        running: Running mean and mean absolute deviation; changed.
        form: The rest.

    Returns:
        Mean and mean absolute deviation of the batch, (2, feature).
    """
    statistics = torch.empty(2, x.shape[1], dtype=torch.float32, device="cpu")
    _normalize(x, out, *parameters, statistics, *running, form)
    return statistics


@recordable(only_read=("x", "scale", "offset"))
def _normalize(
    x: Tensor,
    out: Tensor,
    scale: Tensor,
    offset: Tensor,
    statistics: Tensor,
    running_mean: Tensor,
    running_deviation: Tensor,
    form: Form,
) -> Callable[[], object]:
    num_rows, num_features = x.shape
    place = statistics.data_ptr()
    return norm_compiled.FORWARD[x.dtype == torch.float32].bind(
        threads_for(num_rows * num_features, SMALLEST_SHARED),
        x.data_ptr(),
        out.data_ptr(),
        scale.data_ptr(),
        offset.data_ptr(),
        place,
        place + 4 * num_features,
        running_mean.data_ptr(),
        running_deviation.data_ptr(),
        num_rows,
        num_features,
        *form.forward,
    )


def normalize_backward(
    x: Tensor,
    out: Tensor,
    gradient: Tensor,
    parameters: tuple[Tensor, Tensor],
    statistics: Tensor,
    form: Form,
    *,
    of_batch: bool = True,
) -> tuple[Tensor, Tensor]:
    """The gradients of `normalize`, or with given statistics.

    Args:
        x: Activations.
        out: The output.
        gradient: By the output; replaced by that by x.
        parameters: Scale and offset, before their bounds.
        statistics: Mean and mean absolute deviation that were used, (2, feature).
        form: The rest.
        of_batch: Whether they are those of x, and no constants.

    Returns:
        The gradients by scale and offset.
    """
    by_scale, by_offset = torch.empty_like(parameters[0]), torch.empty_like(parameters[1])
    _normalize_backward(x, out, gradient, *parameters, statistics, by_scale, by_offset, form, of_batch)
    return by_scale, by_offset


@recordable(only_read=("x", "out", "scale", "offset", "statistics"))
def _normalize_backward(
    x: Tensor,
    out: Tensor,
    gradient: Tensor,
    scale: Tensor,
    offset: Tensor,
    statistics: Tensor,
    by_scale: Tensor,
    by_offset: Tensor,
    form: Form,
    of_batch: bool,
) -> Callable[[], object]:
    num_rows, num_features = x.shape
    place = statistics.data_ptr()
    return norm_compiled.BACKWARD[x.dtype == torch.float32].bind(
        threads_for(num_rows * num_features, SMALLEST_SHARED),
        x.data_ptr(),
        out.data_ptr(),
        gradient.data_ptr(),
        gradient.data_ptr(),
        scale.data_ptr(),
        offset.data_ptr(),
        place,
        place + 4 * num_features,
        by_scale.data_ptr(),
        by_offset.data_ptr(),
        num_rows,
        num_features,
        *form.backward,
        ONE if of_batch else ZERO,
    )


@recordable(only_read=("x",))
def clear_constant(x: Tensor, gradient: Tensor) -> Callable[[], object]:
    """Make zero of the gradient by the weights of inputs that are the same in all rows, as it is in front of a norm.

    Args:
        x: Inputs of a linear map, (row, input).
        gradient: By its weight, (output, input), of the same dtype; rows may lie apart; changed.
    """
    return norm_compiled.CLEAR[x.dtype == torch.float32].bind(
        1,
        x.data_ptr(),
        gradient.data_ptr(),
        *x.shape,
        len(gradient),
        gradient.stride(0),
    )


@recordable(only_read=("x", "mean", "factor", "offset"))
def apply_fixed(
    x: Tensor, out: Tensor, mean: Tensor, factor: Tensor, offset: Tensor, form: Form
) -> Callable[[], object]:
    """out = (x - mean) * factor + offset, rectified as the form says.

    Args:
        x: Activations.
        out: Receives the output; may be x.
        mean: (feature,).
        factor: (feature,).
        offset: (feature,).
        form: Says whether to rectify.
    """
    num_rows, num_features = x.shape
    return norm_compiled.FIXED[x.dtype == torch.float32].bind(
        threads_for(num_rows * num_features, SMALLEST_SHARED),
        x.data_ptr(),
        out.data_ptr(),
        mean.data_ptr(),
        factor.data_ptr(),
        offset.data_ptr(),
        num_rows,
        num_features,
        form.floor,
    )
