"""A torch product of two 1000 x 1000 matrices, to see whether sampling and torch hinder each other."""

import torch

NAME, PACKAGE = "torch product", "torch"


def prepare(weight, bias, num_chains, num_threads):
    matrix = torch.full((1000, 1000), 0.001)
    return lambda num_sweeps: matrix @ matrix
