"""rbms: `BBRBM.sample_state`, which draws the right side once more at the end of each call."""

import torch
from rbms.bernoulli_bernoulli.classes import BBRBM

NAME, PACKAGE = "rbms", "rbms"


@torch.no_grad()
def prepare(weight, bias, num_chains, num_threads):
    bias_left, bias_right = torch.from_numpy(bias).split(list(weight.shape))
    rbm = BBRBM(torch.from_numpy(weight), bias_left, bias_right)
    state = rbm.init_chains(num_chains)

    @torch.no_grad()
    def step(num_sweeps):
        state.update(rbm.sample_state(chains=state, n_steps=num_sweeps))
        return torch.cat([state["visible"], state["hidden"]], 1)

    return step
