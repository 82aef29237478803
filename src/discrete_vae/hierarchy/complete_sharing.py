"""One prior network for all Gaussian layers."""

from __future__ import annotations

from collections.abc import Sequence

from discrete_vae.hierarchy.group_sharing import GroupSharing


class CompleteSharing(GroupSharing):
    """One network for all layers, of A zeta + h_1 + ... + h_(m-1): `GroupSharing` with a single group.

    The number of parameters does not depend on the number of layers.

    Source: Rolfe 2017, section architecture ("complete recurrent parameter sharing", Caltech-101 Silhouettes).

    Args:
        num_latents: Length of the last axis of zeta.
        num_layers: M.
        num_units: Units of each layer.
        hidden: Widths of the network's hidden layers.
        log_std_bound: See `GaussianNetwork`.

    Raises:
        InvalidInputError: If a size or the bound breaks its rule.
    """

    def __init__(
        self,
        num_latents: int,
        num_layers: int,
        num_units: int,
        hidden: Sequence[int],
        *,
        log_std_bound: float | None = 5.0,
    ) -> None:
        super().__init__(
            num_latents, num_layers, num_units, hidden, num_groups=1, log_std_bound=log_std_bound
        )
