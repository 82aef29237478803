"""This library: `BlockGibbs.step`, with its tables built in each call and a copy of the states returned."""

import numba
import torch

from discrete_vae import RBM, BlockGibbs

NAME, PACKAGE = "discrete-vae", "discrete-vae"


def prepare(weight, bias, num_chains, num_threads):
    numba.set_num_threads(num_threads)
    rbm = RBM(*weight.shape)
    with torch.no_grad():
        rbm.weight.copy_(torch.from_numpy(weight))
        rbm.bias.copy_(torch.from_numpy(bias))
    return BlockGibbs(rbm, num_chains, seed=0).step
