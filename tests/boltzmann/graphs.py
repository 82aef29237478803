"""Machines that the tests of several parts share, graphs with odd cycles and of RBMs; exact samples, their counts."""

import torch

from discrete_vae import RBM, FactorialBernoulli, GraphBoltzmann
from discrete_vae.testing import enumerate_machine

ODD_CYCLE = [[0, 1], [2, 1], [2, 3], [4, 3], [0, 4]]
SMALL_GRAPHS = {
    "one unit": (1, []),
    "no edges": (4, []),
    "triangle": (3, [[1, 2], [0, 2], [1, 0]]),
    "odd cycle": (5, ODD_CYCLE),
    "odd cycle, chord, end and loner": (7, [*ODD_CYCLE, [0, 2], [5, 3]]),
    "star": (6, [[3, unit] for unit in (0, 1, 2, 4, 5)]),
    "complete": (5, "complete"),
    "Chimera cell": (8, "chimera"),
}


def randomize(energy, *, scale=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in energy.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
    return energy


@torch.no_grad()
def with_parameters(energy, **values):
    """The machine itself, whose parameters of these names now have these numbers."""
    for name, value in values.items():
        parameter = energy.get_parameter(name)
        parameter.copy_(torch.as_tensor(value, dtype=parameter.dtype))
    return energy


def small_graph(name, **options):
    return randomize(GraphBoltzmann(*SMALL_GRAPHS[name]), **options)


def rbm_and_its_graph(num_left, num_right, **options):
    """An RBM with random parameters, and the graph machine that is the same."""
    rbm = randomize(RBM(num_left, num_right), **options)
    pairs = [[i, num_left + j] for i in range(num_left) for j in range(num_right)]
    graph = GraphBoltzmann(rbm.num_units, pairs)
    return rbm, with_parameters(graph, weight=rbm.weight.flatten(), bias=rbm.bias)


def random_graph(num_units, num_edges, *, seed=0, scale=0.4):
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randint(num_units, (2 * num_edges + 100, 2), generator=generator)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]].sort(1).values.unique(dim=0)
    pairs = pairs[torch.randperm(len(pairs), generator=generator)[:num_edges]]
    assert len(pairs) == num_edges
    return randomize(GraphBoltzmann(num_units, pairs), seed=seed, scale=scale)


FIVE_UNITS = {
    "rbm": lambda: randomize(RBM(3, 2)),
    "graph": lambda: randomize(GraphBoltzmann(5, "complete")),
    "factorial": lambda: randomize(FactorialBernoulli(5)),
}


def exact_draws(machine, number, *, t=1.0, seed=0):
    """Independent samples of p^t by enumeration, float32."""
    law = enumerate_machine(machine)
    prob, generator = (t * law.log_prob.detach()).softmax(0), torch.Generator().manual_seed(seed)
    return law.states[torch.multinomial(prob, number, replacement=True, generator=generator)].float()


def state_counts(z):
    """How often each state occurs, numbered as in `all_states`."""
    return torch.bincount((z.long() << torch.arange(z.shape[1])).sum(1), minlength=2 ** z.shape[1])
