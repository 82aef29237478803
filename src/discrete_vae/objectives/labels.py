"""Labels as units of the prior: bounds of log p(x, y) and log sum_y p(x, y), and p(y | x).

A label y of K classes is the state e_y, one-hot, of the prior's first K units. With z' for the other units

    p(x, y) = sum_z' p(e_y, z') p(x | e_y, z'),
    q(y, z', zeta | x) = q(y | x) r(zeta_label | e_y) q(z', zeta' | x, y).

**A label that is known** clamps its units: they have neither entropy nor logits with a gradient, zeta_label is drawn
from r as every zeta, and their part of the energy is that of e_y. What is left of the ELBO,

    L(x, y) = E_q(z' | x, y) [log p(x | zeta, h)] - KL[q(z' | x, y) || p(z', e_y)] - KL_h <= log p(x, y),

where KL stands for E log q(z' | x, y) - log p(z', e_y), though p(z', e_y) is not normalized over z'.

**A label that is not known** is summed over, which is exact where a draw of y would need a score function:

    U(x) = sum_y q(y | x) (L(x, y) - log q(y | x)) <= log sum_y exp L(x, y) <= log sum_y p(x, y) <= log p(x),

by Jensen's inequality for q(y | x), then for each L. The last difference is the prior's mass on states of the label's
units that are no class. A row of the networks for each y, with its own noise, estimates L(x, y) without bias; q(y | x)
is a function of x alone, so U and its gradients by all parameters are linear in these estimates and unbiased too. In
training mode norms count the rows of an example alike, whatever q(y | x) is, as they do with importance samples.

**q(y | x) itself** learns from U alone. So the loss, never a bound that is reported, has a term -a log q(y | x) for
each row with a label. `DiscreteVAE.elbo` takes a from the caller, and 1 unasked, since a batch does not tell how many
examples of the data have labels. Training knows, and takes a = w N / N_labeled for N examples, N_labeled of which have
labels: w times the mean of -log q(y | x) over these. The source has w = 0.1; w is 1 here unasked, at which few labels
are not outvoted by what the others say of q(y | x) before the decoder has learned what a class looks like.

**p(y | x)** = p(x, y) / sum_y' p(x, y') is a ratio of importance-sampling estimates, one per class, in which log Z
cancels.

Source: Kingma, Mohamed, Rezende & Welling 2014, "Semi-supervised learning with deep generative models", eqs. 6 to 9 (L,
-U and the term with the weight alpha, for a prior in which y and z are independent); Larochelle & Bengio 2008,
"Classification using discriminative restricted Boltzmann machines" (a label among the units of an RBM). Deviation from
the latter: the label's units are ordinary units, whose states need not be one-hot, so that samplers and annealers need
not know of them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from discrete_vae.errors import InvalidInputError

UNKNOWN = -1
"""What stands for a label that is not known."""


def check_labels(labels: object, num_rows: int, num_classes: int, *, like: Tensor) -> Tensor:
    """Check the labels of examples; returns them on a tensor's device, (example,) int64.

    They are integers, a tensor or an array, from 0 to num_classes - 1, or -1 where a label is not known; None is not
    known of any.
    """
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu":
        labels = torch.from_numpy(labels.astype(np.int64))
    if labels is None:
        return torch.full((num_rows,), UNKNOWN, device=like.device)
    rule = f"must be {num_rows} integers from 0 to {num_classes - 1}, or -1 for one that is not known"
    repair = "Give a tensor (example,) of int64; number the classes from 0."
    if not isinstance(labels, Tensor) or labels.dtype.is_floating_point or labels.dtype.is_complex:
        received = f"{getattr(labels, 'dtype', f'a {type(labels).__name__}')}"
        raise InvalidInputError("labels", rule, received, repair)
    if labels.shape != (num_rows,):
        raise InvalidInputError("labels", rule, f"shape {tuple(labels.shape)}", repair)
    found = labels.to(like.device, torch.int64)
    outside = found[(found < UNKNOWN) | (found >= num_classes)]
    if len(outside):
        raise InvalidInputError("labels", rule, int(outside[0]), repair)
    return found


def rows_of_labels(labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """A row for each class that an example may be of: the row's example and its class, (row,) int64 each.

    A known label makes one row, another num_classes, those of an example side by side.

    Examples:
        >>> rows_of_labels(torch.tensor([2, -1]), 3)
        (tensor([0, 1, 1, 1]), tensor([2, 0, 1, 2]))
    """
    classes = torch.arange(num_classes, device=labels.device)
    allowed = (labels[:, None] == classes) | (labels[:, None] == UNKNOWN)
    example, label = allowed.nonzero(as_tuple=True)
    return example, label
