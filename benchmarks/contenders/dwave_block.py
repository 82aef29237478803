"""D-Wave's torch plugin: `BlockSampler`."""

import functools

from dwave.plugins.torch.samplers import BlockSampler
from dwave_machine import build, stepper

NAME, PACKAGE = "D-Wave BlockSampler", "dwave-pytorch-plugin"


def prepare(weight, bias, num_chains, num_threads):
    machine = build(weight, bias, hidden=False)
    return stepper(functools.partial(BlockSampler, machine, lambda node: node >= len(weight)), num_chains)
