"""Plain torch as it is mostly written: addmm, sigmoid, torch.bernoulli."""

import torch

NAME, PACKAGE = "torch, bernoulli", "torch"


@torch.no_grad()
def prepare(weight, bias, num_chains, num_threads):
    weight, bias = torch.from_numpy(weight), torch.from_numpy(bias)
    num_left, num_right = weight.shape
    bias_left, bias_right = bias.split([num_left, num_right])
    state = {"right": torch.bernoulli(torch.full((num_chains, num_right), 0.5))}

    def step(num_sweeps):
        right = state["right"]
        for _ in range(num_sweeps):
            left = torch.bernoulli(torch.sigmoid(torch.addmm(bias_left, right, weight.T)))
            right = torch.bernoulli(torch.sigmoid(torch.addmm(bias_right, left, weight)))
        state["right"] = right
        return torch.cat([left, right], 1)

    return step
