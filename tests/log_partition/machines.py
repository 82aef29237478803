"""Machines whose log Z is known by enumeration and hard to estimate."""

import torch

from discrete_vae import RBM
from tests.boltzmann.graphs import randomize, with_parameters


def random_rbm(left, right, scale=1.0, seed=0):
    return randomize(RBM(left, right), scale=scale, seed=seed)


def two_far_modes(size=20, weight=2.0, excess=0.1):
    """All-off has weight 1, all-on exp(2 size excess), and single chains never cross."""
    return with_parameters(RBM(size, size), weight=weight, bias=excess - weight * size / 2)


def wide_and_deep_mode(core=8, extra=8, weight=2.0, depth=8.0):
    """A wide mode that warm chains choose, and a deep one that has most of the mass.

    With the core off, the extra units are free: entropy extra log 2. With it on they are held off, and the energy is
    lower by depth. Annealed chains fall into the wide mode where barriers rise, and never see the other.
    """
    rbm = RBM(core, core + extra)
    with torch.no_grad():
        rbm.weight[:, :core] = weight
        rbm.weight[:, core:] = -3.0
        rbm.bias[: 2 * core] = depth / (2 * core) - weight * core / 2
        rbm.bias[2 * core :] = 0
    return rbm
