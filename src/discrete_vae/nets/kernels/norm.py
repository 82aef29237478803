"""The L1 batch norm and a rectifier behind it in one compiled pass, forward and backward.

Everything here is a plain function of tensors on the CPU whose types, shapes and strides the caller answers for:
activations (row, feature), contiguous, float32 or bfloat16; statistics and parameters (feature,), contiguous, float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.compiled.recording import recordable
from discrete_vae.compiled.threads import threads_for
from discrete_vae.nets.kernels import norm_compiled
from discrete_vae.nets.kernels.form import ONE, ZERO, Form

SMALLEST_SHARED = 150_000
"""Activations from which a pass is divided among threads: waking a second one takes 5 to 10 us."""


@recordable
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
    num_rows, num_features = x.shape
    statistics = torch.empty(2, num_features, device="cpu")
    place = statistics.data_ptr()
    norm_compiled.FORWARD[x.dtype == torch.float32](
        threads_for(num_rows * num_features, SMALLEST_SHARED),
        x.data_ptr(),
        out.data_ptr(),
        parameters[0].data_ptr(),
        parameters[1].data_ptr(),
        place,
        place + 4 * num_features,
        running[0].data_ptr(),
        running[1].data_ptr(),
        num_rows,
        num_features,
        *form.forward,
    )
    return statistics


@recordable
def normalize_backward(
    x: Tensor,
    out: Tensor,
    gradient: Tensor,
    parameters: tuple[Tensor, Tensor],
    statistics: Tensor,
    form: Form,
    *,
    of_batch: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
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
        The gradients by x, scale and offset.
    """
    num_rows, num_features = x.shape
    by_scale, by_offset = torch.empty_like(parameters[0]), torch.empty_like(parameters[1])
    place = statistics.data_ptr()
    norm_compiled.BACKWARD[x.dtype == torch.float32](
        threads_for(num_rows * num_features, SMALLEST_SHARED),
        x.data_ptr(),
        out.data_ptr(),
        gradient.data_ptr(),
        gradient.data_ptr(),
        parameters[0].data_ptr(),
        parameters[1].data_ptr(),
        place,
        place + 4 * num_features,
        by_scale.data_ptr(),
        by_offset.data_ptr(),
        num_rows,
        num_features,
        *form.backward,
        ONE if of_batch else ZERO,
    )
    return gradient, by_scale, by_offset


@recordable
def apply_fixed(x: Tensor, out: Tensor, mean: Tensor, factor: Tensor, offset: Tensor, form: Form) -> None:
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
    norm_compiled.FIXED[x.dtype == torch.float32](
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
