"""D-Wave's torch plugin: `BipartiteGibbsSampler`."""

import functools

from dwave.plugins.torch.samplers.bipartite_sampler import BipartiteGibbsSampler
from dwave_machine import build, stepper

NAME, PACKAGE = "D-Wave BipartiteGibbsSampler", "dwave-pytorch-plugin"


def prepare(weight, bias, num_chains, num_threads):
    return stepper(functools.partial(BipartiteGibbsSampler, build(weight, bias, hidden=True)), num_chains)
